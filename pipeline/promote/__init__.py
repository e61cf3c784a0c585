"""The stage that releases: it holds the release key, and writes where users pull from."""

from pipeline.promote.apply import Told, apply
from pipeline.promote.back import JudgeBack, Rollback, Withdrawal, prepare_rollback, rollback, withdraw
from pipeline.promote.desk import Desk
from pipeline.promote.prepare import Case, Judge, Prepared, Settled, Subject, prepare, settled
from pipeline.promote.reading import history

__all__ = [
    "Case",
    "Desk",
    "Judge",
    "JudgeBack",
    "Prepared",
    "Rollback",
    "Settled",
    "Subject",
    "Told",
    "Withdrawal",
    "apply",
    "history",
    "prepare",
    "prepare_rollback",
    "rollback",
    "settled",
    "withdraw",
]
