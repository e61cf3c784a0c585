"""Starts the processes of `ranks.py` with torchrun, under a deadline of its own; at the end none of them is left."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RANKS = Path(__file__).with_name("ranks.py")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the processes ended: `code` is `None` when they were killed at the deadline; `log` is NCCL's."""

    code: int | None
    deadline: float
    out: str
    err: str
    log: str

    @property
    def says(self):
        return f"timed out: did not end within {self.deadline:g} s" if self.code is None else f"exit status {self.code}"


def launch(*words, processes, deadline, environment):
    """Run `ranks.py` with `words` in so many processes, for at most `deadline` seconds; NCCL writes its log beside."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={processes}"]
    argv += ["--master-addr=127.0.0.1", f"--master-port={free_port()}", str(RANKS), *words]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        logged = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH", "NCCL_DEBUG_FILE": f"{folder}/nccl.%p"}
        told = {**os.environ, "OMP_NUM_THREADS": "1", **logged, **environment}
        code = run(argv, told, folder, deadline)
        log = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*")))
        out, err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    return Ended(code=code, deadline=deadline, out=out, err=err, log=log)


def run(argv, environment, folder, deadline):
    """The exit status of `argv`, `None` after the deadline; what it started has ended then, too."""
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(argv, env=environment, stdout=out, stderr=err, start_new_session=True)
        try:
            return process.wait(deadline)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                kill([process.pid, *descendants(process.pid)])
                process.wait()


def kill(processes):
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def descendants(ancestor):
    """The processes that `ancestor` started, and those that they did: torchrun gives each a session of its own."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [ancestor]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
