"""Asking `nvidia-smi`: the GPUs of a machine and what is wrong with each.

Three questions, four where GPUs are in slices: `--query-gpu`, `--query-compute-apps`, `-q`, `-L`. A value that cannot be
read makes its GPU unfit, never invisible: each GPU is either in `Host.gpus` or named by a trouble.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pipeline.command import Completed, Run
from pipeline.errors import Temporary, ToolFailed, ToolUnfit
from pipeline.gpus import Gpu, Host, Trouble
from pipeline.nvidia.details import RESET, Details, read

Ask = Callable[[Sequence[str]], Completed]
"""Runs a command line (`nvidia-smi …`) to its end, whatever its exit status."""

SECONDS = 60.0
"""Deadline of one question: without persistence mode the driver wakes each GPU first, some seconds a GPU."""
FORMAT = "--format=csv,noheader,nounits"
MIG, ECC = "mig.mode.current", "ecc.errors.uncorrected.volatile.total"
OPTIONAL = ("compute_cap", "clocks.max.sm", MIG, ECC)
"""Fields that some drivers do not know (470 has no `compute_cap`, 440 no MIG)."""
FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", *OPTIONAL)
APPS = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"
QUESTIONS = tuple(
    ("nvidia-smi", *words) for words in ((f"--query-gpu={','.join(FIELDS)}", FORMAT), ("-q",), (APPS, FORMAT), ("-L",))
)
"""All that `examine` may ask where the driver knows every field."""
ABSENT = ("N/A", "Not Supported", "")
"""What stands for a value that this GPU does not have; every other text in place of a number is an error."""
UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
SLICE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")
PARENT = re.compile(r"GPU \d+: .+ \(UUID: (GPU-[^)]+)\)")

REBOOT = "reboot; look for Xid in the kernel's log"
REMEDIES = (
    ("driver/library version mismatch", "reboot: the driver was replaced while its old module stayed loaded"),
    ("unable to determine the device handle", f"the driver has lost the GPU: {REBOOT}"),
    ("couldn't communicate with the nvidia driver", "`modprobe nvidia`, or install the driver for the kernel that runs"),
    ("driver not loaded", "`modprobe nvidia`"),
    ("couldn't find libnvidia-ml", "install the driver's libraries at the kernel module's version"),
    ("no devices were found", f"`lspci -d 10de:` shows whether a GPU is on the bus; {REBOOT}"),
    ("insufficient permissions", "let this user open /dev/nvidia* (mostly the group `video`)"),
    ("unknown error", "/dev/nvidia* was taken away (`systemctl daemon-reload` does that): restart the container, or reboot"),
)
"""What `nvidia-smi` says when it fails, in lower case, and what helps; the first that fits."""
NO_TOOL = "install the driver's tools (package `nvidia-utils-…`), at the kernel module's version"
ELSE = "run it by hand; reboot when it fails again"


def asking(run: Run) -> Ask:
    """Ask on this machine."""
    return lambda argv: run(*argv, timeout=SECONDS, check=False)


def examine(*, ask: Ask, driver: str, host: str, toolkit: str = "") -> Host:
    """The machine `host` as `nvidia-smi` sees it; an empty `driver` (no /proc at hand) is filled from its answer.

    Raises nothing for a machine that is sick, without `nvidia-smi` or too slow: that is a trouble of a host without GPUs.
    """
    rows, troubles = _query(ask)
    if not rows:
        return Host(name=host, driver=driver, toolkit=toolkit, troubles=tuple(troubles))
    details, unread = _details(ask)
    processes, unlisted = _processes(ask)
    slices, hidden = _slices(ask) if any(_sliced(row) for row in rows) else ({}, [])
    found = [_found(row, details, processes, slices.get(row["uuid"], ())) for row in rows]
    return Host(
        name=host,
        driver=driver or details.driver,
        toolkit=toolkit,
        gpus=tuple(gpu for gpus, _ in found for gpu in gpus),
        troubles=(*troubles, *unread, *unlisted, *hidden, *(trouble for _, more in found for trouble in more)),
        events=tuple(_ecc_event(row) for row in rows if _number(row.get(ECC, ""))),
    )


def _query(ask: Ask) -> tuple[list[Mapping[str, str]], list[Trouble]]:
    """One row a GPU, without the fields that this driver does not know."""
    fields = list(FIELDS)
    while True:
        done = _answer(ask, f"--query-gpu={','.join(fields)}", FORMAT)
        if isinstance(done, Trouble):
            return [], [done]
        unknown = UNKNOWN_FIELD.search(done.stdout + done.stderr)
        if unknown is None or unknown[1] not in fields or unknown[1] not in OPTIONAL:
            return _rows(done, fields)
        fields.remove(unknown[1])


def _rows(done: Completed, fields: Sequence[str]) -> tuple[list[Mapping[str, str]], list[Trouble]]:
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    split = [[part.strip() for part in line.split(",")] for line in lines]
    rows = [dict(zip(fields, parts, strict=True)) for parts in split if len(parts) == len(fields)]
    odd = [line for line, parts in zip(lines, split, strict=True) if len(parts) != len(fields)]
    if not rows:
        return [], [_failure(" ".join(odd) or done.stderr.strip() or f"no GPU, exit status {done.code}")]
    if done.code and not odd:
        odd = [done.stderr.strip() or f"exit status {done.code}"]
    return list(rows), [_failure(line.strip()) for line in odd]


def _answer(ask: Ask, *words: str) -> Completed | Trouble:
    try:
        return ask(("nvidia-smi", *words))
    except ToolUnfit as error:
        return Trouble(text=error.message, remedy=NO_TOOL)
    except (ToolFailed, Temporary) as error:
        return Trouble(text=error.message, remedy=error.hint or ELSE)


def _good(ask: Ask, *words: str) -> tuple[str, list[Trouble]]:
    """The text of an answer; with a trouble that concerns all GPUs when it failed."""
    done = _answer(ask, *words)
    if isinstance(done, Trouble):
        return "", [done]
    if done.code:
        said = (done.stdout.strip() or done.stderr.strip() or f"exit status {done.code}").splitlines()[-1]
        return done.stdout, [_failure(f"`{words[0]}`: {said}")]
    return done.stdout, []


def _failure(text: str) -> Trouble:
    low = text.lower()
    return Trouble(text=f"nvidia-smi: {text}", remedy=next((remedy for words, remedy in REMEDIES if words in low), ELSE))


def _details(ask: Ask) -> tuple[Details, list[Trouble]]:
    text, troubles = _good(ask, "-q")
    return read(text), troubles


def _processes(ask: Ask) -> tuple[Mapping[str, int], list[Trouble]]:
    """How many processes compute on each GPU, by UUID; a process's name may hold anything, so only the first field counts."""
    text, troubles = _good(ask, APPS, FORMAT)
    return Counter(line.partition(",")[0].strip() for line in text.splitlines()), troubles


def _slices(ask: Ask) -> tuple[Mapping[str, list[tuple[str, int, str]]], list[Trouble]]:
    """By the UUID of their GPU: profile, number and UUID of each slice."""
    text, troubles = _good(ask, "-L")
    found: dict[str, list[tuple[str, int, str]]] = {}
    parent = ""
    for line in text.splitlines():
        if gpu := PARENT.match(line):
            parent = gpu[1]
        elif one := SLICE.match(line):
            found.setdefault(parent, []).append((one[1], int(one[2]), one[3]))
    return found, troubles


def _found(
    row: Mapping[str, str], details: Details, processes: Mapping[str, int], slices: Iterable[tuple[str, int, str]]
) -> tuple[list[Gpu], list[Trouble]]:
    """A GPU, or its slices, and what is wrong with it; a slice has the troubles of its GPU."""
    troubles = [*_ecc(row), *details.troubles(row["uuid"])]
    gpu = _gpu(row, processes.get(row["uuid"], 0), details.drawn(row["uuid"]))
    if isinstance(gpu, Trouble):
        return [], [gpu, *troubles]
    if not _sliced(row):
        return [gpu], troubles
    cut = [_cut(gpu, details, *each) for each in slices]
    if not cut:
        return [], [_no_slices(gpu.uuid), *troubles]
    return cut, [trouble.model_copy(update={"gpu": one.uuid}) for trouble in troubles for one in cut]


def _gpu(row: Mapping[str, str], processes: int, drawn: int) -> Gpu | Trouble:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    bad = _unread(row)
    if capability is None:
        told = row.get("compute_cap")
        bad.append(f"compute_cap is `{told}`" if told else "this driver tells no compute capability: install a newer one")
    if bad or capability is None:
        return _unusable(row, bad)
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=row["name"],
        capability=(int(capability[1]), int(capability[2])),
        memory=(_number(row["memory.total"]) or 0) * 2**20,
        used=max(0, (_number(row["memory.used"]) or 0) * 2**20 - drawn),
        clock=_number(row.get("clocks.max.sm", "")) or 0,
        processes=processes,
    )


def _unread(row: Mapping[str, str]) -> list[str]:
    """The values that should be there and are not; the driver hides many of a GPU in slices from all but root."""
    bad = [name for name in ("index",) if not row[name].isdecimal()]
    bad += [name for name in ("uuid",) if not row[name].startswith("GPU-")]
    if row.get(MIG, "").strip("[]") not in ("Enabled", "Disabled", *ABSENT):
        bad.append(MIG)
    if not _sliced(row):
        bad += [name for name in ("memory.total", "memory.used") if not row[name].isdecimal()]
        bad += [name for name in ("clocks.max.sm", ECC) if _number(row.get(name, "")) is None]
    return [f"{name} is `{row[name]}`" for name in bad]


def _cut(gpu: Gpu, details: Details, profile: str, number: int, uuid: str) -> Gpu:
    told = details.slices(gpu.uuid).get(number)
    size = re.search(r"(\d+)gb", profile)
    memory = (told and told.memory) or (int(size[1]) * 2**30 if size else 0)
    changes = {"uuid": uuid, "name": f"{gpu.name} MIG {profile}", "memory": memory, "used": (told and told.used) or 0}
    return gpu.model_copy(update={**changes, "processes": told.processes if told else 0})


def _unusable(row: Mapping[str, str], bad: Sequence[str]) -> Trouble:
    uuid = row["uuid"] if row["uuid"].startswith("GPU-") else ""
    text = f"GPU `{uuid or row['index']}` ({row['name']}) cannot be used: {', '.join(bad)}"
    return Trouble(text=text, remedy=RESET.format(gpu=uuid or row["index"]), gpu=uuid)


def _no_slices(uuid: str) -> Trouble:
    remedy = f"make some (`nvidia-smi mig -i {uuid} -cgi … -C`), or leave the mode: `nvidia-smi -i {uuid} -mig 0`"
    return Trouble(text=f"GPU `{uuid}` is in MIG mode and has no slices", remedy=remedy, gpu=uuid)


def _ecc(row: Mapping[str, str]) -> list[Trouble]:
    count, uuid = _number(row.get(ECC, "")), row["uuid"]
    if not count:
        return []
    text = f"GPU `{uuid}`: {count} uncorrected memory errors since the driver was loaded"
    return [Trouble(text=text, remedy=RESET.format(gpu=uuid), gpu=uuid)]


def _ecc_event(row: Mapping[str, str]) -> str:
    return f"GPU {row['uuid']}: {row[ECC]} uncorrected memory errors"


def _sliced(row: Mapping[str, str]) -> bool:
    return row.get(MIG) == "Enabled"


def _number(text: str) -> int | None:
    """A count; 0 where the GPU has no such thing, `None` where it should tell and does not."""
    if text.strip("[]") in ABSENT:
        return 0
    return int(text) if text.isdecimal() else None
