"""A copy of the project's images that may be edited, and the pipeline's own verbs on it, measured."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from pipeline import daemons, names, services, setup
from pipeline.command import Runner
from pipeline.readiness import Need
from pipeline.settings import Settings
from pipeline.story import Silent

ROOT = Path(__file__).parents[2]
LAUNCH = """
import os, resource, sys
from pipeline.__main__ import main
code = main(sys.argv[2:], os.environ)
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
sys.exit(code)
"""


INSTALL = "layer install /lock"
"""How the images' Dockerfiles install a lock group."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One verb: seconds from its start to its end, its peak memory in bytes, and what it printed as JSON."""

    seconds: float
    memory: int
    data: Any

    def of(self, image: str) -> Mapping[str, Any]:
        """What it says of one image."""
        return next(each for each in self.data if each["image"] == image)


@dataclass(kw_only=True)
class Family:
    """A root with a copy of `images/`, and a registry for its candidates."""

    root: Path
    host: str
    """Of the registry."""
    cache: Path
    memory: int = 0
    """Peak of all verbs so far, in bytes."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def verb(self, *words: str, through: str | None = None) -> Ran:
        """Run `pipeline WORDS --json`, by another host of the registry if so; a failure ends the benchmark."""
        with tempfile.NamedTemporaryFile() as told:
            verb, *rest = words
            options = ("--root", str(self.root), "--candidates", f"{through or self.host}/bench", "--json")
            environment = {**self.environment, names.ENV_CACHE: str(self.cache)}
            started = time.monotonic()
            argv = [sys.executable, "-c", LAUNCH, told.name, verb, *options, *rest]
            done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
            seconds = time.monotonic() - started
            memory = int(Path(told.name).read_text()) * (1 if sys.platform == "darwin" else 1024)
        self.memory = max(self.memory, memory)
        return Ran(seconds=seconds, memory=memory, data=json.loads(done.stdout))

    def edit_rootfs(self, image: str) -> None:
        """One more small file in a root file system, as a refresh of its packages would change it."""
        place = self.root / "images" / image / "rootfs" / "etc"
        place.mkdir(parents=True, exist_ok=True)
        (place / "bench").write_text(secrets.token_hex(16) + "\n")

    def edit_group(self, image: str, stage: str) -> None:
        """Another content of one lock group's layer."""
        path = self.root / "images" / image / "Dockerfile"
        head, found, tail = path.read_text().partition(f" AS {stage}\n")
        assert found, f"{image} has no stage {stage}"
        path.write_text(head + found + tail.replace(INSTALL, f"{INSTALL} && {_another()}", 1))

    def edit_groups(self, image: str) -> None:
        """Another content of every lock group's layer."""
        path = self.root / "images" / image / "Dockerfile"
        first, *rest = path.read_text().split(INSTALL)
        path.write_text(first + "".join(f"{INSTALL} && {_another()}{part}" for part in rest))

    @contextmanager
    def with_empty_builder(self) -> Iterator["Family"]:
        """The same, with tools and downloads shared and a builder of its own that has seen nothing."""
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder)
            _share(self.cache, cache)
            environment = {name: text for name, text in self.environment.items() if name != names.ENV_BUILDER}
            other = Family(root=self.root, host=self.host, cache=cache, environment=environment)
            try:
                yield other
            finally:
                stop = [sys.executable, "-m", "pipeline", "setup", "--root", str(self.root), "--stop"]
                subprocess.run(stop, cwd=ROOT, env={**environment, names.ENV_CACHE: folder}, check=True)


@contextmanager
def copied() -> Iterator[Family]:
    """The project's family in a folder of its own, its candidates in a registry of its own that goes with it."""
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    with tempfile.TemporaryDirectory() as folder, _registry(cache, Path(folder) / "registry") as host:
        shutil.copytree(ROOT / "images", Path(folder) / "images", symlinks=True)
        yield Family(root=Path(folder), host=host, cache=cache)


@contextmanager
def _registry(cache: Path, folder: Path) -> Iterator[str]:
    folder.mkdir()
    _share(cache, folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"localhost:{probe.getsockname()[1]}"
    try:
        setup.ensure(
            frozenset({Need.REGISTRY}),
            settings=Settings(root=ROOT, cache=folder),
            registry_host=host,
            run=Runner(os.environ),
            story=Silent(),
            environment=os.environ,
        )
        yield host
    finally:
        daemons.stop_all(services.folder(folder))


def _share(cache: Path, other: Path) -> None:
    """Tools and downloads are the same for both."""
    for shared in ("tools", "downloads"):
        (cache / shared).mkdir(parents=True, exist_ok=True)
        (other / shared).symlink_to(cache / shared)


def _another() -> str:
    """A command that puts one more small file into a layer, as reproducibly as the rest."""
    return f"echo {secrets.token_hex(16)} >/layer/opt/venv/bench && find /layer -exec touch -hd @$SOURCE_DATE_EPOCH {{}} +"
