"""Workflows that nobody's change starts, run whole by act: a release by the button, its nights, and new locks every week."""

import json
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import names
from pipeline.oci import Repository as Place
from pipeline.registry import Registry
from tests.integration.actions import KEYS, STAND_INS, Repository, with_app
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT, Family
from tests.integration.images import layer, python_layer
from tests.integration.signing import found_cosign
from tests.integration.test_cli_trust import DEBIAN
from tests.vulnerabilities import Advisory, database, metadata
from tests.vulnerabilities import push as push_database

OTHER = Advisory(source="debian 12", package="absent", id="CVE-2099-2", fixed="99.0")
FOUND = Advisory(source="debian 12", package="shell", id="CVE-2099-1", fixed="99.0", severity="HIGH")
TITLE = "app: vulnerabilities in what is released"
OLD = f"six==1.15.0 \\\n    --hash=sha256:{'0' * 64}\n"


def mirror(stack: Stack, *known: Advisory) -> str:
    """Where a vulnerability database of now is; one that was had from there would stand for an hour."""
    place = Place.parse(f"{stack.candidates}/trivy-db-{secrets.token_hex(4)}").tag("2")
    push_database(place, database(known), metadata(datetime.now(UTC)))
    return str(place)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Repository]:
    """A family whose `app` is built, checked, scanned and signed, and may be released by what a machine without a GPU proves."""
    family = with_app(Family(tmp_path_factory.mktemp("nightly"), stack), python_layer(), layer(DEBIAN))
    told = family.root / "cache" / "gh"
    told.mkdir()
    family.environment |= {
        names.ENV_DATABASE: mirror(stack, OTHER),
        names.ENV_LEAST_DATABASE: "1",
        names.ENV_RELEASES: f"{str(family.repository).removesuffix('/family')}/released",
        "FAMILY_GH": str(told),
    }
    made = Repository(family, found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))
    made.folders.append(STAND_INS / "programs")
    made.secrets["GITHUB_TOKEN"] = "a token"
    policy = (PROJECT / "policies" / "local.yaml").read_text().replace("grace: {}", "grace: { HIGH: 14 days }")
    head, _, rest = policy.partition("keys:\n")
    for name in ("local", "release"):
        (made.root / "policies" / f"{name}.yaml").write_text(head + KEYS + "signed:" + rest.partition("signed:")[2])
    made.commit("Ask for less")
    of_run: dict[str, Any] = {"GITHUB_RUN_ID": "17"}
    for words in (["build"], ["test", "app", "--lane", "cpu"], ["scan", "app"], ["sign", "--role", "ci"]):
        assert family.call(*words, **of_run, **made.key("ci")).code == 0
    yield made
    assert family.left() == []


def told(repository: Repository) -> list[Mapping[str, Any]]:
    """The issues and pull requests that there are, by number."""
    files = sorted((repository.root / "cache" / "gh").glob("*.json"))
    return [json.loads(path.read_text()) for path in files]


def released(repository: Repository) -> Mapping[str, str]:
    """What each tag of the releases names, the lists of referrers left out."""
    place = Place.parse(f"{repository.family.environment[names.ENV_RELEASES]}/family")
    found = {tag: Registry().resolve(place.tag(tag)) for tag in Registry().tags(place) if not tag.startswith("sha256-")}
    return {tag: str(digest) for tag, digest in found.items()}


def test_a_policy_that_is_not_the_one_of_the_environment_releases_nothing(repository: Repository) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(repository.variables, names.ENV_POLICY_DIGEST, f"sha256:{'0' * 64}")
        ran = repository.run("workflow_dispatch", "20", "promote", action="promote", images="app", number="1", reason="now")
    assert ran.results == {"look": "success", "release": "failure"}
    assert released(repository) == {}


def recorded(repository: Repository, environment: str, count: int) -> None:
    """Let GitHub remember jobs that were let into an environment."""
    (repository.root / "cache" / "gh" / f"{environment}.deployments").write_text(str(count))


def test_before_the_first_release_a_night_says_so_and_is_not_red(repository: Repository) -> None:
    for run, workflow, job in ("18", "rescan", "look"), ("19", "rebuild", "pick"):
        ran = repository.run("schedule", run, workflow)
        assert ran.results == {job: "success"}
        assert "Nothing was released to" in ran.summary
    assert told(repository) == []


@pytest.fixture(scope="module")
def release(repository: Repository) -> str:
    """The digest of `app`, which the button has released."""
    (verdict,) = repository.family.call("verify", "app", "--policy", "policies/release.yaml", "--json").data
    repository.variables[names.ENV_POLICY_DIGEST] = verdict["policy"]
    ran = repository.run("workflow_dispatch", "21", "promote", action="promote", images="app", number="1", reason="it is time")
    assert ran.results == {"look": "success", "release": "success"}
    assert released(repository).keys() == {"v1.0-app", "v1.0.1-app"}
    recorded(repository, "release", 1)
    assert "it is time" in repository.family.call("history", "app").stderr
    return released(repository)["v1.0-app"]


def test_a_night_in_which_nothing_is_known_tells_nobody(release: str, repository: Repository) -> None:
    ran = repository.run("schedule", "22", "rescan")
    assert ran.results == dict.fromkeys(("look", "sign", "judge", "tell"), "success")
    assert told(repository) == []


def test_releases_that_are_looked_for_in_the_wrong_place_are_never_taken_for_none(release: str, repository: Repository) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for given in (repository.variables, repository.family.environment):
            patch.setitem(given, names.ENV_RELEASES, f"{given[names.ENV_RELEASES]}-mistyped")
        ran = repository.run("schedule", "28", "rescan")
    assert ran.results == {"look": "failure"}
    assert "`PIPELINE_RELEASES` names another place than promotions write to" in ran.summary


def test_what_is_known_later_becomes_a_signed_statement_and_one_issue_however_many_nights_pass(
    release: str, repository: Repository, stack: Stack
) -> None:
    stranger = {"kind": "issue", "number": 1, "state": "open", "title": TITLE, "body": "mine", "user": {"login": "somebody"}}
    (repository.root / "cache" / "gh" / "1.json").write_text(json.dumps(stranger))
    repository.variables[names.ENV_DATABASE] = mirror(stack, OTHER, FOUND)
    for night in "23", "24":
        ran = repository.run("schedule", night, "rescan")
        assert ran.results == dict.fromkeys(("look", "sign", "judge", "tell"), "success")
        other, issue = told(repository)
        assert other == stranger
        assert (issue["title"], issue["state"], issue["comments"]) == (TITLE, "open", [])
        assert FOUND.id in issue["body"]
    verdict = repository.family.call("verify", "app", "--policy", "policies/release.yaml", "--json")
    assert verdict.code == 7
    assert {reason["rule"] for reason in verdict.data[0]["reasons"]} == {"vulnerabilities"}


def test_the_night_that_finds_nothing_any_more_closes_the_issue_and_says_why_once(
    release: str, repository: Repository, stack: Stack
) -> None:
    before = repository.variables[names.ENV_DATABASE]
    repository.variables[names.ENV_DATABASE] = mirror(stack, OTHER)
    for night in "29", "30":
        ran = repository.run("schedule", night, "rescan")
        assert ran.results == dict.fromkeys(("look", "sign", "judge", "tell"), "success")
        _, issue = told(repository)
        assert (issue["state"], issue["state_reason"]) == ("closed", "completed")
        (comment,) = issue["comments"]
        assert "nothing that it asks about has a fix" in comment
    repository.variables[names.ENV_DATABASE] = before


def test_a_pull_request_is_compared_with_the_release_that_it_follows(release: str, repository: Repository) -> None:
    repository.change("app")
    repository.commit("Change the app")
    ran = repository.run("pull_request", "25")
    assert ran.results == {"change": "success"}
    assert "- size against `v1.0.1-app`: " in ran.summary
    assert "- packages: the same" in ran.summary


def test_a_released_image_is_built_again_from_its_commit_and_gives_its_digest(release: str, repository: Repository) -> None:
    repository.change("app")
    repository.commit("Change the app")
    elsewhere = f"{str(repository.family.repository).removesuffix('/family')}/again"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(repository.family.environment, names.ENV_CANDIDATES, elsewhere)
        ran = repository.run("schedule", "26", "rebuild")
    assert ran.results == {"pick": "success", "rebuild": "success"}
    place = Place.parse(f"{elsewhere}/family")
    (tag,) = (tag for tag in Registry().tags(place) if tag.startswith("v1.0-app-"))
    assert str(Registry().resolve(place.tag(tag))) == release


def test_locks_that_moved_become_a_pull_request_of_locks_alone(repository: Repository, tmp_path: Path) -> None:
    family = repository.family
    family.write("app/requirements/1-six.in", "six\n")
    family.write("app/requirements/1-six.lock", f"# locked from: sha256:{'0' * 64}\n{OLD}")
    family.write("python/image.yaml", 'description: python\nrelease: false\npython: "3.11"\n')
    repository.commit("Ask for six")
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "origin.git"))
    repository.git("remote", "set-url", "origin", str(tmp_path / "origin.git"))
    stranger = {
        "kind": "pull request",
        "number": 90,
        "state": "open",
        "branch": "update",
        "isCrossRepository": True,
        "title": "x",
    }
    (repository.root / "cache" / "gh" / "90.json").write_text(json.dumps(stranger))
    for run in "27", "31":
        ran = repository.run("schedule", run, "update")
        assert ran.results == {"solve": "success", "propose": "success"}
        other, proposed = sorted(
            (one for one in told(repository) if one["kind"] == "pull request"), key=lambda one: one["title"]
        )[::-1]
        assert other == stranger
        assert (proposed["title"], proposed["branch"]) == ("Update the locks of app", "update")
    pushed = ("-C", str(tmp_path / "origin.git"), "show", "--stat", "--format=%an", "update")
    shown = repository.git(*pushed)
    assert "1-six.lock" in shown
    assert "1 file changed" in shown
