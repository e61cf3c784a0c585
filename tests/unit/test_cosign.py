"""cosign as it is run: offline, with nothing of the environment but what its key needs, and believed only after a look."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline import names
from pipeline.command import Completed
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import ToolFailed, ToolUnfit
from tests.unit.test_dsse import STATEMENT, bundle

ENVIRONMENT = {
    "PATH": "/bin",
    "HOME": "/home/x",
    "HTTPS_PROXY": "http://proxy",
    "AWS_REGION": "x",
    "VAULT_ADDR": "y",
    "MY_KEY": "the key itself",
    "GITHUB_TOKEN": "t",
    "COSIGN_REPOSITORY": "elsewhere",
    "COSIGN_EXPERIMENTAL": "1",
    "SIGSTORE_REKOR_URL": "https://example.com",
    "TUF_ROOT": "/x",
    names.ENV_PASSWORD: "secret",
}
GOOD = bundle()
COMMON = {"PATH", "HOME", "HTTPS_PROXY", names.ENV_PASSWORD}


class Recorder:
    """A `Run` that remembers how cosign was called, and writes `made` where a bundle is wanted."""

    def __init__(self, made: bytes | None = None, code: int = 0, stderr: str = "") -> None:
        self.made, self.code, self.stderr = made, code, stderr
        self.calls: list[tuple[tuple[str, ...], Mapping[str, Any]]] = []

    def __call__(self, *words: Any, **told: Any) -> Completed:
        argv = tuple(map(str, words))
        self.calls.append((argv, told))
        if "--out" in argv:
            Path(argv[argv.index("--out") + 1]).write_text("{}")
        if "--bundle" in argv and self.made is not None:
            Path(argv[argv.index("--bundle") + 1]).write_bytes(self.made)
        return Completed(argv=argv, code=self.code, stdout="", stderr=self.stderr, seconds=0.0)


def signed(recorder: Recorder, reference: str = "ci.key", environment: Mapping[str, str] = ENVIRONMENT) -> bytes:
    return Cosign(path=Path("cosign"), run=recorder).sign(STATEMENT, PrivateKey(reference=reference, environment=environment))


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("ci.key", set()),
        ("awskms:///alias/ci", {"AWS_REGION"}),
        ("hashivault://ci", {"VAULT_ADDR"}),
        ("env://MY_KEY", {"MY_KEY"}),
        ("env://GITHUB_TOKE", set()),
        ("unknown://x", set()),
    ],
)
def test_cosign_sees_what_its_key_needs_and_nothing_else(reference: str, more: set[str]) -> None:
    recorder = Recorder(GOOD)
    assert signed(recorder, reference) == GOOD
    for _, told in recorder.calls:
        assert (set(told["env"]), told["bare"], told["stdin"]) == (COMMON | more, True, b"")


def test_what_keeps_it_offline_is_made_once_for_many_statements() -> None:
    recorder = Recorder(GOOD)
    cosign, key = Cosign(path=Path("cosign"), run=recorder), PrivateKey(reference="ci.key", environment=ENVIRONMENT)
    for _ in range(3):
        cosign.sign(STATEMENT, key)
    verbs = [argv[1] for argv, _ in recorder.calls]
    assert verbs == ["signing-config", "trusted-root", "attest-blob", "attest-blob", "attest-blob"]


def test_no_secret_is_an_argument_and_all_are_hidden() -> None:
    recorder = Recorder(GOOD)
    signed(recorder, "env://MY_KEY")
    for argv, told in recorder.calls:
        assert not [word for word in argv if "secret" in word or "the key itself" in word]
        assert told["secrets"] == ["secret", "the key itself"]


def test_a_password_that_is_not_set_is_empty_and_not_asked_for() -> None:
    recorder = Recorder(GOOD)
    signed(recorder, environment={})
    assert {told["env"][names.ENV_PASSWORD] for _, told in recorder.calls} == {""}


@pytest.mark.parametrize(
    "made",
    [
        None,
        b"",
        bundle(STATEMENT.replace(b"1}", b"2}")),
        bundle(verificationMaterial={"tlogEntries": [{"logIndex": "1"}]}),
        json.dumps({"base64Signature": "x"}).encode(),
    ],
    ids=["nothing", "empty", "another statement", "told a log", "another format"],
)
def test_what_cosign_made_is_looked_at_before_it_is_believed(made: bytes | None) -> None:
    with pytest.raises(ToolFailed):
        signed(Recorder(made))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Error: decrypt: encrypted: decryption failed", ToolUnfit),
        ("open x.key: no such file or directory", ToolUnfit),
        ("boom", ToolFailed),
    ],
)
def test_failures_name_the_key_and_what_to_do(said: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"`ci\.key`"):
        signed(Recorder(code=1, stderr=said))


@pytest.mark.parametrize(
    ("reference", "said", "message", "hint"),
    [
        ("env://NO_KEY", "not found", "there is no key in `env://NO_KEY`: the variable is not set", "set `NO_KEY`"),
        ("ci.pub", "Error: unsupported pem type: PUBLIC KEY\n", "the key `ci.pub` is a public one", "`.key`"),
        (
            "awskms:///x",
            "Error: a, b\nerror: a, b\n",
            "`cosign signing-config` failed with the key `awskms:///x`: error: a, b",
            "`awskms",
        ),
        ("ci.key", " \n", "`cosign signing-config` failed with the key `ci.key`: it said nothing", ""),
    ],
)
def test_a_failure_says_once_what_is_wrong_with_the_key(reference: str, said: str, message: str, hint: str) -> None:
    with pytest.raises((ToolUnfit, ToolFailed)) as caught:
        signed(Recorder(code=1, stderr=said), reference)
    assert (caught.value.message, hint in (caught.value.hint or "")) == (message, True)
