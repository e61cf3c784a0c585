"""The workflows on this project's own images, whole: a change of `nlp` as a pull request and as a push, and one of README."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import names
from pipeline.dsse import BUNDLE_TYPE
from pipeline.engine import connect
from pipeline.oci import Pinned
from pipeline.oci import Repository as Place
from pipeline.registry import Registry
from tests.integration.actions import Ran, Repository
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT, Family, free_port
from tests.integration.images import forget
from tests.integration.signing import found_cosign

PARENTS = ["os", "build-env", "pytorch"]
REQUIREMENTS = "nlp/requirements/2-transformers.in"
CHANGED = "file:requirements/2-transformers.in"


@pytest.fixture(scope="module")
def images(pytestconfig: pytest.Config) -> list[str]:
    """What a change of `nlp` changes."""
    return ["nlp", "lab"] if pytestconfig.getoption("with_lab") else ["nlp"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, stack: Stack, images: list[str]) -> Iterator[Repository]:
    """The project as it stands in this folder, what `nlp` stands on as an earlier push has left it, and a change of `nlp`."""
    family = Family(tmp_path_factory.mktemp("workflows"), stack)
    copied(family.root, without=() if "lab" in images else ("images/lab/",))
    family.environment |= {
        names.ENV_DATABASE: f"localhost:{free_port()}/no/trivy-db:2",
        names.ENV_RELEASES: f"{str(family.repository).removesuffix('/family')}/released",
        names.ENV_POLICY: "policies/release.yaml",  # as where the registry is no loopback one
    }
    made = Repository(family, found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))
    there = {names.ENV_CANDIDATES: made.variables[names.ENV_CANDIDATES], "GITHUB_RUN_ID": "16"}
    assert family.call("build", *PARENTS, **there).code == 0
    assert family.call("sign", *PARENTS, "--role", "ci", **there, **made.key("ci")).code == 0
    shutil.rmtree(family.root / ".pipeline")
    requirements = family.root / "images" / REQUIREMENTS
    requirements.write_text(requirements.read_text() + "# One more line, which asks for nothing.\n")
    made.commit("Say more of the requirements")
    yield made
    engine = connect(stack.environment, run="workflows")
    for place in (candidates(made), inside(made)):
        for pinned in held(place).values():
            forget(engine, pinned)
    engine.close()
    assert family.left() == []


def copied(root: Path, *, without: tuple[str, ...]) -> None:
    """Copy all files of the project that git knows, as they are now."""
    shutil.rmtree(root / "images")
    listed = subprocess.run(["git", "-C", PROJECT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file() and not name.startswith(without or "\0"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, root / name)


def candidates(repository: Repository) -> Place:
    """Where a push writes."""
    return Place.parse(f"{repository.variables[names.ENV_CANDIDATES]}/pytorch-cuda")


def inside(repository: Repository) -> Place:
    """The registry inside the job of a pull request."""
    return Place.parse(f"{repository.variables[names.ENV_CANDIDATES]}/inside/pytorch-cuda")


def held(place: Place) -> dict[str, Pinned]:
    """The candidates of a place, by image."""
    found = {}
    for tag in Registry().tags(place):
        if tag.startswith("v") and (digest := Registry().resolve(place.tag(tag))):
            found[Registry().config(place.at(digest)).labels[names.LABEL_IMAGE]] = place.at(digest)
    return found


def planned(ran: Ran) -> list[str]:
    """The rows of the plan in a summary."""
    return [line for line in ran.summary.splitlines() if re.match(r"\| [a-z-]+ \| (build|check) \|", line)]


@pytest.fixture(scope="module")
def change(repository: Repository) -> Ran:
    there = {names.ENV_CANDIDATES: str(inside(repository)).removesuffix("/pytorch-cuda")}
    parents = {names.ENV_PARENTS: repository.variables[names.ENV_CANDIDATES]}
    with pytest.MonkeyPatch.context() as patch:
        for name, text in there.items():
            patch.setitem(repository.family.environment, name, text)
        for name, text in parents.items():
            patch.setitem(repository.variables, name, text)
        return repository.run("pull_request", "17")


def test_a_pull_request_builds_and_checks_what_it_changes_and_signs_nothing(
    change: Ran, repository: Repository, images: list[str]
) -> None:
    assert (change.code, change.results) == (0, {"change": "success"})
    rows = {"nlp": f"| nlp | build | {CHANGED} |", "lab": "| lab | build | parent:nlp |"}
    assert planned(change) == [rows[name] for name in images]
    for name in images:
        assert f"### {name}: built" in change.summary
        assert f"| {name} | `v2.6-{name}-" in change.summary
    assert "it was never released, or its release cannot be read" in change.summary
    assert held(inside(repository)).keys() == {*images, "pytorch", "build-env"}
    assert all(Registry().referrers(held(inside(repository))[name], BUNDLE_TYPE) == () for name in images)
    assert held(candidates(repository)).keys() == set(PARENTS)


@pytest.fixture(scope="module")
def pushed(repository: Repository) -> Ran:
    return repository.run("push", "18")


def test_a_push_is_built_checked_scanned_and_signed(pushed: Ran, repository: Repository, images: list[str]) -> None:
    done = ("plan", "build", "scan", "gpu", "retry", "sign-build", "sign-scan", "sign-gpu", "sign-again")
    assert pushed.results == {**dict.fromkeys(done, "success"), "gpu-again": "failure", "verify": "failure"}
    rows = {
        "pytorch": "| pytorch | check | lane cpu has no pass, lane gpu has no pass |",
        "nlp": "| nlp | build | no candidate for these inputs |",
        "lab": "| lab | build | no candidate for these inputs; `nlp` is built anew |",
    }
    assert planned(pushed) == [rows[name] for name in ("pytorch", *images)]
    for name in ("pytorch", *images):
        assert f"| {name} | `v2.6-" in pushed.summary
        assert f"### {name}: REFUSED, for 3 reasons" in pushed.summary
    assert held(candidates(repository)).keys() == {*PARENTS, *images}


def test_a_push_gives_the_digest_of_its_pull_request(change: Ran, pushed: Ran, repository: Repository) -> None:
    before, now = held(inside(repository)), held(candidates(repository))
    assert {name: now[name].digest for name in before} == {name: one.digest for name, one in before.items()}


def test_without_a_gpu_the_lane_is_not_run_and_no_second_machine_is_asked(pushed: Ran) -> None:
    assert "not-run" in pushed.said("gpu")
    assert "| no NVIDIA driver on this machine | " in pushed.summary
    assert "is what the first try suspects" in pushed.said("gpu-again")


def test_the_release_policy_refuses_for_exactly_what_lacks(pushed: Ran, repository: Repository) -> None:
    told = repository.family.call("verify", "nlp", "--policy", "policies/release.yaml", "--json", **of_push(repository))
    assert told.code == 7
    (verdict,) = told.data
    assert Pinned.parse(verdict["subject"]) == held(candidates(repository))["nlp"]
    found = {reason["rule"]: reason["message"] for reason in verdict["reasons"]}
    assert found.keys() == {"lanes", "scan", "soak"}
    assert found["lanes"].startswith("lane `gpu` on A100 or H100 or H200: no result that counts")
    for message in found.values():
        assert message in pushed.summary


def of_push(repository: Repository) -> dict[str, str]:
    return {names.ENV_CANDIDATES: repository.variables[names.ENV_CANDIDATES]}


def test_a_readme_alone_builds_nothing(pushed: Ran, repository: Repository) -> None:
    with (repository.root / "README.md").open("a") as readme:
        readme.write("\nOne sentence more.\n")
    repository.commit("Say more")
    ran = repository.run("pull_request", "19")
    assert (ran.code, ran.results) == (0, {"change": "success"})
    assert "No image changes: nothing is built." in ran.summary
    assert not [step for step in ("Build", "Check on the CPU", "Scan", "Sum up") if step in steps(ran)]


def steps(ran: Ran) -> set[str]:
    """The steps that ran."""
    return {str(one["step"]) for one in ran.events if one.get("stepResult") == "success"}
