"""Going back when everything is on fire: what time has broken does not stop it, what was tampered with does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.dsse import BUNDLE_TYPE, PREDICATE_ANNOTATION
from pipeline.oci import Digest
from pipeline.registry import Registry
from pipeline.statements import PROVENANCE
from tests.integration.conftest import Stack
from tests.integration.families import Ended, ended
from tests.integration.releasing import Releases, delete
from tests.integration.signing import found_cosign
from tests.integration.twins import Team

BACK = ("rollback", "core", "--to", "1.0.0", "--reason", "it burns")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Team:
    return Team(Releases(tmp_path_factory.mktemp("made"), stack), found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))


def released(team: Team, place: str) -> tuple[Releases, list[Digest]]:
    """Two releases, at a place of their own."""
    releases = team.releases.elsewhere(place)
    digests = [team.twin(number) for number in (1, 2)]
    for digest in digests:
        assert releases.call("promote", "core", "--digest", str(digest), **team.environment).code == 0
    return releases, digests


def with_policy(team: Team, name: str, changes: Mapping[str, str]) -> dict[str, Any]:
    """The variables with another policy, in which texts are replaced."""
    policies = team.releases.family.root / "policies"
    text = (policies / "team.yaml").read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (policies / name).write_text(text)
    return {**team.environment, "PIPELINE_POLICY": str(policies / name)}


def test_what_time_has_broken_is_waived_and_recorded(team: Team) -> None:
    releases, (old, _) = released(team, "old")
    strict = {"cpu: { required: false,": "cpu: { required: true,", "soak: 0 hours": "soak: 24 hours"}
    strict["scan:\n  required: false"] = "scan:\n  required: true"
    environment = with_policy(team, "stale.yaml", strict)
    assert releases.call("promote", "core", "--digest", str(team.twin(3)), **environment).code == 7
    back = releases.call(*BACK, "--json", **environment)
    assert (back.code, releases.tags()["v1.0"]) == (0, old)
    assert {rule["code"] for rule in back.data["decision"]["rules"] if rule["waived"]} == {"lanes", "scan", "soak"}
    assert "passed over: soak: it is too young" in back.stderr


def test_one_sees_which_vulnerabilities_come_and_go_in_both_directions(team: Team) -> None:
    releases = team.releases.elsewhere("compared")
    digests = [team.twin(5, known=["CVE-2026-1"]), team.twin(6, known=["CVE-2026-2"]), team.twin(7)]

    def promoted(digest: Digest, *words: str) -> Ended:
        return releases.call("promote", "core", "--digest", str(digest), *words, **team.environment)

    first = promoted(digests[0])
    assert "vulnerabilities are not compared: nothing is released" in first.stderr
    shown = promoted(digests[1], "--dry-run", "--json")
    assert "vulnerabilities against `v1.0.0`: 1 new, 1 gone" in shown.stderr
    assert "+ CVE-2026-2 HIGH, with a fix: openssl" in shown.stderr
    (told,) = shown.data["vulnerabilities"]
    assert (told["image"], [one["id"] for one in told["new"]], [one["id"] for one in told["gone"]]) == (
        "core",
        ["CVE-2026-2"],
        ["CVE-2026-1"],
    )
    team.scan(releases.family.repository.at(digests[0]), ["CVE-2026-1", "CVE-2026-2"])  # looked up anew, beside the candidate
    assert "vulnerabilities against `v1.0.0`: 0 new, 1 gone" in promoted(digests[1]).stderr
    back = releases.call(*BACK, "--dry-run", "--json", **team.environment)
    assert "- CVE-2026-2 HIGH" in back.stderr
    assert [one["id"] for one in back.data["vulnerabilities"]["new"]] == ["CVE-2026-1"]
    unknown = promoted(digests[2], "--dry-run", "--json")
    assert "vulnerabilities are not compared: nobody knows those of this image: no look-up of them counts" in unknown.stderr
    assert unknown.data["vulnerabilities"][0]["new"] is None


def test_a_revoked_key_and_a_broken_signature_refuse(team: Team) -> None:
    releases, (old, new) = released(team, "broken")
    revoked = with_policy(team, "revoked.yaml", {"file: keys/team.pub}": "file: keys/team.pub, revoked: true}"})
    assert releases.call(*BACK, **revoked).code == 7
    provenance = next(
        one
        for one in Registry().referrers(releases.repository.at(old), BUNDLE_TYPE)
        if one.annotations.get(PREDICATE_ANNOTATION) == PROVENANCE
    )
    delete(releases.repository, f"manifests/{provenance.digest}")
    broken = releases.call(*BACK, **team.environment)
    assert (broken.code, "is listed, and the registry does not hold it" in broken.stderr) == (7, True)
    assert releases.tags()["v1.0"] == new


def test_a_key_that_the_policy_does_not_list_signs_nothing(team: Team, tmp_path: Path) -> None:
    releases, (_, new) = released(team, "stranger")
    other = with_policy(team, "nobody.yaml", {"roles: [ci, gpu, release]": "roles: [ci, gpu]"})
    before = len(Registry().referrers(releases.repository.at(new)))
    assert releases.call("withdraw", "v1.0.1", "--reason", "x", **other).code == 7
    listed = releases.call("history", "core", **other).stderr
    assert ("no verdict" in listed, "nobody.yaml` lists: `--policy` or PIPELINE_POLICY names another" in listed) == (True, True)
    unknown = releases.call("released", **other)
    assert (unknown.code, "PIPELINE_POLICY names the policy whose keys count" in unknown.stderr) == (2, True)
    assert "names another policy" not in releases.call("history", "core", **team.environment).stderr
    assert len(Registry().referrers(releases.repository.at(new))) == before


def test_back_and_forward_at_once_end_without_a_mixed_state(team: Team) -> None:
    releases, _ = released(team, "both")
    third = team.twin(4)
    started = [
        releases.family.start(*words, **{**team.environment, **releases.to})
        for words in (BACK, ("promote", "core", "--number", "2", "--digest", str(third)))
    ]
    codes = [ended(process).code for process in started]
    assert 0 in codes
    assert set(codes) <= {0, 7, 8}
    (line,) = releases.call("history", "core", "--json", **team.environment).data
    assert line["notes"] == []
