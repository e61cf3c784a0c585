"""The driver: the claimed minimum is the one of torch's CUDA; on GPUs, the machine's driver, devices and shared memory do."""

import os
import subprocess
import sys
from importlib import import_module

import pytest

OLDEST = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
"""Major version of CUDA → the oldest driver that runs all its minor versions. Source: NVIDIA, "CUDA Compatibility"."""
SHARED_MEMORY = 2**30
"""Bytes; NCCL takes some 10 MB a connection."""
ASK = """
import ctypes
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(cuda.cuInit(0), cuda.{}(ctypes.byref(found)), found.value)
"""
TORCH = "import torch; torch.cuda.init()"


def test_the_claimed_driver_is_the_oldest_that_runs_this_cuda(claims):
    assert claims["driver"] == OLDEST.get(torch_cuda().partition(".")[0])


@pytest.mark.gpus(1)
def test_the_driver_knows_the_cuda_that_torch_is_built_for(measure):
    version = ask("cuDriverGetVersion")
    measure("CUDA of the driver", f"{version // 1000}.{version % 1000 // 10}")
    assert version // 1000 >= int(torch_cuda().partition(".")[0]), f"the driver's CUDA is {version}, torch's {torch_cuda()}"


@pytest.mark.gpus(1)
def test_every_gpu_that_was_given_is_there_and_no_other(gpus):
    slices = any(gpu["uuid"].startswith("MIG-") for gpu in gpus)
    assert ask("cuDeviceGetCount") == (1 if slices else len(gpus))


@pytest.mark.gpus(1)
def test_shared_memory_is_enough_for_processes_that_exchange_tensors(measure):
    there = os.statvfs("/dev/shm")
    size = there.f_frsize * there.f_blocks
    measure("/dev/shm bytes", size)
    assert size >= SHARED_MEMORY, f"/dev/shm is too small or not shared: {size} bytes"


def torch_cuda():
    return import_module("torch").version.cuda


def ask(call):
    """What libcuda answers in a process without torch, so that no library of the image speaks in the driver's place."""
    done = python(ASK.format(call))
    assert done.returncode == 0, last_line(done.stderr)
    started, answered, found = map(int, done.stdout.split())
    assert started == 0, f"cuInit answers {started}; torch says: {last_line(python(TORCH).stderr)}"
    assert answered == 0, f"{call} answers {answered}"
    return found


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


def last_line(text):
    return (text.strip().splitlines() or ["nothing"])[-1]
