"""What a GPU can do and what it must at least show: figures of datasheets, floors as parts of them.

Nothing here needs torch. A floor that fails is for gross faults (no tensor cores, a wrong library, a throttled GPU), one that
warns is three quarters of what was seen. Figures that nobody knows are `None`: then a speed is recorded, not judged.
"""

import re
from dataclasses import dataclass

FLOPS = {(7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192}
"""Dense float16 operations of a multiprocessor in a clock, by compute capability; GeForce halves them where sums are float32."""
HALVED = {(7, 5), (8, 6), (8, 9)}
SHARES = {(7, 0): (0.30, 0.55), (7, 5): (0.15, 0.30), (8, 0): (0.35, 0.65), (8, 6): (0.20, 0.40), (8, 9): (0.15, 0.35)}
SHARES |= {(9, 0): (0.30, 0.60), (10, 0): (0.30, 0.55)}
"""Parts of the peak below which a product fails, and warns."""
GEFORCE = (0.40, 0.75)
UNCAPPED = (0.25, 0.45)
"""A40, L40 and L40S, which have the power that A10 and L4 lack."""
RATIOS = {(7, 0): 3, (7, 5): 3, (8, 0): 6, (8, 6): 1.8, (8, 9): 1.8, (9, 0): 6}
"""Least speed of float16 over float32 (seen: V100S 6.6, A100 13.7, 3090 3.1, 4090 2.9; without tensor cores 2, 4, 1)."""
LESS = re.compile(r"GTX 16\d\d|\bT\d{3,4}\b|\bMX\d{3}\b|\bH20\b")
"""Models with far fewer tensor operations than their family: small ones of 7.5 have none, H20 a quarter."""
OWN_POWER = re.compile(r"Laptop|Max-Q")
"""GPUs whose maker of the machine chose the power, anything from a third of what the highest clock takes."""
VIRTUAL = re.compile(r"-\d+[ABCQ]$")
"""A part of a GPU's time (vGPU): `NVIDIA A40-48Q`."""
COPY_SHARE = 0.6
"""Part of the memory's bandwidth that a copy reaches on every sound GPU (DCGM's own floors are 0.57 to 0.72)."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A GPU by a part of its name; `memory` and `nvlink` in GB/s.

    `nvlink` is one direction between two GPUs where it is least: on boards of four without a switch each has a third of its links
    for each of the others, and bridges of PCIe cards may be one of three.
    """

    name: str
    memory: float
    nvlink: float | None = None


MODELS = (
    Model(name=r"T4", memory=320),
    Model(name=r"V100S", memory=1134),
    Model(name=r"V100.*SXM\d?", memory=900, nvlink=25),  # one link: pairs in a DGX-1 have no more
    Model(name=r"V100", memory=900),
    Model(name=r"A100.*40GB", memory=1555, nvlink=100),
    Model(name=r"A100.*80GB PCIe", memory=1935, nvlink=100),
    Model(name=r"A100.*80GB", memory=2039, nvlink=100),
    Model(name=r"A10G?", memory=600),
    Model(name=r"A40", memory=696, nvlink=56),
    Model(name=r"L4", memory=300),
    Model(name=r"L40S?", memory=864),
    Model(name=r"RTX 3090", memory=936, nvlink=56),
    Model(name=r"RTX 4090(?! Laptop)", memory=1008),
    Model(name=r"H100 PCIe", memory=2000, nvlink=100),
    Model(name=r"H100 80GB HBM3", memory=3350, nvlink=150),
    Model(name=r"H200", memory=4800, nvlink=150),
    Model(name=r"B200", memory=8000, nvlink=900),
)


def model(gpu):
    """What is known of a GPU's model; of a slice or a virtual one nothing, for it has a part of everything."""
    if is_slice(gpu) or VIRTUAL.search(gpu["name"]):
        return None
    return next((one for one in MODELS if re.search(rf"\b{one.name}(?![\w])", gpu["name"])), None)


def peak(gpu, multiprocessors):
    """TFLOP/s of dense float16 products with float32 sums: multiprocessors * highest clock * operations in a clock."""
    capability = tuple(gpu["capability"])
    if capability not in FLOPS or not gpu["clock"]:
        return None
    halved = capability in HALVED and "GeForce" in gpu["name"]
    return multiprocessors * gpu["clock"] * FLOPS[capability] / (2 if halved else 1) / 1e6


def shares(gpu):
    """The parts of the peak below which a product fails, and warns; `None` for families that nobody measured."""
    capability = tuple(gpu["capability"])
    if LESS.search(gpu["name"]) or OWN_POWER.search(gpu["name"]) or VIRTUAL.search(gpu["name"]):
        return None
    if capability in HALVED and "GeForce" in gpu["name"]:
        return GEFORCE
    if re.search(r"\b(?:A40|L40S?)\b", gpu["name"]):
        return UNCAPPED
    return SHARES.get(capability)


def ratio(gpu):
    """The least speed of float16 over float32, a test that a cap on power does not touch."""
    return None if LESS.search(gpu["name"]) else RATIOS.get(tuple(gpu["capability"]))


def copy_floor(gpu):
    """GB/s that a copy inside the memory must reach, read and written bytes together."""
    known = model(gpu)
    return known and COPY_SHARE * known.memory


def shared(gpus):
    """Why speeds prove nothing here; empty when nothing else computes on these GPUs."""
    busy = {gpu["uuid"]: gpu["processes"] for gpu in gpus if gpu["processes"]}
    return "shared: " + ", ".join(f"{count} other processes on {uuid}" for uuid, count in busy.items()) if busy else ""


def is_slice(gpu):
    return gpu["uuid"].startswith("MIG-")


def of_device(gpus, uuid):
    """The GPU of `gpus` that CUDA calls `uuid`; a slice is the only one that its process sees."""
    return next((gpu for gpu in gpus if str(uuid) in gpu["uuid"]), gpus[0])
