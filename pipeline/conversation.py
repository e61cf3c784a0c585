"""One child process from its start to the end of its group: what it says, what it is told, and how it is stopped.

Runs in one thread, and never blocks on a pipe: a grandchild that keeps one open holds nobody up.
"""

import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO, Protocol

from pipeline.errors import Temporary, ToolFailed
from pipeline.redaction import Lines

GRACE = 10.0
"""Seconds between an interrupt and SIGTERM, and between SIGTERM and SIGKILL: checks remove their containers in it."""
LINGER = 1.0
"""Seconds that are waited, after the end of a child, for the end of its output, which a grandchild may keep open."""
TICK = 0.05
"""Seconds between two looks at the clock."""
OUTPUT_LIMIT = 256 * 2**20
"""Bytes of stdout that are kept; more is an error, not a truncation."""
ERROR_LIMIT = 8 * 2**20
"""Characters of stderr that are kept, the last ones; `log` has all."""
CHUNK = 2**16


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None:
        """The exit status, when it has ended."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How it ended; `fault` is what our own side had to complain of."""

    code: int
    stdout: bytes
    stderr: str
    timed_out: bool
    fault: Exception | None


@dataclass(kw_only=True)
class Hearing:
    """Takes stderr line by line: to the caller, to a log, and the end of it into an error message."""

    secrets: Collection[str]
    on_line: Callable[[str], None] | None
    log: Path | None
    kept: deque[str] = field(default_factory=deque)
    size: int = 0
    file: FileIO | None = None

    def open(self, stack: ExitStack) -> None:
        """Open the log; raises `Temporary` when that fails."""
        if self.log is not None:
            try:
                self.file = stack.enter_context(self.log.open("ab", buffering=0))
            except OSError as error:
                raise Temporary(f"`{self.log}` cannot be written: {error.strerror}") from error

    def line(self, text: str) -> None:
        """Take one line."""
        self.kept.append(text)
        self.size += len(text) + 1
        while self.size > ERROR_LIMIT and len(self.kept) > 1:
            self.size -= len(self.kept.popleft()) + 1
        if self.file is not None:
            self._write(self.file, text)
        if self.on_line is not None:
            self.on_line(text)

    def _write(self, file: FileIO, text: str) -> None:
        try:
            file.write(f"{text}\n".encode())
        except OSError as error:
            self.file = None
            raise Temporary(f"`{self.log}` cannot be written: {error.strerror}") from error


class Conversation:
    """See the module; `unwanted` tells whether the child is to be stopped."""

    def __init__(
        self, process: Process, hearing: Hearing, *, stdin: bytes | None, timeout: float, unwanted: Callable[[], bool]
    ) -> None:
        self._process = process
        self._hearing = hearing
        self._lines = Lines(hearing.secrets)
        self._unwanted = unwanted
        self._told = memoryview(stdin or b"")
        self._stdout = bytearray()
        self._deadline = time.monotonic() + timeout
        self._ladder = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
        self._next_rung: float | None = None
        self._timed_out = False
        self._fault: Exception | None = None
        self._ended_at: float | None = None
        self._selector = selectors.DefaultSelector()

    def hold(self) -> Ended:
        """Hear it to its end, and see to that."""
        with self._selector, ExitStack() as stack:
            self._guard(lambda: self._hearing.open(stack))
            self._attach(stack)
            while not self._over():
                self._hear()
                self._judge()
            for line in self._lines.end():
                self._guard(lambda line=line: self._hearing.line(line))  # type: ignore[misc]
        code = self._process.returncode
        return Ended(
            code=-signal.SIGKILL if code is None else code,
            stdout=bytes(self._stdout),
            stderr="\n".join(self._hearing.kept),
            timed_out=self._timed_out,
            fault=self._fault,
        )

    def _attach(self, stack: ExitStack) -> None:
        for pipe, event, act in (
            (self._process.stdout, selectors.EVENT_READ, self._read_stdout),
            (self._process.stderr, selectors.EVENT_READ, self._read_stderr),
            (self._process.stdin, selectors.EVENT_WRITE, self._write_stdin),
        ):
            if pipe is not None:
                stack.enter_context(pipe)
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, event, act)

    def _hear(self) -> None:
        if not self._selector.get_map():
            time.sleep(TICK / 10)
        for key, _ in self._selector.select(TICK if self._selector.get_map() else 0):
            try:
                goes_on = key.data(key.fd)
            except BlockingIOError:
                continue
            except OSError:
                goes_on = False
            if not goes_on:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]

    def _read_stdout(self, fd: int) -> bool:
        data = os.read(fd, CHUNK)
        if len(self._stdout) + len(data) > OUTPUT_LIMIT:
            self._stop_for(ToolFailed(f"the program wrote more than {OUTPUT_LIMIT >> 20} MiB to its stdout"))
        elif self._fault is None:
            self._stdout += data
        return bool(data)

    def _read_stderr(self, fd: int) -> bool:
        data = os.read(fd, CHUNK)
        for line in self._lines.feed(data):
            self._guard(lambda line=line: self._hearing.line(line))  # type: ignore[misc]
        return bool(data)

    def _write_stdin(self, fd: int) -> bool:
        self._told = self._told[os.write(fd, self._told[:CHUNK]) :]
        return bool(self._told)

    def _guard(self, act: Callable[[], None]) -> None:
        """A fault on our side ends the child, and is raised when that is done; its output is read on until then."""
        try:
            act()
        except Exception as error:  # noqa: BLE001
            self._stop_for(error)

    def _stop_for(self, error: Exception) -> None:
        self._fault = self._fault or error
        self._begin_to_stop()

    def _judge(self) -> None:
        now = time.monotonic()
        if self._next_rung is None and self._process.poll() is None:
            self._timed_out = now >= self._deadline
            if self._timed_out or self._unwanted():
                self._begin_to_stop()
        if self._next_rung is not None and now >= self._next_rung and self._ladder:
            _signal_group(self._process.pid, self._ladder.pop(0))
            self._next_rung = now + GRACE

    def _begin_to_stop(self) -> None:
        self._next_rung = self._next_rung or time.monotonic()

    def _over(self) -> bool:
        """Whether child (and, when it was stopped, its group) and output have ended, or cannot be ended."""
        now = time.monotonic()
        stopping = self._next_rung is not None
        if self._process.poll() is None or (stopping and _group_lives(self._process.pid)):
            return stopping and not self._ladder and now >= (self._next_rung or now)
        self._ended_at = self._ended_at or now
        return not self._selector.get_map() or now > self._ended_at + LINGER


def _signal_group(group: int, signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _group_lives(group: int) -> bool:
    """Whether a process of the group runs; one that nobody has waited for (where nothing reaps orphans) does not."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return not Path("/proc/self/stat").exists() or any(map(_runs_in(group), Path("/proc").glob("[0-9]*/stat")))


def _runs_in(group: int) -> Callable[[Path], bool]:
    def runs(stat: Path) -> bool:
        with suppress(OSError):
            state, _, member_of = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            return int(member_of) == group and state not in ("Z", "X")
        return False

    return runs
