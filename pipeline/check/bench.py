"""What a check works with: the candidate, what of it is wanted, and the machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pipeline.catalog import Catalog
from pipeline.command import Run
from pipeline.engine import Engine, Gpus, ensure
from pipeline.failures import NONE, Failures
from pipeline.gpus import ALL, Gpu, Host
from pipeline.oci import Pinned
from pipeline.quarantine import Quarantine
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Lane
from pipeline.story import Story

LANES: tuple[Lane, ...] = ("cpu", "gpu")
LANE_SECONDS = 3600.0
"""Deadline of one lane of one image, in seconds: the slowest known takes six minutes on two busy cores."""
TEST_SECONDS = 900.0
"""Deadline of one test, in seconds: the slowest known takes half a minute there."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Deadlines in seconds, and memory such as `512m` (empty: the machine's)."""

    lane: float = LANE_SECONDS
    test: float = TEST_SECONDS
    memory: str = ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A candidate to check."""

    image: str
    pinned: Pinned
    tag: str
    size: int = 0
    """Compressed bytes of all layers, for the report."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What of it to run, and how."""

    lanes: tuple[Lane, ...] = LANES
    select: str = ""
    """A pytest expression; then nothing is recorded, because the lane was not run as a whole."""
    keep: bool = False
    gpus: str = ALL
    """Which GPUs the lane `gpu` takes (`gpus.choose`)."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class Given:
    """The GPUs that a container gets, and how; `binds` are what stands in for a driver in tests."""

    gpus: tuple[Gpu, ...] = ()
    handed: Gpus | None = None
    binds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The GPUs of the engine's machine."""

    examine: Callable[[Callable[[], str]], Host | None]
    """How the machine is now; nothing where it has no driver. It is handed what brings an image into the engine, for an
    engine elsewhere, whose GPUs only a container sees."""
    give: Callable[[Sequence[Gpu]], Given]
    quarantine: Quarantine
    turns: Path
    """Folder of the locks by which runs on one machine wait for each other."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that a check works with."""

    catalog: Catalog
    settings: Settings
    engine: Engine
    registry: Registry
    run: Run
    run_id: str
    story: Story
    now: Callable[[], datetime]
    hardware: Hardware | None = None
    """None: nobody looks for GPUs, and none is there."""
    failures: Failures = NONE


def bring(pinned: Pinned, bench: Bench, *, tag: str = "") -> str:
    """The engine's id of an image, brought there when it is not."""
    return ensure(
        pinned,
        bench.registry.manifest(pinned),
        engine=bench.engine,
        registry=bench.registry,
        story=bench.story,
        scratch=bench.settings.cache / "loading",
        tag=tag,
    )
