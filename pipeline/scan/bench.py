"""What a scan works with: the images, the scanner, and what it finds out about each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pipeline.command import Run
from pipeline.errors import PipelineError
from pipeline.oci import Config, Descriptor, Manifest, Pinned, Repository
from pipeline.settings import Settings
from pipeline.statements import Bom, Findings, Scanned
from pipeline.story import Story
from pipeline.surroundings import Surroundings

LEAST_DATABASE = 10**8
"""Bytes below which a database is taken for a broken one: Trivy's own has had several times that for years."""


class Images(Protocol):
    """What a scan asks of a registry."""

    def manifest(self, pinned: Pinned) -> Manifest:
        """The image manifest with this digest."""

    def config(self, pinned: Pinned) -> Config:
        """The configuration of the image with this digest."""

    def blob(self, repository: Repository, descriptor: Descriptor) -> bytes:
        """A verified blob, in memory."""

    def stream(self, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob in pieces, verified at its end."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An image to scan."""

    image: str
    """Its name in the catalog; empty when it has none."""
    pinned: Pinned
    lineage: Sequence[tuple[str, Pinned | None]] = ()
    """The images that it stands on, the lowest first, each with its candidate, if there is one."""
    locked: frozenset[str] = frozenset()
    """Python distributions that its locks install, and those of the lineage: the scanner must see each."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that a scan works with."""

    settings: Settings
    registry: Images
    trivy: Path
    run: Run
    environment: Mapping[str, str]
    """Of the user; the scanner gets what it needs of it, and no secret."""
    around: Surroundings
    story: Story
    now: Callable[[], datetime]
    run_id: str
    platform: str = "linux/amd64"
    unassessed: Sequence[str] = ()
    """Patterns of the names of packages whose content no advisory is about (`catalog.yaml`)."""

    @property
    def least_database(self) -> int:
        """Bytes that a database has at least."""
        return LEAST_DATABASE if self.settings.least_database is None else self.settings.least_database


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was found out about one image; nothing at all where `error` is set."""

    subject: Subject
    scanned: Scanned | None = None
    findings: Findings | None = None
    bom: Bom | None = None
    unscanned: str = ""
    """Why vulnerabilities were not assessed."""
    error: PipelineError | None = None
