"""What the driver wrote to the kernel's log since the boot: errors of the hardware (Xid, SXid, a GPU off the bus)."""

import re
from collections.abc import Sequence

from pipeline.command import Run
from pipeline.errors import Temporary, ToolUnfit

SECONDS = 60.0
SOURCES: tuple[Sequence[str], ...] = (("dmesg",), ("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager"))
"""Each prints the seconds since the boot, which stay the same however often one asks; times of day do not."""
OF_PROGRAMS = frozenset({13, 31, 43, 45, 69, 137})
"""Xids that a faulty program causes on a sound GPU, or that a killed one leaves (NVIDIA, Xid errors): an image can write them."""
TIME = re.compile(r"^\[\s*(\d+\.\d+)\]")
EVENT = re.compile(r"NVRM: .*|nvidia-nvswitch\S*: SXid .*")
XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)")
TELLS = ("Xid (", "fallen off the bus", "NV_ERR_RESET_REQUIRED")


def events(run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hardware's errors since the boot, each with its time; and why they could not be read, empty when they were.

    Linux lets only root read the log where `kernel.dmesg_restrict` is set, and the journal only members of its groups.
    """
    why = []
    for source in SOURCES:
        text, refusal = _log(run, source)
        if not refusal:
            return tuple(_events(text)), ()
        why.append(refusal)
    return (), (f"the kernel's log, and so Xid errors: {'; '.join(why)}",)


def _log(run: Run, source: Sequence[str]) -> tuple[str, str]:
    """A log, or why there is none; a log without one line of the kernel was hidden from us."""
    try:
        done = run(*source, timeout=SECONDS, check=False)
    except (ToolUnfit, Temporary) as error:
        return "", error.message
    if any(line.startswith("[") for line in done.stdout.splitlines()):
        return done.stdout, ""
    said = " ".join(done.stderr.split()) or "it is empty"
    return "", f"`{source[0]}`: {said[:200]}"


def _events(text: str) -> list[str]:
    """A line without a time goes on with what the line before began."""
    found, time = [], "?"
    for line in text.splitlines():
        time = stamp[1] if (stamp := TIME.match(line)) else time
        event = EVENT.search(line)
        if event and any(words in event[0] for words in TELLS) and not _harmless(event[0]):
            found.append(f"{event[0].strip()} ({time} s after the boot)")
    return found


def _harmless(text: str) -> bool:
    xid = XID.match(text)
    return "Non-fatal" in text or (xid is not None and int(xid[1]) in OF_PROGRAMS)
