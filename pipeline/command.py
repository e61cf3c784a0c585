"""The only place that starts processes: deadlines, interrupts, redaction, and services that outlive us.

Every child leads a process group of its own. An interrupt reaches the whole group, then SIGTERM, then SIGKILL, so that
nothing that a tool started is left behind.
"""

import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pipeline.errors import Interrupted, Temporary, Terminated, ToolFailed, ToolUnfit

GRACE = 5.0
"""Seconds between an interrupt and SIGTERM, and between SIGTERM and SIGKILL."""
TAIL_LINES = 40
"""Lines of a failed tool's stderr that its error repeats."""
OUTPUT_LIMIT = 256 * 2**20
"""Bytes of stdout that are kept; more is an error, not a truncation."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A process that ended: its exit status (negative: the signal), its output, the seconds it took."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float


class Run(Protocol):
    """How stages and edges run a program; see `Runner.__call__`."""

    def __call__(
        self,
        *argv: str | Path,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        secrets: Collection[str] = (),
        on_line: Callable[[str], None] | None = None,
        log: Path | None = None,
        check: bool = True,
    ) -> Completed: ...


class Runner:
    """Runs programs, and stops those that run when the user interrupts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._live: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped_by: int | None = None

    def __call__(
        self,
        *argv: str | Path,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        secrets: Collection[str] = (),
        on_line: Callable[[str], None] | None = None,
        log: Path | None = None,
        check: bool = True,
    ) -> Completed:
        """Run `argv` to its end, `timeout` seconds at most, with `env` added to the environment.

        `on_line` gets each line of stderr as it comes; `log` keeps all of stderr. With `check`, an exit status other
        than 0 raises `ToolFailed` with the end of stderr. Raises `ToolUnfit` when the program cannot be started,
        `Temporary` on a timeout, `Interrupted` or `Terminated` when the run was stopped.
        """
        words = tuple(str(word) for word in argv)
        started = time.monotonic()
        process = self._start(words, cwd=cwd, env=env, piped=stdin is not None)
        try:
            out, err, timed_out = _communicate(process, stdin, timeout, secrets, on_line, log)
        finally:
            if process.poll() is None:
                _stop(process, signal.SIGINT)
            with self._lock:
                self._live.discard(process)
        self._raise_if_stopped()
        done = Completed(
            argv=words,
            code=process.returncode,
            stdout=out,
            stderr=err,
            seconds=time.monotonic() - started,
        )
        if timed_out:
            raise Temporary(f"`{_shown(words, secrets)}` did not end within {timeout:.0f} s\n{_tail(err)}")
        if check and done.code != 0:
            raise ToolFailed(f"`{_shown(words, secrets)}` failed with exit status {done.code}\n{_tail(err)}")
        return done

    def stop(self, signum: int) -> None:
        """Interrupt all that runs, and refuse to start more; safe in a signal handler. Escalation runs in threads."""
        self._stopped_by = signum
        for process in tuple(self._live):
            threading.Thread(target=_stop, args=(process, signal.SIGINT), daemon=True).start()

    def _start(
        self, words: tuple[str, ...], *, cwd: Path | None, env: Mapping[str, str] | None, piped: bool
    ) -> subprocess.Popen[bytes]:
        self._raise_if_stopped()
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env={**self._environment, **(env or {})},
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolUnfit(f"`{words[0]}` cannot be started: {error.strerror}", hint="`pipeline doctor` checks all tools") from error
        with self._lock:
            self._live.add(process)
        return process

    def _raise_if_stopped(self) -> None:
        if self._stopped_by == signal.SIGTERM:
            raise Terminated("terminated")
        if self._stopped_by is not None:
            raise Interrupted("interrupted")


def spawn(*argv: str | Path, log: Path, env: Mapping[str, str]) -> int:
    """Start a service that outlives this process, its output appended to `log`; returns its process id."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    return process.pid


def replace(argv: tuple[str, ...], env: Mapping[str, str]) -> None:
    """Become the program `argv` (an interactive `docker run`); does not return."""
    os.execvpe(argv[0], argv, dict(env))


def redact(text: str, secrets: Collection[str]) -> str:
    """`text` with every secret replaced by `***`."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _communicate(
    process: subprocess.Popen[bytes],
    stdin: bytes | None,
    timeout: float,
    secrets: Collection[str],
    on_line: Callable[[str], None] | None,
    log: Path | None,
) -> tuple[str, str, bool]:
    assert process.stdout is not None and process.stderr is not None
    out: list[bytes] = []
    err: deque[str] = deque(maxlen=2000)
    readers = [
        threading.Thread(target=_collect, args=(process, process.stdout, out), daemon=True),
        threading.Thread(target=_follow, args=(process.stderr, err, secrets, on_line, log), daemon=True),
    ]
    for reader in readers:
        reader.start()
    if stdin is not None:
        threading.Thread(target=_feed, args=(process, stdin), daemon=True).start()
    timed_out = False
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        _stop(process, signal.SIGINT)
    for reader in readers:
        reader.join(GRACE)
    return b"".join(out).decode(errors="replace"), "\n".join(err), timed_out


def _collect(process: subprocess.Popen[bytes], stream: IO[bytes], into: list[bytes]) -> None:
    size = 0
    while chunk := stream.read1(2**16):  # type: ignore[attr-defined]
        size += len(chunk)
        if size > OUTPUT_LIMIT:
            _signal_group(process, signal.SIGKILL)
            return
        into.append(chunk)


def _follow(
    stream: IO[bytes],
    into: deque[str],
    secrets: Collection[str],
    on_line: Callable[[str], None] | None,
    log: Path | None,
) -> None:
    with log.open("a", encoding="utf-8") if log else open(os.devnull, "w", encoding="utf-8") as kept:
        for raw in stream:
            line = redact(raw.decode(errors="replace").rstrip("\r\n"), secrets)
            kept.write(line + "\n")
            into.append(line)
            if on_line:
                on_line(line)


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(data)


def _stop(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    for signum in (first, signal.SIGTERM, signal.SIGKILL):
        _signal_group(process, signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
            break
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _shown(words: tuple[str, ...], secrets: Collection[str]) -> str:
    return redact(shlex.join(words), secrets)


def _tail(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines()[-TAIL_LINES:])
