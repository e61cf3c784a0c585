"""Families of tiny images in a folder, and the command line on them as a process of its own."""

import json
import os
import secrets
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from zstandard import ZstdDecompressor

from pipeline import names
from pipeline.oci import Digest, Pinned, Repository
from pipeline.registry import Registry
from tests.integration.conftest import Stack
from tests.ports import free_port as free_port

PROJECT = Path(__file__).parents[2]
LINKS = "FROM scratch AS layer\nCOPY data /layer/\nFROM base\nCOPY --link --from=layer /layer/ /\n"
"""A Dockerfile of an image that lays its file `data` on its parent."""
ENDS_WITHIN = 900.0
"""Seconds after which a verb hangs, on a slow machine that does other things."""
MARK = "FAMILY_OF_A_TEST"
"""The variable by which all that a family's verbs start is found among this machine's processes."""


@dataclass(frozen=True)
class Ended:
    """A verb that ended: its exit code, the data and the story."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.stdout)

    def of(self, image: str) -> Mapping[str, Any]:
        """What `--json` says of one image."""
        return next(each for each in self.data if each["image"] == image)


class Family:
    """A catalog of tiny images, whose candidates go to a repository of its own, and the verbs with a cache of its own."""

    def __init__(self, root: Path, stack: Stack, *, host: str = "", cache: Path | None = None) -> None:
        """`host` is that of another registry; a `cache` elsewhere keeps the paths of sockets short."""
        self.root, self.cache, self.temporary, self.mark = root, cache or root / "cache", root / "tmp", secrets.token_hex(8)
        self.repository = Repository.parse(f"{host or stack.host}/integration/{self.mark}/family")
        self.prefix: tuple[str, ...] = ()
        """The words of a program that starts the verbs."""
        self.environment = {**_plain_environment(), **self._own(stack)}
        for folder in (self.temporary, self.cache):
            folder.mkdir(parents=True, exist_ok=True)
        share_tools(self.cache)
        self.write(
            "catalog.yaml",
            f"line: '1.0'\nrepository: family\ncandidates: {str(self.repository).removesuffix('/family')}\n"
            f"releases: {stack.host}/releases\nplatform: linux/amd64\nepoch: 2025-01-29T00:00:00Z\ncompression-level: 3\n",
        )

    def _own(self, stack: Stack) -> Mapping[str, str]:
        return {
            **stack.builder.environment,
            names.ENV_BUILDER: stack.builder.name,
            names.ENV_CACHE: str(self.cache),
            "PYTHONPATH": str(PROJECT),
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }

    def write(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        file = self.root / "images" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)

    def image(self, name: str, rest: str, dockerfile: str, **files: bytes) -> None:
        """`rest` are the lines of its `image.yaml` below the description."""
        self.write(f"{name}/image.yaml", f"description: {name}\n{rest}")
        self.write(f"{name}/Dockerfile", dockerfile)
        for path, content in files.items():
            self.write(f"{name}/{path}", content)

    def slow(self, seconds: int) -> str:
        """Add the image `slow` on `os`, one step of which sleeps; returns the name of that step's process."""
        name = f"wait-{secrets.token_hex(4)}"
        self.image("slow", "parent: os\nvariant: slow\n", f'FROM base\nCOPY wait /{name}\nRUN ["/{name}"]\n')
        self.write("slow/wait", sleeping_program(seconds), mode=0o755)
        return name

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        """A verb that goes on."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "pipeline", *words],
            cwd=self.root,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: str, **environment: str) -> Ended:
        """A verb, to its end."""
        return ended(self.start(*words, **environment))

    def tags(self) -> list[str]:
        """The candidates' tags."""
        return sorted(tag for tag in Registry().tags(self.repository) if not tag.startswith("buildcache-"))

    def digests(self) -> set[Digest]:
        found = (Registry().resolve(self.repository.tag(tag)) for tag in self.tags())
        return {digest for digest in found if digest}

    def left(self) -> list[str]:
        """What verbs that ended have left behind: processes, temporary files, stages."""
        files = [*self.temporary.iterdir(), *(self.cache / "stage").glob("*")]
        return [*map(str, files), *(f"process {pid}" for pid in marked(self.mark))]


def tiny(root: Path, stack: Stack, *, host: str = "", cache: Path | None = None) -> Family:
    """Two images, `os` and on it `app`, each of one file that nobody has seen before."""
    family = Family(root, stack, host=host, cache=cache)
    family.image("os", "release: false\n", "FROM scratch\nCOPY --link data /\n", data=secrets.token_bytes(1000))
    family.image("app", "parent: os\nclaims: {app: '1.0'}\n", LINKS, data=secrets.token_bytes(1000))
    return family


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Wait for a verb's end, and show what it said when the test fails."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    print(stderr, f"exit {process.returncode}", sep="")
    return Ended(process.returncode, stdout, stderr)


def content(pinned: Pinned) -> Mapping[str, bytes]:
    """The files of an image's last layer."""
    packed = Registry().blob(pinned.repository, Registry().manifest(pinned).layers[-1])
    with tarfile.open(fileobj=ZstdDecompressor().stream_reader(packed), mode="r|") as layer:
        return {member.name: layer.extractfile(member).read() for member in layer if member.isfile()}  # type: ignore[union-attr]


def until(met: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    """Wait until `met`; fails with `what` after that time."""
    late = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < late, what
        time.sleep(0.02)


def share_tools(cache: Path) -> None:
    """The tools of a cache are the user's, so that none is got or built again."""
    tools = user_cache_path(names.DISTRIBUTION, appauthor=False) / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (cache / "tools").symlink_to(tools)


def marked(mark: str) -> list[int]:
    """The processes that a family's verbs have started, themselves among them."""
    return [pid for pid, variables in _processes("environ") if f"{MARK}={mark}".encode() in variables.split(b"\0")]


def runs(name: str) -> bool:
    """Whether a process of this name runs, in a container or outside."""
    return any(told.strip() == name.encode() for _, told in _processes("comm"))


def sleeping_program(seconds: int) -> bytes:
    """A program for Linux on x86-64 that needs no file beside it: nanosleep, exit."""
    code = bytes.fromhex("488d3d12000000 31f6 b823000000 0f05 31ff b83c000000 0f05") + struct.pack("<qq", seconds, 0)
    at, heads = 0x400000, 64 + 56
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, at + heads, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = heads + len(code)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, at, at, size, size, 4096) + code


@contextmanager
def own_services(family: Family) -> Iterator[Family]:
    """A family whose verbs start builder and registry of their own; they are stopped in the end."""
    try:
        yield family
    finally:
        assert family.call("setup", "--stop").code == 0


def _plain_environment() -> Mapping[str, str]:
    """The environment without what would change a verb's ways."""
    mine = ("PIPELINE_", "GITHUB_", "CI", "GITLAB_", "BUILDX_", "DOCKER_HOST")
    return {name: text for name, text in os.environ.items() if not name.startswith(mine)}


def _processes(file: str) -> Iterator[tuple[int, bytes]]:
    """A file of `/proc` of each process that lives."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX":
                yield int(process.name), (process / file).read_bytes()
