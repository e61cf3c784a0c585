"""Signing with cosign: the only place that runs it. Always offline, with nothing of the environment but what a key needs.

cosign signs our statements byte for byte (`attest-blob --statement`) and sends nothing anywhere: no transparency log, no
registry. What it made is checked before it is believed.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline import dsse, names
from pipeline.command import Run
from pipeline.errors import InputError, ToolFailed, ToolUnfit

SECONDS = 120.0
"""Deadline of one call: a key in a service is reached over a network."""
ALWAYS = (
    "HOME",
    "PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
)
NEEDED = {
    "awskms": ("AWS_",),
    "gcpkms": ("GOOGLE_", "CLOUDSDK_"),
    "azurekms": ("AZURE_",),
    "hashivault": ("VAULT_", "TRANSIT_SECRET_ENGINE_PATH"),
    "openbao": ("BAO_", "TRANSIT_SECRET_ENGINE_PATH"),
    "k8s": ("KUBE",),
    "gitlab": ("GITLAB_",),
    "pkcs11": ("COSIGN_PKCS11_",),
}
"""What the variables begin with that a kind of key is reached by."""


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    """A key to sign with, as cosign names it: a file, `env://VARIABLE`, or the URI of a key in a service (`awskms://…`)."""

    reference: str
    environment: Mapping[str, str]
    """This process's, of which cosign sees what this key needs."""

    @property
    def scheme(self) -> str:
        """`awskms`, `env`…; empty for a file."""
        return self.reference.partition("://")[0] if "://" in self.reference else ""


@dataclass(frozen=True, kw_only=True)
class Cosign:
    """cosign, and how it is run."""

    path: Path
    run: Run
    _offline: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    """The files by which cosign knows that there is no service to ask: made once, by a call each."""

    def sign(self, statement: bytes, key: PrivateKey) -> bytes:
        """The bundle of `statement`, signed; raises `ToolFailed` when cosign fails or signs anything else."""
        with tempfile.TemporaryDirectory(prefix="pipeline-sign-") as name:
            folder = Path(name)
            (folder / "statement.json").write_bytes(statement)
            for file, content in self._files(key).items():
                (folder / file).write_bytes(content)
            options = ("--signing-config", folder / "signing.json", "--trusted-root", folder / "root.json")
            files = ("--statement", folder / "statement.json", "--bundle", folder / "bundle.json")
            self._run(folder, key, "attest-blob", "--yes", "--key", key.reference, *options, *files)
            bundle = _written(folder / "bundle.json", "attest-blob")
        _check(bundle, statement)
        return bundle

    def public(self, key: PrivateKey) -> bytes:
        """The public half, in PEM."""
        with tempfile.TemporaryDirectory(prefix="pipeline-key-") as name:
            return self._run(Path(name), key, "public-key", "--key", key.reference).encode()

    def make_pair(self, folder: Path, name: str) -> None:
        """Write `<name>.key`, which no password protects, and `<name>.pub` into `folder`."""
        key = PrivateKey(reference=str(folder / f"{name}.key"), environment={names.ENV_PASSWORD: ""})
        self._run(folder, key, "generate-key-pair", "--output-key-prefix", str(folder / name))

    def _files(self, key: PrivateKey) -> Mapping[str, bytes]:
        for file, kind in (("signing.json", "signing-config"), ("root.json", "trusted-root")):
            if file not in self._offline:
                with tempfile.TemporaryDirectory(prefix="pipeline-sign-") as name:
                    self._run(Path(name), key, kind, "create", "--out", Path(name) / file)
                    self._offline[file] = _written(Path(name) / file, kind)
        return self._offline

    def _run(self, folder: Path, key: PrivateKey, *words: str | Path) -> str:
        done = self.run(
            self.path,
            *words,
            timeout=SECONDS,
            cwd=folder,
            env=_told(key),
            stdin=b"",
            bare=True,
            secrets=_secrets(key),
            check=False,
        )
        if done.code != 0:
            raise _failure(key, words[0], done.stderr)
        return done.stdout


def _written(file: Path, verb: str) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise ToolFailed(f"`cosign {verb}` wrote no `{file.name}`") from error


def _told(key: PrivateKey) -> dict[str, str]:
    """A password that is not set would be asked for, on a terminal or for ever."""
    wanted = NEEDED.get(key.scheme, ())
    variable = key.reference.removeprefix("env://") if key.scheme == "env" else ""
    told = {
        name: value
        for name, value in key.environment.items()
        if name in ALWAYS or name == variable or (wanted and name.startswith(wanted))
    }
    return {**told, names.ENV_PASSWORD: key.environment.get(names.ENV_PASSWORD, "")}


def _secrets(key: PrivateKey) -> list[str]:
    values = [key.environment.get(names.ENV_PASSWORD, "")]
    if key.scheme == "env":
        values.append(key.environment.get(key.reference.removeprefix("env://"), ""))
    return [value for value in values if value]


def _failure(key: PrivateKey, verb: str | Path, said: str) -> Exception:
    low, name = said.lower(), key.reference
    variable = key.reference.removeprefix("env://") if key.scheme == "env" else ""
    if variable and not key.environment.get(variable):
        return ToolUnfit(f"there is no key in `{name}`: the variable is not set", hint=f"set `{variable}`, or name another key")
    if "pem type: public key" in low:
        return ToolUnfit(
            f"the key `{name}` is a public one", hint="name the private half: what `cosign generate-key-pair` wrote as `.key`"
        )
    if "decrypt" in low or "password" in low:
        return ToolUnfit(
            f"the key `{name}` does not open with the password in {names.ENV_PASSWORD}",
            hint=f"set {names.ENV_PASSWORD}; the key is not harmed",
        )
    if "no such file" in low or "not found" in low:
        return ToolUnfit(f"there is no key `{name}`", hint="`cosign generate-key-pair`, or name another one")
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    hint = f"the service must answer, and let this machine use `{name}`" if key.scheme in NEEDED else ""
    return ToolFailed(f"`cosign {verb}` failed with the key `{name}`: {last.strip()[-500:]}", hint=hint)


def _check(bundle: bytes, statement: bytes) -> None:
    try:
        envelope = dsse.parse(bundle)
    except InputError as error:
        raise ToolFailed(f"what cosign wrote {error.message}") from error
    if envelope.payload.strip() != statement.strip() or envelope.logged:
        raise ToolFailed("cosign signed something else than it was given, or told a log of it")
