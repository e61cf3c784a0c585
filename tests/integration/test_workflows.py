"""The workflows as their own linters see them, and whole runs of them on this machine: a pull request, a push, a README."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from pipeline import names
from pipeline.command import Runner
from pipeline.oci import Digest
from pipeline.toolchain import Host, find
from tests.integration.actions import KEYS, WORKFLOWS, Ran, Repository, with_app
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT, Family, free_port
from tests.integration.images import layer, python_layer
from tests.integration.signing import found_cosign
from tests.integration.test_cli_trust import DEBIAN

PROGRAMS = Path(sys.executable).parent
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
GITLAB = sorted((PROJECT / "deploy" / "gitlab").glob("*.yml"))


def linted(*words: str | Path) -> str:
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    return done.stdout if done.returncode == 0 else f"exit {done.returncode}"


@pytest.fixture(scope="module")
def actionlint() -> Path:
    """Built by Go, once for this user."""
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    folder = cache / "tools" / "actionlint" / ACTIONLINT.rpartition("@")[2]
    if not (folder / "actionlint").is_file():
        go = find("go", host=Host.here(os.environ), cache=cache, run=Runner(os.environ)).tool
        assert go is not None
        subprocess.run([go.path, "install", ACTIONLINT], check=True, env={**os.environ, "GOBIN": str(folder)})
    return folder / "actionlint"


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    assert linted(actionlint) == ""


def test_zizmor_finds_nothing_even_as_an_auditor_and_nothing_is_suppressed_by_a_comment() -> None:
    told = linted(
        PROGRAMS / "zizmor",
        "--offline",
        "--quiet",
        "--persona",
        "auditor",
        "--min-severity",
        "low",
        "--format",
        "json",
        ".github",
    )
    assert json.loads(told) == []
    assert not [path for path in WORKFLOWS.rglob("*") if path.is_file() and "zizmor:" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("schema", "files"),
    [("vendor.github-workflows", sorted((WORKFLOWS / "workflows").glob("*.yml"))), ("vendor.gitlab-ci", GITLAB)],
)
def test_every_file_keeps_to_the_schema_of_its_platform(schema: str, files: list[Path]) -> None:
    assert "ok" in linted(PROGRAMS / "check-jsonschema", "--builtin-schema", schema, *files)


def test_the_child_pipeline_for_gitlab_keeps_to_the_schema(tmp_path: Path, repository: Repository) -> None:
    told = repository.family.call("plan", "--matrix", "--child-pipeline")
    (tmp_path / "child.json").write_text(told.stdout)
    assert "ok" in linted(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", tmp_path / "child.json")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Repository]:
    family = with_app(Family(tmp_path_factory.mktemp("actions"), stack), python_layer(), layer(DEBIAN))
    family.environment |= {names.ENV_DATABASE: f"localhost:{free_port()}/no/trivy-db:2"}
    made = Repository(family, found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))
    yield made
    assert family.left() == []


def candidates(repository: Repository) -> int:
    """Tags that are no list of referrers."""
    return sum(not tag.startswith("sha256-") for tag in repository.family.tags())


@pytest.fixture(scope="module")
def pushed(repository: Repository) -> Ran:
    ran = repository.run("push", "17")
    shutil.copytree(repository.root / "kept" / "statements-build", repository.statements)
    return ran


def test_a_push_is_built_checked_scanned_and_signed_and_without_a_gpu_refused(pushed: Ran, repository: Repository) -> None:
    done = ("plan", "build", "scan", "gpu", "retry", "sign-build", "sign-scan", "sign-gpu", "sign-again")
    assert pushed.results == {**dict.fromkeys(done, "success"), "gpu-again": "failure", "verify": "failure"}
    assert candidates(repository) == 2
    assert "not-run" in pushed.said("gpu")
    assert "is what the first try suspects" in pushed.said("gpu-again")
    verdict = pushed.said("verify")
    assert "REFUSED" in verdict
    assert "lane `gpu` on A100 or H100 or H200: no result that counts" in verdict
    assert pushed.code != 0


def test_statements_name_run_attempt_and_job_and_only_signing_jobs_see_a_password(pushed: Ran, repository: Repository) -> None:
    signed = repository.family.call("verify", "app", "--policy", "policies/release.yaml", "--json")
    (lane,) = signed.data[0]["lanes"]
    assert lane["run"] == "17.1.build"
    rules = {rule["code"]: rule["held"] for rule in signed.data[0]["rules"]}
    assert rules["signature"]
    assert rules["build"]
    assert rules["bom"]


@pytest.mark.parametrize("spoiled", ["run", "digest", "lane"])
def test_a_signing_job_refuses_statements_of_another_run_digest_or_lane(
    pushed: Ran, repository: Repository, tmp_path: Path, spoiled: str
) -> None:
    family, statements = repository.family, tmp_path / "statements"
    shutil.copytree(repository.statements, statements)
    app = Digest(family.call("plan", "--json").of("app")["digest"]).hex
    other = next(folder.name for folder in statements.iterdir() if folder.name != app)
    if spoiled == "digest":
        shutil.copy(statements / other / "built.json", statements / app / "built.json")
    if spoiled == "lane":
        (statements / app / "tested-cpu.json").rename(statements / app / "tested-gpu.json")
    run = "18" if spoiled == "run" else "17"
    refused = family.call("sign", "app", "--role", "ci", "--run", run, "--statements", str(statements), **repository.key("ci"))
    said = {"run": "is of the run `17.1.build`, not of `18`", "digest": "is about", "lane": "is a statement `tested-cpu`"}
    assert refused.code == 2
    assert said[spoiled] in refused.stderr
    assert "nothing was signed" in refused.stderr


def test_a_look_at_a_promotion_shows_the_verdict_and_never_reaches_the_release(pushed: Ran, repository: Repository) -> None:
    ran = repository.run("workflow_dispatch", "21", "promote", action="promote", images="app", number="1", reason="$(id)")
    assert ran.results == {"look": "failure"}
    assert "app: REFUSED" in ran.summary
    assert "uid=" not in ran.summary + ran.said("look")


def test_a_readme_alone_builds_nothing(pushed: Ran, repository: Repository) -> None:
    (repository.root / "README.md").write_text("Another sentence.\n")
    repository.commit("Say more")
    ran = repository.run("pull_request", "18")
    assert ran.results == {"change": "success"}
    assert "No image changes: nothing is built." in ran.summary
    assert candidates(repository) == 2


def test_a_pull_request_builds_and_checks_what_it_changes_and_signs_nothing(pushed: Ran, repository: Repository) -> None:
    repository.change("app")
    repository.commit("Change the app")
    ran = repository.run("pull_request", "19")
    assert ran.results == {"change": "success"}
    assert "| app | build | file:data |" in ran.summary
    assert "### app: built" in ran.summary
    assert "passed, 1 check" in ran.summary
    assert "python" not in ran.summary.partition("###")[0]
    assert repository.family.call("verify", "app", "--policy", "policies/release.yaml").code == 7


def test_a_queue_of_pull_requests_passes_the_same_check_and_reaches_no_other_job(pushed: Ran, repository: Repository) -> None:
    repository.change("app")
    repository.commit("Change the app")
    ran = repository.run("merge_group", "22")
    assert ran.results == {"change": "success"}
    assert "| app | build | file:data |" in ran.summary


def test_where_the_pipeline_cannot_be_had_that_alone_is_red(pushed: Ran, repository: Repository) -> None:
    script = repository.root / ".github" / "pipeline"
    text = script.read_text()
    script.write_text("#!/bin/sh\nexit 1\n")
    ran = repository.run("pull_request", "23")
    script.write_text(text)
    assert ran.results == {"change": "failure"}
    assert ran.failed == ["Get the pipeline"]


def test_a_check_that_fails_is_in_the_summary_with_the_line_that_runs_it_again(pushed: Ran, repository: Repository) -> None:
    repository.family.write("app/checks/test_it.py", "def test_it():\n    assert 1 == 2\n")
    repository.commit("Break the check")
    ran = repository.run("pull_request", "20")
    assert ran.results == {"change": "failure"}
    assert "| app | check | checks of the lane cpu, checks of the lane gpu |" in ran.summary
    assert "nox -s test -- app --lane cpu -k it --keep" in ran.summary


def test_a_change_stands_on_a_signed_parent_of_a_registry_that_can_be_read_and_builds_no_other(
    pushed: Ran, repository: Repository
) -> None:
    family, elsewhere = repository.family, f"{repository.family.repository}/elsewhere"
    given = {names.ENV_CANDIDATES: elsewhere, names.ENV_PARENTS: str(family.repository).removesuffix("/family")}
    repository.change("app")
    built = family.call("build", "app", "--json", **given)
    assert (built.code, {one["image"]: one["state"] for one in built.data}) == (0, {"python": "reused", "app": "built"})
    brought = family.call("plan", "--json", **given).of("python")
    assert brought["digest"] == family.call("plan", "--json").of("python")["digest"]


def test_a_parent_that_no_accepted_key_has_signed_is_built(pushed: Ran, repository: Repository) -> None:
    family, release = repository.family, repository.root / "policies" / "release.yaml"
    text = release.read_text()
    given = {
        names.ENV_CANDIDATES: f"{family.repository}/unsigned",
        names.ENV_PARENTS: str(family.repository).removesuffix("/family"),
    }
    release.write_text(text.replace(KEYS, "keys: []\n"))
    built = family.call("build", "app", "--json", **given)
    release.write_text(text)
    assert (built.code, built.of("python")["state"]) == (0, "built")
    assert "no accepted key says to have built it from these inputs" in built.stderr
