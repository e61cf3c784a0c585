"""GitLab's jobs keep the same promises: they name only verbs that exist, and no job reaches what it must not."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import matrix
from pipeline.arguments import parser
from tests.unit.test_matrix import large, planned

FOLDER = Path(__file__).parents[2] / "deploy" / "gitlab"
KEYWORDS = {"include", "stages", "workflow", "variables", "default"}
SIGNING = {"sign", "promote", "rollback", "withdraw"}
MERGED = "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"
PARSER = parser()
Jobs = Mapping[str, Mapping[str, Any]]


def read(name: str) -> Jobs:
    return {job: data for job, data in yaml.safe_load((FOLDER / name).read_text()).items() if job not in KEYWORDS}


TEMPLATES = {**read("common.yml"), **read("child.yml"), **read(".gitlab-ci.yml")}


def whole(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job with what it extends; GitLab merges keys and values, and replaces lists."""
    found = whole(TEMPLATES[data["extends"]]) if "extends" in data else {}
    variables = {**found.get("variables", {}), **data.get("variables", {})}
    return {**found, **data, **({"variables": variables} if variables else {})}


def child(*, change: bool) -> Jobs:
    told = matrix.child_pipeline(planned(large(2)), change=change)
    return {name: data for name, data in told.items() if name not in KEYWORDS and isinstance(data, dict)}


JOBS = {
    **{f"project: {name}": whole(data) for name, data in read(".gitlab-ci.yml").items() if not name.startswith(".")},
    **{f"change: {name}": whole(data) for name, data in child(change=True).items()},
    **{f"merged: {name}": whole(data) for name, data in child(change=False).items()},
}
EACH = pytest.mark.parametrize("name", JOBS)


def verbs(data: Mapping[str, Any]) -> Iterator[list[str]]:
    """The words of each call of the pipeline."""
    for line in [*data.get("script", []), *data.get("after_script", [])]:
        for part in line.split("; "):
            words = shlex.split(part)
            if "pipeline" in words and words[words.index("pipeline") - 1] == "-m":
                call = words[words.index("pipeline") + 1 :]
                ends = [at for at, word in enumerate(call) if word in (">", "||")]
                yield call[: min(ends, default=len(call))]


def of_a_change(name: str, data: Mapping[str, Any]) -> bool:
    return name.startswith("change: ") or any("merge_request_event" in str(rule) for rule in data.get("rules", []))


@EACH
def test_a_job_calls_only_verbs_and_options_that_exist(name: str) -> None:
    for words in verbs(JOBS[name]):
        PARSER.parse_args(words)


@EACH
def test_a_job_says_how_long_it_may_take(name: str) -> None:
    assert "timeout" in JOBS[name] or "trigger" in JOBS[name]


@EACH
def test_no_job_of_a_change_reaches_an_environment_a_login_or_a_runner_with_tags(name: str) -> None:
    if of_a_change(name, JOBS[name]):
        assert JOBS[name].keys().isdisjoint({"environment", "tags"})
        assert "LOGIN" not in JOBS[name].get("variables", {})


@EACH
def test_every_other_job_runs_for_what_is_merged_alone(name: str) -> None:
    if not of_a_change(name, JOBS[name]):
        assert all(MERGED in rule["if"] for rule in JOBS[name]["rules"])


@EACH
def test_where_the_keys_are_nothing_runs_but_what_signs(name: str) -> None:
    called = {words[0] for words in verbs(JOBS[name])}
    if JOBS[name].get("environment", {}).get("name") in ("signing", "signing-gpu", "release"):
        assert called <= SIGNING
    else:
        assert not called & SIGNING or all("--dry-run" in words for words in verbs(JOBS[name]))


@EACH
def test_a_job_that_signs_statements_refuses_those_of_another_run(name: str) -> None:
    for words in verbs(JOBS[name]):
        if words[0] == "sign":
            assert "--run $CI_PIPELINE_ID" in " ".join(words)
            assert ("gpu" in words) is (JOBS[name]["environment"]["name"] == "signing-gpu")


def test_only_a_gpu_lane_is_tried_again_once_and_for_exit_code_75_alone() -> None:
    retried = {name: data["retry"] for name, data in JOBS.items() if "retry" in data}
    assert retried.keys() == {name for name in JOBS if name.startswith("merged: gpu ")}
    assert all(retry == {"max": 1, "exit_codes": [75]} for retry in retried.values())


def test_all_that_a_child_pipeline_needs_of_other_jobs_is_in_it() -> None:
    there = child(change=False)
    for data in map(whole, there.values()):
        assert {need["job"] for need in data.get("needs", []) if not need.get("optional")} <= there.keys()


def test_calls_are_seen_as_a_shell_does() -> None:
    script = ['if [ -n "$A" ]; then python -m pipeline test "$A" --lane cpu; fi', "python -m pipeline plan > work/x"]
    assert list(verbs({"script": script})) == [["test", "$A", "--lane", "cpu"], ["plan"]]


@EACH
def test_what_is_merged_is_never_cancelled_half_way_by_what_is_merged_next(name: str) -> None:
    if not of_a_change(name, JOBS[name]) and "script" in JOBS[name] and name != "project: look":
        assert JOBS[name]["interruptible"] is False


@EACH
def test_statements_are_kept_as_long_as_a_job_can_be_repeated(name: str) -> None:
    if "paths" in JOBS[name].get("artifacts", {}):
        assert JOBS[name]["artifacts"]["expire_in"] == "30 days"
