"""What a result file and the end of its run say: nothing missing, foreign or contradictory is ever a pass."""

import json
from typing import Any

import pytest

from pipeline.check.results import Ending, Found, interpret
from pipeline.check.suite import Listed
from pipeline.statements import Outcome

NONCE, SUITE = "n" * 32, "5" * 64
ONE = Listed(image="child", name="all-reduce", kind="test")
TWO = Listed(image="child", name="two", kind="test")
FILE = "child/test_all_reduce.py"


def passed(**changes: Any) -> dict[str, Any]:
    return {"outcome": "passed", "reason": "", "rung": "", "seconds": 0.5, "measured": {}, **changes}


def result(tests: dict[str, Any], **changes: Any) -> bytes:
    whole = {
        "format": 1,
        "nonce": NONCE,
        "suite": SUITE,
        "lane": "cpu",
        "python": "3.11.2",
        "pytest": "9.0.0",
        "running": "",
        "finished": True,
        "tests": tests,
        "files": {},
    }
    return json.dumps({**whole, **changes}).encode()


def judge(content: bytes | None, code: int = 0, *listed: Listed, selected: bool = False, **ending: Any) -> Found:
    end = Ending(code=code, **ending)
    return interpret(listed or (ONE,), content, end, nonce=NONCE, suite=SUITE, selected=selected)


def whole(found: Found) -> tuple[Outcome, str]:
    return found.checks[0].outcome, found.checks[0].reason


def test_a_check_passes_when_a_test_did_and_none_failed() -> None:
    found = judge(result({f"{FILE}::test_a": passed(), f"{FILE}::test_b": passed(seconds=1.0, rung="on gloo")}))
    assert whole(found) == (Outcome.PASSED, "")
    assert (found.checks[0].name, found.checks[0].seconds, found.checks[0].rung) == ("all-reduce", 1.5, "on gloo")
    assert [check.name for check in found.checks[1:]] == ["all-reduce::test_a", "all-reduce::test_b"]
    assert found.versions == {"python": "3.11.2", "pytest": "9.0.0"}
    assert found.trouble is None


def test_a_test_that_did_not_run_beside_one_that_passed_is_told() -> None:
    tests = {f"{FILE}::test_a": passed(), f"{FILE}::test_b": passed(outcome="not-run", reason="needs 2 GPUs, this lane has 1")}
    assert whole(judge(result(tests))) == (Outcome.PASSED, "1 of 2 tests not run: needs 2 GPUs, this lane has 1")


def test_a_check_of_which_no_test_ran_did_not_run() -> None:
    tests = {f"{FILE}::test_a": passed(outcome="not-run", reason="needs a GPU")}
    assert whole(judge(result(tests))) == (Outcome.NOT_RUN, "test_a: needs a GPU")


def test_a_failure_outweighs_what_passed() -> None:
    tests = {f"{FILE}::test_a": passed(), f"{FILE}::test_b": passed(outcome="failed", reason="3 is not 4")}
    assert whole(judge(result(tests), 1)) == (Outcome.FAILED, "test_b: 3 is not 4")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "it left no result file"),
        (b"", "its result file cannot be read"),
        (result({f"{FILE}::test_a": passed()})[:-9], "its result file cannot be read"),
        (b"[]", "its result file cannot be read"),
        (result({f"{FILE}::test_a": passed()}, nonce="0" * 32), "its result file is of another run"),
        (result({f"{FILE}::test_a": passed()}, suite="6" * 64), "its result file is of another run"),
        (result({f"{FILE}::test_a": passed()}, verdict="fine"), "its result file cannot be read"),
        (result({f"{FILE}::test_a": passed(outcome="excellent")}), "its result file cannot be read"),
        (result({"child/test_more.py::test_a": passed()}), "its result file speaks of `child/test_more.py::test_a`"),
    ],
    ids=["missing", "empty", "truncated", "list", "foreign", "other-suite", "unknown-field", "unknown-outcome", "more"],
)
def test_a_result_file_that_is_not_ours_and_whole_is_an_error(content: bytes | None, reason: str) -> None:
    outcome, said = whole(judge(content))
    assert outcome is Outcome.ERROR
    assert reason in said


def test_a_check_that_the_file_lacks_is_an_error() -> None:
    found = judge(result({f"{FILE}::test_a": passed()}), 0, ONE, TWO)
    assert (found.checks[-1].name, found.checks[-1].outcome) == ("two", Outcome.ERROR)
    assert found.checks[-1].reason == "the file holds no test"


def test_a_test_that_the_file_holds_and_that_never_ran_undoes_the_pass() -> None:
    tests = {f"{FILE}::test_a": passed(), f"{FILE}::test_b": passed(outcome=None)}
    outcome, reason = whole(judge(result(tests)))
    assert outcome is Outcome.ERROR
    assert reason == "test_b: never ran: something left it out, or ended the run before it"


def test_with_a_selection_a_check_without_a_test_was_not_selected() -> None:
    found = judge(result({f"{FILE}::test_a": passed()}), 0, ONE, TWO, selected=True)
    assert (found.checks[-1].outcome, found.checks[-1].reason) == (Outcome.NOT_RUN, "not selected")


@pytest.mark.parametrize(
    ("ending", "outcome", "reason"),
    [
        ({"code": 137, "deadline": 900.0}, Outcome.ERROR, "timed out: the lane did not end within 900 s"),
        ({"code": 137, "out_of_memory": True}, Outcome.INFRASTRUCTURE, "was killed: out of memory (exit status 137)"),
        ({"code": 137}, Outcome.ERROR, "was killed from outside (exit status 137)"),
        ({"code": 139}, Outcome.FAILED, "crashed: segmentation fault (exit status 139)"),
        ({"code": 135}, Outcome.FAILED, "crashed: bus error, often a full /dev/shm (exit status 135)"),
        ({"code": 124}, Outcome.ERROR, "timed out (exit status 124)"),
        ({"code": 77}, Outcome.ERROR, "ended with exit status 77"),
        ({"code": 0}, Outcome.ERROR, "its run ended in the middle of it"),
    ],
    ids=lambda value: str(value.get("code")) if isinstance(value, dict) else "",
)
def test_the_end_of_a_run_is_told_by_name_at_the_test_that_ran(ending: dict[str, Any], outcome: Outcome, reason: str) -> None:
    tests = {f"{FILE}::test_a": passed(), f"{FILE}::test_b": passed(outcome=None), f"{FILE}::test_c": passed(outcome=None)}
    found = judge(result(tests, running=f"{FILE}::test_b", finished=False), **ending)
    assert [check.outcome for check in found.checks[1:]] == [Outcome.PASSED, outcome, Outcome.ERROR]
    assert found.checks[2].reason == reason
    assert found.checks[3].reason.startswith("not reached: the run ")
    assert "assert" not in found.checks[2].reason


def test_what_a_stuck_test_said_of_itself_stands() -> None:
    tests = {f"{FILE}::test_a": passed(outcome="error", reason="timed out: did not end within 5 s")}
    found = judge(result(tests, running=f"{FILE}::test_a", finished=False), 124)
    assert whole(found) == (Outcome.ERROR, "test_a: timed out: did not end within 5 s")


@pytest.mark.parametrize(
    ("tests", "code", "finished", "says"),
    [
        ({f"{FILE}::test_a": passed()}, 139, True, "after its last test the run crashed: segmentation fault"),
        ({f"{FILE}::test_a": passed()}, 1, True, "pytest's exit status 1 contradicts its results"),
        ({f"{FILE}::test_a": passed(outcome="failed")}, 0, True, "pytest's exit status 0 contradicts its results"),
        ({f"{FILE}::test_a": passed()}, 0, False, "the run ended without its last word"),
    ],
    ids=["crash-at-exit", "bad-status", "good-status", "no-last-word"],
)
def test_a_run_whose_end_contradicts_its_results_is_in_trouble(
    tests: dict[str, Any], code: int, finished: bool, says: str
) -> None:
    found = judge(result(tests, finished=finished), code)
    assert found.trouble is not None
    assert found.trouble[0] in (Outcome.ERROR, Outcome.FAILED)
    assert says in found.trouble[1]


def test_a_file_that_cannot_be_imported_is_an_error_with_its_reason() -> None:
    broken = {FILE: {"outcome": "error", "reason": "ModuleNotFoundError: No module named 'x'"}}
    assert whole(judge(result({}, files=broken), 1)) == (Outcome.ERROR, "ModuleNotFoundError: No module named 'x'")


def test_of_two_runs_the_worse_trouble_counts() -> None:
    one, other = Found(trouble=(Outcome.FAILED, "a")), Found(trouble=(Outcome.ERROR, "b"))
    assert (one + other).trouble == (Outcome.ERROR, "b")
    assert (Found() + one).trouble == (Outcome.FAILED, "a")
