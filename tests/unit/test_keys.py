"""Keys as policies and folders name them: each once, from the folder itself, and as it was committed."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pipeline import attest, dsse, keys, policies
from pipeline.command import Completed
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import InputError, ToolUnfit
from pipeline.evidence import Key
from pipeline.gather import Keys
from pipeline.policy import ListedKey
from tests.cases import NOW

POLICY = Path(__file__).parents[2] / "policies"
COMMIT = "e" * 40


def pem() -> bytes:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def folder(root: Path, listed: str, **files: bytes) -> Path:
    """The release policy as it ships with these keys; returns its path."""
    (root / "keys").mkdir()
    text = (POLICY / "release.yaml").read_text().replace("keys: []\n", f"keys:\n{listed}")
    (root / "release.yaml").write_text(text)
    (root / "exceptions.yaml").write_bytes((POLICY / "exceptions.yaml").read_bytes())
    for name, content in files.items():
        (root / "keys" / f"{name}.pub").write_bytes(content)
    return root / "release.yaml"


def git(status: str = "", code: int = 0) -> Any:
    def run(*words: Any, **_: Any) -> Completed:
        stdout = COMMIT if "rev-parse" in words else status
        return Completed(argv=tuple(map(str, words)), code=code, stdout=stdout, stderr="", seconds=0.0)

    return run


def load(path: Path, run: Any = None, environment: Mapping[str, str] | None = None) -> policies.Loaded:
    run = run or git()
    cosign = Cosign(path=Path("cosign"), run=run)
    return policies.load(path, pinned=None, cache=path.parent, cosign=lambda: cosign, run=run, environment=environment or {})


CI = "  - {name: ci, roles: [ci], file: keys/ci.pub}\n"
OLD = "  - {name: old, roles: [ci], file: keys/old.pub, revoked: true}\n"


def test_one_key_cannot_be_revoked_under_one_name_and_count_under_another(tmp_path: Path) -> None:
    content = pem()
    for place, listed in enumerate((CI + OLD, OLD + CI)):
        (root := tmp_path / str(place)).mkdir()
        with pytest.raises(InputError, match="are one key"):
            load(folder(root, listed, ci=content, old=content.replace(b"\n", b"\r\n")))


def test_files_of_windows_are_read_and_have_a_digest_of_their_own(tmp_path: Path) -> None:
    content = pem()
    found = load(folder(tmp_path, CI, ci=content))
    for path in (tmp_path / "release.yaml", tmp_path / "exceptions.yaml", tmp_path / "keys" / "ci.pub"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    windows = load(tmp_path / "release.yaml")
    assert (windows.policy, windows.exceptions, windows.keys) == (found.policy, found.exceptions, found.keys)
    assert windows.checkout.policy != found.checkout.policy


@pytest.mark.parametrize("linked", ["keys/ci.pub", "exceptions.yaml", "release.yaml", "keys"])
def test_what_is_a_link_is_refused_since_git_knows_the_link_alone(tmp_path: Path, linked: str) -> None:
    (root := tmp_path / "policies").mkdir()
    path = folder(root, CI, ci=pem())
    (root / linked).rename(tmp_path / "elsewhere")
    (root / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        load(path)


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (root := tmp_path / "policies").mkdir()
    folder(root, CI, ci=pem())
    (tmp_path / "link").symlink_to(root)
    assert load(tmp_path / "link" / "release.yaml").checkout.clean


def test_a_key_that_is_not_there_or_none_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, CI)
    with pytest.raises(InputError, match=r"keys/ci\.pub` cannot be read") as caught:
        load(path)
    assert caught.value.hint == "put the public key there, or take its entry off the policy's `keys:`"
    (tmp_path / "keys" / "ci.pub").write_text("no key")
    with pytest.raises(InputError, match=r"the key `ci` .`keys/ci\.pub`. is no public key"):
        load(path)


def test_a_file_of_several_keys_is_refused_since_only_the_first_would_count(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the key `ci` .`keys/ci\.pub`. is several keys"):
        load(folder(tmp_path, CI, ci=pem() + pem()))


@pytest.mark.parametrize("text", ["-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nsecret\n", "-----BEGIN x", "a\nb"])
def test_a_key_in_place_of_its_name_goes_nowhere(tmp_path: Path, text: str) -> None:
    cosign = Cosign(path=Path("cosign"), run=git())
    with pytest.raises(InputError, match="`PIPELINE_KEY_CI` holds a key") as caught:
        keys.private("ci", {"ci": text}, cache=tmp_path, loopback=True, cosign=cosign, environment={})
    assert text not in str(caught.value)
    assert "`env://VARIABLE`" in caught.value.hint


def test_what_git_calls_changed_or_cannot_tell_is_not_as_committed(tmp_path: Path) -> None:
    path = folder(tmp_path, CI, ci=pem())
    assert load(path).checkout.clean
    assert not load(path, git("?? policies/keys/ci.pub\n")).checkout.clean
    assert not load(path, git(code=128)).checkout.clean
    for word in ("rev-parse", "status", "ls-files"):
        assert not load(path, lambda *words, word=word, **_: git(code=128 if word in words else 0)(*words)).checkout.clean


def test_the_digest_changes_with_policy_exceptions_and_keys(tmp_path: Path) -> None:
    path = folder(tmp_path, CI, ci=pem())
    digests = {load(path).checkout.policy}
    for each in (path, tmp_path / "exceptions.yaml"):
        each.write_text(each.read_text() + "# more\n")
        digests.add(load(path).checkout.policy)
    (tmp_path / "keys" / "ci.pub").write_bytes(pem())
    assert len(digests | {load(path).checkout.policy}) == 4


def test_a_folder_names_keys_by_their_roles_and_one_key_may_have_several(tmp_path: Path) -> None:
    both, other = pem(), pem()
    for name, content in {"ci": both, "gpu-2026": both, "release": other}.items():
        (tmp_path / f"{name}.pub").write_bytes(content)
    assert [key for key, _ in keys.in_folder(tmp_path)] == [
        Key(name="ci gpu-2026", roles=frozenset({"ci", "gpu"})),
        Key(name="release", roles=frozenset({"release"})),
    ]


@pytest.mark.parametrize("name", ["cosign.pub", "c\u0456.pub", "CI.pub", "cigpu.pub"])
def test_a_name_that_begins_with_no_role_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pem())
    with pytest.raises(InputError, match="begins with no role"):
        keys.in_folder(tmp_path)
    with pytest.raises(InputError, match=r"there is no `\*.pub`"):
        keys.in_folder(tmp_path / "nothing")


def test_a_key_of_a_kind_that_there_is_not_is_refused_by_its_variable(tmp_path: Path) -> None:
    cosign = Cosign(path=Path("cosign"), run=git())
    with pytest.raises(InputError, match="`PIPELINE_KEY_CI` names a kind of key that there is not: `bogus://`") as caught:
        keys.private("ci", {"ci": "bogus://x"}, cache=tmp_path, loopback=True, cosign=cosign, environment={})
    assert "`env://VARIABLE`" in caught.value.hint
    for good in ("ci.key", "env://KEY", "awskms:///alias/x", "gitlab://group/project"):
        found = keys.private("ci", {"ci": good}, cache=tmp_path, loopback=False, cosign=cosign, environment={})
        assert found.reference == good


def test_exceptions_that_do_nothing_are_told_by_file_and_line_and_a_folder_without_them_tells_none(tmp_path: Path) -> None:
    assert policies.idle(tmp_path, ["nlp"], NOW) == ()
    line = "  - {rule: size, image: nlp, owner: o, reason: r, expires: 2026-05-01}\n"
    (tmp_path / "exceptions.yaml").write_text(f"exceptions:\n{line}")
    (found,) = policies.idle(tmp_path, ["nlp"], NOW)
    assert str(found).startswith(f"{tmp_path}/exceptions.yaml:2: exception `size` expired")


def test_the_development_key_is_made_once_and_for_loopback_alone(tmp_path: Path) -> None:
    made: list[Path] = []

    def make_pair(folder: Path, name: str) -> None:
        made.append(folder)
        (folder / f"{name}.key").write_text("key")

    cosign: Any = SimpleNamespace(make_pair=make_pair)
    with pytest.raises(ToolUnfit, match="there is no key for the role `release`"):
        keys.private("release", {"ci": "ci.key"}, cache=tmp_path, loopback=False, cosign=cosign, environment={})
    assert made == []
    for _ in range(2):
        given = {"HOME": "/home", "COSIGN_PASSWORD": "of another key"}
        found = keys.private("release", {}, cache=tmp_path / "cache", loopback=True, cosign=cosign, environment=given)
        assert Path(found.reference) == (folder := tmp_path / "cache" / "keys") / "development.key"
        assert found.environment == {"HOME": "/home", "COSIGN_PASSWORD": ""}
    assert made == [folder]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_each_key_of_a_policy_comes_from_where_it_says(tmp_path: Path) -> None:
    service, ours, filed = pem(), pem(), pem()
    cosign: Any = SimpleNamespace(public=lambda key: service if key.reference == "awskms:///alias/ci" else b"")
    listed = [
        ListedKey(name="a", roles=("ci",), kms="awskms:///alias/ci"),
        ListedKey(name="b", roles=("gpu",), development=True),
        ListedKey(name="c", roles=("release",), file="keys/c.pub"),
    ]

    def load() -> Keys:
        return keys.listed(listed, {"keys/c.pub": filed}, cache=tmp_path, cosign=lambda: cosign, environment={})

    with pytest.raises(InputError, match="the development key cannot be read") as caught:
        load()
    assert caught.value.hint == "`nox -s sign` makes one"
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "development.pub").write_bytes(ours)
    assert load() == [(one.key, dsse.public_key(content)) for one, content in zip(listed, (service, ours, filed), strict=True)]


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"roles": frozenset({"ci", "gpu"})}, False),
        ({"revoked": True}, False),
        ({"retired": NOW}, False),
        ({"retired": NOW - timedelta(days=1)}, False),
        ({"retired": NOW + timedelta(seconds=1)}, True),
    ],
    ids=["as listed", "another role", "revoked", "retired now", "retired", "not retired yet"],
)
def test_who_may_sign_now_is_told_by_the_list_of_public_keys(changes: dict[str, Any], may: bool) -> None:
    content, other = pem(), pem()
    key = replace(Key(name="release", roles=frozenset({"release"})), **changes)
    cosign: Any = SimpleNamespace(public=lambda _: content)
    ring = [(Key(name="x", roles=frozenset({"release"})), dsse.public_key(other)), (key, dsse.public_key(content))]
    ours = PrivateKey(reference="release.key", environment={})
    assert attest.listed(ours, ring, role="release", cosign=cosign, now=NOW) == (key if may else None)
    assert attest.listed(ours, ring[:1], role="release", cosign=cosign, now=NOW) is None
