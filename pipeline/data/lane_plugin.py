"""The pytest plugin that watches the checks: deadlines, and the result file that says how each ended.

Copied into images, so it stands alone (Python 3.9 syntax, only pytest). The result file is replaced as a whole after
every step, so that it also tells what ran when a run was killed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

FORMAT = 1
REASON_LIMIT = 2000
"""Characters of a reason."""
DETAIL_LIMIT = 8000
"""Characters of all that an error said."""
STUCK_AFTER = 15.0
"""Seconds after a test's deadline, or a tenth of that where it is more, when the whole run is ended: the test did not react, nor
end what it had started."""
TIMED_OUT = 124

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


def pytest_configure() -> None:
    """Write the first result file."""
    write()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep why a file was left out as a whole."""
    if report.skipped:
        note_file(named(report), "not-run", skip_reason(report))


def pytest_exception_interact(
    node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any], report: pytest.CollectReport | pytest.TestReport
) -> None:
    """Keep why a file could not be collected: the image's fault where one of its own modules breaks at its import."""
    if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
        outcome = "failed" if breaks_outside(call.excinfo.value.__cause__ or call.excinfo.value) else "error"
        note_file(named(report), outcome, broken(report.longreprtext))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Expect every test that a file holds: one that anything takes out later did not run, and that is no pass."""
    entry(item)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Expect nothing of the tests that `-k` left out."""
    for item in items:
        if item.config.option.keyword:
            state["tests"].pop(named(item), None)


def pytest_collection_finish() -> None:
    """Write down what will run, before any of it does."""
    write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run one test under its deadline."""
    with lock:
        state["running"] = named(item)
        write()
    seconds = float(os.environ.get("PIPELINE_TEST_SECONDS", "900"))
    stuck = threading.Timer(seconds + max(STUCK_AFTER, seconds / 10), end_the_run, (item, seconds))
    stuck.daemon = True
    stuck.start()
    before = signal.signal(signal.SIGALRM, partial(overdue, seconds))
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
        for name, value in item.user_properties:
            keep(found, name, value)
        if call.excinfo is not None and isinstance(call.excinfo.value, Overdue):
            settle(found, "error", f"timed out: {call.excinfo.value}")
        elif report.failed and getattr(report, "wasxfail", None) is None:
            blamed = report.when == "call" and not of_the_machine(call)
            settle(found, "failed" if blamed else "error", failure(report, call), detail(report, call))
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


def keep(found: dict[str, Any], name: str, value: object) -> None:
    """What the fixtures `measure` and `rung` left with the test."""
    if name == "rung":
        found["rung"] = str(value)[:REASON_LIMIT]
    elif name == "measured" and isinstance(value, tuple):
        found["measured"][value[0]] = value[1]


def entry(item: pytest.Item) -> dict[str, Any]:
    """The record of one test."""
    fresh: dict[str, Any] = {"outcome": None, "reason": "", "detail": "", "rung": "", "seconds": 0.0, "measured": {}}
    found: dict[str, Any] = state["tests"].setdefault(named(item), fresh)
    return found


def named(thing: pytest.Item | pytest.CollectReport) -> str:
    """A test or file within the suite, which pytest sees as a package, so that no image's name hides a module of Python."""
    return thing.nodeid.removeprefix("suite/")


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


def of_the_machine(call: pytest.CallInfo[None]) -> bool:
    """Whether a check ended with an error that its engine's machine is known by, such as an engine that went away."""
    return call.excinfo is not None and getattr(call.excinfo.type, "exit_code", None) == os.EX_TEMPFAIL


def breaks_outside(error: BaseException) -> bool:
    """Whether an import was broken by a file that is not of the suite, nor of Python's own import."""
    if not isinstance(error, (ImportError, OSError)):
        return False
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [name for name in frames if not name.startswith("<")]
    return bool(files) and not any(part in Path(files[-1]).parts for part in ("suite", "importlib", "_pytest"))


def broken(text: str) -> str:
    """The line of a traceback that names the error."""
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return errors[-1] if errors else text


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a file was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text[len("Skipped: ") :] if text.startswith("Skipped: ") else text


def overdue(seconds: float, signum: int, frame: FrameType | None) -> None:
    """A handler of SIGALRM that breaks a test off."""
    raise Overdue(f"did not end within {seconds:g} s")


def end_the_run(item: pytest.Item, seconds: float) -> None:
    """End everything, with all stacks in the log: the test holds on to its thread."""
    found = entry(item)
    with lock:
        found["outcome"], found["reason"] = "error", f"timed out: did not end within {seconds:g} s, nor react to being broken off"
        write()
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
        os._exit(TIMED_OUT)


def peak_memory() -> int:
    """The most memory that one process of the run had, in bytes."""
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return used if sys.platform == "darwin" else used * 1024


def write() -> None:
    """Replace the result file."""
    path = Path(os.environ["PIPELINE_RESULT"])
    part = path.with_suffix(".part")
    with lock:
        part.write_text(json.dumps(state), encoding="utf-8")
        part.replace(path)
