"""A copy of the project's images that may be edited, and the pipeline's own verbs on it, measured."""

import json
import os
import secrets
import shutil
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

from pipeline import names

ROOT = Path(__file__).parents[2]
LAUNCH = """
import os, resource, sys
from pipeline.__main__ import main
code = main(sys.argv[2:], os.environ)
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
sys.exit(code)
"""


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
    """A root with a copy of `images/`, whose candidates go where nobody else's do."""

    root: Path
    candidates: str
    cache: Path
    memory: int = 0
    """Peak of all verbs so far, in bytes."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def verb(self, *words: str, candidates: str | None = None) -> Ran:
        """Run `pipeline WORDS --json`; its story goes to our stderr, and a failure ends the benchmark."""
        with tempfile.NamedTemporaryFile() as told:
            verb, *rest = words
            options = ("--root", str(self.root), "--candidates", candidates or self.candidates, "--json")
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
        step, ended, rest = tail.partition("layer install /lock")
        assert found, f"{image} has no stage {stage}"
        assert ended, f"{image} installs nothing in {stage}"
        more = (
            f" && echo {secrets.token_hex(16)} >/layer/opt/venv/bench && find /layer -exec touch -hd @$SOURCE_DATE_EPOCH {{}} +"
        )
        path.write_text(head + found + step + ended + more + rest)

    @contextmanager
    def with_empty_builder(self) -> Iterator["Family"]:
        """The same, with tools and downloads shared and a builder of its own that has seen nothing."""
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder)
            for shared in ("tools", "downloads"):
                (self.cache / shared).mkdir(parents=True, exist_ok=True)
                (cache / shared).symlink_to(self.cache / shared)
            environment = {name: text for name, text in self.environment.items() if name != names.ENV_BUILDER}
            other = Family(root=self.root, candidates=self.candidates, cache=cache, environment=environment)
            try:
                yield other
            finally:
                stop = [sys.executable, "-m", "pipeline", "setup", "--root", str(self.root), "--stop"]
                subprocess.run(stop, cwd=ROOT, env={**environment, names.ENV_CACHE: folder}, check=True)


@contextmanager
def copied(host: str) -> Iterator[Family]:
    """The project's family in a folder of its own, its candidates below `host/bench`."""
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "images", Path(folder) / "images", symlinks=True)
        yield Family(root=Path(folder), candidates=f"{host}/bench", cache=cache)
