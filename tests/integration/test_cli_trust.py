"""`sign` and `verify` as people and CI use them: what is known of an image is signed once, and a policy decides by it alone."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline import names
from pipeline.command import Runner
from pipeline.cosign import Cosign, PrivateKey
from pipeline.dsse import BUNDLE_TYPE
from pipeline.oci import Digest, Pinned
from pipeline.policy import CODES
from pipeline.registry import Registry
from pipeline.statements import TEST_RESULT
from tests.fakes import Answer, fake_registry
from tests.integration.conftest import Stack
from tests.integration.families import LINKS, PROJECT, Ended, Family, ended, free_port
from tests.integration.images import layer, python_layer
from tests.integration.signing import entries, found_cosign, hang, signature_of, written

PASSWORD = "a-long-password-of-a-key"
DEBIAN = {
    "etc/os-release": b'ID=debian\nVERSION_ID="12"\n',
    "etc/debian_version": b"12.9\n",
    "var/lib/dpkg/status": b"Package: shell\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2\nMaintainer: x\n",
}
ADDED = "FROM scratch AS unpacked\n{0}FROM scratch\nCOPY --link --from=unpacked /layer/ /\n"
UNPACKED = ADDED.format("ADD python.tar /layer/\nADD debian.tar /layer/\n")
PYTHON = f"{UNPACKED}ENV PATH=/usr/bin:/bin HOME=/home/user\nUSER 1000:0\n"
RUN_ID: dict[str, Any] = {"GITHUB_RUN_ID": "17"}
KEYS = """\
keys:
  - {name: ci, roles: [ci], file: keys/ci.pub}
  - {name: gpu, roles: [gpu], file: keys/gpu.pub}
"""


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A family in a git repository, both images of which are built, and what the verbs said."""

    family: Family
    cosign: Path
    app: Pinned
    bare: Pinned
    signed: Ended

    def statement(self, kind: str, of: Pinned | None = None) -> Path:
        return self.family.root / ".pipeline" / "statements" / (of or self.app).digest.hex / f"{kind}.json"

    def attached(self, of: Pinned | None = None) -> int:
        return len(Registry().referrers(of or self.app, BUNDLE_TYPE))

    def key(self, **others: str) -> dict[str, Any]:
        """The variables that name a key."""
        return {names.ENV_KEY["ci"]: str(self.family.root / "ci.key"), names.ENV_PASSWORD: PASSWORD, **others}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Signed:
    family = Family(tmp_path_factory.mktemp("trust"), stack)
    family.environment |= {names.ENV_DATABASE: f"localhost:{free_port()}/no/trivy-db:2"}
    family.image("python", "release: false\n", PYTHON)
    family.write("python/python.tar", python_layer())
    family.write("python/debian.tar", layer(DEBIAN))
    family.image("app", "parent: python\nvariant: app\nchecks: {cpu: [it]}\n", LINKS, data=b"x")
    family.write("app/checks/test_it.py", "def test_it():\n    pass\n")
    family.image("bare", "parent: python\nvariant: bare\n", LINKS, data=b"y")
    cosign = with_keys(family, found_cosign(tmp_path_factory.mktemp("cosign"), stack.host))
    committed(family)
    assert family.call("build", **RUN_ID).code == 0
    steps = {step["image"]: step["digest"] for step in family.call("plan", "--json").data}
    app, bare = (Pinned.parse(f"{family.repository}@{steps[name]}") for name in ("app", "bare"))
    assert family.call("test", "app", "--lane", "cpu", **RUN_ID).code == 0
    assert family.call("scan", "app", **RUN_ID).code == 0
    return Signed(family=family, cosign=cosign, app=app, bare=bare, signed=family.call("sign", "app", "bare", "--json"))


def with_keys(family: Family, cosign: Path) -> Path:
    """Policies as they ship, the release policy with keys that a password protects."""
    policies = family.root / "policies"
    shutil.copytree(PROJECT / "policies", policies)
    (policies / "keys").mkdir(exist_ok=True)
    release = policies / "release.yaml"
    release.write_text(release.read_text().replace("keys: []\n", KEYS))
    for role in ("ci", "gpu"):
        environment = {names.ENV_PASSWORD: PASSWORD, "HOME": str(family.root)}
        words: list[str | Path] = [cosign, "generate-key-pair", "--output-key-prefix", role]
        subprocess.run(words, cwd=family.root, env=environment, check=True, capture_output=True)
        shutil.copy(family.root / f"{role}.pub", policies / "keys")
    return cosign


def committed(family: Family) -> None:
    (family.root / ".gitignore").write_text("/cache/\n/tmp/\n/.pipeline/\n/*.key\n/*.pub\n")
    git = ("git", "-C", str(family.root), "-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *words], check=True)


def reasons(verdict: Ended) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for reason in verdict.data[0]["reasons"]:
        found.setdefault(reason["rule"], []).append(reason["message"])
    return found


def ends(signed: Ended, image: str) -> dict[str, str]:
    return {each["kind"]: each["ended"] for each in signed.data if each["image"] == image}


def test_all_that_is_known_is_signed_and_nothing_twice(made: Signed) -> None:
    kinds = {"built", "tested-cpu", "bom", "findings", "signature"}
    assert made.signed.code == 0
    assert ends(made.signed, "app") == dict.fromkeys(kinds, "attached")
    assert ends(made.signed, "bare") == dict.fromkeys(("built", "signature"), "attached")
    before = made.attached()
    again = made.family.call("sign", "app", "bare", "--json")
    assert (again.code, {each["ended"] for each in again.data}) == (0, {"known"})
    assert made.attached() == before == len(kinds)
    assert made.family.left() == []


def test_a_signing_job_without_statements_of_its_run_says_whose_are_attached(made: Signed, tmp_path: Path) -> None:
    said = made.family.call("sign", "app", "--run", "18", "--statements", str(tmp_path), "--json")
    assert (said.code, ends(said, "app")) == (0, {"signature": "known"})
    told = "`app`: nothing of the run `18` is here to be signed; attached already are statements of `17"
    assert told in said.stderr
    again = made.family.call("sign", "app", "--run", "17", "--json")
    assert {each["text"].split(".")[0] for each in again.data if each["kind"] == "built"} == {"of the run `17`"}


def test_the_local_policy_allows_and_says_what_nobody_looked_at(made: Signed) -> None:
    verdict = made.family.call("verify", "app", "--json")
    assert (verdict.code, verdict.data[0]["allowed"], verdict.data[0]["reasons"]) == (0, True, [])
    rules = {rule["code"]: rule for rule in verdict.data[0]["rules"]}
    assert list(rules) == [code.name for code in CODES]
    assert all(rule["held"] or not rule["assessed"] for rule in rules.values())
    assert {"scan", "vulnerabilities", "unassessed"} <= {code for code, rule in rules.items() if not rule["assessed"]}
    assert "vulnerabilities: not assessed" in verdict.stderr
    assert "ALLOWED" in verdict.stderr


def test_an_image_without_checks_and_scan_is_refused_for_exactly_that(made: Signed) -> None:
    verdict = made.family.call("verify", "bare", "--json")
    assert (verdict.code, set(reasons(verdict))) == (7, {"lanes", "bom", "secrets"})
    assert reasons(verdict)["lanes"] == ["lane `cpu` is required, and the catalog lists no checks for it"]
    assert "REFUSED, for 3 reasons" in verdict.stderr


def test_the_release_policy_refuses_for_exactly_what_is_missing(made: Signed, tmp_path: Path) -> None:
    unsigned = made.family.call("verify", "app", "--policy", "policies/release.yaml", "--json")
    assert (unsigned.code, "signature" in reasons(unsigned), "build" in reasons(unsigned)) == (7, True, True)
    assert made.family.call("sign", "app", **made.key()).code == 0
    summary = tmp_path / "summary.md"
    release: dict[str, Any] = {names.ENV_POLICY: "policies/release.yaml", "GITHUB_STEP_SUMMARY": str(summary)}
    verdict = made.family.call("verify", "app", "--json", **release)
    assert verdict.code == 7
    assert {rule: len(found) for rule, found in reasons(verdict).items()} == {"lanes": 1, "scan": 1, "soak": 1}
    assert "lane `gpu`" in reasons(verdict)["lanes"][0]
    assert all("`nox -s " in reason["solution"] or "image.yaml" in reason["solution"] for reason in verdict.data[0]["reasons"])
    assert summary.read_text().startswith("### app: REFUSED, for 3 reasons")

    policy = verdict.data[0]["policy"]
    pinned = made.family.call("verify", "app", "--json", **release, PIPELINE_POLICY_DIGEST=policy)
    assert "policy" not in reasons(pinned)
    for wrong in ("sha256:" + "0" * 64, ""):  # an unset variable of a CI system is empty text
        assert "policy" in reasons(made.family.call("verify", "app", "--json", **release, PIPELINE_POLICY_DIGEST=wrong))


def test_a_policy_with_changes_that_are_not_committed_is_refused(made: Signed) -> None:
    exceptions = made.family.root / "policies" / "exceptions.yaml"
    before = exceptions.read_text()
    try:
        exceptions.write_text(before + "# one more\n")
        verdict = made.family.call("verify", "app", "--policy", "policies/release.yaml", "--json")
        assert "policy" in reasons(verdict)
        exceptions.write_text(before)
        subprocess.run(["git", "-C", str(made.family.root), "config", "status.showUntrackedFiles", "no"], check=True)
        (exceptions.parent / "keys" / "more.pub").touch()
        assert "policy" in reasons(made.family.call("verify", "app", "--policy", "policies/release.yaml", "--json"))
        exceptions.write_text("exceptions: [}\n")
        assert made.family.call("verify", "app").code == 2
    finally:
        exceptions.write_text(before)
        (exceptions.parent / "keys" / "more.pub").unlink(missing_ok=True)


@pytest.fixture
def kept(made: Signed) -> Iterator[Signed]:
    """Statements and files that a test may spoil."""
    folder, images = made.family.root / ".pipeline" / "statements", made.family.root / "images"
    copies = [(each, made.family.temporary / f"kept-{each.name}") for each in (folder, images)]
    for each, saved in copies:
        shutil.copytree(each, saved)
    yield made
    for each, saved in copies:
        shutil.rmtree(each)
        shutil.move(saved, each)


def edit(path: Path, *at: str | int, to: Any) -> None:
    told = json.loads(path.read_text())
    place = told
    for step in at[:-1]:
        place = place[step]
    place[at[-1]] = to
    path.write_text(json.dumps(told))


def refused(made: Signed, text: str, *words: str) -> None:
    """Signing is refused with `text`, and nothing is attached."""
    before = made.attached(), made.attached(made.bare)
    said = made.family.call("sign", "app", *words, **made.key())
    assert said.code == 2
    assert text in said.stderr
    assert "hint: nothing was signed" in said.stderr
    assert (made.attached(), made.attached(made.bare)) == before


def test_statements_of_other_checks_are_refused(kept: Signed) -> None:
    kept.family.write("app/checks/test_it.py", "def test_it():\n    assert True\n")
    refused(kept, "of other checks than those of this checkout")


def test_statements_of_another_run_are_refused(kept: Signed) -> None:
    refused(kept, "is of the run `17`, not of `18`", "--run", "18")


def test_statements_about_another_digest_or_image_are_refused(kept: Signed) -> None:
    shutil.copy(kept.statement("built", kept.bare), kept.statement("built"))
    refused(kept, f"is about `{kept.bare}`")
    edit(kept.statement("bom"), "subject", 0, "digest", "sha256", to="0" * 64)
    refused(kept, "is about `")


EDITS: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("tested-cpu", ("predicate", "result"), "FAILED", "one thing in its standard fields and another in its record"),
    ("tested-cpu", ("predicate", "annotations", "image"), "bare", "is about the image `bare`"),
    ("built", ("subject", 0, "name"), "registry.example.com/other", "has another subject, or more fields"),
    ("built", ("more",), 1, "has another subject, or more fields"),
    ("built", ("predicateType",), "https://example.com/x", "none of ours"),
    ("built", ("subject",), {}, "is not about exactly one image"),
    ("findings", ("predicate", "size"), 1, "says that the image has 1 bytes"),
    ("findings", ("predicate", "image"), "bare", "is about the image `bare`"),
    ("bom", ("predicate", "metadata", "timestamp"), "2999-01-01T00:00:00Z", "ahead of this machine's clock"),
    ("bom", ("predicate", "metadata", "timestamp"), "2026-01-01T00:00:00", "names no zone"),
]


@pytest.mark.parametrize(("kind", "at", "to", "text"), EDITS, ids=[f"{kind} {at[-1]} {to}" for kind, at, to, _ in EDITS])
def test_statements_that_were_edited_are_refused(kept: Signed, kind: str, at: tuple[str | int, ...], to: Any, text: str) -> None:
    edit(kept.statement(kind), *at, to=to)
    refused(kept, text)


def test_what_is_no_statement_is_refused_with_all_faults_at_once(kept: Signed) -> None:
    kept.statement("built").write_bytes(b"[" * 100_000)
    kept.statement("tested-cpu").write_bytes(b"[]")
    kept.statement("bom").write_bytes(b'{"a": 1, "a": 2}')
    kept.statement("findings").write_bytes(b" " * (9 * 2**20))
    refused(kept, "nested too deep")
    said = kept.family.call("sign", "app", **kept.key()).stderr
    assert all(text in said for text in ("is no JSON object", "names a key twice", "has more than 8388608 bytes"))


def test_an_image_of_which_nothing_is_known_is_not_signed_whatever_was_copied_to_it(kept: Signed) -> None:
    kept.family.image("fresh", "parent: python\nvariant: fresh\n", LINKS, data=b"z")
    assert kept.family.call("build", "fresh").code == 0
    image = kept.family.repository.at(Digest(kept.family.call("plan", "fresh", "--json").of("fresh")["digest"]))
    shutil.rmtree(kept.statement("built", image).parent)
    for copied in ([], entries(kept.app)):
        hang(image, copied)
        said = kept.family.call("sign", "fresh")
        assert (said.code, "there are no statements about `fresh`" in said.stderr) == (2, True)
        assert kept.attached(image) == len(copied)


def test_where_all_is_signed_nothing_more_is_needed(kept: Signed) -> None:
    shutil.rmtree(kept.statement("built").parent)
    before = kept.attached()
    assert ends(kept.family.call("sign", "app", "--json"), "app") == {"signature": "known"}
    assert kept.attached() == before


def test_a_wrong_password_is_told_and_no_password_is_seen_anywhere(made: Signed) -> None:
    before = made.attached()
    wrong = "quite-another-password"
    said = made.family.call("sign", "app", **made.key(COSIGN_PASSWORD=wrong))
    assert said.code == 4
    assert f"does not open with the password in {names.ENV_PASSWORD}" in said.stderr
    assert made.attached() == before
    process = made.family.start("sign", "app", "--json", **made.key())
    seen: set[bytes] = set()
    while process.poll() is None:
        seen |= lines_of_commands()
    right = ended(process)
    assert right.code == 0
    assert any(b"cosign" in line for line in seen)
    for password in (wrong, PASSWORD):
        assert not [line for line in seen if password.encode() in line]
        assert password not in said.stdout + said.stderr + right.stdout + right.stderr


def lines_of_commands() -> set[bytes]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add((process / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def test_a_key_that_is_not_there_is_told(made: Signed) -> None:
    said = made.family.call("sign", "app", **made.key(PIPELINE_KEY_CI="/nothing/ci.key"))
    assert (said.code, "there is no key `/nothing/ci.key`" in said.stderr) == (4, True)


def alone(made: Signed, folder: Path, *words: str) -> Ended:
    """`verify` where there is nothing but public keys."""
    folder.mkdir(exist_ok=True)
    elsewhere = copy(made.family)
    elsewhere.root = folder
    return elsewhere.call("verify", *words)


def test_references_are_verified_in_an_empty_folder_by_keys_alone(made: Signed, tmp_path: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    shutil.copy(made.family.cache / "keys" / "development.pub", keys / "ci.pub")
    tagged = made.family.repository.tag(next(tag for tag in made.family.tags() if "-app-" in tag))
    for reference in (str(made.app), str(tagged)):
        found = alone(made, tmp_path / "empty", reference, "--keys", str(keys), "--json")
        assert (found.code, found.data[0]["subject"]) == (0, str(made.app))
        assert len(found.data[0]["statements"]) == 4
        assert "lane cpu" in found.stderr
    shutil.copy(made.family.root / "gpu.pub", keys / "ci.pub")
    strangers = alone(made, tmp_path / "empty", str(made.app), "--keys", str(keys), "--json")
    assert (strangers.code, strangers.data[0]["statements"], strangers.data[0]["signatures"]) == (7, [], [])
    assert not list((tmp_path / "empty").iterdir())


def test_a_tag_that_moves_meanwhile_is_looked_at_once(made: Signed, tmp_path: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    shutil.copy(made.family.root / "ci.pub", keys / "ci.pub")
    with fake_registry() as registry:
        first = registry.put_image(registry.repository(), layers=(b"first",))
        registry.put_image(registry.repository(), layers=(b"second",), tag="moving")
        address = f"/v2/{first.repository.path}/manifests/moving"
        registry.canned["GET", address] = [Answer(200, registry.manifests[first.repository.path, str(first.digest)])]
        found = alone(made, tmp_path / "empty", f"{first.repository}:moving", "--keys", str(keys), "--json")
        assert (found.code, found.data[0]["subject"]) == (7, str(first))
        assert registry.asked("GET", "/manifests/moving") == [address]


def test_what_cannot_be_verified_ends_with_the_reason(made: Signed, tmp_path: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    with_keys_alone = ("--keys", str(keys))
    assert alone(made, tmp_path / "empty", str(made.app), *with_keys_alone).code == 2
    shutil.copy(made.family.root / "ci.pub", keys / "ci.pub")
    for reference, code, text in (
        (f"{made.family.repository}:nothing", 2, "there is no"),
        (f"{made.family.repository}@sha256:{'0' * 64}", 5, "cannot be read"),
        (f"localhost:{free_port()}/team/image@{made.app.digest}", 75, "cannot be reached"),
        (f"{made.family.repository}@sha256:0", 2, "is not a sha256 digest"),
    ):
        said = alone(made, tmp_path / "empty", reference, *with_keys_alone)
        assert (said.code, text in said.stderr, "Traceback" in said.stderr) == (code, True, False)
    assert alone(made, tmp_path / "empty", *with_keys_alone).code == 2
    both = alone(made, tmp_path / "empty", str(made.app), *with_keys_alone, "--policy", "release.yaml")
    assert (both.code, "with `--keys` there is no verdict" in both.stderr) == (2, True)
    unknown = made.family.call("verify", "ap")
    assert (unknown.code, "did you mean `app`" in unknown.stderr) == (2, True)
    assert list((tmp_path / "empty").iterdir()) == []


def test_what_our_key_signed_and_we_cannot_read_is_no_success(made: Signed, tmp_path: Path) -> None:
    newer = {**signature_of(made.bare.digest), "predicateType": TEST_RESULT, "predicate": {"result": "FAILED", "version": 2}}
    key = PrivateKey(reference=str(made.family.cache / "keys" / "development.key"), environment={})
    content = Cosign(path=made.cosign, run=Runner({})).sign(written(newer), key)
    hang(made.bare, [content, *entries(made.bare)])
    (keys := tmp_path / "keys").mkdir()
    shutil.copy(made.family.cache / "keys" / "development.pub", keys / "ci.pub")
    found = alone(made, tmp_path / "empty", str(made.bare), "--keys", str(keys), "--json")
    assert (found.code, [one["why"] for one in found.data[0]["ignored"]]) == (7, ["unreadable"])
    assert "unreadable" in reasons(made.family.call("verify", "bare", "--json"))
