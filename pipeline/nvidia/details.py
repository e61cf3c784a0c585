"""`nvidia-smi -q` as values: conditions of GPUs that no `--query-gpu` field tells on every driver, and what their slices hold."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.gpus import Trouble

NONE = ("None", "No", "N/A", "Not Supported", "")
"""Values that say of a condition that it is not there, or that this GPU cannot have it."""
RESET = "stop what uses it, then `nvidia-smi --gpu-reset -i {gpu}` as root, or reboot"
REPLACE = "take the GPU out of service: it has to be replaced"
FABRIC = "`systemctl status nvidia-fabricmanager`: it must run, at the driver's own version; wait until the state is `Completed`"
SHARE = "`nvidia-smi -i {gpu} -c DEFAULT` as root: the checks are several processes on one GPU"
SLOWED = "look at its cooling and its power supply: `nvidia-smi -i {gpu} -q -d PERFORMANCE,TEMPERATURE,POWER`"
COOL = (*NONE, "Not Active")


@dataclass(frozen=True)
class Condition:
    """A line of `nvidia-smi -q` that makes a GPU unfit unless its value is one of `fine`."""

    key: str
    says: str
    remedy: str
    fine: tuple[str, ...] = NONE


CONDITIONS = (
    Condition("Fabric/State", "its NVLink fabric is `{value}`", FABRIC, (*NONE, "Completed")),
    Condition("Fabric/Status", "its NVLink fabric reports `{value}`", FABRIC, (*NONE, "Success")),
    Condition("Retired Pages/Pending Page Blacklist", "memory pages wait for their retirement", RESET),
    Condition("Remapped Rows/Pending", "memory rows wait for their remapping", RESET),
    Condition("Remapped Rows/Remapping Failure Occurred", "memory rows could not be remapped", REPLACE),
    Condition("GPU Recovery Action", "the driver wants `{value}`", RESET),
    Condition("Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown", "it is too hot, and slowed down", SLOWED, COOL),
    Condition("Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown", "its power supply slows it down", SLOWED, COOL),
    Condition("Clocks Throttle Reasons/HW Slowdown/HW Thermal Slowdown", "it is too hot, and slowed down", SLOWED, COOL),
    Condition("Clocks Throttle Reasons/HW Slowdown/HW Power Brake Slowdown", "its power supply slows it down", SLOWED, COOL),
    Condition("Compute Mode", "its compute mode is `{value}`", SHARE, (*NONE, "Default")),
)
"""Names and values as drivers 450 to 580 print them (NVIDIA's manual of nvidia-smi; GPU memory error management)."""


@dataclass(frozen=True)
class Slice:
    """One MIG device: its number within the GPU, and what it holds."""

    index: int
    memory: int | None = None
    """Bytes; `None` where it is not told."""
    used: int | None = None
    processes: int = 0


@dataclass(frozen=True)
class Details:
    """All that `nvidia-smi -q` said: of each GPU, by UUID, its lines as path (`Fabric/State`) and value."""

    driver: str = ""
    gpus: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def troubles(self, gpu: str) -> Iterator[Trouble]:
        """What of a GPU is not as it should be."""
        told = dict(self.gpus.get(gpu, ()))
        for condition in CONDITIONS:
            value = told.get(condition.key, "").strip("[]")
            if value not in condition.fine:
                says, remedy = condition.says.format(value=value), condition.remedy.format(gpu=gpu)
                yield Trouble(text=f"GPU `{gpu}`: {says}", remedy=remedy, gpu=gpu)

    def drawn(self, gpu: str) -> int:
        """Bytes that the windows of a screen hold on a GPU: what is theirs comes and goes, whatever else runs."""
        found, kind = 0, ""
        for path, value in self.gpus.get(gpu, ()):
            kind = value if path == "Processes/Process ID/Type" else kind
            if path == "Processes/Process ID/Used GPU Memory" and kind == "G":
                found += _bytes(value) or 0
        return found

    def slices(self, gpu: str) -> Mapping[int, Slice]:
        """The MIG devices of a GPU, by number."""
        lines = self.gpus.get(gpu, ())
        busy = _processes(lines)
        return {one.index: one for one in (_slice(told, busy) for told in _devices(lines))}


def read(text: str) -> Details:
    """The answer of `nvidia-smi -q`."""
    driver = re.search(r"^Driver Version\s*: (\S+)", text, re.MULTILINE)
    blocks = re.split(r"^GPU [0-9A-Fa-f]+:.*$", text, flags=re.MULTILINE)[1:]
    lines = [tuple(_lines(block)) for block in blocks]
    return Details(driver[1] if driver else "", {dict(each).get("GPU UUID", ""): each for each in lines})


def _lines(block: str) -> Iterator[tuple[str, str]]:
    path: list[str] = []
    for line in block.splitlines():
        key, colon, value = line.strip().partition(":")
        depth = (len(line) - len(line.lstrip())) // 4
        path = [*path[: depth - 1], key.strip()]
        if colon:
            yield "/".join(path), value.strip()


def _devices(lines: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for path, value in lines:
        if path == "MIG Device/Index":
            found.append({})
        if found and path.startswith("MIG Device/"):
            found[-1][path.removeprefix("MIG Device/")] = value
    return found


def _slice(told: Mapping[str, str], busy: Mapping[tuple[str, str], int]) -> Slice:
    return Slice(
        index=int(told["Index"]),
        memory=_bytes(told.get("FB Memory Usage/Total", "")),
        used=_bytes(told.get("FB Memory Usage/Used", "")),
        processes=busy.get((told.get("GPU Instance ID", ""), told.get("Compute Instance ID", "")), 0),
    )


def _processes(lines: tuple[tuple[str, str], ...]) -> Mapping[tuple[str, str], int]:
    """How many processes compute in each instance; a type is `C`, `G`, `C+G` or `M+C`."""
    found: Counter[tuple[str, str]] = Counter()
    instance = compute = ""
    for path, value in lines:
        if path == "Processes/GPU instance ID":
            instance = value
        elif path == "Processes/Compute instance ID":
            compute = value
        elif path == "Processes/Process ID/Type" and "C" in value:
            found[instance, compute] += 1
    return found


def _bytes(text: str) -> int | None:
    number = re.fullmatch(r"(\d+) MiB", text)
    return int(number[1]) * 2**20 if number else None
