"""How a container starts from inside: who it is, what it may write, and what its environment must not hold."""

import getpass
import os
import stat
import subprocess
from pathlib import Path

import pytest

WRITABLE = ("/dev", "/home/user", "/pipeline", "/proc", "/run/lock", "/sys", "/tmp", "/var/tmp", "/workspace")
FORBIDDEN = ("CUDA_", "NCCL_", "NVIDIA_DISABLE_", "NVIDIA_REQUIRE_", "NVIDIA_VISIBLE_DEVICES", "TORCH_", "TORCHINDUCTOR_")


def test_it_does_not_run_as_root():
    assert os.getuid() != 0
    assert os.getgid() == 0


def test_programs_that_ask_find_a_user_name():
    assert getpass.getuser() == "user"


@pytest.mark.parametrize("folder", ["/home/user", "/workspace"])
def test_any_user_of_group_0_may_write_to(folder):
    found = Path(folder).stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode) & 0o070) == (0, 0o070)


def test_nothing_else_can_be_written():
    places = (Path(place) for place, folders, _ in os.walk("/") if place not in prune(place, folders))
    writable = [str(place) for place in places if is_writable(place.stat())]
    assert not writable, writable


@pytest.mark.parametrize("prefix", FORBIDDEN)
def test_no_variable_decides_for_the_user(prefix):
    variables = [f"{name}={text}" for name, text in os.environ.items() if name.startswith(prefix)]
    assert not variables, variables


def test_a_gpu_runtime_is_told_to_bring_the_driver_and_its_tools():
    assert set(os.environ["NVIDIA_DRIVER_CAPABILITIES"].split(",")) == {"compute", "utility"}


def test_no_file_configures_nccl():
    assert not Path("/etc/nccl.conf").exists()


def test_there_is_no_compiler_but_one_that_is_claimed_and_no_cache_of_one(claims):
    names = ("nvcc", "ccache", *(() if "compile" in claims else ("gcc", "cc")))
    programs = [f"{folder}/{name}" for folder in os.environ["PATH"].split(":") for name in names]
    compilers = [path for path in programs if Path(path).exists()]
    assert not compilers, compilers
    caches = ("/home/user/.cache/pip", "/home/user/.cache/uv", "/home/user/.ccache", "/var/cache/ccache")
    kept = [path for path in caches if Path(path).exists()]
    assert not kept, kept


def test_a_shell_starts():
    done = subprocess.run(["bash", "-c", "exit 3"], timeout=300, check=False)
    assert done.returncode == 3


def prune(place, folders):
    folders[:] = [name for name in folders if f"{place.rstrip('/')}/{name}" not in WRITABLE]
    return WRITABLE


def is_writable(found):
    """By its mode alone: the root of this container is read-only."""
    ours = found.st_mode & (
        stat.S_IWOTH | (stat.S_IWGRP if found.st_gid == 0 else 0) | (stat.S_IWUSR if found.st_uid == os.getuid() else 0)
    )
    return bool(ours)
