"""The only place that starts processes: deadlines, interrupts, redaction, and services that outlive us.

Every child leads a process group of its own. An interrupt reaches the whole group, then SIGTERM, then SIGKILL, so that
nothing that a tool started is left behind. Each child is started, heard and stopped by one thread that no signal handler
can break into; the caller waits for it.
"""

import _thread
import errno
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from pipeline.conversation import Conversation, Ended, Hearing
from pipeline.errors import Interrupted, PipelineError, Temporary, Terminated, ToolFailed, ToolUnfit
from pipeline.redaction import redact

TAIL_LINES = 40
"""Lines of a failed tool's stderr that its error repeats."""
BUSY = "try again when the machine has less to do: `uptime` shows its load"
SHORT_OF = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""What the machine lacks, rather than the program."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A process that ended: its exit status (negative: the signal), its output, the seconds it took."""

    argv: tuple[str, ...]
    """Without secrets."""
    code: int
    stdout: str
    stderr: str
    """Without secrets; the last 8 MiB at most."""
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
        bare: bool = False,
    ) -> Completed: ...


class Runner:
    """Runs programs, and stops those that run when the user interrupts; may be used from several threads."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
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
        bare: bool = False,
    ) -> Completed:
        """Run `argv` to its end, `timeout` seconds at most, with `env` added to the environment, or with `bare`, in its place.

        `on_line` gets each line of stderr as it comes, in another thread; `log` keeps all of stderr. With `check`, an
        exit status other than 0 raises `ToolFailed` with the end of stderr. Raises `ToolUnfit` when the program cannot
        be started, `ToolFailed` when it writes more than 256 MiB to stdout, `Temporary` on a timeout and where the
        machine is short of something, `Interrupted` or `Terminated` when the run was stopped.
        """
        self._raise_if_stopped()
        words = tuple(str(word) for word in argv)
        shown = tuple(redact(word, secrets) for word in words)
        hearing = Hearing(secrets=secrets, on_line=on_line, log=log)
        given_up: list[bool] = []

        def work() -> Ended:
            if given_up:
                raise Interrupted("interrupted before the start")
            environment = {**({} if bare else self._environment), **(env or {})}
            process = _start(words, shown[0], cwd=cwd, environment=environment, piped=stdin is not None)
            unwanted = lambda: bool(given_up) or self._stopped_by is not None  # noqa: E731
            return Conversation(process, hearing, stdin=stdin, timeout=timeout, unwanted=unwanted).hold()

        started = time.monotonic()
        ended = _in_a_thread(work, lambda: given_up.append(True))
        self._raise_if_stopped()
        done = Completed(
            argv=shown,
            code=ended.code,
            stdout=ended.stdout.decode(errors="replace"),
            stderr=ended.stderr,
            seconds=time.monotonic() - started,
        )
        _raise_if_failed(done, ended, timeout, check)
        return done

    def stop(self, signum: int) -> None:
        """Interrupt all that runs, and refuse to start more; safe in a signal handler, does not wait."""
        self._stopped_by = signum

    def _raise_if_stopped(self) -> None:
        if self._stopped_by == signal.SIGTERM:
            raise Terminated("terminated")
        if self._stopped_by is not None:
            raise Interrupted("interrupted")


def spawn(*argv: str | Path, log: Path, env: Mapping[str, str]) -> int:
    """Start a service that outlives this process, its output appended to `log`; returns its process id.

    Raises `ToolUnfit` when it cannot be started.
    """
    words = tuple(str(word) for word in argv)
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                words,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise _not_started(words[0], error) from error
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def replace(argv: tuple[str, ...], env: Mapping[str, str]) -> NoReturn:
    """Become the program `argv` (an interactive `docker run`); raises `ToolUnfit` when that cannot be started."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], argv, dict(env))
    except OSError as error:
        raise _not_started(argv[0], error) from error


def _in_a_thread(work: Callable[[], Ended], give_up: Callable[[], None]) -> Ended:
    """The result of `work`; when an exception breaks the waiting (a signal handler's), `work` ends first.

    An exception may come between any two steps of the main thread. The waiting therefore holds no lock that the thread
    needs, unlike that of `threading.Thread` and `Future`, and a second start finds nothing to do.
    """
    waiting: list[Callable[[], Ended]] = [work]
    results: list[Ended | BaseException] = []
    bell = threading.Lock()
    bell.acquire()

    def fulfil() -> None:
        with suppress(IndexError):
            mine = waiting.pop()
            try:
                results.append(mine())
            except BaseException as error:  # noqa: BLE001 - raised by the caller
                results.append(error)
            bell.release()

    broken = _wait_for(results, fulfil, bell, give_up)
    if broken is not None:
        raise broken
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _wait_for(
    results: list[Ended | BaseException], fulfil: Callable[[], None], bell: threading.Lock, give_up: Callable[[], None]
) -> BaseException | None:
    """Start `fulfil` in a thread and wait for its result; returns the exception that broke the waiting."""
    broken: BaseException | None = None
    started = False
    while not results:
        try:
            if not started:
                _thread.start_new_thread(fulfil, ())
                started = True
            bell.acquire(timeout=1.0)
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            broken = broken or error
            if not started and isinstance(error, RuntimeError):
                return Temporary(f"no thread can be started: {error}")
            give_up()
    return broken


def _start(
    words: tuple[str, ...], shown: str, *, cwd: Path | None, environment: Mapping[str, str], piped: bool
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        where = f" in `{cwd}`" if cwd and str(error.filename) == str(cwd) else ""
        raise _not_started(shown, error, where) from error


def _not_started(program: str, error: OSError, where: str = "") -> PipelineError:
    message = f"`{program}` cannot be started{where}: {error.strerror}"
    if error.errno in SHORT_OF:
        return Temporary(message)
    return ToolUnfit(message, hint="`nox -s doctor` checks all tools")


def _raise_if_failed(done: Completed, ended: Ended, timeout: float, check: bool) -> None:
    shown, end = shlex.join(done.argv), _tail(done.stderr)
    if ended.fault is not None:
        raise ended.fault
    if ended.timed_out:
        raise Temporary(f"`{shown}` did not end within {timeout:g} s{end}", hint=BUSY)
    if check and done.code != 0:
        raise ToolFailed(f"`{shown}` {_ending(done.code)}{end}")


def _ending(code: int) -> str:
    if code > 0:
        return f"failed with exit status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _tail(text: str) -> str:
    return "".join(f"\n  {line}" for line in text.splitlines()[-TAIL_LINES:])
