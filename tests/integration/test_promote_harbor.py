"""Promotions on a Harbor: tags that one alone can create, logins, and rules that freeze; and at once by many."""

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline import names
from pipeline.oci import Digest, Repository
from pipeline.registry import Registry
from tests.faults import faulty
from tests.harbor import double
from tests.harbor.double import Double
from tests.harbor.state import ADMIN, PASSWORD
from tests.integration.conftest import Stack
from tests.integration.families import Ended, ended
from tests.integration.releasing import Releases, proved
from tests.integration.signing import found_cosign
from tests.integration.test_harbor import PROMOTER, READER, Logins, admin
from tests.integration.twins import Team

AT_ONCE = 4
"""Twenty do the same in `nox -s faults`."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Candidates and releases in two projects of one Harbor, and a team that may sign."""

    harbor: Double
    team: Team
    folder: Path

    def place(self, stack: Stack, *, plain: bool = False) -> "Place":
        mark = secrets.token_hex(4)
        host = stack.host if plain else self.harbor.host
        candidates, releases = (Repository(host, f"{kind}{mark}/x/family") for kind in ("candidates", "releases"))
        if not plain:
            for repository in (candidates, releases):
                self.harbor.project(repository.path.partition("/")[0])
        return Place(site=self, candidates=candidates, releases=releases)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Two repositories that nobody has written to."""

    site: Site
    candidates: Repository
    releases: Repository

    @property
    def client(self) -> Registry:
        return Registry(credentials=Logins(ADMIN, PASSWORD)) if self.candidates.host == self.site.harbor.host else Registry()

    def environment(self, user: str = ADMIN, password: str = PASSWORD, host: str = "") -> dict[str, Any]:
        """The variables of somebody with a login; `host` is a proxy's."""
        folder = self.site.folder / secrets.token_hex(4)
        folder.mkdir()
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {host or self.site.harbor.host: {"auth": token}}}))
        at = {names.ENV_CANDIDATES: self.candidates, names.ENV_RELEASES: self.releases}
        told = {name: f"{host or one.host}/{one.path.removesuffix('/family')}" for name, one in at.items()}
        return {**self.site.team.environment, **told, "DOCKER_CONFIG": str(folder)}

    def twins(self, count: int) -> list[Digest]:
        return [self.site.team.twin(at, into=self.candidates, registry=self.client) for at in range(count)]

    def call(self, *words: str, **environment: Any) -> Ended:
        return self.site.team.releases.family.call(*words, **{**self.environment(), **environment})

    def tags(self) -> dict[str, Digest | None]:
        found = [tag for tag in self.client.tags(self.releases) if not tag.startswith("sha256-")]
        return {tag: self.client.resolve(self.releases.tag(tag)) for tag in found}

    def at_once(self, digests: list[Digest]) -> list[Ended]:
        family, environment = self.site.team.releases.family, self.environment()
        words = ("promote", "core", "--number", "0", "--digest")
        started = [family.start(*words, str(digest), **environment) for digest in digests]
        return [ended(one) for one in started]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Site]:
    releases = Releases(tmp_path_factory.mktemp("made"), stack)
    team = Team(releases, found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))
    with double.started(tmp_path_factory.mktemp("harbor")) as running:
        yield Site(harbor=running, team=team, folder=tmp_path_factory.mktemp("logins"))


def test_between_two_projects_and_again_there_is_nothing_to_do(site: Site, stack: Stack) -> None:
    place = site.place(stack)
    admin(site.harbor).add_immutable_rule(place.releases.path.partition("/")[0], repositories="**", tags="v*.*.*")
    (digest,) = place.twins(1)
    assert place.call("promote", "core", "--digest", str(digest)).code == 0
    assert place.tags() == {"v1.0": digest, "v1.0.0": digest}
    again = place.call("promote", "core", "--digest", str(digest))
    assert (again.code, "nothing to do" in again.stderr) == (0, True)
    (line,) = place.call("history", "core", "--json").data
    assert (line["notes"], [one["state"] for one in line["releases"]]) == ([], ["current"])


def test_again_takes_four_requests_and_those_of_the_login(site: Site, stack: Stack) -> None:
    place = site.place(stack)
    (digest,) = place.twins(1)
    family = site.team.releases.family
    tag = next(step["tag"] for step in family.call("plan", "--json").data if step["image"] == "core")
    place.client.create_tag(place.candidates, tag, place.client.manifest(place.candidates.at(digest)))
    assert place.call("promote", "core").code == 0
    with faulty(site.harbor.host) as proxy:
        environment = place.environment(host=proxy.host)
        assert family.call("promote", "core", **environment).code == 0
        asked = [one.path for one in proxy.log if one.status != 401]
    assert len([path for path in asked if path != "/v2/" and not path.startswith("/service/token")]) <= 4


def test_a_rule_that_freezes_the_floating_tag_too_is_exit_8(site: Site, stack: Stack) -> None:
    place = site.place(stack)
    first, second = place.twins(2)
    assert place.call("promote", "core", "--digest", str(first)).code == 0
    admin(site.harbor).add_immutable_rule(place.releases.path.partition("/")[0], repositories="**", tags="v*")
    assert place.call("promote", "core", "--digest", str(second)).code == 8
    assert place.tags()["v1.0"] == first


def test_a_wrong_password_and_a_right_that_lacks_are_exit_9_and_write_nothing(site: Site, stack: Stack) -> None:
    place = site.place(stack)
    (digest,) = place.twins(1)
    words = ("promote", "core", "--digest", str(digest))
    assert place.call(*words, **place.environment(ADMIN, "wrong")).code == 9
    projects = [one.path.partition("/")[0] for one in (place.candidates, place.releases)]
    reader = site.harbor.robot(f"r{secrets.token_hex(4)}", **dict.fromkeys(projects, READER))
    refused = place.call(*words, **place.environment(reader.name, reader.secret))
    assert (refused.code, reader.secret in refused.stderr) == (9, False)
    pusher = site.harbor.robot(f"r{secrets.token_hex(4)}", **dict.fromkeys(projects, f"{READER} repository:push"))
    half = place.call(*words, **place.environment(pusher.name, pusher.secret))
    assert (half.code, "lacks `tag:create` in" in half.stderr) == (9, True)
    assert place.client.tags(place.releases) == ()
    promoter = site.harbor.robot(f"r{secrets.token_hex(4)}", **dict(zip(projects, (READER, PROMOTER), strict=True)))
    assert place.call(*words, **place.environment(promoter.name, promoter.secret)).code == 0


def test_the_policy_for_laptops_refuses_a_harbor(site: Site, stack: Stack) -> None:
    place = site.place(stack)
    (digest,) = place.twins(1)
    local = str(site.team.releases.family.root / "policies" / "local.yaml")
    refused = place.call("promote", "core", "--digest", str(digest), "--policy", local)
    assert (refused.code, "is for plain registries on this machine" in refused.stderr) == (7, True)


def test_of_many_at_once_one_wins_and_all_others_are_told(site: Site, stack: Stack) -> None:
    many_at_once(site.place(stack), AT_ONCE)


def many_at_once(place: Place, count: int) -> None:
    digests = place.twins(count)
    results = place.at_once(digests)
    assert sorted(one.code for one in results) == [0, *[8] * (count - 1)]
    (winner,) = [digest for digest, one in zip(digests, results, strict=True) if one.code == 0]
    assert place.tags() == {"v1.0": winner, "v1.0.0": winner}


def test_of_many_at_once_on_a_plain_registry_every_loser_finds_out(site: Site, stack: Stack) -> None:
    place = site.place(stack, plain=True)
    digests = place.twins(AT_ONCE)
    results = place.at_once(digests)
    assert [one.code for one in results].count(0) <= 1
    assert {one.code for one in results} <= {0, 8}
    tags = place.tags()
    again = [place.call("promote", "core", "--number", "0", "--digest", str(digest)).code for digest in digests]
    assert sorted(again) == [0, *[8] * (AT_ONCE - 1)]
    assert place.tags() == {"v1.0": tags["v1.0.0"], "v1.0.0": tags["v1.0.0"]}
    named = place.tags()["v1.0"]
    assert named is not None
    assert proved(place.releases.at(named))
