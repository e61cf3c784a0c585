"""Two processes that add up what they have: every element exact, on gloo and the CPU or on NCCL and two GPUs."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RANKS = Path(__file__).with_name("ranks.py")
DEADLINE = 120
ELEMENTS = 4 * (1 + 1023 + 2**20)


@pytest.fixture
def backend(lane, rung):
    if lane == "gpu":
        if torch.cuda.device_count() < 2:
            pytest.skip(f"needs 2 GPUs, this lane has {torch.cuda.device_count()}")
        return "nccl"
    rung("two processes on gloo, no GPU")
    return "gloo"


def test_two_processes_add_up_exactly(backend, measure):
    done = launch(backend)
    assert done.returncode == 0, last_lines(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sums"] == ELEMENTS
    assert found["moved"] == 3 * 1023
    assert found["averaged"] == 64 * 64 + 64
    measure("bus GB/s", found["busbw"])


def test_a_process_that_is_lost_ends_the_other(backend):
    done = launch(backend, environment={"LOSE_RANK": "1"})
    assert done.returncode > 0
    assert "exitcode  : 9" in done.stderr, last_lines(done.stderr)


def launch(backend, environment=None):
    argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    process = subprocess.Popen(
        [*argv, f"--master-port={free_port()}", str(RANKS), backend],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def last_lines(text):
    """The end of what was said, without what gloo repeats where there is no network."""
    return "\n".join([line for line in text.splitlines() if "hostname" not in line][-40:])
