"""Which run of a CI made a statement: `17.2.gpu` is the job `gpu` in the second attempt of the run `17`; pure."""

import re
from collections.abc import Mapping

from pipeline.errors import InputError

_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
CHOSEN = "PIPELINE_RUN_ID"


def identify(environment: Mapping[str, str], *, otherwise: str) -> str:
    """This run as the environment tells it: its id, then attempt and job where they are known; `otherwise` outside of a CI.

    Raises `InputError` when `PIPELINE_RUN_ID` is no plain word.
    """
    if chosen := environment.get(CHOSEN):
        if not _TEXT.fullmatch(chosen):
            raise InputError(f"`{CHOSEN}` is no run's id: `{chosen}`", hint="write letters, digits, `_`, `.` and `-`")
        return chosen
    if run := environment.get("GITHUB_RUN_ID"):
        return ".".join(filter(None, (run, environment.get("GITHUB_RUN_ATTEMPT"), environment.get("GITHUB_JOB"))))
    if pipeline := environment.get("CI_PIPELINE_ID"):
        return ".".join(filter(None, (pipeline, environment.get("CI_JOB_ID"))))
    return environment.get("CI_JOB_ID") or otherwise


def belongs(run: str, to: str) -> bool:
    """Whether `run` is `to`, or an attempt or a job of it."""
    return run == to or run.startswith(f"{to}.")
