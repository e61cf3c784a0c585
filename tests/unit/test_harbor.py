"""What Harbor's answers mean, and what the doctor makes of its facts; no Harbor is asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import context, harbor_doctor
from pipeline.catalog import Catalog
from pipeline.credentials import Credential
from pipeline.diagnosis import State
from pipeline.errors import InputError, NotThere, PipelineError, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.harbor import Harbor, Project, Quota
from pipeline.harbor.api import Api, Reply, artifacts
from pipeline.harbor_doctor.judging import judged, retained
from pipeline.harbor_doctor.places import RELEASE_TAGS, RELEASES, Place, places, robots
from pipeline.oci import Repository
from pipeline.registry.trust import Trust
from pipeline.releases import Release
from pipeline.settings import Settings
from pipeline.tagrules import ImmutableRule, Retention

LOGIN = Credential.of(b"robot$release", b"s3cret")
API = Api("harbor.example.com", LOGIN, Trust(None))
HOME = Repository("harbor.example.com", "ml/team/images")
PLACE = Place(
    host=HOME.host,
    project="ml",
    releases=(HOME.tag("v2.6.3"), HOME.tag("v2.6.3-nlp")),
    moving=(HOME.tag("v2.6"), HOME.tag("v2.6-nlp")),
    candidates=(HOME.tag("v2.6-nlp-0123456789ab"),),
)


def reply(status: int, code: str = "", reason: str = "told") -> Reply:
    return Reply(status=status, body=None, codes=frozenset({code} - {""}), reason=reason, request="", challenge=None)


@pytest.mark.parametrize(
    ("answer", "kind", "hint"),
    [
        (reply(401, "UNAUTHORIZED"), RegistryRefused, "single-quote a `$`"),
        (reply(403, "FORBIDDEN"), RegistryRefused, "gives `robot$release` the right `tag:create` in project `ml`"),
        (reply(403, "DENIED", "The system is in read only mode. Any"), RegistryRefused, "read-only mode"),
        (reply(403, "DENIED", "adding 1 B of storage resource, which"), RegistryRefused, "raises the quota of `ml`"),
        (reply(404, "NOT_FOUND"), NotThere, ""),
        (reply(404), ToolFailed, ""),
        (reply(409, "CONFLICT"), TagConflict, ""),
        (reply(412, "PRECONDITION"), TagConflict, ""),
        (reply(422, "UNPROCESSABLE_ENTITY"), ToolFailed, ""),
        (reply(429), Temporary, "later"),
        (reply(503), Temporary, "later"),
        (reply(302), ToolFailed, ""),
    ],
    ids=lambda value: str(value.status) + value.reason[:12] if isinstance(value, Reply) else "",
)
def test_each_refusal_has_its_kind_and_its_remedy(answer: Reply, kind: type[PipelineError], hint: str) -> None:
    error = API.failure(answer, "`v1` cannot be created", "tag:create", HOME.path)
    assert type(error) is kind
    assert hint in error.hint
    assert f"answered {answer.status}" in error.message


def test_what_harbor_does_not_explain_is_found_in_its_log() -> None:
    told = Reply(status=500, body=None, codes=frozenset(), reason="internal server error", request="4711", challenge=None)
    assert "in Harbor's log by `4711`" in API.failure(told, "it").hint


def test_no_secret_is_in_an_error() -> None:
    told = reply(500, reason=f"basic {LOGIN.basic} s3cret")
    assert "s3cret" not in str(API.failure(told, "it"))
    assert LOGIN.basic not in str(API.failure(told, "it"))


def test_slashes_of_a_repository_are_encoded_twice() -> None:
    assert artifacts(HOME) == "/api/v2.0/projects/ml/repositories/team%252Fimages/artifacts"


def test_projects_and_quotas_are_read() -> None:
    told = {"name": "ml", "project_id": 7, "metadata": {"public": "true", "retention_id": "3", "prevent_vul": "true"}}
    project = Project.read(told)
    assert (project.public, project.content_trust, project.prevents_vulnerable, project.retention) == (True, False, True, 3)
    assert (Quota(used=5, limit=-1).left, Quota(used=5, limit=4).left) == (None, -1)


def rule(tags: str, number: int = 1, **more: Any) -> ImmutableRule:
    scope = {"repository": [{"decoration": "repoMatches", "pattern": "team/images"}]}
    return ImmutableRule.read(
        {"id": number, "tag_selectors": [{"decoration": "matches", "pattern": tags}], "scope_selectors": scope, **more}
    )


def told(*rules: ImmutableRule) -> list[tuple[State, str]]:
    return [(each.state, each.detail) for each in judged(PLACE, rules)]


def test_the_rule_that_the_doctor_makes_is_the_right_one() -> None:
    assert told(rule(RELEASE_TAGS)) == [(State.OK, "releases are frozen, all else can move")]


def test_a_rule_for_all_versions_freezes_floating_tags_too() -> None:
    found = told(rule("v*"))
    assert {state for state, _ in found} == {State.FAULT}
    assert [detail.split("`")[5] for _, detail in found] == ["v2.6", "v2.6-nlp", "v2.6-nlp-0123456789ab"]


def test_an_empty_pattern_is_told_as_what_it_is() -> None:
    assert all("empty, which means everything" in detail for _, detail in told(rule("")))


def test_without_a_rule_or_with_one_that_is_off_releases_are_loose() -> None:
    assert [state for state, _ in told()] == [State.FAULT, State.FAULT]
    assert all("is off" not in detail for _, detail in told())
    assert all("is off" in detail for _, detail in told(rule(RELEASE_TAGS, disabled=True)))


def test_a_rule_that_can_freeze_nothing_is_told() -> None:
    found = told(rule(RELEASE_TAGS), rule("v*", 2, scope_selectors=None))
    assert [state for state, _ in found] == [State.WARN, State.OK]


def test_retention_leaves_what_is_frozen_and_what_it_keeps_for_good() -> None:
    policy = Retention.read({"rules": [{"template": "latestPushedK"}], "trigger": {"settings": {"cron": "0 0 0 * * *"}}})
    (finding,) = retained(PLACE, policy, [rule(RELEASE_TAGS)])
    assert (finding.state, "v2.6-nlp-0123456789ab" in finding.detail) == (State.FAULT, True)
    (finding,) = retained(PLACE, Retention.read({"rules": [{"template": "always"}]}), [])
    assert finding.state is State.OK
    assert {each.state for each in retained(PLACE, Retention.read({"rules": [{"template": "latestPulledN"}]}), [])} == {
        State.WARN
    }


def test_robots_get_no_more_than_they_need() -> None:
    candidates = Place(host=HOME.host, project="dev", candidates=PLACE.candidates)
    ci, release = robots((candidates, Place(host=HOME.host, project="ml", releases=PLACE.releases)))
    held = {
        each["namespace"]: {f"{one['resource']}:{one['action']}" for one in each["access"]} for each in release["permissions"]
    }
    assert held == {"dev": {"repository:pull", "artifact:read", "artifact:list", "tag:list"}, "ml": set(RELEASES)}
    assert [each["namespace"] for each in ci["permissions"]] == ["dev"]
    assert "delete" not in str((ci, release))


def catalog(**chosen: Any) -> Catalog:
    return context.load(Settings(root=Path(__file__).parents[2], cache=Path("unused"), **chosen))


def test_on_loopback_there_is_no_harbor_to_look_at() -> None:
    assert places(catalog(candidates="localhost:5601/candidates", releases="localhost:5601/releases")) == ()


def test_projects_are_those_of_the_catalog() -> None:
    home, other = places(catalog(candidates="harbor.example.com/dev", releases="harbor.example.com/ml/images"))
    assert (home.project, home.candidates, home.rights) == ("ml", (), RELEASES)
    assert (other.project, other.releases, "immutable-tag:list" in other.rights) == ("dev", (), False)
    assert all(Release.parse(each.name) for each in home.releases)
    assert not any(Release.parse(each.name) for each in (*home.moving, *other.candidates))
    assert "`pipeline doctor --apply`" in home.apply


def test_a_chosen_project_holds_both() -> None:
    (place,) = places(catalog(), "localhost:8080/ml")
    assert place.releases
    assert place.candidates
    assert "`pipeline doctor --harbor localhost:8080/ml --apply`" in place.apply
    assert list(judged(place, [])) != list(judged(place, [everywhere(RELEASE_TAGS)]))
    assert [each.state for each in judged(place, [everywhere(RELEASE_TAGS)])] == [State.OK]
    with pytest.raises(InputError, match="names no project"):
        places(catalog(), "localhost:8080")


def everywhere(tags: str) -> ImmutableRule:
    scope = {"repository": [{"decoration": "repoMatches", "pattern": "**"}]}
    return ImmutableRule.read({"id": 1, "tag_selectors": [{"decoration": "matches", "pattern": tags}], "scope_selectors": scope})


def test_a_harbor_that_cannot_be_asked_is_a_fault_with_its_remedy() -> None:
    def refuse(host: str) -> Harbor:
        raise RegistryRefused(
            f"the certificate of registry `{host}` is not trusted", hint=f"put it at /etc/docker/certs.d/{host}"
        )

    (finding,) = harbor_doctor.examine([PLACE], refuse)
    assert (finding.state, finding.remedy) == (State.FAULT, "put it at /etc/docker/certs.d/harbor.example.com")


def test_another_registry_is_a_fault_only_where_a_harbor_was_named() -> None:
    (finding,) = harbor_doctor.examine([PLACE], lambda host: None)
    assert finding.state is State.OK
    (finding,) = harbor_doctor.examine([replace(PLACE, chosen="harbor.example.com/ml")], lambda host: None)
    assert (finding.state, "--harbor" in finding.remedy) == (State.FAULT, True)


class Old(Harbor):
    """Says what a Harbor of an older version says, and takes no more questions."""

    def read_only(self) -> bool:
        return False

    def rights(self, repository: Repository) -> frozenset[str]:
        raise Temporary("it does not answer any more", hint="later")

    def exists(self, name: str) -> bool:
        return True

    def project(self, name: str) -> Project | None:
        raise RegistryRefused("forbidden", hint="give `project:read`")

    def immutable_rules(self, project: str) -> tuple[ImmutableRule, ...]:
        return (rule("v[0-9"),)

    def collects_untagged(self) -> bool | None:
        return None

    def quota(self, project: str) -> Quota | None:
        return Quota(used=0, limit=10**9)


def test_each_part_is_looked_at_whatever_the_others_say() -> None:
    found = {each.name: each for each in harbor_doctor.examine([PLACE], lambda host: Old(API, version="v2.9.1-abc"))}
    states = {name: each.state for name, each in found.items()}
    assert states == {
        "harbor": State.OK,
        "harbor version": State.WARN,
        "harbor read-only mode": State.OK,
        "ml: rights": State.FAULT,
        "ml: project": State.WARN,
        "ml: rules": State.FAULT,
        "ml: garbage": State.OK,
        "ml: quota": State.WARN,
    }
    assert "`v[0-9` cannot be read" in found["ml: rules"].detail
    assert all(each.remedy for each in found.values() if each.state is not State.OK)
