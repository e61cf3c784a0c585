"""Our copy in a process that is warm: for each line of its input, `SOURCE TARGET STATEMENT…`, the seconds that it took.

It begins with no connection, and knowing nothing of the registries; only which statements count was decided before.
"""

import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline import carry
from pipeline.oci import Digest, Pinned
from pipeline.registry import Registry
from pipeline.story import Silent


@dataclass(frozen=True)
class Ours:
    """The process, for those who measure."""

    process: "subprocess.Popen[str]"

    def seconds(self, source: Pinned, target: Pinned, evidence: Collection[Digest]) -> float:
        """Of one copy."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(" ".join(map(str, (source, target, *evidence))) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def ours() -> Iterator[Ours]:
    """A process that runs until the end."""
    argv = [sys.executable, "-m", __name__]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Ours(process)


def copied(source: Pinned, target: Pinned, evidence: Collection[Digest]) -> float:
    """Seconds of one copy."""
    registry = Registry()
    started = time.perf_counter()
    statements = carry.statements("image", source, evidence, registry)
    carry.bring("image", source, target, statements, registry, Silent())
    return time.perf_counter() - started


if __name__ == "__main__":
    for line in sys.stdin:
        one, to, *wanted = line.split()
        print(copied(Pinned.parse(one), Pinned.parse(to), [*map(Digest, wanted)]), flush=True)
