"""The pytest plugin of the checks: what they may use, and the result file that says how they ended.

Copied into images, so it stands alone (Python 3.9 syntax, only pytest). The result file is replaced as a whole after
every step, so that it also tells what ran when a run was killed.

A check may use the fixtures `lane` (`cpu` or `gpu`), `claims` (what the image claims, its parents' included), `gpus` (those
that it was given), `measure` (records a figure and judges it) and `rung` (says which step of its ladder ran), and the marker
`gpus(n, memory=…, capability=…)`.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

FORMAT = 1
REASON_LIMIT = 2000
"""Characters of a reason."""
DETAIL_LIMIT = 8000
"""Characters of all that an error said."""
EXACT = 2**53
"""Larger integers travel as text: not every reader of JSON keeps them."""
STUCK_AFTER = 15.0
"""Seconds after a test's deadline when the whole run is ended, because the test did not react."""
TIMED_OUT = 124

GPUS: list[dict[str, Any]] = json.loads(os.environ.get("PIPELINE_GPUS", "[]"))
state: dict[str, Any] = {
    "format": FORMAT,
    "nonce": os.environ.get("PIPELINE_NONCE", ""),
    "suite": os.environ.get("PIPELINE_SUITE", ""),
    "lane": os.environ.get("PIPELINE_LANE", ""),
    "python": sys.version.split()[0],
    "pytest": pytest.__version__,
    "running": "",
    "finished": False,
    "memory": 0,
    "tests": {},
    "files": {},
}
lock = threading.RLock()


class Overdue(BaseException):
    """A test did not end in time; not an `Exception`, so that no check swallows it."""


@pytest.fixture
def lane() -> str:
    """`cpu` or `gpu`."""
    return str(state["lane"])


@pytest.fixture
def claims() -> dict[str, str]:
    """What the image claims, its parents' claims included: name → version."""
    claimed: dict[str, str] = json.loads(os.environ.get("PIPELINE_CLAIMS", "{}"))
    return claimed


@pytest.fixture
def gpus() -> list[dict[str, Any]]:
    """The GPUs of this lane, none in the lane `cpu`: index, uuid, name, capability, memory and used (bytes), clock (MHz)."""
    return GPUS


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Record a figure or a fact: `measure("busbw", 11.8, floor=2.5)`; below `floor` or above `limit` the check fails."""
    measured = entry(request.node)["measured"]

    def record(name: str, value: Any, *, floor: Any = None, limit: Any = None) -> None:
        __tracebackhide__ = True
        measured[name] = plain(value)
        for word, bound in (("floor", floor), ("limit", limit)):
            if bound is not None:
                measured[f"{name}.{word}"] = plain(bound)
        assert floor is None or value >= floor, f"{name} is {value}, below its floor of {floor}"
        assert limit is None or value <= limit, f"{name} is {value}, above its limit of {limit}"

    return record


@pytest.fixture
def rung(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say which step of its ladder a check ran, where the full one cannot: `rung("two processes on gloo")`."""

    def record(text: str) -> None:
        entry(request.node)["rung"] = str(text)[:REASON_LIMIT]

    return record


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and write the first result file."""
    config.addinivalue_line(
        "markers", 'gpus(n, memory=16, capability="8.0"): needs n GPUs of so many GB and such a capability; else not run'
    )
    write()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep why a file could not be collected."""
    if report.failed:
        note_file(report.nodeid, "error", broken(report.longreprtext))
    elif report.skipped:
        note_file(report.nodeid, "not-run", skip_reason(report))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Expect every test that a file holds: one that anything takes out later did not run, and that is no pass."""
    entry(item)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Expect nothing of the tests that `-k` left out."""
    for item in items:
        if item.config.option.keyword:
            state["tests"].pop(item.nodeid, None)


def pytest_collection_finish() -> None:
    """Write down what will run, before any of it does."""
    write()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what this machine cannot run, with the reason."""
    for marker in item.iter_markers("gpus"):
        if reason := lacking(*marker.args, **marker.kwargs):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run one test under its deadline."""
    with lock:
        state["running"] = item.nodeid
        write()
    seconds = float(os.environ.get("PIPELINE_TEST_SECONDS", "300"))
    stuck = threading.Timer(seconds + STUCK_AFTER, end_the_run, (item, seconds))
    stuck.daemon = True
    stuck.start()
    before = signal.signal(signal.SIGALRM, overdue(seconds))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stuck.cancel()
        with lock:
            state["running"] = ""
            write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn pytest's report of a phase into the outcome of the test."""
    report = yield
    found = entry(item)
    with lock:
        found["seconds"] = round(found["seconds"] + report.duration, 3)
        if call.excinfo is not None and isinstance(call.excinfo.value, Overdue):
            settle(found, "error", f"timed out: {call.excinfo.value}")
        elif report.failed and getattr(report, "wasxfail", None) is None:
            settle(found, "failed" if report.when == "call" else "error", failure(report, call), detail(report, call))
        elif report.skipped and hasattr(report, "wasxfail"):
            settle(found, "not-run", f"is expected to fail: {report.wasxfail or 'no reason given'}")
        elif report.skipped:
            settle(found, "not-run", skip_reason(report))
        elif report.when == "call":
            settle(found, "passed", "")
    return report


def pytest_sessionfinish() -> None:
    """The last word: without it the run did not end by itself."""
    with lock:
        state["finished"] = True
        state["memory"] = peak_memory()
        write()


def settle(found: dict[str, Any], outcome: str, reason: str, more: str = "") -> None:
    """The first failure counts, whatever follows it; a failed teardown undoes a pass."""
    if found["outcome"] in (None, "passed"):
        found["outcome"], found["reason"], found["detail"] = outcome, reason[:REASON_LIMIT], more[:DETAIL_LIMIT]


def entry(item: pytest.Item) -> dict[str, Any]:
    """The record of one test."""
    fresh: dict[str, Any] = {"outcome": None, "reason": "", "detail": "", "rung": "", "seconds": 0.0, "measured": {}}
    found: dict[str, Any] = state["tests"].setdefault(item.nodeid, fresh)
    return found


def note_file(nodeid: str, outcome: str, reason: str) -> None:
    """The record of a file that could not be collected."""
    with lock:
        state["files"][nodeid] = {"outcome": outcome, "reason": reason.strip()[-REASON_LIMIT:]}
        write()


def failure(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """What failed and where, in one line; pytest's own account of it is in the log."""
    if call.excinfo is None:
        return report.longreprtext.strip()
    crash = getattr(report.longrepr, "reprcrash", None)
    where = f"{Path(crash.path).name}:{crash.lineno}: " if crash else ""
    first = call.excinfo.exconly(tryshort=True).strip().splitlines()
    part = "" if report.when == "call" else f"{report.when} failed: "
    return part + where + (first[0] if first else call.excinfo.typename)


def detail(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """All that the error said, and the end of what the test wrote to stderr: by it a failure is known."""
    said = call.excinfo.exconly().strip() if call.excinfo is not None else ""
    return f"{said[: DETAIL_LIMIT // 2]}\n{report.capstderr[-DETAIL_LIMIT // 2 :]}".strip()


def broken(text: str) -> str:
    """The line of a traceback that names the error."""
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return errors[-1] if errors else text


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a file was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text[len("Skipped: ") :] if text.startswith("Skipped: ") else text


def overdue(seconds: float) -> Callable[[int, FrameType | None], None]:
    """A handler of SIGALRM that breaks a test off."""

    def raise_it(signum: int, frame: FrameType | None) -> None:
        raise Overdue(f"did not end within {seconds:g} s")

    return raise_it


def end_the_run(item: pytest.Item, seconds: float) -> None:
    """End everything, with all stacks in the log: the test holds on to its thread."""
    found = entry(item)
    with lock:
        found["outcome"], found["reason"] = "error", f"timed out: did not end within {seconds:g} s, nor react to being broken off"
        write()
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
        os._exit(TIMED_OUT)


def lacking(count: int = 1, *, memory: float = 0, capability: str = "0.0") -> str:
    """Why the GPUs of this lane do not do, `memory` in GB; empty when they do."""
    least = [int(part) for part in capability.split(".")]
    fit = [gpu for gpu in GPUS if gpu["memory"] >= memory * 1e9 and list(gpu["capability"]) >= least]
    if len(fit) >= count:
        return ""
    kind = (f" of {memory:g} GB" if memory else "") + (f" of compute capability {capability}" if any(least) else "")
    return f"needs {count} GPU{'' if count == 1 else 's'}{kind}, this lane has {len(fit)}"


def peak_memory() -> int:
    """The most memory that one process of the run had, in bytes."""
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return used if sys.platform == "darwin" else used * 1024


def plain(value: Any) -> bool | int | float | str:
    """A figure as JSON can hold it exactly."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    number = float(value)
    return number if math.isfinite(number) else str(number)


def write() -> None:
    """Replace the result file."""
    path = Path(os.environ["PIPELINE_RESULT"])
    part = path.with_suffix(".part")
    with lock:
        part.write_text(json.dumps(state), encoding="utf-8")
        part.replace(path)
