"""Runs of one machine, as processes of their own, take turns on its GPUs; whatever happens to one, the next one gets them."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline import turns
from pipeline.errors import Interrupted, ToolUnfit
from pipeline.gpus import Gpu
from pipeline.story import Silent

ROOT = Path(__file__).parents[2]
RUN = """
import os, sys
from pathlib import Path
from pipeline import turns
from pipeline.gpus import Gpu
from pipeline.story import Silent

class Told(Silent):
    def say(self, text):
        print(text, flush=True)

folder, user, *uuids = sys.argv[1:]
if user != "me" and os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
gpus = [Gpu(index=0, uuid=uuid, name="x", capability=(8, 0), memory=1, used=0) for uuid in uuids]
with turns.taking(gpus, story=Told(), folder=Path(folder)):
    print("mine", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


def gpu(uuid: str) -> Gpu:
    return Gpu(index=0, uuid=uuid, name="x", capability=(8, 0), memory=1, used=0)


@contextmanager
def another(folder: Path, *uuids: str, user: str = "me") -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own; it holds the GPUs until it is sent a line."""
    argv = [sys.executable, "-c", RUN, str(folder), user, *uuids]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def test_the_second_waits_and_says_whose_turn_it_is(folder: Path) -> None:
    with another(folder, "GPU-1") as first:
        assert line(first) == "mine"
        with another(folder, "GPU-1") as second:
            said = line(second)
            assert said.startswith(f"waiting for GPU GPU-1: process {first.pid} of ")
            assert " has it since 20" in said
            go_on(first)
            assert line(first) == "released"
            assert line(second) == "mine"


def test_others_gpus_and_slices_do_not_wait(folder: Path) -> None:
    with another(folder, "GPU-1", "MIG-1") as first:
        assert line(first) == "mine"
        with turns.taking([gpu("GPU-2"), gpu("MIG-2")], story=Silent(), folder=folder):
            pass
        with turns.taking([], story=Silent(), folder=folder):
            pass


def test_a_run_that_is_killed_lets_go(folder: Path) -> None:
    with another(folder, "GPU-1") as first:
        assert line(first) == "mine"
        with another(folder, "GPU-1") as second:
            assert line(second).startswith("waiting")
            first.kill()
            assert line(second) == "mine"


def test_runs_that_name_their_gpus_in_other_orders_do_not_wait_for_each_other(folder: Path) -> None:
    for _ in range(5):
        with another(folder, "GPU-1", "GPU-2") as first, another(folder, "GPU-2", "GPU-1") as second:
            go_on(first)
            go_on(second)
            for process in (first, second):
                assert process.stdout is not None
                assert process.stdout.read().endswith("mine\nreleased\n")


def test_one_run_may_name_a_gpu_twice_and_take_it_again_later(folder: Path) -> None:
    for _ in range(2):
        with turns.taking([gpu("GPU-1"), gpu("GPU-1")], story=Silent(), folder=folder):
            assert (folder / "GPU-1.lock").read_text().startswith(f"process {os.getpid()} of ")
    assert (folder / "GPU-1.lock").read_text() == ""


def test_an_interrupt_ends_the_waiting(folder: Path) -> None:
    def break_off(*_: object) -> None:
        raise Interrupted("interrupted")

    with another(folder, "GPU-1") as first:
        assert line(first) == "mine"
        before = signal.signal(signal.SIGALRM, break_off)
        try:
            with pytest.raises(Interrupted):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, 0.7)
                with turns.taking([gpu("GPU-0"), gpu("GPU-1")], story=Silent(), folder=folder):
                    pass
        finally:
            signal.signal(signal.SIGALRM, before)
        with another(folder, "GPU-0") as third:
            assert line(third) == "mine"


def test_users_share_the_locks_whoever_made_them() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "locks"
        with turns.taking([gpu("GPU-1")], story=Silent(), folder=folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert stat.S_IMODE((folder / "GPU-1.lock").stat().st_mode) == 0o666
            with another(folder, "GPU-1", "GPU-2", user="65534") as second:
                assert line(second).startswith(f"waiting for GPU GPU-1: process {os.getpid()} of ")
        with another(folder, "GPU-2", user="65534") as second:
            assert line(second) == "mine"
        with turns.taking([gpu("GPU-2")], story=Silent(), folder=folder):
            pass


def test_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folder.symlink_to(other)
    with pytest.raises(ToolUnfit, match="cannot take turns"), turns.taking([gpu("GPU-1")], story=Silent(), folder=folder):
        pass
    folder.unlink()
    folder.mkdir()
    (tmp_path / "precious").write_text("kept")
    (folder / "GPU-1.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ToolUnfit, match="cannot take turns"), turns.taking([gpu("GPU-1")], story=Silent(), folder=folder):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_file_of_another_kind_holds_nobody(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "GPU-1.lock")
    with pytest.raises(ToolUnfit, match="not a regular file"), turns.taking([gpu("GPU-1")], story=Silent(), folder=folder):
        pass


def test_a_folder_that_cannot_be_made_is_unfit_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ToolUnfit, match="cannot take turns") as error,
        turns.taking([gpu("GPU-1")], story=Silent(), folder=tmp_path / "file" / "locks"),
    ):
        pass
    assert f"install -d -m 1777 {tmp_path}/file/locks" in error.value.hint


def test_a_name_of_another_users_making_shows_nothing_strange(folder: Path) -> None:
    with another(folder, "GPU-1") as first:
        assert line(first) == "mine"
        (folder / "GPU-1.lock").write_bytes(b"\x1b[31mroot\n" + b"x" * 1000)
        with another(folder, "GPU-1") as second:
            said = line(second)
            assert "\x1b" not in said
            assert len(said) < 400
