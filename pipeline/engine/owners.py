"""Who owns what a run leaves in the engine: a process on a machine, and whether it still lives."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process: its machine, that machine's boot and process namespace, its id and start (clock ticks since the boot)."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    def __str__(self) -> str:
        return "/".join((self.host, self.boot, self.namespace, str(self.pid), self.started))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner that a label names; `None` for a label that this version did not write."""
        parts = text.split("/")
        if len(parts) != 5 or not parts[3].isdecimal():
            return None
        return cls(host=parts[0], boot=parts[1], namespace=parts[2], pid=int(parts[3]), started=parts[4])

    @classmethod
    def current(cls) -> Self:
        """This process."""
        namespace = ""
        with suppress(OSError):
            namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        return cls(
            host=socket.gethostname(),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            namespace=namespace,
            pid=os.getpid(),
            started=started(os.getpid()),
        )


def gone(owner: Owner, *, me: Owner, running: bool) -> bool:
    """Whether `owner` surely lives no more; what another machine owns, or another process namespace, is never judged.

    After a reboot a thing that runs belongs to somebody else's machine of the same name: only what does not run is left over.
    """
    if owner.host != me.host:
        return False
    if owner.boot != me.boot:
        return not running
    if owner.namespace != me.namespace:
        return False
    return not _exists(owner.pid) or started(owner.pid) != owner.started


def started(pid: int) -> str:
    """When a process started, in clock ticks since the boot; empty where there is no /proc."""
    text = _read(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split()[19] if text else ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8").strip()
    return ""
