"""`promote`, `rollback`, `withdraw` and `history` with real registries and the real cosign, as a release manager uses them."""

import re
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import names, statements
from pipeline.dsse import BUNDLE_TYPE, PREDICATE_ANNOTATION
from pipeline.oci import Digest, Pinned
from pipeline.registry import Registry
from tests.faults import Faulty, Passed, faulty
from tests.integration.conftest import Stack
from tests.integration.families import ended
from tests.integration.registries import registry
from tests.integration.releasing import ALL, Releases, delete, proved, through
from tests.integration.signing import found_cosign


@pytest.fixture
def releases(tmp_path: Path, stack: Stack) -> Releases:
    return Releases(tmp_path, stack)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Releases:
    """Candidates for those who release them each to a place of its own."""
    return Releases(tmp_path_factory.mktemp("made"), stack)


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Faulty]:
    with faulty(stack.host) as running:
        yield running


@pytest.fixture(scope="module")
def cosign(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Path:
    return found_cosign(tmp_path_factory.mktemp("cosign"), stack.host)


def verified(cosign: Path, releases: Releases, pinned: Pinned) -> set[str]:
    """The predicate types that the real cosign finds signed on an image, with nothing but a public key."""
    key = releases.family.cache / "keys" / "development.pub"
    root = releases.family.root / "root.json"
    environment = {"HOME": str(releases.family.root), "DOCKER_CONFIG": str(releases.family.root)}
    if not root.is_file():
        subprocess.run([cosign, "trusted-root", "create", "--out", root], env=environment, check=True, capture_output=True)
    offline = ("--key", str(key), "--insecure-ignore-tlog=true", "--trusted-root", str(root))
    found = set()
    for kind in (statements.PROVENANCE, statements.SUMMARY):
        words: list[str | Path] = [cosign, "verify-attestation", *offline, "--type", kind, str(pinned)]
        if subprocess.run(words, env=environment, capture_output=True).returncode == 0:
            found.add(kind)
    done = subprocess.run([cosign, "verify", *offline, str(pinned)], env=environment, capture_output=True)
    return found | ({statements.SIGNATURE} if done.returncode == 0 else set())


def test_two_images_are_released_under_one_number_and_again_there_is_nothing_to_do(
    releases: Releases, proxy: Faulty, cosign: Path
) -> None:
    wanted = {step["image"]: Digest(step["digest"]) for step in releases.call("plan", "--json").data}
    shown = releases.call("promote", "core", "app", "--dry-run")
    assert (shown.code, releases.tags()) == (0, {})
    assert "move the tag v1.0-app from nothing to v1.0.0-app" in shown.stderr
    done = releases.call("promote", "app", "core")
    assert done.code == 0
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["core v1.0.0", "app v1.0.0-app"]
    core, app = wanted["core"], wanted["app"]
    assert releases.tags() == {"v1.0": core, "v1.0.0": core, "v1.0-app": app, "v1.0.0-app": app}
    for digest in wanted.values():
        assert verified(cosign, releases, releases.repository.at(digest)) == ALL
    again = releases.call("promote", "app", "core", **through(proxy, releases))
    assert again.code == 0
    assert again.stderr.count("nothing to do:") == 2
    assert again.stderr.count("its verdict is signed by `development`; evidence and policy were not looked at again") == 2
    assert len(proxy.log) <= 8
    assert {one.method for one in proxy.log} == {"GET"}
    json_again = releases.call("promote", "app", "--json").data
    assert [one["tag"] for one in json_again["settled"]] == ["v1.0.0-app"]


def test_another_registry_gets_the_same_bytes_and_all_of_the_evidence(tmp_path: Path, stack: Stack, cosign: Path) -> None:
    (tmp_path / "registry").mkdir()
    with registry(tmp_path / "registry") as other:
        releases = Releases(tmp_path / "family", stack, releases=other.host)
        source = releases.family.repository
        assert releases.call("promote", "core", "app", "--number", "7", CI="true").code == 0
        tags = releases.tags()
        assert set(tags) == {"v1.0", "v1.0.7", "v1.0-app", "v1.0.7-app"}
        for digest in set(tags.values()):
            here, there = source.at(digest), releases.repository.at(digest)
            assert Registry().raw_manifest(here) == Registry().raw_manifest(there)
            assert {one.digest for one in Registry().referrers(here)} < {one.digest for one in Registry().referrers(there)}
            assert verified(cosign, releases, there) == ALL


def test_who_may_write_and_has_no_key_settles_nothing(made: Releases) -> None:
    """Tags and notes alone, another statement of ours as a verdict, and a verdict that was given for another place."""
    client, core = (
        Registry(),
        next(Digest(step["digest"]) for step in made.call("plan", "--json").data if step["image"] == "core"),
    )
    other, source = made.elsewhere("staging"), made.family.repository.at(core)
    assert other.call("promote", "core").code == 0
    (verdict,) = [
        one for one in client.referrers(other.repository.at(core)) if one.annotations[PREDICATE_ANNOTATION] == statements.SUMMARY
    ]
    built = client.content(source.repository, client.manifest(made.family.repository.at(attached(source))).layers[0].digest)
    told = {names.ANNOTATION_VERDICT: "promote v1.0.0"}
    for number, (content, notes) in enumerate(
        [
            (b"junk", told),
            (b"junk", {**told, names.ANNOTATION_BUNDLE: built.decode()}),
            (b"junk", dict(verdict.annotations)),
        ]
    ):
        place = made.elsewhere(f"unkeyed-{number}")
        manifest = client.manifest(source)
        for blob in (manifest.config, *manifest.layers):
            client.copy_blob(source.repository, place.repository, blob)
        for tag in ("v1.0", "v1.0.0"):
            client.put_manifest(place.repository, manifest.body, manifest.media_type, tag)
        client.attach(place.repository.at(core), BUNDLE_TYPE, content, BUNDLE_TYPE, notes)
        shown = place.call("promote", "core", "--dry-run")
        assert (shown.code, "nothing to do" in shown.stderr) == (0, False)
        assert "sign and attach the verdict: promote v1.0.0" in shown.stderr


def attached(pinned: Pinned) -> Digest:
    """The manifest that says how an image was built."""
    listed = Registry().referrers(pinned)
    return next(one.digest for one in listed if one.annotations[PREDICATE_ANNOTATION] == statements.PROVENANCE)


def test_in_ci_the_number_must_be_given(releases: Releases) -> None:
    assert releases.call("promote", "core", CI="true").code == 2
    assert releases.tags() == {}


def test_what_is_refused_writes_nothing(releases: Releases) -> None:
    assert releases.call("promote", "app").code == 7  # its parent is no release
    assert releases.call("promote", "core", "--policy", "policies/release.yaml").code == 7
    assert releases.call("promote", "core", "--number", "01").code == 2
    assert releases.tags() == {}
    assert releases.call("promote", "core", "app", "--number", "3").code == 0
    before = releases.tags()
    releases.change()
    assert releases.call("promote", "core", "--number", "3").code == 8
    assert releases.call("promote", "core", "--number", "2").code == 7
    assert releases.call("promote", "app").code == 7
    assert releases.tags() == before


def test_evidence_that_is_deleted_between_verdict_and_write_refuses(releases: Releases, proxy: Faulty) -> None:
    source = releases.family.repository
    digest = next(Digest(step["digest"]) for step in releases.call("plan", "--json").data if step["image"] == "core")
    (first, *_) = Registry().referrers(source.at(digest), BUNDLE_TYPE)
    blob = Registry().manifest(source.at(first.digest)).layers[0].digest
    deleted: list[str] = []

    def drop(passed: Passed) -> None:
        if passed.path.endswith(f"/blobs/{blob}") and passed.method == "GET" and not deleted:
            deleted.append(passed.path)
            delete(source, f"manifests/{first.digest}")

    proxy.heard = drop
    ended = releases.call("promote", "core", **through(proxy, releases))
    assert (ended.code, bool(deleted)) == (7, True)
    assert "deleted since it was decided upon" in ended.stderr
    assert releases.tags() == {}
    assert not Registry().tags(releases.repository)


@pytest.mark.parametrize(
    ("write", "nth"),
    [
        ("POST .*mount=", 1),
        ("PUT .*/manifests/sha256:", 1),
        ("PUT .*/manifests/sha256:", 3),
        ("PUT .*/manifests/sha256-", 1),
        ("PUT .*/manifests/sha256-", 2),
        ("PUT .*/manifests/v1.0.0$", 1),
        ("PUT .*/manifests/v1.0$", 1),
    ],
    ids=["blob", "image", "statements", "evidence", "verdict", "immutable-tag", "floating-tag"],
)
def test_killed_after_a_write_the_same_command_finishes_it(made: Releases, proxy: Faulty, write: str, nth: int) -> None:
    """Of all requests of one image's release a covering part: `nox -s faults` takes every one."""
    releases = made.elsewhere(f"killed-{secrets.token_hex(4)}")
    met: list[str] = []

    def kill(passed: Passed) -> None:
        told = f"{passed.method} {passed.path}"
        if re.match(write, told):
            met.append(told)
            if len(met) == nth:
                process.kill()

    proxy.heard = kill
    process = releases.family.start("promote", "core", **through(proxy, releases))
    assert ended(process).code == -signal.SIGKILL
    unproved = [tag for tag, digest in releases.tags().items() if not proved(releases.repository.at(digest))]
    assert unproved == []
    assert releases.call("promote", "core").code == 0
    tags = releases.tags()
    assert set(tags) == {"v1.0", "v1.0.0"}
    assert len(set(tags.values())) == 1
    (line,) = releases.call("history", "core", "--json").data
    assert (len(line["releases"]), line["notes"]) == (1, [])


def test_several_at_once_on_a_plain_registry_end_without_a_mixed_state(releases: Releases, tmp_path: Path, stack: Stack) -> None:
    """Different candidates, one tag: whoever lost says so, and what is announced is what the tags name."""
    others = [Releases(tmp_path / str(number), stack, beside=releases) for number in range(2)]
    all_of_them = [releases, *others]
    started = [one.family.start("promote", "core", "--number", "0") for one in all_of_them]
    results = [ended(one) for one in started]
    assert [one.code for one in results].count(0) <= 1
    assert {one.code for one in results} <= {0, 7, 8}
    tags = releases.tags()
    winner = next(one for one in all_of_them if tags["v1.0.0"] in one.family.digests())
    assert winner.call("promote", "core", "--number", "0").code == 0
    tags = releases.tags()
    assert tags["v1.0"] == tags["v1.0.0"]
    for one in all_of_them:
        assert one.call("promote", "core", "--number", "0").code == (0 if one is winner else 8)
    announced = [one.stdout for one in results if one.code == 0]
    assert all(str(tags["v1.0.0"]) in text for text in announced)


def test_back_and_forth_and_what_is_told_of_it(releases: Releases) -> None:
    assert releases.call("promote", "core", "app", USER="eve").code == 0
    old = releases.tags()["v1.0"]
    releases.change()
    assert releases.call("promote", "core", "app", USER="eve").code == 0
    new = releases.tags()["v1.0"]
    assert new != old
    back = releases.call("rollback", "core", "--to", "1.0.0", "--reason", "it burns", USER="adam", CI="true")
    assert (back.code, releases.tags()["v1.0"]) == (0, old)
    assert 'nox -s rollback -- core --to 1.0.1 --reason "…"' in back.stderr
    assert releases.call("rollback", "core", "--to", "1.0.0", "--reason", "it burns").code == 0
    held = releases.call("promote", "core")
    assert (held.code, "--lift-hold --reason" in held.stderr) == (7, True)
    assert releases.call("promote", "core", "--lift-hold").code == 2
    assert releases.call("promote", "core", "--lift-hold", "--reason", "mended").code == 0
    assert releases.tags()["v1.0"] == new
    bad = releases.call("withdraw", "v1.0.1", "--reason", "wrong sums", "--json")
    assert (bad.code, bad.data["concerned"], bad.data["better"]) == (0, True, "v1.0.0")
    assert releases.call("promote", "core").code == 7
    assert releases.call("rollback", "core", "--to", "1.0.1", "--reason", "x").code == 7
    assert releases.call("rollback", "core", "--to", "1.0.0", "--reason", "as told").code == 0
    assert releases.call("rollback", "core", "--to", "1.0.9", "--reason", "x").code == 2
    (line,) = releases.call("history", "core", "--json").data
    told = {one["tag"]: (one["state"], [each["action"] for each in one["verdicts"]]) for one in line["releases"]}
    assert told == {
        "v1.0.0": ("held here", ["promote", "rollback", "rollback"]),
        "v1.0.1": ("withdrawn", ["promote", "promote", "withdraw"]),
    }
    (first, second, _) = line["releases"][0]["verdicts"]
    assert (first["actor"], second["actor"], second["reason"], second["hold"]) == ("eve", "adam", "it burns", True)
    assert line["notes"] == []
