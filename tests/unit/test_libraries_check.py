"""The check of the loader's libraries, on what a container with GPUs lists: a driver's files are no second CUDA."""

import subprocess

import pytest

from images.pytorch.checks import test_libraries as check
from tests.machines import recorded

Patch = pytest.MonkeyPatch


def listed(text: str, lane: str, monkeypatch: Patch) -> None:
    done = subprocess.CompletedProcess(args=(), returncode=0, stdout=text)
    monkeypatch.setattr(check.subprocess, "run", lambda *argv, **more: done)
    check.test_the_loader_knows_no_gpu_library_but_a_mounted_driver_s(lane)


def test_a_mounted_driver_with_its_links_is_no_library_of_the_image(monkeypatch: Patch) -> None:
    listed(recorded("ldconfig.txt"), "gpu", monkeypatch)


def test_where_no_driver_is_mounted_its_files_are_not_expected(monkeypatch: Patch) -> None:
    with pytest.raises(AssertionError, match="libnvidia-sandboxutils"):
        listed(recorded("ldconfig.txt"), "cpu", monkeypatch)


def test_a_second_cuda_beside_a_driver_is_found(monkeypatch: Patch) -> None:
    second = "\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12\n"
    with pytest.raises(AssertionError, match="libcudart"):
        listed(recorded("ldconfig.txt") + second, "gpu", monkeypatch)
