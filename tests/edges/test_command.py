"""Programs run to their end, are stopped with all that they started, and tell no secrets; on real processes."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest

from pipeline import conversation, redaction
from pipeline.command import Runner, replace, spawn
from pipeline.errors import Interrupted, Temporary, Terminated, ToolFailed, ToolUnfit
from pipeline.redaction import Lines, redact

PYTHON = sys.executable
PATIENCE = 120.0
"""Seconds that anything may take which takes milliseconds on an idle machine."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "GRACE", 0.25)
    monkeypatch.setattr(conversation, "LINGER", 0.1)
    monkeypatch.setattr(conversation, "TICK", 0.01)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    assert until(lambda: not has_children()), "a child is left"


@pytest.fixture
def run() -> Runner:
    return Runner(os.environ)


def until(met: Callable[[], object]) -> bool:
    """Whether `met` comes true in time."""
    late = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > late:
            return False
        time.sleep(0.005)
    return True


def has_children() -> bool:
    """Whether this process has children, also such as ended and were not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pid_in(path: Path) -> int:
    assert until(lambda: path.is_file() and path.read_text().strip()), "the program did not start"
    return int(path.read_text())


def gone(pid: int) -> bool:
    return until(lambda: not lives(pid))


def test_output_status_and_words_are_told(run: Runner) -> None:
    done = run("sh", "-c", "echo out; echo err >&2; exit 3", timeout=PATIENCE, check=False)
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "err")
    assert done.argv[:2] == ("sh", "-c")
    assert done.seconds > 0


def test_a_bare_program_gets_only_the_environment_that_is_named(run: Runner) -> None:
    code = "import os; print(sorted(os.environ.keys() - {'LC_CTYPE'}))"
    assert run(PYTHON, "-c", code, timeout=PATIENCE, env={"ONLY": "x"}, bare=True).stdout == "['ONLY']\n"


def test_the_environment_is_the_runners_and_more(tmp_path: Path) -> None:
    run = Runner({"A": "1", "B": "1", "PATH": os.environ["PATH"]})
    assert (
        run("sh", "-c", "echo $A$B$C; pwd", timeout=PATIENCE, env={"B": "2", "C": "3"}, cwd=tmp_path).stdout
        == f"123\n{tmp_path}\n"
    )


def test_much_input_and_output_at_once_does_not_block(run: Runner) -> None:
    data = os.urandom(3 * 2**20).hex().encode()
    assert run("sh", "-c", "tee /dev/stderr", timeout=PATIENCE, stdin=data).stdout == data.decode()


def test_input_that_nobody_reads_is_no_fault(run: Runner) -> None:
    assert run("true", timeout=PATIENCE, stdin=b"x" * 2**20).code == 0
    assert run("cat", timeout=PATIENCE, stdin=b"").stdout == ""
    assert run("cat", timeout=PATIENCE).stdout == ""


def test_a_failure_repeats_the_end_of_stderr(run: Runner) -> None:
    with pytest.raises(ToolFailed) as caught:
        run("sh", "-c", "seq 100 >&2; exit 7", timeout=PATIENCE)
    assert "failed with exit status 7" in caught.value.message
    assert caught.value.message.endswith("  99\n  100")
    assert "\n  60\n" not in caught.value.message


def test_a_program_that_a_signal_ended_is_told_as_such(run: Runner) -> None:
    with pytest.raises(ToolFailed, match="was ended by SIGKILL"):
        run("sh", "-c", "kill -9 $$", timeout=PATIENCE)


def test_what_cannot_be_started_is_unfit(run: Runner, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    with pytest.raises(ToolUnfit, match="`no-such-program` cannot be started: No such file"):
        run("no-such-program", timeout=PATIENCE)
    with pytest.raises(ToolUnfit, match="Permission denied"):
        run(plain, timeout=PATIENCE)
    with pytest.raises(ToolUnfit, match=r"`true` cannot be started in `.*nowhere`"):
        run("true", timeout=PATIENCE, cwd=tmp_path / "nowhere")


def test_a_machine_that_is_short_of_processes_is_temporary(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(Temporary, match="Resource temporarily unavailable"):
        run("true", timeout=PATIENCE)


def test_a_timeout_is_temporary_and_leaves_nothing(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    monkeypatch.setattr(conversation, "time", clock)
    script = f"sleep 3600 & echo $! > {tmp_path}/pid; echo working >&2; wait"
    with pytest.raises(Temporary, match=r"did not end within 3000 s\n  working") as late:
        run("sh", "-c", script, timeout=3000, check=False, on_line=lambda _: passed.append(passed.pop() + 3000))
    assert "try again" in late.value.hint
    assert gone(pid_in(tmp_path / "pid"))


def test_an_interrupt_reaches_grandchildren_first_as_an_interrupt(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "GRACE", PATIENCE)
    grandchild = f"""
import signal, sys, time, pathlib
signal.signal(signal.SIGINT, lambda *_: (pathlib.Path({str(tmp_path / "said")!r}).write_text("SIGINT"), sys.exit()))
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(__import__("os").getpid()))
time.sleep(3600)
"""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            run("sh", "-c", f"('{PYTHON}' -c \"$0\"); :", grandchild, timeout=3600)
        except Interrupted as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    pid = pid_in(tmp_path / "pid")
    run.stop(signal.SIGINT)
    thread.join(PATIENCE)
    assert caught
    assert (tmp_path / "said").read_text() == "SIGINT"
    assert gone(pid)


def test_who_ignores_interrupt_and_terminate_is_killed(run: Runner, tmp_path: Path) -> None:
    stubborn = f"""
import signal, time, os, pathlib
for each in (signal.SIGINT, signal.SIGTERM): signal.signal(each, signal.SIG_IGN)
if os.fork() == 0:
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
    os.write(2, b"ready\\n")
time.sleep(3600)
"""
    told: list[float] = []

    def stop(_: str) -> None:
        told.append(time.monotonic())
        run.stop(signal.SIGINT)

    with pytest.raises(Interrupted):
        run(PYTHON, "-c", stubborn, timeout=3600, on_line=stop)
    assert time.monotonic() - told[0] >= 2 * 0.25
    assert gone(pid_in(tmp_path / "pid"))


def test_a_grandchild_that_cleans_up_is_given_the_time(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "GRACE", PATIENCE)
    slow = f"trap 'sleep 0.15; echo clean > {tmp_path}/said; exit' INT; echo ready >&2; while :; do sleep 0.02; done"
    with pytest.raises(Interrupted):
        run(
            *(PYTHON, "-c", f"import subprocess, time; subprocess.Popen(['sh', '-c', {slow!r}]); time.sleep(3600)"),
            timeout=3600,
            on_line=lambda line: run.stop(signal.SIGINT) if line == "ready" else None,
        )
    assert (tmp_path / "said").read_text() == "clean\n"


def test_what_is_said_while_it_is_stopped_is_heard(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "GRACE", PATIENCE)
    lines: list[str] = []
    script = "trap 'seq 20000 >&2; exit' INT; echo ready >&2; while :; do sleep 0.02; done"

    def hear(line: str) -> None:
        lines.append(line)
        run.stop(signal.SIGINT)

    with pytest.raises(Interrupted):
        run("sh", "-c", script, timeout=3600, on_line=hear)
    assert (lines[0], lines[-1]) == ("ready", "20000")


def test_a_grandchild_that_keeps_the_output_open_holds_nobody_up(run: Runner) -> None:
    done = run("sh", "-c", "sleep 3600 & echo $!", timeout=PATIENCE)
    try:
        assert lives(int(done.stdout)), "a program that succeeded may leave a service behind"
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_a_stopped_runner_starts_nothing(run: Runner, tmp_path: Path) -> None:
    run.stop(signal.SIGTERM)
    with pytest.raises(Terminated):
        run("touch", tmp_path / "started", timeout=PATIENCE)
    assert not (tmp_path / "started").exists()


def test_a_signal_handler_stops_the_programs_of_all_threads(run: Runner, tmp_path: Path) -> None:
    caught: list[type[BaseException]] = []

    def handler(signum: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGINT, lambda *_: None)
        run.stop(signum)
        raise Interrupted("by the handler")

    def work(number: int) -> None:
        try:
            run("sh", "-c", f"echo $$ > {tmp_path}/{number}; exec sleep 3600", timeout=3600)
        except Interrupted as error:
            caught.append(type(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    before = signal.signal(signal.SIGINT, handler)
    try:
        for thread in threads:
            thread.start()
        pids = [pid_in(tmp_path / str(number)) for number in range(3)]
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(Interrupted, match="by the handler"):  # noqa: PT012
            timer.start()
            run("sleep", "3600", timeout=3600)
        for thread in (*threads, timer):
            thread.join(PATIENCE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught == [Interrupted] * 3
    assert all(map(gone, pids))


def test_a_signal_at_any_moment_of_a_start_leaves_no_child(tmp_path: Path) -> None:
    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(8):
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 8e-3))
                Runner(os.environ)("sleep", "3600", timeout=3600)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_stderr_is_followed_and_kept_in_the_log(run: Runner, tmp_path: Path) -> None:
    lines: list[str] = []
    log = tmp_path / "log"
    for word in ("one", "two"):
        run("sh", "-c", f"printf '{word}\\r\\n50%%\\r100%%\\nlast' >&2", timeout=PATIENCE, on_line=lines.append, log=log)
    assert lines == ["one", "50%", "100%", "last", "two", "50%", "100%", "last"]
    assert log.read_text() == "\n".join(lines) + "\n"


@pytest.mark.parametrize("log", ["/dev/full", "/nowhere/log"])
def test_a_log_that_cannot_be_written_is_told(run: Runner, log: str) -> None:
    with pytest.raises(Temporary, match=f"`{log}` cannot be written"):
        run("sh", "-c", "echo x >&2; exec sleep 3600", timeout=3600, log=Path(log))


def test_a_fault_of_the_listener_ends_the_program_and_is_raised(run: Runner) -> None:
    def listen(line: str) -> None:
        raise LookupError(line)

    with pytest.raises(LookupError, match="hello"):
        run("sh", "-c", "echo hello >&2; exec sleep 3600", timeout=3600, on_line=listen)


def test_too_much_output_is_an_error_and_never_cut(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "OUTPUT_LIMIT", 2**20)
    with pytest.raises(ToolFailed, match="more than 1 MiB"):
        run("cat", "/dev/zero", timeout=3600, check=False)


def test_much_stderr_is_kept_from_its_end(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "ERROR_LIMIT", 100)
    assert run("sh", "-c", "seq 1000 >&2", timeout=PATIENCE).stderr.splitlines()[-1] == "1000"


def test_no_file_stays_open(run: Runner, tmp_path: Path) -> None:
    run("true", timeout=PATIENCE)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        run("cat", timeout=PATIENCE, stdin=b"x", log=tmp_path / "log")
        run("sh", "-c", "sleep 0.3 &", timeout=PATIENCE)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_secrets_are_nowhere(run: Runner, tmp_path: Path) -> None:
    secret = 'it\'s a "secret" & <more>'
    lines: list[str] = []
    script = 'printf "%s\\n" "$0" >&2; exit 1'
    with pytest.raises(ToolFailed) as caught:
        run("sh", "-c", script, secret, timeout=PATIENCE, secrets=["", secret], on_line=lines.append, log=tmp_path / "log")
    assert lines == ["***"]
    for text in (caught.value.message, (tmp_path / "log").read_text()):
        assert "secret" not in text
        assert "***" in text
    done = run("sh", "-c", script, secret, timeout=PATIENCE, secrets=[secret], check=False)
    assert "secret" not in done.stderr + "".join(done.argv)
    with pytest.raises(ToolUnfit) as unfit:
        run("/nowhere/secret", timeout=PATIENCE, secrets=["secret"])
    assert "secret" not in unfit.value.message


@pytest.mark.parametrize("text", ['p&"ss/ö', "p%26%22ss%2F%C3%B6", 'p&\\"ss/\\u00f6', 'p\\u0026\\"ss/ö', 'x p&"ss/ö y p&"ss/ö'])
def test_a_secret_is_found_as_urls_and_json_write_it(text: str) -> None:
    assert redact(text, ['p&"ss/ö']).replace("***", "").strip("x y") == ""


def test_every_line_of_a_secret_is_one() -> None:
    assert redact("a KEY-TWO b", ["KEY-ONE\nKEY-TWO\n"]) == "a *** b"
    assert redact("abc", ["ab", "abc", ""]) == "***"


def test_a_long_line_is_cut_behind_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "LINE_LIMIT", 10)
    lines = Lines(["secret"])
    assert list(lines.feed(b"1234567sec")) + list(lines.feed(b"ret" + b"x" * 50 + b"\nnext\n")) == ["1234567***…", "next"]


def test_a_service_outlives_its_starter_and_is_reaped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    pid = spawn("sh", "-c", "echo $X; pwd; exec sleep 3600", log=log, env={"X": "hello", "PATH": os.environ["PATH"]})
    try:
        assert os.getpgid(pid) == pid
        assert until(lambda: log.read_text() == "before\nhello\n/\n"), log.read_text()
    finally:
        os.kill(pid, signal.SIGKILL)
    assert gone(pid)


def test_a_service_that_cannot_be_started_is_unfit(tmp_path: Path) -> None:
    with pytest.raises(ToolUnfit, match="no-such-service"):
        spawn("no-such-service", log=tmp_path / "log", env={})


def test_replace_becomes_the_program_or_says_why_not() -> None:
    code = "from pipeline.command import replace; print('first'); replace(('/bin/sh', '-c', 'echo $X'), {'X': '1'})"
    assert subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout == "first\n1\n"
    with pytest.raises(ToolUnfit, match="no-such-program"):
        replace(("no-such-program",), os.environ)
