"""What each of the processes of `test_all_reduce.py` does; the last line that rank 0 prints is JSON."""

import gc
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIZES = (1, 1023, 2**20)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64)
DEADLINE = timedelta(seconds=60)


def main(backend):
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=DEADLINE, device_id=device if backend == "nccl" else None)
    if os.environ.get("LOSE_RANK") == str(rank):
        os._exit(9)
    sums = all_sums_are_exact(device)
    moved = broadcast_and_gather_move_every_element(device)
    averaged = gradients_are_the_same_everywhere(device, backend)
    speed = bus_gigabytes_a_second(device)
    dist.barrier()
    gc.collect()  # a cycle in DistributedDataParallel holds the group, whose threads would then outlive the interpreter and abort
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({"sums": sums, "moved": moved, "averaged": averaged, "busbw": speed}))


def pattern(size, dtype, device):
    """Small integers, of which every type holds all sums exactly."""
    return (torch.arange(size, device=device) % 31).to(dtype)


def all_sums_are_exact(device):
    factor, world = dist.get_rank() + 1, dist.get_world_size()
    total = world * (world + 1) // 2
    checked = 0
    for dtype in DTYPES:
        for size in SIZES:
            found = pattern(size, dtype, device) * factor
            dist.all_reduce(found)
            assert torch.equal(found, pattern(size, dtype, device) * total), (dtype, size)
            checked += size
    return checked


def broadcast_and_gather_move_every_element(device):
    size, rank, world = SIZES[1], dist.get_rank(), dist.get_world_size()
    mine = pattern(size, torch.float32, device) + rank
    sent = mine.clone()
    dist.broadcast(sent, src=0)
    assert torch.equal(sent, pattern(size, torch.float32, device))
    every = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(every, mine)
    assert all(torch.equal(one, pattern(size, torch.float32, device) + other) for other, one in enumerate(every))
    return size * (world + 1)


def gradients_are_the_same_everywhere(device, backend):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device), device_ids=[device.index] if backend == "nccl" else None)
    torch.manual_seed(1 + dist.get_rank())
    model(torch.randn(8, 64, device=device)).square().sum().backward()
    mine = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    assert mine.norm() > 0
    assert all(torch.equal(one, mine) for one in every)
    return mine.numel()


def bus_gigabytes_a_second(device):
    """As nccl-tests count it: bytes / time * 2(n-1)/n."""
    size, world, rounds = (64 if device.type == "cuda" else 4) * 2**20, dist.get_world_size(), 5
    data = torch.ones(size, device=device)
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
    main(sys.argv[1])
