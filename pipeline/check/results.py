"""What a result file and the way its run ended say of each check; pure, and nothing missing is ever a pass.

A check passed when at least one of its tests did and none failed. A run that was killed, timed out or crashed says so
in those words, at the test that was running; what it did not reach is an error, not a pass and not a failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.check.suite import Listed
from pipeline.statements import NOT_SELECTED, WORST_FIRST, Checked, Outcome

NO_TESTS = 5
"""pytest's exit status when nothing was selected."""
TAKEN_OUT = "never ran: something left it out, or ended the run before it"
ENDS = {
    4: "was refused by pytest, as for a `-k` that is no expression (exit status 4)",
    124: "timed out (exit status 124)",
    127: "its program was not found (exit status 127)",
    132: "crashed: illegal instruction (exit status 132)",
    134: "crashed: aborted (exit status 134)",
    135: "crashed: bus error, often a full /dev/shm (exit status 135)",
    136: "crashed: arithmetic fault (exit status 136)",
    137: "was killed from outside (exit status 137)",
    139: "crashed: segmentation fault (exit status 139)",
    143: "was asked to end from outside (exit status 143)",
}
"""Exit statuses by name: 128 and the signal's number."""
CRASHES = {132, 134, 135, 136, 139}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Test(_Part):
    outcome: Literal["passed", "failed", "not-run", "error"] | None
    reason: str
    detail: str = ""
    rung: str
    seconds: float
    measured: Mapping[str, float | int | str | bool]


class _File(_Part):
    outcome: Literal["failed", "not-run", "error"]
    reason: str


class _Result(_Part):
    format: Literal[1]
    nonce: str
    suite: str
    lane: Literal["cpu", "gpu"]
    python: str
    pytest: str
    running: str
    finished: bool
    memory: int = 0
    tests: Mapping[str, _Test]
    files: Mapping[str, _File]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended; `deadline` in seconds when it was killed for it."""

    code: int
    deadline: float | None = None
    out_of_memory: bool = False

    @property
    def says(self) -> str:
        """It in words; empty for the exit statuses of a run that ended by itself (pytest: 0 passed, 1 failed, 2 broken files)."""
        if self.deadline is not None:
            return f"timed out: the lane did not end within {self.deadline:.0f} s"
        if self.out_of_memory:
            return "was killed: out of memory (exit status 137)"
        if self.code in (0, 1, 2, NO_TESTS):
            return ""
        return ENDS.get(self.code, f"ended with exit status {self.code}")

    @property
    def telling(self) -> int | None:
        """The exit status that a table of failures may know."""
        return self.code if self.deadline is None and self.says else None

    @property
    def outcome(self) -> Outcome:
        """What it means for the test that was running: a crash is the image's, the rest is nobody's verdict."""
        if self.out_of_memory:
            return Outcome.INFRASTRUCTURE
        return Outcome.FAILED if self.deadline is None and self.code in CRASHES else Outcome.ERROR


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run found: the checks, each followed by its tests, and the versions that ran them."""

    checks: tuple[Checked, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    trouble: tuple[Outcome, str] | None = None
    """What is wrong with the run as a whole, where no check is to blame."""
    code: int | None = None
    """The exit status, where it says more than that tests failed."""
    memory: int = 0
    """The most bytes that one process had."""

    def __add__(self, other: "Found") -> "Found":
        """Both runs of a lane, inside and outside; the versions are the first one's."""
        troubles = [found.trouble for found in (self, other) if found.trouble]
        return Found(
            checks=self.checks + other.checks,
            versions={**other.versions, **self.versions},
            trouble=min(troubles, key=lambda trouble: WORST_FIRST.index(trouble[0]), default=None),
            code=self.code if self.code is not None else other.code,
            memory=max(self.memory, other.memory),
        )


def interpret(
    listed: Sequence[Listed], content: bytes | None, ending: Ending, *, nonce: str, suite: str, selected: bool = False
) -> Found:
    """The outcome of every listed check from the result file `content`; `selected`: only some tests were meant to run."""
    try:
        result = _read(content, nonce, suite)
        _compare(result, listed)
    except _Unusable as error:
        reason = "; ".join(filter(None, (ending.says, str(error))))
        return Found(checks=tuple(_all_alike(check, ending, reason) for check in listed), code=ending.telling)
    checks = tuple(found for check in listed for found in _judge(check, result, ending, selected=selected))
    versions = {"python": result.python, "pytest": result.pytest}
    trouble = _trouble(result, ending)
    return Found(checks=checks, versions=versions, trouble=trouble, code=ending.telling, memory=result.memory)


class _Unusable(Exception):
    """Why a result file tells nothing."""


def _read(content: bytes | None, nonce: str, suite: str) -> _Result:
    if content is None:
        raise _Unusable("it left no result file")
    try:
        result = _Result.model_validate_json(content)
    except ValidationError as error:
        raise _Unusable(f"its result file cannot be read: {error.errors()[0]['msg']}") from error
    if (result.nonce, result.suite) != (nonce, suite):
        raise _Unusable("its result file is of another run")
    return result


def _compare(result: _Result, listed: Sequence[Listed]) -> None:
    known = {check.file for check in listed}
    foreign = sorted(name for name in (*result.tests, *result.files) if _file(name) not in known)
    if foreign:
        raise _Unusable(f"its result file speaks of `{foreign[0]}`, which is not in the suite")


def _trouble(result: _Result, ending: Ending) -> tuple[Outcome, str] | None:
    """A crash after the last test, or an exit status that contradicts the results."""
    if any(test.outcome is None for test in result.tests.values()) or result.running:
        return None
    if ending.says:
        return ending.outcome, f"after its last test the run {ending.says}"
    if not result.finished:
        return Outcome.ERROR, "the run ended without its last word"
    outcomes = {test.outcome for test in result.tests.values()} | {file.outcome for file in result.files.values()}
    bad = bool(outcomes & {"failed", "error"})
    if bad is (ending.code in (0, NO_TESTS)):
        return Outcome.ERROR, f"pytest's exit status {ending.code} contradicts its results"
    return None


def _judge(check: Listed, result: _Result, ending: Ending, *, selected: bool) -> tuple[Checked, ...]:
    tests = tuple(_test(check, name, test, result, ending) for name, test in result.tests.items() if _file(name) == check.file)
    broken = result.files.get(check.file)
    outcome, reason = _verdict(tests, broken, result, ending, selected=selected)
    whole = Checked(
        name=check.name,
        image=check.image,
        outcome=outcome,
        reason=reason,
        rung="; ".join(dict.fromkeys(test.rung for test in tests if test.rung)),
        seconds=round(sum(test.seconds for test in tests), 3),
    )
    return (whole, *tests)


def _verdict(
    tests: Sequence[Checked], broken: _File | None, result: _Result, ending: Ending, *, selected: bool
) -> tuple[Outcome, str]:
    if broken:
        return Outcome(broken.outcome), broken.reason
    if not tests and result.finished and not ending.says:
        return (Outcome.NOT_RUN, NOT_SELECTED) if selected else (Outcome.ERROR, "the file holds no test")
    if not tests:
        return _unreached(ending)
    worst = min((test.outcome for test in tests), key=WORST_FIRST.index)
    bad = [test for test in tests if test.outcome is worst]
    if worst in (Outcome.PASSED, Outcome.NOT_RUN) and any(test.outcome is Outcome.PASSED for test in tests):
        left = sum(test.outcome is Outcome.NOT_RUN for test in tests)
        return Outcome.PASSED, f"{left} of {len(tests)} tests not run: {bad[0].reason}" if left else ""
    return worst, f"{bad[0].name.partition('::')[2]}: {bad[0].reason}"


def _test(check: Listed, name: str, test: _Test, result: _Result, ending: Ending) -> Checked:
    outcome, reason = (Outcome(test.outcome), test.reason) if test.outcome else (Outcome.ERROR, "")
    if name == result.running and not (test.outcome == "error" and test.reason):
        outcome, reason = ending.outcome, ending.says or "its run ended in the middle of it"
    elif test.outcome is None:
        outcome, reason = (Outcome.ERROR, TAKEN_OUT) if result.finished and not ending.says else _unreached(ending)
    return Checked(
        name=f"{check.name}::{name.partition('::')[2]}",
        image=check.image,
        outcome=outcome,
        reason=reason,
        detail=test.detail,
        rung=test.rung,
        seconds=test.seconds,
        measured=test.measured,
    )


def _unreached(ending: Ending) -> tuple[Outcome, str]:
    return Outcome.ERROR, f"not reached: the run {ending.says or 'ended before it'}"


def _all_alike(check: Listed, ending: Ending, reason: str) -> Checked:
    outcome = Outcome.INFRASTRUCTURE if ending.out_of_memory else Outcome.ERROR
    return Checked(name=check.name, image=check.image, outcome=outcome, reason=reason)


def _file(name: str) -> str:
    return name.partition("::")[0]
