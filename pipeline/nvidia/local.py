"""This machine: its driver, its container toolkit, and whether what they agreed on is still true."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.command import Run
from pipeline.errors import Temporary, ToolUnfit
from pipeline.gpus import Host, Trouble, Way
from pipeline.nvidia import kernel
from pipeline.nvidia.smi import asking, examine

DRIVER = Path("/proc/driver/nvidia/version")
"""What the NVIDIA kernel module tells; there is none without it."""
SPECS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where engines look for specifications of the Container Device Interface."""
KIND = re.compile(r'\bkind"?\s*:\s*"?nvidia\.com/gpu\b')
TOOLS = (("nvidia-ctk", "--version"), ("nvidia-container-cli", "--version"))
SECONDS = 60.0
REFRESH = "`systemctl restart nvidia-cdi-refresh`, or `nvidia-ctk cdi generate --output={path}` as root"


def driver_version(path: Path = DRIVER) -> str:
    """The version of the loaded kernel module, closed or open; empty when none is loaded."""
    text = ""
    with suppress(FileNotFoundError, NotADirectoryError):
        text = path.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)", text, re.MULTILINE)
    return found[1] if found else text.partition("\n")[0].removeprefix("NVRM version:").strip()


def toolkit_version(run: Run) -> str:
    """The version of the NVIDIA container toolkit; empty when it is not there, or cannot tell."""
    for tool in TOOLS:
        with suppress(ToolUnfit, Temporary):
            said = run(*tool, timeout=SECONDS, check=False).stdout
            if found := re.search(r"version:? v?(\d+\.\d+\.\d+\S*)", said):
                return found[1]
    return ""


def look(run: Run, *, driver: str, host: str, way: Way = "toolkit", specs: Sequence[Path] = SPECS) -> Host:
    """All of this machine, whose kernel module is `driver`; CDI's specifications count where GPUs are handed out by them."""
    found = examine(ask=asking(run), driver=driver, host=host, toolkit=toolkit_version(run))
    seen, unread = kernel.events(run)
    stale, hidden = stale_specs(driver, specs) if way == "cdi" else ((), ())
    more = {"troubles": (*found.troubles, *stale), "events": (*found.events, *seen), "unread": (*unread, *hidden)}
    return found.model_copy(update=more)


def stale_specs(driver: str, folders: Sequence[Path] = SPECS) -> tuple[tuple[Trouble, ...], tuple[str, ...]]:
    """CDI specifications of GPUs that name another driver's libraries; and those that could not be read, and why.

    A driver's upgrade leaves the old ones behind (podman#23935): a container then lacks its libraries.
    """
    troubles, unread = [], []
    for path in _specs(folders):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            unread.append(f"`{path}`: {error.strerror}")
            continue
        named = set(re.findall(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", text))
        if KIND.search(text) and named and driver not in named:
            told = f"`{path}` names the libraries of driver {', '.join(sorted(named))}, and {driver} is loaded"
            troubles.append(Trouble(text=told, remedy=REFRESH.format(path=path)))
    return tuple(troubles), tuple(unread)


def _specs(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        with suppress(OSError):
            yield from sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json"))
