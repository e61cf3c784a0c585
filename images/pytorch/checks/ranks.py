"""What each of the processes of `test_all_reduce.py` does: `ranks.py BACKEND DEVICE SIZE…`; rank 0 ends with a line of JSON."""

import gc
import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import timedelta

RANK = int(os.environ["LOCAL_RANK"])
if "RANK_DEVICES" in os.environ:  # slices of a GPU: a process can have but one, and CUDA reads this once
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["RANK_DEVICES"].split(",")[RANK]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64)
DEADLINE = timedelta(seconds=240)
MOVED = 1023
"""Elements that are broadcast, gathered and scattered."""
BUS = {"cpu": (2**22, 1, 5), "cuda": (2**26, 5, 20)}
"""Elements of float32, rounds to warm up, and rounds that are timed."""


def main(backend, kind, sizes):
    device = torch.device(kind, RANK % torch.cuda.device_count()) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=DEADLINE, device_id=device if backend == "nccl" else None)
    if os.environ.get("LOSE_RANK") == str(RANK):
        os._exit(9)
    found = {
        "devices": identities(device),
        "sums": all_sums_are_exact(device, sizes),
        "moved": every_element_is_moved(device),
        "scattered": sums_are_scattered(device, backend),
        "streamed": a_sum_on_another_stream_is_waited_for(device),
        "averaged": gradients_are_the_same_everywhere(device),
        "busbw": bus_gigabytes_a_second(device, backend),
    }
    dist.barrier(device_ids=[device.index] if backend == "nccl" else None)
    gc.collect()  # a cycle in DistributedDataParallel holds the group, whose threads would then outlive the interpreter and abort
    dist.destroy_process_group()
    if RANK == 0:
        print(json.dumps(found))


def pattern(size, dtype, device):
    """Small integers, of which every type holds all sums exactly."""
    return (torch.arange(size, device=device) % 31).to(dtype)


def identities(device):
    """The UUIDs of the GPUs of all processes."""
    mine = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    return every


def all_sums_are_exact(device, sizes):
    factor, world = dist.get_rank() + 1, dist.get_world_size()
    total = world * (world + 1) // 2
    checked = 0
    for dtype in DTYPES:
        for size in sizes:
            found = pattern(size, dtype, device) * factor
            dist.all_reduce(found)
            assert torch.equal(found, pattern(size, dtype, device) * total), f"wrong sums: {dtype}, {size} elements"
            checked += size
    return checked


def every_element_is_moved(device):
    rank, world = dist.get_rank(), dist.get_world_size()
    base = pattern(MOVED, torch.float32, device)
    sent = base + rank
    dist.broadcast(sent, src=0)
    assert torch.equal(sent, base), "wrong broadcast"
    every = [torch.empty_like(base) for _ in range(world)]
    dist.all_gather(every, base + rank)
    assert all(torch.equal(one, base + other) for other, one in enumerate(every)), "wrong all_gather"
    return MOVED * (world + 1)


def sums_are_scattered(device, backend):
    """Not asked of gloo and GPUs, for which torch 2.6 does not document it."""
    if backend != "nccl" and device.type == "cuda":
        return 0
    rank, world = dist.get_rank(), dist.get_world_size()
    base = pattern(MOVED, torch.float32, device)
    part = torch.empty_like(base)
    dist.reduce_scatter_tensor(part, torch.cat([base + rank + place for place in range(world)]))
    assert torch.equal(part, world * (base + rank) + world * (world - 1) // 2), "wrong reduce_scatter"
    return MOVED


def a_sum_on_another_stream_is_waited_for(device):
    """The sum needs what its stream still computes, and the other stream needs the sum."""
    side = torch.cuda.Stream(device) if device.type == "cuda" else None
    with torch.cuda.stream(side) if side else nullcontext():
        found = pattern(2**20, torch.float32, device)
        for _ in range(100):
            found = found + 1
        work = dist.all_reduce(found, async_op=True)
        work.wait()
        found = found + 1
    if side:
        torch.cuda.current_stream(device).wait_stream(side)
    expected = (pattern(2**20, torch.float32, device) + 100) * dist.get_world_size() + 1
    assert torch.equal(found, expected), "a sum was not waited for"
    return found.numel()


def gradients_are_the_same_everywhere(device):
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Linear(64, 64).to(device), device_ids=[device.index] if device.type == "cuda" else None
    )
    torch.manual_seed(1 + dist.get_rank())
    model(torch.randn(8, 64, device=device)).square().sum().backward()
    mine = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    assert mine.norm() > 0
    assert all(torch.equal(one, mine) for one in every), "gradients differ"
    return mine.numel()


def bus_gigabytes_a_second(device, backend):
    """As nccl-tests count it: bytes / time * 2(n-1)/n."""
    size, warm_ups, rounds = BUS["cuda" if backend == "nccl" else "cpu"]
    data, world = torch.zeros(size, device=device), dist.get_world_size()
    for _ in range(warm_ups):
        dist.all_reduce(data)
    synchronize(device)
    started = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(data)
    synchronize(device)
    seconds = (time.perf_counter() - started) / rounds
    return size * 4 / seconds * 2 * (world - 1) / world / 1e9


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]])
