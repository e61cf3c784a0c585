"""What it takes to bring a blob from one registry to another: memory and bytes a second, over loopback."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.oci import Descriptor, Repository
from pipeline.registry import Registry
from tests.bench.build import Figure
from tests.integration.registries import registry

SIZE, MEMORY = 300_000_000, 200.0
COPYING = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pipeline.oci import Descriptor, Digest, Repository
from pipeline.registry import Registry
source, target, *blobs = sys.argv[1:]
client, wanted = Registry(), [Descriptor("x", Digest(text), int(size)) for text, size in (blob.split("/") for blob in blobs)]
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda blob: client.copy_blob(Repository.parse(source), Repository.parse(target), blob), wanted))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
"""The kernel's own figure: what Python reports of a child begins with its parent's."""


def stream(folder: Path) -> Iterator[Figure]:
    """One large blob, and the same amount in eight."""
    for name in ("far", "near"):
        (folder / name).mkdir()
    with registry(folder / "far") as far, registry(folder / "near") as near:
        source = Repository(far.host, "bench/source")
        for count in (1, 8):
            blobs = [Registry().upload(source, os.urandom(SIZE // count)) for _ in range(count)]
            memory, seconds = copied(source, Repository(near.host, f"bench/target-{count}"), blobs)
            yield Figure(f"{count} x {SIZE // count / 1e6:.1f} MB between two registries", SIZE / seconds / 1e6, "MB/s")
            yield Figure("  peak memory of it", memory / 1e6, "MB", at_most=MEMORY)


def copied(source: Repository, target: Repository, blobs: Sequence[Descriptor]) -> tuple[float, float]:
    """Peak memory in bytes, and seconds."""
    started = time.monotonic()
    argv = [sys.executable, "-c", COPYING, str(source), str(target), *(f"{blob.digest}/{blob.size}" for blob in blobs)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return int(done.stdout) * 1024, time.monotonic() - started


def measured(parts: Sequence[str]) -> Iterator[Figure]:
    """The figures of the parts, each in a folder of its own."""
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            yield from PARTS[part](Path(folder))


PARTS: Mapping[str, Callable[[Path], Iterator[Figure]]] = {"stream": stream}
