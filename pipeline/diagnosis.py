"""What a doctor says: each thing that was looked at, how bad it is, and the remedy."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How bad a finding is: `WARN` does not stop a build, or `setup` repairs it."""

    OK = "ok"
    WARN = "warn"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is what to do when it is not `OK`."""

    name: str
    state: State
    detail: str
    remedy: str = ""
