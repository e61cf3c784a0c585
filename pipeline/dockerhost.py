"""Which docker engine this user means, and whether it answers.

A look is one request over a socket; the SDK, which the work itself uses, costs more to import than all else together.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pipeline import daemons
from pipeline.command import BUSY, Run
from pipeline.daemons import Reply
from pipeline.errors import ToolFailed, ToolUnfit

DOCKER_SOCKET = "unix:///var/run/docker.sock"
ENGINE_SECONDS = 60.0
"""How long an engine that is not on this machine may take to tell its version."""


@dataclass(frozen=True, kw_only=True)
class EngineFound:
    """A docker engine that answers."""

    host: str
    """What `DOCKER_HOST` must say to reach it."""
    version: str
    desktop: bool
    """It runs in Docker Desktop's virtual machine, whose loopback is not this machine's."""


class Silence(Enum):
    """Why no engine answers."""

    NOBODY = "nobody listens"
    REFUSED = "this user may not"
    DEAF = "what listens there does not answer"


@dataclass(frozen=True)
class NoEngine:
    """No engine answers at `host`; `named`: the user chose that host."""

    host: str
    why: Silence
    named: bool

    def error(self, user: str) -> ToolUnfit:
        """What to tell the user."""
        if self.why is Silence.REFUSED:
            return ToolUnfit(
                f"docker's socket `{self.host}` refused user `{user}`",
                hint=f"`sudo usermod -aG docker {user}` and log in again (members of that group are as good as root), "
                "or use a rootless engine: `dockerd-rootless-setuptool.sh install`",
            )
        named = "start it, or unset DOCKER_HOST and `docker context use default`"
        ours = "start it (`sudo systemctl start docker`), or run `nox -s setup` as root on Debian or Ubuntu"
        hint = named if self.named else ours
        if self.why is Silence.DEAF:
            hint = f"{BUSY}; when it stays silent, {hint.replace('start', 'restart')}"
        return ToolUnfit(f"no docker engine answers at `{self.host}`: {self.why.value}", hint=hint)


def find_engine(environment: Mapping[str, str], run: Run) -> EngineFound | NoEngine:
    """The engine that DOCKER_HOST, the docker context or the default socket names; costs one request over a socket."""
    host, named = engine_host(environment)
    try:
        told = _engine_version(host, environment, run)
    except PermissionError:
        return NoEngine(host, Silence.REFUSED, named)
    if isinstance(told, Silence):
        return NoEngine(host, told, named)
    platform = (told.get("Platform") or {}).get("Name", "")
    return EngineFound(host=host, version=str(told.get("Version", "")), desktop="Docker Desktop" in platform)


def engine_root(engine: EngineFound) -> Path | None:
    """The engine's data folder; `None` when it is not on this machine."""
    scheme, _, place = engine.host.partition("://")
    reply = daemons.ask(Path(place), "/info", timeout=ENGINE_SECONDS) if scheme == "unix" and not engine.desktop else None
    root = Path(json.loads(reply.body)["DockerRootDir"]) if reply and reply.status == 200 else None
    return root if root and root.exists() else None


def engine_host(environment: Mapping[str, str]) -> tuple[str, bool]:
    """Where the engine is, and whether the user said so (DOCKER_HOST, or a context other than `default`)."""
    if host := environment.get("DOCKER_HOST"):
        return host, True
    config = docker_config(environment)
    name = environment.get("DOCKER_CONTEXT") or read_json(config / "config.json").get("currentContext") or "default"
    if name == "default":
        return DOCKER_SOCKET, False
    context = read_json(config / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json")
    try:
        return str(context["Endpoints"]["docker"]["Host"]), True
    except KeyError as error:
        raise ToolUnfit(f"there is no docker context `{name}`", hint="`docker context ls` shows them") from error


def docker_config(environment: Mapping[str, str]) -> Path:
    """The folder of docker's own configuration."""
    return Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME", "/")) / ".docker")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of docker's; empty when there is no such file."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ToolFailed(f"`{path}` cannot be read: {error}", hint="repair it, or move it away") from error
    return dict(data)


def _engine_version(host: str, environment: Mapping[str, str], run: Run) -> dict[str, Any] | Silence:
    scheme, _, place = host.partition("://")
    if scheme == "unix":
        return _version_in(daemons.ask(Path(place), "/version"))
    name, _, port = place.rpartition(":")
    plain = host == environment.get("DOCKER_HOST") and not environment.get("DOCKER_TLS_VERIFY")
    if scheme == "tcp" and port.isdecimal() and plain:
        return _version_in(daemons.ask((name.strip("[]"), int(port)), "/version"))
    told = run("docker", "version", "--format", "{{json .Server}}", timeout=ENGINE_SECONDS, check=False)
    return dict(json.loads(told.stdout)) if told.code == 0 else Silence.DEAF


def _version_in(reply: Reply | None) -> dict[str, Any] | Silence:
    if reply is None:
        return Silence.NOBODY
    with suppress(ValueError):
        if reply.status == 200:
            return dict(json.loads(reply.body))
    return Silence.DEAF
