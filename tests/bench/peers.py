"""The tools that people copy images with: crane, regctl and oras built from pinned modules, skopeo as the system brings it."""

import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from pipeline import names
from pipeline.buildinfo import module_version
from pipeline.oci import Pinned, Tagged
from tests.integration.registries import tool

STARTS = 9
FORGETFUL = {"_CONTAINERS_ROOTLESS_UID": "1"}
"""With this, skopeo keeps what it has seen of blobs in its home too: else it would mount what an earlier run has brought."""
Words = Callable[[Pinned, Tagged], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Go module, and the package in it; go compares what it loads with its checksum database."""

    name: str
    version: str
    package: str


MODULES: Mapping[str, Module] = {
    "crane": Module(name="github.com/google/go-containerregistry", version="0.22.1", package="cmd/crane"),
    "regctl": Module(name="github.com/regclient/regclient", version="0.11.7", package="cmd/regctl"),
    "oras": Module(name="oras.land/oras", version="1.3.6", package="cmd/oras"),
}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A tool, what it is told to tell its version, to copy an image alone, and with what refers to it where it can do that."""

    name: str
    path: Path
    ask: str
    alone: Words
    evidence: Words | None = None

    def seconds(self, *words: str) -> float:
        """How long the tool takes, from start to end, with a home where nothing is."""
        with tempfile.TemporaryDirectory() as home:
            environment = {"PATH": os.environ["PATH"], "HOME": home, "DOCKER_CONFIG": home, **FORGETFUL}
            started = time.perf_counter()
            done = subprocess.run([self.path, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            took = time.perf_counter() - started
        assert done.returncode == 0, f"{self.name} {words}: {done.stderr}"
        return took

    def start(self) -> float:
        """Seconds that the tool takes to tell its version, which is taken off all that it does."""
        return statistics.median(self.seconds(self.ask) for _ in range(STARTS))


def peers() -> tuple[Peer, ...]:
    """All of them; those that are not there yet are built now, which takes a minute."""
    return (
        Peer(name="crane", path=_built("crane"), ask="version", alone=lambda one, to: ("copy", str(one), str(to))),
        Peer(
            name="regctl",
            path=_built("regctl"),
            ask="version",
            alone=lambda one, to: (*_plain(one, to), "image", "copy", str(one), str(to)),
            evidence=lambda one, to: (*_plain(one, to), "image", "copy", "--referrers", str(one), str(to)),
        ),
        Peer(
            name="oras",
            path=_built("oras"),
            ask="version",
            alone=lambda one, to: ("cp", "--from-plain-http", "--to-plain-http", str(one), str(to)),
            evidence=lambda one, to: ("cp", "-r", "--from-plain-http", "--to-plain-http", str(one), str(to)),
        ),
        Peer(name="skopeo", path=_skopeo(), ask="--version", alone=_by_skopeo),
    )


def versions() -> str:
    """Which they are."""
    said = subprocess.run([_skopeo(), "--version"], capture_output=True, text=True, check=True).stdout
    skopeo = re.search(r"\d+\.\d+\S*", said)
    return ", ".join([*(f"{name} {one.version}" for name, one in MODULES.items()), f"skopeo {skopeo[0] if skopeo else said}"])


def _plain(one: Pinned, to: Tagged) -> Sequence[str]:
    hosts = dict.fromkeys((one.repository.host, to.repository.host))
    return [word for host in hosts for word in ("--host", f"reg={host},tls=disabled")]


def _by_skopeo(one: Pinned, to: Tagged) -> Sequence[str]:
    how = ("--all", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false")
    return ("copy", *how, f"docker://{one}", f"docker://{to}")


def _built(name: str) -> Path:
    module = MODULES[name]
    path = user_cache_path(names.DISTRIBUTION, appauthor=False) / "bench" / f"{name}-{module.version}" / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        _build(module, path)
    assert module_version(path, module.name) == module.version, f"`{path}` is not {module.name} {module.version}"
    return path


def _build(module: Module, path: Path) -> None:
    """With caches that are deleted: together they hold half a gigabyte."""
    with tempfile.TemporaryDirectory(dir=path.parent) as room:
        own = {"GOPATH": f"{room}/path", "GOCACHE": f"{room}/cache", "GOBIN": f"{room}/bin"}
        flags = {"GOFLAGS": "-modcacherw -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0"}
        package = f"{module.name}/{module.package}@v{module.version}"
        subprocess.run([tool("go"), "install", "-trimpath", package], env={**os.environ, **own, **flags}, check=True)
        Path(room, "bin", path.name).rename(path)


def _skopeo() -> Path:
    found = shutil.which("skopeo")
    assert found, "`skopeo` is not here: `apt-get install skopeo`"
    return Path(found)
