"""How two processes can speak to each other with the GPUs that there are, and what NCCL's own log says of the way they took.

Nothing here needs torch. Floors of the bus bandwidth are rough: they tell a broken way from a slow one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

MANY_RANKS_ON_ONE_GPU = (2, 30)
"""NCCL from this version on lets processes share a GPU, or slices of one, when it is told to."""
TOLD_SO = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
REFUSALS = ("Duplicate GPU detected", "Multiple Ranks are using")
NVLINK_SHARE = 0.35
"""Part of one direction of the NVLink between two GPUs that they reach at least."""
PCIE = {3: 5, 4: 10, 5: 20}
"""GB/s between two GPUs by generation of PCIe, over all its `LANES`; an unknown one counts as the lowest."""
LANES = 16
SHARED_MEMORY = 2.5
"""GB/s through /dev/shm."""
SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s of PCIe's generations."""
SIZES = (1, 1023, 2**20)
LARGEST = 2**26
"""Elements, where only NCCL carries them."""

NO_PEERS = "peer-to-peer transfer between the GPUs is broken"
NO_SHARED_MEMORY = "/dev/shm is too small or not shared"
NO_TRANSPORT = "NCCL fails on every transport"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One start of `ranks.py`; `refused`: NCCL must not let it happen."""

    backend: str
    device: str
    processes: int = 2
    refused: bool = False
    environment: dict = field(default_factory=dict)

    @property
    def sizes(self):
        return (*SIZES, LARGEST) if self.backend == "nccl" else SIZES

    def __str__(self):
        return f"{self.processes} x {self.backend} on {self.device}" + (", refused" if self.refused else "")


def climb(lane, gpus, nccl):
    """The step of the ladder that can be reached, empty for the highest, and what is to run there."""
    if lane == "cpu":
        return "two processes on gloo, no GPU", (Job(backend="gloo", device="cpu"),)
    sliced = gpus[0]["uuid"].startswith("MIG-")
    if len(gpus) > 1 and not sliced:
        return "", (Job(backend="nccl", device="cuda"),)
    if nccl >= MANY_RANKS_ON_ONE_GPU:
        named = {"RANK_DEVICES": ",".join(gpu["uuid"] for gpu in (gpus * 2)[:2])} if sliced else {}
        where = f"{min(len(gpus), 2)} MIG slices" if sliced else "one GPU"
        return f"two processes on NCCL and {where}", (Job(backend="nccl", device="cuda", environment={**TOLD_SO, **named}),)
    where = "MIG slices, of which NCCL connects none" if sliced else "one GPU"
    return f"one process on NCCL, two on gloo, {where}", (
        Job(backend="nccl", device="cuda", processes=1),
        Job(backend="nccl", device="cuda", refused=True),
        Job(backend="gloo", device="cuda"),
    )


def transport(log):
    """The slowest way that NCCL took between two processes, as its log says: `NVLink`, `P2P`, `SHM`, `NET/…`; else empty."""
    ways = set(re.findall(r" via (P2P|SHM|NET/\w+)", log))
    for way in (*sorted(way for way in ways if way.startswith("NET/")), "SHM"):
        if way in ways:
            return way
    return ("NVLink" if re.search(r"type NV[LB]/", log) else "P2P") if ways else ""


def bus_floor(way, *, nvlink, generation, lanes=None):
    """GB/s that the way must carry; `nvlink` is one direction of the model's, if known. `None` where nobody knows one."""
    if way == "NVLink" and nvlink:
        return NVLINK_SHARE * nvlink
    if way in ("NVLink", "P2P"):
        return PCIE[min(max(generation or 0, 3), 5)] * min(lanes or LANES, LANES) / LANES
    return SHARED_MEMORY if way == "SHM" else None


def generation(log, devices=Path("/sys/bus/pci/devices")):
    """The lowest generation of PCIe on the way to the GPUs that NCCL's log names; `None` where the machine does not tell."""
    found = [SPEEDS.get(speed) for speed in links(log, devices, "max_link_speed")]
    return min((one for one in found if one), default=None)


def lanes(log, devices=Path("/sys/bus/pci/devices")):
    """The fewest lanes on the way to them, as slots are wired: many have eight. `None` where the machine does not tell."""
    found = [int(width) for width in links(log, devices, "max_link_width") if width.isdecimal()]
    return min((one for one in found if 0 < one <= LANES), default=None)


def links(log, devices, name):
    """What Linux says of both ends of each link that leads to a GPU of NCCL's log."""
    numbers = (value.zfill(9) for value in set(re.findall(r"busId ([0-9a-f]+)", log)))
    gpus = (devices / f"{one[:4]}:{one[4:6]}:{one[6:8]}.{one[8]}" for one in numbers)
    files = (place / name for gpu in gpus if gpu.exists() for place in (gpu.resolve(), gpu.resolve().parent))
    return [(file.read_text().split() or [""])[0] for file in files if file.is_file()]


def diagnose(goes_well):
    """What fails when NCCL does, from leaving out one transport after the other; asks `goes_well(environment)` at most twice."""
    without = {"NCCL_P2P_DISABLE": "1"}
    if goes_well(without):
        return NO_PEERS
    return NO_SHARED_MEMORY if goes_well({**without, "NCCL_SHM_DISABLE": "1"}) else NO_TRANSPORT


def explained(job, ended, goes_well):
    """In one line how a job ended, what that means, and what NCCL and torch said last."""
    verdict = diagnose(goes_well) if job.backend == "nccl" and job.processes > 1 and not job.refused else ""
    warnings = re.findall(r"NCCL WARN (.*)", ended.log)
    errors = re.findall(r"^(?:\[rank\d+\]: ?)?((?:[\w.]+\.)?\w*(?:Error|Exception)\b.*)", ended.err, re.MULTILINE)
    own = [error for error in errors if "ChildFailedError" not in error]
    parts = (f"{job}: {ended.says}", verdict, *(f"NCCL warned: {one}" for one in warnings[-1:]), *own[:1])
    return "; ".join(part.strip()[:500] for part in parts if part)


def is_refusal(ended):
    """Whether NCCL itself said that two processes may not have one GPU."""
    return bool(ended.code) and any(text in ended.log + ended.err for text in REFUSALS)
