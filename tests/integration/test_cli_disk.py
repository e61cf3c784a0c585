"""A disk that is full, wherever: exit 75 with the remedy, nothing left, and once there is room the same command works."""

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import Stack
from tests.integration.families import Ended, Family, free_port, own_services, tiny

MB = 10**6


@contextmanager
def small_disk(at: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own at the folder `at`, of that size until the end."""
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def more_room(at: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=100m", at], check=True)


def assert_full(built: Ended, family: Family, *, candidates: int) -> None:
    assert built.code == 75
    assert "Traceback" not in built.stderr
    assert len(family.tags()) == candidates
    assert family.left() == []


def test_no_room_for_a_build_context_is_temporary(tmp_path: Path, stack: Stack) -> None:
    family = tiny(tmp_path, stack)
    family.write("app/data", secrets.token_bytes(MB))
    with small_disk(family.cache / "stage", 100):
        built = family.call("build", "--json")
        assert_full(built, family, candidates=1)
        assert "No space left on device" in built.of("app")["reason"]
        assert "free some space" in built.of("app")["hint"]
        more_room(family.cache / "stage")
        assert family.call("build").code == 0


def test_no_room_for_logs_and_records_is_temporary_and_leaves_no_candidate_without_a_record(tmp_path: Path, stack: Stack) -> None:
    family = tiny(tmp_path, stack)
    with small_disk(family.root / ".pipeline", 4):
        built = family.call("build", "--json")
        assert_full(built, family, candidates=0)
        assert "the disk is full" in built.of("os")["reason"]
        more_room(family.root / ".pipeline")
        assert family.call("build").code == 0
        assert len(list(family.root.glob(".pipeline/statements/*/built.json"))) == 2


@pytest.fixture
def cache() -> Iterator[Path]:
    """A cache folder with a path that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    yield folder
    shutil.rmtree(folder)


def test_no_room_in_the_registry_is_temporary(tmp_path: Path, stack: Stack, cache: Path) -> None:
    family = tiny(tmp_path, stack, host=f"localhost:{free_port()}", cache=cache)
    family.write("app/data", secrets.token_bytes(2 * MB))
    with small_disk(cache / "registry", 1000), own_services(family):
        built = family.call("build", "--json")
        assert_full(built, family, candidates=1)
        assert f"registry `{family.repository.host}` answers" in built.of("app")["reason"]
        assert "its disk is full" in built.of("app")["hint"]
        more_room(cache / "registry")
        family.write("app/data", secrets.token_bytes(2 * MB))  # distribution may keep a torn link to a blob it had no room for
        assert family.call("build").code == 0
