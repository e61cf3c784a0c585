"""The stage that releases: it holds the release key, and writes where users pull from."""

from pipeline.promote.apply import Told, apply
from pipeline.promote.desk import Desk
from pipeline.promote.prepare import Case, Judge, Prepared, Settled, Subject, prepare, settled

__all__ = ["Case", "Desk", "Judge", "Prepared", "Settled", "Subject", "Told", "apply", "prepare", "settled"]
