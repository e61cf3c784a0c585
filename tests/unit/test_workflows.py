"""The workflows are wiring: they name only what there is, and no job can reach what it must not."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import nox
import pytest
import yaml

import noxfile as noxfile  # registers its sessions
from pipeline import context
from pipeline.arguments import parser
from pipeline.settings import Settings
from pipeline.verbs import VERBS

PROJECT = Path(__file__).parents[2]
FILES = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
HOSTED = "ubuntu-24.04"
FOREIGN = {"build", "test", "scan", "run", "setup", "lint", "update"}
"""Verbs that run a Dockerfile, an image, a scanner, or what they download."""
KEY = re.compile(r"PIPELINE_KEY_|COSIGN_PASSWORD|SIGNING_KEY")
SECRET = re.compile(r"\bsecrets\b|github\.token|GITHUB_TOKEN|GH_TOKEN")
OF_CHANGES = "github.event_name != 'push'"
OF_PUSHES = "github.event_name == 'push'"
MATRIX = "${{ matrix.labels }}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of one file."""

    file: str
    name: str
    data: Mapping[str, Any]
    on: frozenset[str]

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        return list(self.data["steps"])

    @property
    def text(self) -> str:
        """All of it, as YAML."""
        return yaml.safe_dump(self.data)

    @property
    def scripts(self) -> list[str]:
        return [step["run"] for step in self.steps if "run" in step]

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call of the pipeline."""
        return [words for script in self.scripts for words in calls(script)]

    @property
    def of_changes(self) -> bool:
        """Whether what is not merged yet may start it: a pull request, or one in a queue."""
        return bool(self.on & {"pull_request", "merge_group"}) and OF_PUSHES not in str(self.data.get("if", ""))


def calls(script: str) -> Iterator[list[str]]:
    """The words after `pipeline`; what a variable holds is a word of its own, redirections are left out."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(re.sub(r"\s[12&]?>>?\s*\S+", "", line), comments=True)
        words = words[1:] if words[:1] == ["exec"] else words
        if words[:1] == ["pipeline"]:
            yield words[1:]


def jobs() -> Iterator[Job]:
    for path in FILES:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        on = data[True]
        events = frozenset([on] if isinstance(on, str) else on)
        for name, job in data["jobs"].items():
            yield Job(file=path.name, name=name, data=job, on=events)


JOBS = list(jobs())
PARSER = parser()


def each(rule: Callable[[Job], None]) -> Callable[..., None]:
    """A rule as one test of all jobs; called with a job, it judges that one."""

    def every(job: Job | None = None) -> None:
        for one in JOBS if job is None else (job,):
            try:
                rule(one)
            except AssertionError as error:
                error.add_note(f"in the job {one}")
                raise

    every.__name__ = rule.__name__
    return every


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_has_no_right_but_those_of_its_jobs_and_runs_once_at_a_time(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert data["permissions"] == {}
    assert {"group", "cancel-in-progress"} == data["concurrency"].keys()
    assert "pull_request_target" not in data[True]
    assert "workflow_run" not in data[True]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_a_pull_request_is_cancelled_by_its_next_commit(path: Path) -> None:
    concurrency = yaml.safe_load(path.read_text(encoding="utf-8"))["concurrency"]
    assert concurrency["cancel-in-progress"] in (False, "${{ github.event_name == 'pull_request' }}")
    assert ("github.run_id" in concurrency["group"]) is (path.name == "promote.yml"), "who waits can be cancelled by a third"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_a_pull_request_must_pass_a_queue_of_them_must_pass_too(path: Path) -> None:
    on = yaml.safe_load(path.read_text(encoding="utf-8"))[True]
    assert ("pull_request" in on) is ("merge_group" in on)


@each
def test_a_check_that_a_change_must_pass_cannot_be_skipped(job: Job) -> None:
    if job.of_changes:
        assert "needs" not in job.data
        assert job.data.get("if", OF_CHANGES) == OF_CHANGES


@each
def test_a_job_that_runs_after_a_failure_names_what_it_still_needs(job: Job) -> None:
    condition = str(job.data.get("if", ""))
    assert "always()" not in condition
    if "!cancelled()" in condition:
        assert re.search(r"needs\.[a-z-]+\.(outputs\.[a-z-]+ != ''|result == 'success')", condition)


@each
def test_what_stops_the_pipeline_is_called_only_where_there_is_one(job: Job) -> None:
    for step in job.steps:
        if "always()" in str(step.get("if", "")) and list(calls(step.get("run", ""))):
            assert step["if"] == "${{ always() && steps.pipeline.outcome == 'success' }}"
            (got,) = (other for other in job.steps if other.get("id") == "pipeline")
            assert got["run"] == ".github/pipeline"


@each
def test_what_a_job_leaves_has_a_name_of_its_own_and_is_kept_as_long_as_a_run_can_be_repeated(job: Job) -> None:
    left = [step["with"] for step in job.steps if step.get("uses", "").startswith("actions/upload-artifact@")]
    others = [
        step["with"]["name"]
        for other in JOBS
        if (other.file, other.name) != (job.file, job.name) and other.file == job.file
        for step in other.steps
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    names = [one["name"] for one in left]
    assert len({*names, *others}) == len(names) + len(set(others))
    for one in left:
        assert one["retention-days"] >= 30
        assert ("matrix.id" in one["name"]) is ("strategy" in job.data)


@each
def test_what_builds_and_scans_found_is_kept_when_their_time_is_over(job: Job) -> None:
    """A step's deadline ends before the job's, which would end the steps after it too."""
    kept = [step for step in job.steps if step.get("id") == "statements"]
    found = [step for step in job.steps if {words[0] for words in calls(step.get("run", ""))} & {"build", "test", "scan"}]
    if kept:
        assert kept[0]["if"] == "always()"
        assert sum(step["timeout-minutes"] for step in found) <= job.data["timeout-minutes"] - 30


@each
def test_what_a_run_left_unsigned_is_proved_by_the_next_and_stops_none(job: Job) -> None:
    for words in job.calls:
        if words[0] == "build" and "PIPELINE_CANDIDATES" in job.text:
            assert "--prove" in words


@each
def test_a_token_that_writes_is_not_seen_by_the_step_that_decides(job: Job) -> None:
    for step in job.steps:
        if list(calls(step.get("run", ""))):
            assert "GH_TOKEN" not in {**job.data.get("env", {}), **step.get("env", {})}


@each
def test_no_failure_is_lost_in_a_pipe(job: Job) -> None:
    for step in job.steps:
        if re.search(r"(?<!\|)\|(?!\|)", re.sub(r"'[^']*'", "", step.get("run", ""))):
            assert step["run"].startswith("set -o pipefail\n")


def test_no_file_that_is_installed_runs_code_of_its_own_while_it_is_built() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for folder in (".github", "deploy")
        for path in (PROJECT / folder).rglob("*")
        if path.is_file()
    ]
    lines = [line for text in texts for line in text.splitlines() if "--require-hashes" in line]
    assert len(lines) == 4
    assert all("--only-binary :all:" in line for line in lines)


def test_what_is_on_record_are_the_environments_of_releases_and_of_nights_that_found_some() -> None:
    recorded = re.search(r"for environment in (.*); do", (PROJECT / ".github" / "record").read_text(encoding="utf-8"))
    assert recorded
    release, tell = (next(job for job in JOBS if str(job) == name) for name in ("promote.yml:release", "rescan.yml:tell"))
    assert recorded[1].split() == [release.data["environment"], tell.data["environment"]]
    for job in JOBS:
        if ".github/record > record" in job.scripts:
            assert job.data["permissions"]["deployments"] == "read"
            assert any(words[0] == "released" and words[-2:] == ["--record", "record"] for words in job.calls)


def test_actions_are_brought_up_to_date_after_others_have_tried_them() -> None:
    (asked,) = yaml.safe_load((PROJECT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert (asked["package-ecosystem"], asked["directory"]) == ("github-actions", "/")
    assert asked["cooldown"]["default-days"] >= 7


@each
def test_a_job_says_its_rights_and_how_long_it_may_take(job: Job) -> None:
    assert job.data["permissions"], "a job that reads the code says so"
    assert set(job.data["permissions"].values()) <= {"read", "write"}
    assert job.data["timeout-minutes"] == "${{ matrix.minutes }}" or 1 <= job.data["timeout-minutes"] <= 360


@each
def test_only_jobs_that_run_nobody_elses_code_may_write_to_the_repository(job: Job) -> None:
    if "write" in job.data["permissions"].values():
        assert not {words[0] for words in job.calls} & FOREIGN
        assert not job.of_changes


@each
def test_every_action_is_named_by_its_commit_and_says_its_version(job: Job) -> None:
    for step in job.steps:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", "actions/x@" + "0" * 40))
    lines = (PROJECT / ".github" / "workflows" / job.file).read_text(encoding="utf-8").splitlines()
    assert all(re.search(r"@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$", line) for line in lines if "uses:" in line)


def test_one_action_is_the_same_commit_everywhere() -> None:
    used = {step["uses"] for job in JOBS for step in job.steps if "uses" in step}
    assert len(used) == len({action.partition("@")[0] for action in used})


@each
def test_the_code_is_checked_out_without_leaving_its_token_behind(job: Job) -> None:
    for step in job.steps:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@each
def test_nothing_is_pasted_into_a_script(job: Job) -> None:
    for script in job.scripts:
        assert "${{" not in script


@each
def test_a_script_calls_only_verbs_and_options_that_exist(job: Job) -> None:
    for words in job.calls:
        assert words[0] in VERBS
        PARSER.parse_args(words)


@each
def test_every_call_of_the_pipeline_is_seen_by_these_tests(job: Job) -> None:
    for script in job.scripts:
        assert len(re.findall(r"(?<![./\w-])pipeline (?=[a-z])", script)) == len(list(calls(script)))


@each
def test_a_long_verb_takes_the_place_of_its_shell_so_that_cancelling_reaches_it(job: Job) -> None:
    for script in job.scripts:
        for line in script.splitlines():
            if re.search(r"\bpipeline (build|test|scan|sign|promote|rollback|withdraw|update) ", line):
                assert line.strip().startswith("exec pipeline ")
                assert line.strip() == script.strip().splitlines()[-1].strip()


@each
def test_no_job_that_runs_a_dockerfile_an_image_or_a_scanner_can_reach_a_key(job: Job) -> None:
    verbs = {words[0] for words in job.calls}
    if KEY.search(job.text):
        assert verbs <= {"sign", "promote", "rollback", "withdraw"}
        assert not [script for script in job.scripts if not list(calls(script)) and script != ".github/pipeline"]
        assert job.data["environment"] in ("signing", "signing-gpu", "release")
    if job.data.get("environment") in ("signing", "signing-gpu", "release"):
        assert not verbs & FOREIGN


@each
def test_a_key_is_seen_by_the_step_that_signs_alone(job: Job) -> None:
    for step in job.steps:
        if "SIGNING_KEY" in yaml.safe_dump(step) or "COSIGN_PASSWORD" in yaml.safe_dump(step):
            assert next(words[0] for words in calls(step["run"])) in ("sign", "promote", "rollback", "withdraw")


@each
def test_each_role_is_signed_for_in_an_environment_of_its_own(job: Job) -> None:
    roles = {role for role in ("CI", "GPU", "RELEASE") if f"secrets.PIPELINE_KEY_{role} " in job.text}
    wanted = {"signing": {"CI"}, "signing-gpu": {"GPU"}, "release": {"RELEASE"}}.get(str(job.data.get("environment")), set())
    assert roles == wanted


@each
def test_a_job_that_signs_statements_refuses_those_of_another_run(job: Job) -> None:
    for words in job.calls:
        if words[0] == "sign":
            assert "--run $GITHUB_RUN_ID" in " ".join(words)
            assert "--role" in words


@each
def test_a_secret_is_reached_in_a_protected_environment_alone(job: Job) -> None:
    if "secrets." in job.text:
        assert job.data.get("environment")


@each
def test_no_job_of_a_change_can_reach_a_secret_an_environment_or_a_runner_of_ours(job: Job) -> None:
    if job.of_changes:
        assert not SECRET.search(job.text)
        assert "environment" not in job.data
        assert job.data["runs-on"] == HOSTED
        assert job.data["permissions"] == {"contents": "read"}
        assert "PIPELINE_CANDIDATES" not in job.text


@each
def test_whoever_looks_vulnerabilities_up_asks_the_mirror_that_the_repository_names(job: Job) -> None:
    for step in job.steps:
        if any(words[0] == "scan" for words in calls(step.get("run", ""))):
            assert step["env"]["PIPELINE_TRIVY_DB"] == "${{ vars.PIPELINE_TRIVY_DB }}"


@each
def test_a_job_is_for_changes_or_for_what_is_merged_and_says_which(job: Job) -> None:
    if job.file == "images.yml":
        condition = str(job.data["if"]).removeprefix("${{ ")
        assert condition == OF_CHANGES or condition.startswith(f"{OF_PUSHES} && ")


@each
def test_only_gpu_lanes_run_on_our_runners_with_labels_from_the_plan(job: Job) -> None:
    if job.data["runs-on"] != HOSTED:
        assert job.data["runs-on"] == MATRIX
        assert {words[0] for words in job.calls} == {"doctor", "test"}
        assert job.calls[0] == ["doctor"]
        assert job.data["environment"] == "candidates"


@each
def test_what_a_job_is_told_by_another_one_that_one_tells(job: Job) -> None:
    of_file = {other.name: other for other in JOBS if other.file == job.file}
    needs = job.data.get("needs", [])
    for other, output in re.findall(r"needs\.([a-z-]+)\.outputs\.([a-z-]+)", job.text):
        assert other in needs
        assert output in of_file[other].data["outputs"]
    for other in re.findall(r"needs\.([a-z-]+)\.result", job.text):
        assert other in needs


@each
def test_a_step_reads_outputs_only_of_steps_that_are_there(job: Job) -> None:
    steps = {step["id"] for step in job.steps if "id" in step}
    assert set(re.findall(r"steps\.([a-z-]+)\.outputs", job.text)) <= steps


def test_the_labels_that_actionlint_knows_are_those_of_the_catalog(tmp_path: Path) -> None:
    catalog = context.load(Settings(root=PROJECT, cache=tmp_path))
    known = yaml.safe_load((PROJECT / ".github" / "actionlint.yaml").read_text(encoding="utf-8"))["self-hosted-runner"]["labels"]
    github = {"self-hosted", "linux", "x64"}
    assert set(known) == {label for labels in catalog.runners.values() for label in labels} - github


def test_what_is_released_is_decided_by_a_policy_that_the_environment_pins() -> None:
    (release,) = (job for job in JOBS if str(job) == "promote.yml:release")
    assert release.data["environment"] == "release"
    assert release.data["env"]["PIPELINE_POLICY_DIGEST"] == "${{ vars.PIPELINE_POLICY_DIGEST }}"
    assert all("--policy" in words and words[words.index("--policy") + 1] == "policies/release.yaml" for words in release.calls)


@each
def test_only_sessions_that_exist_are_named(job: Job) -> None:
    for script in job.scripts:
        for sessions in re.findall(r"nox\"? -s ([a-z ]+)", script):
            assert set(sessions.split()) <= set(nox.registry.get())


GPU = next(job for job in JOBS if str(job) == "images.yml:gpu")
SCAN = next(job for job in JOBS if str(job) == "images.yml:scan")
SIGN = next(job for job in JOBS if str(job) == "images.yml:sign-build")
CHANGE = next(job for job in JOBS if str(job) == "images.yml:change")
KEYED = {"env": {"SIGNING_KEY": "${{ secrets.PIPELINE_KEY_CI }}"}, "run": "exec pipeline scan"}


@pytest.mark.parametrize(
    ("rule", "job", "change"),
    [
        (test_no_job_that_runs_a_dockerfile_an_image_or_a_scanner_can_reach_a_key, SCAN, {"steps": [KEYED]}),
        (test_no_job_that_runs_a_dockerfile_an_image_or_a_scanner_can_reach_a_key, SCAN, {"environment": "signing"}),
        (
            test_no_job_that_runs_a_dockerfile_an_image_or_a_scanner_can_reach_a_key,
            SIGN,
            {"steps": [*SIGN.steps, {"run": "docker run x"}]},
        ),
        (test_a_key_is_seen_by_the_step_that_signs_alone, SCAN, {"steps": [KEYED]}),
        (test_each_role_is_signed_for_in_an_environment_of_its_own, SIGN, {"environment": "signing-gpu"}),
        (
            test_a_job_that_signs_statements_refuses_those_of_another_run,
            SIGN,
            {"steps": [{"run": "exec pipeline sign --role ci"}]},
        ),
        (test_a_secret_is_reached_in_a_protected_environment_alone, SCAN, {"environment": ""}),
        (
            test_no_job_of_a_change_can_reach_a_secret_an_environment_or_a_runner_of_ours,
            CHANGE,
            {"runs-on": ["self-hosted"]},
        ),
        (test_no_job_of_a_change_can_reach_a_secret_an_environment_or_a_runner_of_ours, CHANGE, {"steps": [KEYED]}),
        (test_no_job_of_a_change_can_reach_a_secret_an_environment_or_a_runner_of_ours, CHANGE, {"environment": "signing"}),
        (test_no_job_of_a_change_can_reach_a_secret_an_environment_or_a_runner_of_ours, GPU, {"if": "true"}),
        (test_a_job_is_for_changes_or_for_what_is_merged_and_says_which, GPU, {"if": "needs.plan.outputs.gpu != ''"}),
        (test_nothing_is_pasted_into_a_script, CHANGE, {"steps": [{"run": "echo ${{ github.head_ref }}"}]}),
        (test_a_script_calls_only_verbs_and_options_that_exist, CHANGE, {"steps": [{"run": "exec pipeline build --rebuilt"}]}),
        (test_every_action_is_named_by_its_commit_and_says_its_version, CHANGE, {"steps": [{"uses": "actions/checkout@v7"}]}),
        (test_only_gpu_lanes_run_on_our_runners_with_labels_from_the_plan, GPU, {"runs-on": ["self-hosted", "gpu"]}),
        (test_only_jobs_that_run_nobody_elses_code_may_write_to_the_repository, SCAN, {"permissions": {"contents": "write"}}),
        (
            test_whoever_looks_vulnerabilities_up_asks_the_mirror_that_the_repository_names,
            SCAN,
            {"steps": [{"env": {"PIPELINE_TRIVY_DB": ""}, "run": "exec pipeline scan"}]},
        ),
        (test_only_sessions_that_exist_are_named, CHANGE, {"steps": [{"run": "nox -s units"}]}),
        (
            test_what_stops_the_pipeline_is_called_only_where_there_is_one,
            CHANGE,
            {"steps": [{"if": "always()", "run": "pipeline setup --stop"}]},
        ),
        (test_a_check_that_a_change_must_pass_cannot_be_skipped, CHANGE, {"needs": ["plan"]}),
        (test_a_check_that_a_change_must_pass_cannot_be_skipped, CHANGE, {"if": f"{OF_CHANGES} && vars.ASKED != ''"}),
        (test_a_job_that_runs_after_a_failure_names_what_it_still_needs, SIGN, {"if": "${{ !cancelled() }}"}),
        (test_no_failure_is_lost_in_a_pipe, CHANGE, {"steps": [{"run": "number=$(gh issue list | jq length)"}]}),
        (test_a_token_that_writes_is_not_seen_by_the_step_that_decides, CHANGE, {"env": {"GH_TOKEN": "x"}}),
        (
            test_what_a_job_leaves_has_a_name_of_its_own_and_is_kept_as_long_as_a_run_can_be_repeated,
            GPU,
            {"steps": [{"uses": "actions/upload-artifact@", "with": {"name": "statements-build", "retention-days": 30}}]},
        ),
        (
            test_what_a_job_leaves_has_a_name_of_its_own_and_is_kept_as_long_as_a_run_can_be_repeated,
            SCAN,
            {"steps": [{"uses": "actions/upload-artifact@", "with": {"name": "statements-scan", "retention-days": 7}}]},
        ),
    ],
)
def test_each_rule_finds_its_fault(rule: Callable[[Job], None], job: Job, change: Mapping[str, Any]) -> None:
    rule(job)
    with pytest.raises((AssertionError, SystemExit, StopIteration)):
        rule(replace(job, data={**job.data, **change}))


def test_the_rules_of_this_file_see_calls_as_a_shell_does() -> None:
    script = 'mkdir work\nexec pipeline test "$IMAGES" \\\n  --lane gpu > work/x.json\npipeline doctor # tells'
    assert list(calls(script)) == [["test", "$IMAGES", "--lane", "gpu"], ["doctor"]]


def test_the_example_of_a_runner_in_a_cluster_is_a_pod_and_its_scale_set_is_a_label() -> None:
    values = yaml.safe_load((PROJECT / "deploy" / "arc" / "values.yaml").read_text(encoding="utf-8"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runner"}, "spec": values["template"]["spec"]}
    kubernetes_validate.validate(pod, "1.33", strict=True)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", values["runnerScaleSetName"])
