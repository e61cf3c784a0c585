"""Services that outlive a run: started once, found again by the next run, stopped by process id.

What is known of a service is a file in the cache: its command line, process id, and when that process was born, so that
a file from before a reboot, or whose id another process has now, fools nobody. The file is written before the start,
and a service whose starter was killed before it could note the id is recognised by its command line, which names files
of this cache.
"""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from pipeline.command import spawn
from pipeline.errors import Temporary, ToolFailed
from pipeline.story import Story
from pipeline.toolchain import Host

READY_SECONDS = 300.0
"""How long a service may take until it answers; dockerd and buildkitd take 1 to 5 on an idle machine, from a cold disk much
longer."""
STOP_SECONDS = 60.0
"""How long a service may take to end after SIGTERM, before SIGKILL; dockerd gives its containers 10."""
LOOK_SECONDS = 30.0
"""How long whoever listens may take to answer a look, which is milliseconds where a machine has nothing else to do."""
LOG_LIMIT = 10 * 2**20
"""Bytes after which a service's log is put aside at its next start; one older log is kept."""
HANDED_DOWN = ("HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What a service gets of the environment: it lives longer than this run, and must not keep its secrets."""

Address = Path | tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service as it is to run; `answers` tells whether it does, `prepare` is done just before a start."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    answers: Callable[[], bool]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class _Record:
    argv: tuple[str, ...]
    pid: int = 0
    born: str = ""


@dataclass(frozen=True)
class Reply:
    """An answer to `ask`: the HTTP status (0: something answers, not in HTTP) and the body."""

    status: int
    body: bytes


def handed_down(host: Host) -> Mapping[str, str]:
    """The environment of a service."""
    kept = {name: value for name, value in host.environment.items() if name.upper() in HANDED_DOWN}
    return {**kept, "PATH": os.pathsep.join(str(each) for each in host.folders)}


def start(service: Service, *, folder: Path, story: Story) -> None:
    """See that `service` answers: started if it does not run, waited for if it does. Safe when two runs do it at once.

    Raises `ToolFailed` with the end of its log when it ends instead, `Temporary` when it takes too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{service.name}.lock"):
        if service.answers():
            _living(service.name, folder)
            return
        with story.task(f"starting {service.name}"):
            pid = _living(service.name, folder) or _spawn(service, folder)
            wait(service, pid, folder)


def stop_all(folder: Path) -> tuple[str, ...]:
    """Stop what was started from this cache; the names of what ran. Raises `Temporary` when one cannot be stopped."""
    ended = []
    for name in sorted(record.stem for record in folder.glob("*.json")):
        with stopped(name, folder) as ran:
            ended += [name] if ran else []
    return tuple(ended)


@contextmanager
def stopped(name: str, folder: Path) -> Iterator[bool]:
    """Stop one service, and let nobody start it in the meantime; tells whether it ran. Raises as `stop_all` does."""
    with FileLock(folder / f"{name}.lock"):
        pid = _living(name, folder)
        if pid:
            _end(name, pid)
        (folder / f"{name}.json").unlink(missing_ok=True)
        yield bool(pid)


def running(folder: Path) -> Mapping[str, int]:
    """Names and process ids of what was started from this cache and lives."""
    found = {record.stem: _living(record.stem, folder) for record in sorted(folder.glob("*.json"))}
    return {name: pid for name, pid in found.items() if pid}


def ask(address: Address, path: str, *, host: str = "localhost", timeout: float | None = None) -> Reply | None:
    """One HTTP GET over a bare socket, which is what a look costs least; `None` when nobody listens.

    `timeout` is in seconds, `LOOK_SECONDS` by default. Raises `PermissionError` when the socket refuses this user.
    """
    try:
        link = _connected(address, LOOK_SECONDS if timeout is None else timeout)
    except PermissionError:
        raise
    except TimeoutError:
        return Reply(0, b"")
    except OSError:
        return None
    text = b""
    with link, suppress(OSError):
        link.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: */*\r\n\r\n".encode())
        while chunk := link.recv(2**16):
            text += chunk
    match = re.match(rb"HTTP/1\.\d (\d{3}).*?\r?\n\r?\n", text, re.DOTALL)
    return Reply(int(match[1]), text[match.end() :]) if match else Reply(0, b"")


def listens(path: Path) -> bool:
    """Whether somebody accepts connections on a Unix socket; a socket file that was left behind is nobody."""
    with suppress(OSError), _connected(path, LOOK_SECONDS):
        return True
    return False


def holder(port: int) -> tuple[int, str] | None:
    """Process id and name of who listens on a TCP port of this machine; `None` when that is hidden from this user."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in _processes():
        with suppress(OSError):
            if any(str(each.readlink()) in sockets for each in (process / "fd").iterdir()):
                return int(process.name), (process / "comm").read_text(encoding="utf-8").strip()
    return None


def birth(pid: int) -> str:
    """What no other process shares: the boot, and the clock tick at which it started. Empty when it does not live.

    Fields 3 and 22 of `/proc/PID/stat` (proc(5)); a zombie does not live.
    """
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip() + "/" + fields[19]
    return ""


def log_of(name: str, folder: Path) -> Path:
    """Where a service's output is kept."""
    return folder / f"{name}.log"


def tail(name: str, folder: Path, lines: int = 15) -> str:
    """The end of a service's log, indented."""
    with suppress(OSError):
        text = log_of(name, folder).read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
    return ""


def _connected(address: Address, timeout: float) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(timeout)
        link.connect(str(address))
    except OSError:
        link.close()
        raise
    return link


def _living(name: str, folder: Path) -> int:
    """The process id of a service of ours; 0 when it does not live."""
    record = _read(folder / f"{name}.json")
    if record is None:
        return 0
    if record.born and birth(record.pid) == record.born:
        return record.pid
    pid = _by_command(record.argv)
    if pid:
        _write(folder / f"{name}.json", _Record(record.argv, pid, birth(pid)))
    return pid


def _by_command(argv: tuple[str, ...]) -> int:
    wanted = b"\0".join(os.fsencode(word) for word in argv) + b"\0"
    for process in _processes():
        with suppress(OSError):
            if (process / "cmdline").read_bytes() == wanted and birth(int(process.name)):
                return int(process.name)
    return 0


def _spawn(service: Service, folder: Path) -> int:
    record, log = folder / f"{service.name}.json", log_of(service.name, folder)
    service.prepare()
    _write(record, _Record(service.argv))
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.old"))
    pid = spawn(*service.argv, log=log, env=service.environment)
    _write(record, _Record(service.argv, pid, birth(pid)))
    return pid


def wait(service: Service, pid: int, folder: Path) -> None:
    """Wait until `service`, which runs as `pid`, answers; raises as `start` does."""
    end = time.monotonic() + READY_SECONDS
    while not service.answers():
        if not birth(pid):
            raise ToolFailed(f"`{service.name}` ended at its start\n{tail(service.name, folder)}", hint="`nox -s doctor`")
        if time.monotonic() > end:
            raise Temporary(
                f"`{service.name}` (process {pid}) does not answer after {READY_SECONDS:.0f} s\n{tail(service.name, folder)}",
                hint="`nox -s setup -- --stop`, then try again",
            )
        time.sleep(0.05)


def _end(name: str, pid: int) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        born = birth(pid)
        with suppress(ProcessLookupError):
            (os.killpg if signum == signal.SIGKILL else os.kill)(pid, signum)
        end = time.monotonic() + STOP_SECONDS
        while born and birth(pid) == born and time.monotonic() < end:
            time.sleep(0.05)
        if not born or birth(pid) != born:
            return
    raise Temporary(f"`{name}` (process {pid}) cannot be stopped", hint=f"see what holds it: `ps -l {pid}`")


def _read(path: Path) -> _Record | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _Record(tuple(data["argv"]), int(data["pid"]), str(data["born"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, record: _Record) -> None:
    replacement = path.with_suffix(".new")
    replacement.write_text(json.dumps(asdict(record)), encoding="utf-8")
    replacement.replace(path)


def _processes() -> Iterator[Path]:
    with suppress(OSError):
        yield from (each for each in Path("/proc").iterdir() if each.name.isdecimal())


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="utf-8").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]
