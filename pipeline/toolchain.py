"""Which tools at which versions, and which of them this machine has; getting them is `install`'s part.

What is wanted is data (`data/tools.yaml`). A tool's true version comes from the stamp beside what we installed, from Go's
build info in the binary, or from its own mouth, in that order; versions of tools on PATH are remembered by file,
size and time, so that looking again costs a `stat`.
"""

import getpass
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from pipeline import names
from pipeline.buildinfo import module_version
from pipeline.command import Run
from pipeline.errors import Temporary, ToolFailed, ToolUnfit

ASK_SECONDS = 120.0
"""How long a tool may take to tell its version: the first time, a large one is read from the disk."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cost(_Data):
    """What a step takes: MB loaded, MB that stay, MB needed while it works, seconds on two cores."""

    download: int = 0
    disk: int = 0
    peak: int = 0
    seconds: int = 0


class OnPath(_Data):
    """A fit one on PATH, or in `folders`."""

    by: Literal["path"]
    names: tuple[str, ...]
    folders: tuple[str, ...] = ()


class Debian(_Data):
    """Packages of Debian or Ubuntu: installed as root, or with `unpack` only their files taken."""

    by: Literal["debian"]
    packages: tuple[str, ...]
    binary: str
    unpack: bool = False
    cost: Cost


class Wheel(_Data):
    """A wheel of the Python index, pinned by hash; `binary` is a pattern inside it.

    `release`: the wheel's version, where that is not the tool's. `package`: the Go package that the binary must say it was
    built from, without changes.
    """

    by: Literal["wheel"]
    distribution: str
    release: str = ""
    binary: str
    package: str = ""
    sha256: tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...]
    cost: Cost


class Go(_Data):
    """A package of a Go module; `variable` is the text in it that tells the version, which its own build would set.

    `excludes`: the module's `exclude` lines forbid `go install` and are repeated.
    """

    by: Literal["go"]
    module: str
    package: str
    variable: str
    excludes: bool = False
    sooner: str
    cost: Cost


Way = Annotated[OnPath | Debian | Wheel | Go, Field(discriminator="by")]
Getting = Debian | Wheel | Go


class Telling(_Data):
    """How a tool's true version is found."""

    module: str = ""
    ask: tuple[str, ...]
    pattern: str


class Spec(_Data):
    """One tool of the data file."""

    role: str
    wanted: str
    minimum: str
    forbidden: tuple[str, ...] = ()
    version: Telling
    ways: tuple[Way, ...]
    remedy: str

    def unfit(self, version: str) -> str:
        """Why `version` may not be used; empty when it may."""
        if numbers(version) in {numbers(each) for each in self.forbidden}:
            return f"{version} is never to be used"
        return f"{version} is older than {self.minimum}" if numbers(version) < numbers(self.minimum) else ""


@dataclass(frozen=True)
class Tool:
    """A tool that is here and fit."""

    name: str
    version: str
    path: Path


@dataclass(frozen=True)
class Found:
    """What a look for a tool showed: the fit one, or why each of those that are here is not."""

    tool: Tool | None
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Host:
    """The facts of this machine and user that decide which ways are open."""

    root: bool
    user: str
    linux: bool
    suite: str
    """The code name of a Debian or Ubuntu; empty elsewhere."""
    systemd: bool
    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Self:
        """The machine that this runs on."""
        release: dict[str, str] = {}
        with suppress(OSError):
            release = platform.freedesktop_os_release()
        family = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
        return cls(
            root=os.geteuid() == 0,
            user=user_name(),
            linux=platform.system() == "Linux",
            suite=release.get("VERSION_CODENAME", "unknown") if family & {"debian", "ubuntu"} else "",
            systemd=Path("/run/systemd/system").is_dir(),
            environment=environment,
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where programs are looked for: PATH, and the system's own folders, which a user's PATH may lack."""
        named = self.environment.get("PATH", "").split(os.pathsep)
        return tuple(Path(each) for each in dict.fromkeys([*filter(None, named), "/usr/local/sbin", "/usr/sbin", "/sbin"]))


def user_name() -> str:
    """Who we are, or our number where it has no name, as in pods of any user."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())


def machine_name(environment: Mapping[str, str]) -> str:
    """What this machine is called in records: as whoever runs it says, else as it calls itself."""
    return environment.get(names.ENV_MACHINE) or platform.node()


@cache
def specs() -> Mapping[str, Spec]:
    """The data file, read strictly."""
    text = resources.files("pipeline").joinpath("data", "tools.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return TypeAdapter(dict[str, Spec]).validate_python(yaml.load(text, loader))


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, three at least; `v1.2-rc1` is 1.2.0."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    parts = [int(each) for each in match[1].split(".")] if match else []
    return tuple(parts + [0] * (3 - len(parts)))


def find(name: str, *, host: Host, cache: Path, run: Run) -> Found:
    """Look for a tool in the order of its ways; nothing is fetched or changed but the memory of versions."""
    spec, unfit = specs()[name], list[str]()
    for way in spec.ways:
        candidates = _on_path(way, host) if isinstance(way, OnPath) else _installed(name, cache)
        for path, stamped in candidates:
            version = stamped or _remembered_version(path, spec.version, cache=cache, run=run)
            reason = spec.unfit(version) if version else "its version cannot be told"
            if not reason:
                return Found(Tool(name, version, path), tuple(unfit))
            unfit.append(f"`{path}`: {reason}")
    return Found(None, tuple(unfit))


def folder(name: str, cache: Path) -> Path:
    """Where the wanted version of a tool is installed."""
    return cache / "tools" / name / specs()[name].wanted


def require_space(what: str, needed: int, at: Path, *, remedy: str) -> None:
    """Raise `Temporary` when the file system that will hold `at` has less than `needed` bytes free."""
    free = free_space(at)
    if free < needed:
        raise Temporary(
            f"{what} needs {needed / 1e9:.1f} GB, the file system of `{at}` has {free / 1e9:.1f} GB free", hint=remedy
        )


def free_space(at: Path) -> int:
    """Bytes that this user may still write at `at`, which need not exist yet."""
    there = next(each for each in (at, *at.parents) if each.exists())
    status = os.statvfs(there)
    return status.f_bavail * status.f_frsize


def missing(name: str, found: Found) -> ToolUnfit:
    """The error for a tool that is not here, or only in unfit versions."""
    spec = specs()[name]
    reason = "; ".join(found.unfit) or "it was not found"
    return ToolUnfit(f"`{name}` {spec.minimum} or newer is needed ({spec.role}): {reason}", hint=spec.remedy)


def _on_path(way: OnPath, host: Host) -> Iterator[tuple[Path, str]]:
    home = Path(host.environment.get("HOME", "/"))
    extra = [home / each.removeprefix("~/") if each.startswith("~/") else Path(each) for each in way.folders]
    for place in (*host.folders, *extra):
        for name in way.names:
            path = place / name
            if os.access(path, os.X_OK) and path.is_file():
                yield path, ""


def _installed(name: str, cache: Path) -> Iterator[tuple[Path, str]]:
    place = folder(name, cache)
    with suppress(FileNotFoundError):
        stamp = json.loads((place / "stamp.json").read_text(encoding="utf-8"))
        if (place / stamp["binary"]).is_file():
            yield place / stamp["binary"], stamp["version"]


def _remembered_version(path: Path, telling: Telling, *, cache: Path, run: Run) -> str:
    memory, status = cache / "tools" / "versions.json", path.stat()
    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    known = _read_memory(memory)
    if key not in known:
        version = true_version(path, telling, run)
        if not version:
            return ""
        memory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(memory.with_suffix(".lock")):
            known = {**_read_memory(memory), key: version}
            replacement = memory.with_suffix(".new")
            replacement.write_text(json.dumps(known, indent=1), encoding="utf-8")
            replacement.replace(memory)
    return known[key]


def _read_memory(memory: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        return dict(json.loads(memory.read_text(encoding="utf-8")))
    return {}


def true_version(path: Path, telling: Telling, run: Run) -> str:
    """The version that a binary really is; empty when it cannot be told."""
    if telling.module and (version := module_version(path, telling.module)):
        return version
    with suppress(ToolFailed, ToolUnfit, Temporary):
        told = run(path, *telling.ask, timeout=ASK_SECONDS, check=False)
        if match := re.search(telling.pattern, told.stdout + told.stderr):
            return match[1].removeprefix("v")
    return ""
