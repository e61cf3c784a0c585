"""A run that lies about itself, or does not end as runs do, never reads like a pass and leaves nothing behind."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pipeline.check import Bench, Limits, lane
from pipeline.engine import Engine, Spec
from pipeline.engine.spec import LOG_LIMIT
from pipeline.oci import Pinned
from pipeline.statements import Outcome
from tests.integration.families import runs, until
from tests.integration.test_check import bench, engine, found, over_at, python, run

__all__ = ["bench", "engine", "over_at", "python"]
MARK = "of-result-files"
"""What the programs that these checks start call themselves."""
NAMED = f"""
import atexit, json, mmap, os, pathlib, signal, sys, time

pathlib.Path("/proc/self/comm").write_text("{MARK}")

def rewritten(change):
    def rewrite():
        path = pathlib.Path(os.environ["PIPELINE_RESULT"])
        result = json.loads(path.read_text())
        change(result)
        path.write_text(json.dumps(result))
    atexit.register(rewrite)

"""
PASSED = "{'outcome': 'passed', 'reason': '', 'rung': '', 'seconds': 0.0, 'measured': {}}"
DEAF = """
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))

def test_it():
    if os.fork() == 0:
        time.sleep(3600)
    time.sleep(3600)
"""
FULL_MEMORY = """
def test_it():
    with open("/dev/shm/x", "w+b") as file:
        file.truncate(2**24)
        mmap.mmap(file.fileno(), 2**24).write(b"x" * 2**24)
"""


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`run` looks for containers; this for volumes, processes and files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = without_container(engine)
    yield
    until(lambda: without_container(engine) <= before, "a volume is left")
    assert not runs(MARK)
    assert list(temporary.iterdir()) == []
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def without_container(engine: Engine) -> set[str]:
    """The volumes that no container uses."""
    return {volume["Name"] for volume in engine.client.volumes(filters={"dangling": True})["Volumes"] or ()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("lambda result: result['tests'].pop('child/test_it.py::test_it')", "the file holds no test"),
        (
            f"lambda result: result['tests'].update({{'child/test_more.py::test_x': {PASSED}}})",
            "`child/test_more.py::test_x`, which is not",
        ),
        (
            f"lambda result: result['tests'].update({{'other/test_it.py::test_it': {PASSED}}})",
            "`other/test_it.py::test_it`, which is not",
        ),
        ("lambda result: result.update(suite='0' * 64)", "its result file is of another run"),
        ("lambda result: result.update(verdict='passed')", "its result file cannot be read"),
        (
            "lambda result: result['tests']['child/test_it.py::test_it'].update(outcome='PASSED')",
            "its result file cannot be read",
        ),
        (f"lambda result: result['tests'].update({{'child/test_bad.py::test_bad': {PASSED}}})", "contradicts its results"),
        ("lambda result: result.update(finished=False)", "without its last word"),
    ],
)
def test_a_result_file_that_lies_is_no_pass(bench: Bench, python: Pinned, change: str, says: str) -> None:
    files = {"child/test_it.py": f"{NAMED}rewritten({change})\ndef test_it(): pass"}
    if "test_bad" in change:
        files["child/test_bad.py"] = "def test_bad(): assert 0"
    tested = run(bench, python, files)
    assert tested.outcome is Outcome.ERROR
    assert says in tested.reason


def test_a_run_that_no_signal_reaches_is_killed_with_all_its_processes(
    bench: Bench, python: Pinned, over_at: Callable[[str], None]
) -> None:
    over_at("::test_it")
    tested = run(bench, python, {"child/test_deaf.py": NAMED + DEAF}, limits=Limits(lane=2000, test=3000))
    assert tested.outcome is Outcome.ERROR
    assert tested.reason == "deaf: test_it: timed out: the lane did not end within 2000 s"


def test_a_flood_of_output_is_kept_to_a_bound_and_costs_no_verdict(bench: Bench, python: Pinned) -> None:
    code = f"{NAMED}def test_it():\n    for _ in range(20):\n        os.write(sys.__stdout__.fileno(), b'x' * 2**20 + b'\\n')"
    tested = run(bench, python, {"child/test_flood.py": code})
    assert tested.outcome is Outcome.PASSED, tested.reason
    assert (bench.settings.work / "logs" / "child-cpu.log").stat().st_size <= LOG_LIMIT


def test_a_run_that_takes_too_much_memory_says_so(bench: Bench, python: Pinned) -> None:
    code = f"{NAMED}def test_it(): bytearray(2**30)"
    tested = run(bench, python, {"child/test_large.py": code}, limits=Limits(memory="256m"))
    assert tested.outcome is Outcome.INFRASTRUCTURE
    assert found(tested, "large::test_it").reason == "was killed: out of memory (exit status 137)"


def test_a_shared_memory_that_is_too_small_is_named(bench: Bench, python: Pinned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "Spec", partial(Spec, shm_size="1m"))
    tested = run(bench, python, {"child/test_shared.py": NAMED + FULL_MEMORY})
    assert tested.outcome is not Outcome.PASSED
    assert "/dev/shm" in tested.reason


def test_a_service_check_that_hangs_timed_out_and_leaves_no_service(bench: Bench, python: Pinned) -> None:
    serve = f"import pathlib, time; pathlib.Path('/proc/self/comm').write_text('{MARK}'); time.sleep(3600)"
    code = f"import time\ndef test_it(start):\n    start('python3', '-c', {serve!r})\n    time.sleep(3600)"
    tested = run(bench, python, {"child/service_slow.py": code}, limits=Limits(test=3))
    assert tested.outcome is Outcome.ERROR
    assert tested.reason == "slow: test_it: timed out: did not end within 3 s"
