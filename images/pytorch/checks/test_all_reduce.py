"""Two processes that add up what they have: every element exact, on NCCL and two GPUs, or on the highest step that there is."""

import json
import os

import floors
import ladder
import pytest
import torch
from launcher import launch

DEADLINE = 300
"""Seconds for all that a process has to do (10 to 25 on a GPU); twice `AGAIN` more still fit into the deadline of a test."""
AGAIN = 120
REFUSAL = 120
LEAST_SHARED_MEMORY = 2**30


@pytest.fixture
def jobs(lane, gpus, rung):
    step, jobs = ladder.climb(lane, gpus, torch.cuda.nccl.version())
    if step:
        rung(step)
    return jobs


def test_shared_memory_is_large_enough(lane, measure):
    found = os.statvfs("/dev/shm")
    size = found.f_frsize * found.f_blocks
    measure("/dev/shm MB", size // 10**6)
    assert lane == "cpu" or size >= LEAST_SHARED_MEMORY, f"{ladder.NO_SHARED_MEMORY}: it has {size // 10**6} MB, 1 GiB is needed"


def test_processes_add_up_exactly(jobs, gpus, measure):
    for job in jobs:
        ended = start(job, REFUSAL if job.refused else DEADLINE)
        if job.refused:
            assert ladder.is_refusal(ended), f"NCCL did not refuse it: {ladder.explained(job, ended, None)}"
            continue
        if ended.code != 0:
            pytest.fail(ladder.explained(job, ended, lambda more, job=job: start(job, AGAIN, more).code == 0), pytrace=False)
        judge(job, json.loads(ended.out.splitlines()[-1]), ended.log, gpus, measure)


def test_a_process_that_is_lost_ends_the_other(jobs):
    ended = start(jobs[-1], DEADLINE, {"LOSE_RANK": "1"})
    assert ended.code, ended.says
    assert "exitcode  : 9" in ended.err, ladder.explained(jobs[-1], ended, lambda more: False)


def start(job, deadline, environment=None):
    words = (job.backend, job.device, *map(str, job.sizes))
    return launch(*words, processes=job.processes, deadline=deadline, environment={**job.environment, **(environment or {})})


def judge(job, found, log, gpus, measure):
    """Whether everything was done, on GPUs that differ, and over the bus as fast as its kind must be."""
    assert found["sums"] == 4 * sum(job.sizes)
    assert found["moved"] == 1023 * (job.processes + 1)
    assert found["scattered"] == 1023 or (job.backend, job.device) == ("gloo", "cuda")
    assert found["streamed"] == 2**20
    assert found["averaged"] == 64 * 64 + 64
    if job.processes == 1:
        return
    if job.backend == "gloo" or job.environment:
        measure(f"{job.backend} bus GB/s", found["busbw"])
        return
    assert len(set(found["devices"])) == job.processes, f"processes share a GPU: {found['devices']}"
    way = ladder.transport(log)
    measure("transport", way)
    assert way, "NCCL's log names no transport"
    assert way != "NET/Socket", "two GPUs of one machine speak over NET/Socket"
    known = floors.model(floors.of_device(gpus, found["devices"][0]))
    wires = {"generation": ladder.generation(log), "lanes": ladder.lanes(log)}
    floor = ladder.bus_floor(way, nvlink=known and known.nvlink, **wires)
    measure("nccl bus GB/s", found["busbw"], floor=None if floors.shared(gpus) else floor)
