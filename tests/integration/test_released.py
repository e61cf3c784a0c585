"""What those ask who look at releases day by day: which they are, from which commit, and whether they come out again."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import Stack
from tests.integration.families import Ended
from tests.integration.releasing import Releases


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Releases:
    """Both images are released, from a commit."""
    releases = Releases(tmp_path_factory.mktemp("released"), stack)
    root = releases.family.root
    (root / ".gitignore").write_text("/cache/\n/tmp/\n/.pipeline/\n/told\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "all")
    releases.change()
    git(root, "commit", "-q", "-a", "-m", "other content")
    assert releases.call("build", "--rebuild").code == 0
    assert releases.call("sign").code == 0
    assert releases.call("promote", "core", "app").code == 0
    return releases


def git(root: Path, *words: str) -> str:
    argv: list[str | Path] = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com", *words]
    return str(subprocess.run(argv, check=True, capture_output=True, text=True).stdout).strip()


def listed(told: Ended) -> dict[str, dict[str, str]]:
    assert told.code == 0
    return {one["image"]: one for one in json.loads(told.stdout)}


def test_each_release_is_listed_with_its_digest_and_commit(made: Releases) -> None:
    found = listed(made.call("released"))
    assert {name: one["digest"] for name, one in found.items()} == {
        "core": str(made.tags()["v1.0"]),
        "app": str(made.tags()["v1.0-app"]),
    }
    assert {one["commit"] for one in found.values()} == {git(made.family.root, "rev-parse", "HEAD")}
    assert found["app"]["candidate"] == f"{made.family.repository}@{made.tags()['v1.0-app']}"


def test_one_of_them_is_picked_and_handed_on_to_the_jobs_that_follow(made: Releases) -> None:
    outputs = made.family.root / "told"
    (one,) = listed(made.call("released", "--of-the-day", GITHUB_OUTPUT=str(outputs))).values()
    assert outputs.read_text().splitlines() == [
        f"images={one['candidate']}",
        f"image={one['image']}",
        f"digest={one['digest']}",
        f"commit={one['commit']}",
    ]


def test_no_release_is_no_error_only_where_no_tag_is_there_and_nobody_has_a_record_of_one(made: Releases, tmp_path: Path) -> None:
    nowhere = f"{str(made.repository).removesuffix('/family')}/nowhere"
    record, summary = tmp_path / "record", tmp_path / "summary"

    def asked(counts: str, releases: str = nowhere) -> Ended:
        record.write_text(counts)
        summary.write_text("")
        given = {"PIPELINE_RELEASES": releases, "GITHUB_STEP_SUMMARY": str(summary)}
        return made.call("released", "--record", str(record), **given)

    fresh = asked("0\n0\n")
    assert (fresh.code, json.loads(fresh.stdout)) == (0, [])
    assert "Nothing was released to" in summary.read_text()
    assert asked("0\n1\n").code == 3
    assert "Releases are on record" in summary.read_text()
    assert asked("").code == 2
    assert asked("none\n").code == 2
    assert asked("0\n", str(made.family.repository).removesuffix("/family")).code == 3
    assert re.search(r"has [1-9][0-9]* tags", summary.read_text())
    assert made.call("released", PIPELINE_RELEASES=nowhere).code == 3


def test_an_image_that_is_built_again_must_get_its_digest(made: Releases) -> None:
    digest = str(made.tags()["v1.0-app"])
    assert made.call("build", "app", "--rebuild", "--expect", digest).code == 0
    refused = made.call("build", "app", "--rebuild", "--expect", "sha256:" + "0" * 64)
    assert refused.code == 6
    assert f"`app` is {digest}, and was to be sha256:000" in refused.stderr
    assert made.call("build", "--expect", digest).code == 2


def test_of_a_reference_nothing_is_signed_but_a_newer_look_up(made: Releases, tmp_path: Path) -> None:
    candidate = listed(made.call("released", "app"))["app"]["candidate"]
    refused = made.call("sign", candidate, "--role", "ci")
    assert refused.code == 2
    assert "is more than a newer look-up of its vulnerabilities" in refused.stderr
    none = made.call("sign", candidate, "--statements", str(tmp_path), "--json")
    assert (none.code, none.data) == (0, [])
    mistyped = made.call("sign", candidate, "--statements", str(tmp_path / "nowhere"))
    assert (mistyped.code, "there is no folder" in mistyped.stderr) == (2, True)
    other = made.call("sign", f"{made.repository}@{made.tags()['v1.0-app']}")
    assert other.code == 2
    assert "is no candidate" in other.stderr


def test_packages_that_nobody_listed_cannot_be_looked_up(made: Releases) -> None:
    candidate = listed(made.call("released", "app"))["app"]["candidate"]
    refused = made.call("scan", candidate, "--attached-sbom")
    assert refused.code == 2
    assert "no list of packages that counts is attached" in " ".join(refused.stderr.split())
