"""Users and passwords of registries, as `docker login` left them: in docker's configuration, or with a credential helper.

Docker's rules: a helper of the host's own (`credHelpers`), else the one for all (`credsStore`), else what the file says
(`auths`). A host is matched whole, with its port. What is secret is in no error, no log and no `repr`.
"""

import base64
import binascii
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pipeline.command import Run
from pipeline.errors import InputError, PipelineError, ToolFailed, ToolUnfit
from pipeline.oci import DOCKER_HUB

HELPER_SECONDS = 60
"""A helper may ask a cloud, or a user to unlock a store."""
IDENTITY_USER = "<token>"
"""The user that docker writes when the secret is an identity token."""

_HUB_KEY = f"https://index.{DOCKER_HUB}/v1/"
_HUB_NAMES = (_HUB_KEY, f"index.{DOCKER_HUB}", f"registry-1.{DOCKER_HUB}")
_ABSENT = "credentials not found"
_ADDRESS = re.compile(r"https?://([^/]+)/?(?:v[12]/?)?")
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A user with a password, or with an identity token that is exchanged for access tokens."""

    user: str
    secret: str = field(repr=False)
    basic: str = field(repr=False)
    """User and password as Basic authentication sends them, made of the exact bytes of the login."""
    identity: bool = False
    """Whether `secret` is an identity token, which is never sent as a password."""

    @classmethod
    def of(cls, user: bytes, secret: bytes) -> "Credential":
        """From the bytes of a login."""
        return cls(
            user=user.decode(errors="replace"),
            secret=secret.decode(errors="replace"),
            basic=base64.b64encode(user + b":" + secret).decode("ascii"),
            identity=user == IDENTITY_USER.encode(),
        )


class Credentials(Protocol):
    """Who we are at a registry."""

    def of(self, host: str) -> Credential | None:
        """The login for exactly this host and port; None: nobody."""


class Anonymous:
    """Nobody, anywhere."""

    def of(self, host: str) -> Credential | None:
        """None."""
        return None


class DockerLogins:
    """The logins in a folder of docker's configuration; may be used by several threads, asks once for each host."""

    def __init__(self, folder: Path, run: Run) -> None:
        """Nothing is read yet."""
        self._path, self._run = folder / "config.json", run
        self._known: dict[str, Credential | None] = {}
        self._lock = threading.Lock()

    def of(self, host: str) -> Credential | None:
        """The login for exactly this host and port.

        Raises `InputError` when the configuration cannot be read, `ToolUnfit` when its helper cannot be started and
        `ToolFailed` when that fails otherwise than with "not found".
        """
        with self._lock:
            if host not in self._known:
                self._known[host] = self._find(host)
            return self._known[host]

    def _find(self, host: str) -> Credential | None:
        config = self._read()
        helper = _of(_table(config, "credHelpers", self._path), host) or config.get("credsStore")
        if helper:
            return self._ask(helper, host)
        entry = _of(_table(config, "auths", self._path), host)
        return _login(entry, f"the login for `{host}` in `{self._path}`") if isinstance(entry, dict) else None

    def _read(self) -> Mapping[str, Any]:
        try:
            config = json.loads(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise InputError(f"`{self._path}` cannot be read: {error.strerror}", hint="make it readable for you") from error
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            raise InputError(f"`{self._path}` is no JSON object", hint="mend it, or name another folder in DOCKER_CONFIG")
        return config

    def _ask(self, helper: object, host: str) -> Credential | None:
        if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
            raise InputError(f"`{self._path}` names a credential helper that is not a name", hint="mend `credsStore` there")
        program, address = f"docker-credential-{helper}", _HUB_KEY if host == DOCKER_HUB else host
        try:
            done = self._run(program, "get", timeout=HELPER_SECONDS, stdin=address.encode(), check=False)
        except ToolUnfit as error:
            hint = f"install `{program}`, or take it out of `{self._path}` and `docker login {host}` again"
            raise ToolUnfit(error.message, hint=hint) from error
        if done.code != 0 and _ABSENT in done.stdout.lower():
            return None
        if done.code != 0:
            raise _unwilling(program, address, f"failed with exit status {done.code}")
        return _told(done.stdout, _unwilling(program, address, "answered something that is no login"))


def of_docker(environment: Mapping[str, str], run: Run) -> Credentials:
    """The logins of the user whose environment this is: in `DOCKER_CONFIG`, else in `~/.docker`."""
    if chosen := environment.get("DOCKER_CONFIG"):
        return DockerLogins(Path(chosen), run)
    home = environment.get("HOME")
    return DockerLogins(Path(home) / ".docker", run) if home else Anonymous()


def _of(table: Mapping[str, Any], host: str) -> Any:
    """What a table says of a host; its key may be an old one, the address of the host's `v1` or `v2`."""
    hosts = {match[1]: said for key, said in table.items() if (match := _ADDRESS.fullmatch(key))}
    names = (*_HUB_NAMES, host) if host == DOCKER_HUB else (host,)
    return next((where[name] for where in (table, hosts) for name in names if where.get(name)), None)


def _login(entry: Mapping[str, Any], what: str) -> Credential | None:
    if token := entry.get("identitytoken"):
        return Credential.of(IDENTITY_USER.encode(), str(token).encode())
    if encoded := entry.get("auth"):
        return _decoded(encoded, what)
    if entry.get("registrytoken"):
        raise InputError(f"{what} is a `registrytoken`, which is soon good for nothing", hint="`docker login` writes it anew")
    user, password = entry.get("username"), entry.get("password")
    return Credential.of(str(user).encode(), str(password).encode()) if user and password else None


def _decoded(encoded: object, what: str) -> Credential:
    try:
        user, colon, password = base64.b64decode(str(encoded), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        colon = b""
    if not colon:
        raise InputError(f"{what} cannot be read", hint="`docker login` writes it anew")
    return Credential.of(user, password.strip(b"\0"))


def _told(stdout: str, otherwise: PipelineError) -> Credential | None:
    try:
        told = json.loads(stdout)
        user, secret = told["Username"], told["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise otherwise from None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise otherwise
    return Credential.of(user.encode(), secret.encode()) if secret else None


def _unwilling(program: str, address: str, how: str) -> ToolFailed:
    """Without what the helper wrote, which may hold the secret."""
    return ToolFailed(
        f"the credential helper `{program}` {how} when asked for `{address}`", hint=f"`echo {address} | {program} get` shows more"
    )


def _table(config: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    found = config.get(name) or {}
    if not isinstance(found, dict):
        raise InputError(f"`{name}` in `{path}` is no table", hint="mend it, or name another folder in DOCKER_CONFIG")
    return found
