"""GPUs as values: what a machine has of them, what of it is wrong, and which of them a user means."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pipeline.errors import InputError

ALL = "all"
"""The choice of every GPU that the image can use."""
SLACK = 256 * 2**20
"""Bytes that a GPU without processes may hold more than before: what the driver itself keeps of a first context."""


class Gpu(BaseModel):
    """One GPU, or one slice of one (MIG), as the driver tells."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    uuid: str
    """`GPU-…`, of a slice `MIG-…`: by it a container is given the GPU."""
    name: str
    capability: tuple[int, int]
    """Compute capability: `(9, 0)`."""
    memory: int
    """Bytes."""
    used: int
    """Bytes in use when it was looked at, without those of a screen's windows."""
    clock: int = 0
    """The highest clock of its multiprocessors, in MHz; 0 where the driver does not tell."""
    processes: int = 0
    """Processes that compute on it."""

    @property
    def slice(self) -> bool:
        """Whether it is a slice."""
        return self.uuid.startswith("MIG-")


class Trouble(BaseModel):
    """What is wrong with a machine before anything of ours runs; `gpu` is the UUID, or empty where all are concerned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    remedy: str
    gpu: str = ""


class Host(BaseModel):
    """A machine with a driver, at one moment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    driver: str
    """The kernel module's version: `550.54.15`."""
    toolkit: str = ""
    """The NVIDIA container toolkit's version; empty where it cannot be told."""
    gpus: tuple[Gpu, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    events: tuple[str, ...] = ()
    """Errors of the hardware that the driver has reported since the boot (Xid, ECC), in words that differ for each."""
    unread: tuple[str, ...] = ()
    """What could not be looked at, and why: events that nobody may read are not events that did not happen."""


Way = Literal["toolkit", "cdi"]
"""How an engine hands GPUs out: by NVIDIA's runtime hook, or by the Container Device Interface."""


def choose(text: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that `--gpus` names: `all`, a number of them (those with the fewest processes and most free memory), or UUIDs.

    Whole GPUs or slices, never both, and whole ones first: CUDA sees no whole GPU beside a slice (NVIDIA, MIG User Guide, "Device
    Enumeration"). Raises `InputError` for what is none of these, or not there.
    """
    kinds = [[gpu for gpu in gpus if gpu.slice is slices] for slices in (False, True)]
    if text == ALL:
        return tuple(kinds[0] or kinds[1])
    if text.isdecimal() and int(text):
        return _some(int(text), kinds[0] if len(kinds[0]) >= int(text) else max(kinds, key=len))
    wanted = [part.strip() for part in text.split(",")]
    known = {gpu.uuid: gpu for gpu in gpus}
    absent = [one for one in wanted if one not in known]
    if absent or len(set(wanted)) != len(wanted):
        listed = ", ".join(known) or "none"
        raise InputError(f"`--gpus {text}` names no GPUs of this machine", hint=f"`all`, a number, or UUIDs of: {listed}")
    chosen = tuple(known[one] for one in wanted)
    if len({gpu.slice for gpu in chosen}) > 1:
        raise InputError(f"`--gpus {text}` names slices and whole GPUs", hint="one kind at a time: CUDA never sees both")
    return chosen


def _some(count: int, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    if count > len(gpus):
        raise InputError(
            f"`--gpus {count}` wants more GPUs than the {len(gpus)} that can be used", hint="`--gpus all` takes what is there"
        )
    best = sorted(gpus, key=lambda gpu: (gpu.processes, gpu.used - gpu.memory, gpu.index))[:count]
    return tuple(sorted(best, key=lambda gpu: gpu.index))


def news(before: Host, after: Host) -> tuple[str, ...]:
    """What became worse on a machine meanwhile: GPUs that are gone, new errors of the driver, memory that stayed in use."""
    there = {gpu.uuid: gpu for gpu in after.gpus}
    gone = [f"GPU {gpu.uuid} is gone" for gpu in before.gpus if gpu.uuid not in there]
    kept = [
        f"{(there[gpu.uuid].used - gpu.used) / 1e6:.0f} MB of GPU {gpu.uuid} stayed in use"
        for gpu in before.gpus
        if gpu.uuid in there and there[gpu.uuid].used > gpu.used + SLACK and not there[gpu.uuid].processes
    ]
    return (*gone, *(event for event in after.events if event not in before.events), *kept)
