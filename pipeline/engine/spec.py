"""A container as it is to be, in our words and in the SDK's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.engine.connection import Engine
from pipeline.gpus import Way

if TYPE_CHECKING:
    from docker.types import DeviceRequest, Ulimit

LOG_LIMIT = 8 * 2**20
"""Bytes of a container's output that the engine keeps: the newest."""
PIDS = 8192
"""Processes and threads that a container may have."""
STACK = 64 * 2**20
"""Bytes of stack that a thread in a container with GPUs may have: what NVIDIA asks for its frameworks."""
CDI_KIND = "nvidia.com/gpu"
"""The kind of a GPU's device in the Container Device Interface."""


@dataclass(frozen=True)
class Gpus:
    """GPUs that a container is given: their UUIDs (`GPU-…`, `MIG-…`), and how the engine hands them out."""

    ids: tuple[str, ...]
    way: Way


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A container as it is to be; an empty `command` or `entrypoint` is the image's own."""

    image: str
    """The engine's id of it."""
    command: Sequence[str] = ()
    entrypoint: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[str] = ()
    """Folders inside that are volumes of their own, holding what the image has there, writable although the root is not."""
    binds: Sequence[str] = ()
    """`/here:/there[:ro]`."""
    ports: Sequence[int] = ()
    """TCP ports inside that this machine reaches on loopback; none: no network at all."""
    shm_size: str = "2g"
    memory: str = ""
    """Such as `512m`; empty: what the machine has."""
    gpus: Gpus | None = None


def host_config(spec: Spec, engine: Engine) -> Any:
    """What the engine is told of a container beside its program."""
    from docker.types import LogConfig

    return engine.client.create_host_config(
        network_mode="bridge" if spec.ports else "none",
        port_bindings=dict.fromkeys(spec.ports, ("127.0.0.1", None)),
        init=True,
        read_only=spec.read_only,
        tmpfs=dict(spec.tmpfs) or None,
        binds=list(spec.binds) or None,
        shm_size=spec.shm_size,
        mem_limit=spec.memory or None,
        memswap_limit=spec.memory or None,
        pids_limit=PIDS,
        log_config=LogConfig(type="json-file", config={"max-size": str(LOG_LIMIT), "max-file": "1"}),
        device_requests=[_request(spec.gpus)] if spec.gpus else None,
        ulimits=_limits() if spec.gpus and not engine.facts.rootless else None,
    )


def _request(gpus: Gpus) -> "DeviceRequest":
    """Never with a count, and never without ids, which the engine would read as all GPUs."""
    from docker.types import DeviceRequest

    if not gpus.ids:
        raise ValueError("a container with GPUs needs their ids")
    if gpus.way == "cdi":
        return DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={one}" for one in gpus.ids])
    return DeviceRequest(device_ids=list(gpus.ids), capabilities=[["gpu"]])


def _limits() -> "list[Ulimit]":
    """Pinned memory without a bound, and large stacks (NVIDIA's flags for its frameworks' images); only root may raise them."""
    from docker.types import Ulimit

    return [Ulimit(name="memlock", soft=-1, hard=-1), Ulimit(name="stack", soft=STACK, hard=STACK)]
