"""Which docker engine this user means, and whether it answers.

A look is one request over a socket; the SDK, which the work itself uses, costs more to import than all else together.
"""

import hashlib
import json
import re
import sys
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
from pipeline.oci import Repository

DOCKER_SOCKET = "unix:///var/run/docker.sock"
ENGINE_SECONDS = 60.0
"""How long an engine that is not on this machine may take to tell its version."""
CONTAINERD, SYSTEM_CONTAINERD = "/var/lib/containerd", "/run/containerd/containerd.sock"
SNAPSHOTS = ["driver-type", "io.containerd.snapshotter.v1"]
"""What an engine that keeps its images in containerd tells of its driver (the default of a new Docker 29)."""
USERS_SOCKETS = "unix:///run/user/"
"""Where a rootless engine listens that does not tell so yet (before Docker 23)."""
PODMAN, ROOTLESS = "Podman Engine", "rootlesskit"
"""Parts of an engine by which it is known, in what it says of its version: Podman (`SystemVersion` of its likeness of
Docker's API), and Docker without root (moby, `fillRootlessVersion`)."""


@dataclass(frozen=True, kw_only=True)
class EngineFound:
    """A docker engine that answers."""

    host: str
    """What `DOCKER_HOST` must say to reach it."""
    version: str
    desktop: bool
    """It runs in Docker Desktop's virtual machine, whose loopback is not this machine's."""
    apart: bool = False
    """Its loopback is not this machine's: a virtual machine, a rootless engine's own network, or over a network."""
    publishes: bool = False
    """It is apart, and the registry on this machine's loopback is a container of it, so that both reach it there."""

    @property
    def near(self) -> bool:
        """Whether what it shares with its host's network reaches a registry on this machine's loopback."""
        return not self.apart or self.publishes


class Silence(Enum):
    """Why no engine answers."""

    NOBODY = "nobody listens"
    REFUSED = "this user may not"
    DEAF = "what listens there does not answer"
    PODMAN = "it is Podman, whose likeness of Docker hands out no GPUs and is not supported"


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
        if self.why is Silence.PODMAN:
            return ToolUnfit(
                f"no docker engine answers at `{self.host}`: {self.why.value}",
                hint="name Docker's socket in DOCKER_HOST; without root: `dockerd-rootless-setuptool.sh install`",
            )
        named = "start it, or unset DOCKER_HOST and `docker context use default`"
        ours = "start it (`sudo systemctl start docker`), or run `nox -s setup` as root on Debian or Ubuntu"
        hint = named if self.named else ours
        if self.why is Silence.DEAF:
            hint = f"{BUSY}; when it stays silent, {hint.replace('start', 'restart')}"
        return ToolUnfit(f"no docker engine answers at `{self.host}`: {self.why.value}", hint=hint)


def find_engine(environment: Mapping[str, str], run: Run, *, registry: str = "") -> EngineFound | NoEngine:
    """The engine that DOCKER_HOST, the docker context or the default socket names; costs one request over a socket.

    One that is apart is asked whether the `registry` (host and port) on this machine's loopback is a container of it.
    """
    host, named = engine_host(environment)
    try:
        told = _engine_version(host, environment, run)
    except PermissionError:
        return NoEngine(host, Silence.REFUSED, named)
    if isinstance(told, Silence):
        return NoEngine(host, told, named)
    parts = {str(part.get("Name")) for part in told.get("Components") or ()}
    if PODMAN in parts:
        return NoEngine(host, Silence.PODMAN, named)
    desktop = "Docker Desktop" in (told.get("Platform") or {}).get("Name", "")
    rootless = ROOTLESS in parts or host.startswith(USERS_SOCKETS)
    apart = desktop or rootless or not host.startswith("unix://") or sys.platform != "linux"
    here = apart and bool(registry) and Repository(registry, "x").loopback and _publishes(host, registry)
    return EngineFound(host=host, version=str(told.get("Version", "")), desktop=desktop, apart=apart, publishes=here)


def over_ssh(engine: EngineFound) -> ToolUnfit | None:
    """Why an engine that docker's command line reaches is out of reach of what starts containers here."""
    if not engine.host.startswith("ssh://"):
        return None
    there = engine.host.removeprefix("ssh://").partition("/")[0]
    return ToolUnfit(
        f"containers cannot be started over `{engine.host}`: ssh is not spoken",
        hint=f"`ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock {there} &`, then `export DOCKER_HOST=unix:///tmp/docker.sock`",
    )


def variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables by which docker's SDK, which knows no contexts, finds the engine that is meant."""
    host, _ = engine_host(environment)
    name = _context(environment)
    folder = _contexts(environment) / "tls" / _hashed(name) / "docker"
    if environment.get("DOCKER_HOST") or name == "default" or not folder.is_dir():
        return {"DOCKER_HOST": host}
    unchecked = _endpoint(environment, name).get("SkipTLSVerify")
    return {"DOCKER_HOST": host, "DOCKER_CERT_PATH": str(folder), "DOCKER_TLS_VERIFY": "" if unchecked else "1"}


def image_folder(info: Mapping[str, Any]) -> str:
    """Where an engine that tells `info` keeps its images: in containerd's folder, where the system's containerd has them."""
    theirs = (info.get("Containerd") or {}).get("Address") == SYSTEM_CONTAINERD
    return CONTAINERD if theirs and SNAPSHOTS in (info.get("DriverStatus") or ()) else str(info.get("DockerRootDir", ""))


def engine_root(engine: EngineFound) -> Path | None:
    """The folder of the engine's images; `None` when it is not on this machine."""
    scheme, _, place = engine.host.partition("://")
    reply = daemons.ask(Path(place), "/info", timeout=ENGINE_SECONDS) if scheme == "unix" and not engine.desktop else None
    root = Path(image_folder(json.loads(reply.body))) if reply and reply.status == 200 else None
    return root if root and root.exists() else None


def engine_host(environment: Mapping[str, str]) -> tuple[str, bool]:
    """Where the engine is, and whether the user said so (DOCKER_HOST, or a context other than `default`)."""
    if host := environment.get("DOCKER_HOST"):
        return host, True
    name = _context(environment)
    if name == "default":
        return DOCKER_SOCKET, False
    try:
        return str(_endpoint(environment, name)["Host"]), True
    except KeyError as error:
        raise ToolUnfit(f"there is no docker context `{name}`", hint="`docker context ls` shows them") from error


def _publishes(host: str, registry: str) -> bool:
    """Whether a container of an engine that is apart on this machine has this port here: then it has it there too.

    Virtual machines and rootless engines bind a published port on their own side before it is forwarded.
    """
    scheme, _, place = host.partition("://")
    reply = daemons.ask(Path(place), "/containers/json", timeout=ENGINE_SECONDS) if scheme == "unix" else None
    found = json.loads(reply.body) if reply and reply.status == 200 else ()
    ports = {port.get("PublicPort") for container in found for port in container.get("Ports") or ()}
    return registry.rpartition(":")[2] in map(str, ports)


def _context(environment: Mapping[str, str]) -> str:
    chosen = environment.get("DOCKER_CONTEXT") or read_json(docker_config(environment) / "config.json").get("currentContext")
    return str(chosen or "default")


def _contexts(environment: Mapping[str, str]) -> Path:
    return docker_config(environment) / "contexts"


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _endpoint(environment: Mapping[str, str], name: str) -> Mapping[str, Any]:
    """What a context notes of its engine; raises `KeyError` when there is no such context."""
    noted = read_json(_contexts(environment) / "meta" / _hashed(name) / "meta.json")
    return dict(noted["Endpoints"]["docker"])


def major(version: str) -> int:
    """The first number of an engine's version; 0 for one that begins with none, as that of a development build."""
    found = re.match(r"v?(\d+)", version)
    return int(found[1]) if found else 0


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
