"""What an engine says of itself, in our words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline import dockerhost
from pipeline.gpus import Way

READS_ZSTD = 23
"""The first major version of Docker that reads zstd layers (moby 22.06 was released as 23.0)."""

_MACHINE = {
    "host": "Name",
    "engine": "ServerVersion",
    "kernel": "KernelVersion",
    "system": "OperatingSystem",
    "processor": "Architecture",
}


@dataclass(frozen=True)
class Facts:
    """What the engine says of itself."""

    version: str
    root: str
    """The folder of its images, as it sees it."""
    gpus: bool
    """Whether it says that it can hand out NVIDIA GPUs, by its runtime or by CDI."""
    way: Way = "toolkit"
    """How it is asked for them; NVIDIA's hook needs no runtime that the engine would tell of."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """What it runs on, for the record."""
    name: str = ""
    """The host name of its machine, as that knows it."""
    desktop: bool = False
    """Whether it runs in a virtual machine of Docker Desktop, whose loopback is not this machine's."""
    rootless: bool = False
    """Whether root inside is the engine's own user outside."""
    selinux: bool = False
    """Whether it labels what containers may touch."""
    remapped: bool = False
    """Whether the users inside are others outside (`userns-remap`)."""

    @property
    def reads_zstd(self) -> bool:
        """Whether it can pull and load layers compressed with zstd."""
        return dockerhost.major(self.version) >= READS_ZSTD


def tell(info: Mapping[str, Any], machine: str = "") -> Facts:
    """The facts that are in an engine's answer to `/info`; `machine` is what people call its machine, if they do."""
    runtimes, devices, security = (
        info.get("Runtimes") or {},
        info.get("DiscoveredDevices") or (),
        info.get("SecurityOptions") or (),
    )
    cdi = any(str(device.get("ID")).startswith("nvidia.com/gpu=") for device in devices)
    return Facts(
        version=str(info.get("ServerVersion", "")),
        root=dockerhost.image_folder(info),
        machine={**_machine(info), **({"host": machine} if machine else {})},
        name=str(info.get("Name") or ""),
        gpus="nvidia" in runtimes or cdi,
        way="cdi" if cdi else "toolkit",
        rootless=any("name=rootless" in option for option in security),
        selinux=any("name=selinux" in option for option in security),
        remapped=any("name=userns" in option for option in security),
        desktop="Docker Desktop" in str(info.get("OperatingSystem", "")),
    )


def _machine(info: Mapping[str, Any]) -> Mapping[str, str]:
    told = {name: str(info[key]) for name, key in _MACHINE.items() if info.get(key)}
    return {**told, "processors": str(info.get("NCPU", "")), "memory": str(info.get("MemTotal", ""))}
