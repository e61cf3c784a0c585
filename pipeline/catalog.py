"""The catalog: which images there are, what they stand on, what they claim and how they are checked.

`parse` turns YAML text into these values and reports every fault at once; it reads no files.
"""

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from pipeline.oci import Repository


class Entry(BaseModel):
    """Base of all catalog values: frozen, and no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Checks(Entry):
    """Names of files in the image's `checks/` folder: `imports` is `test_imports.py` or `service_imports.py`."""

    cpu: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()


class User(Entry):
    """A user that a root file system gets; `home` belongs to group 0 and is writable for it."""

    name: str
    uid: int
    gid: int = 0
    home: str
    shell: str = "/bin/bash"


class Rootfs(Entry):
    """A Debian root file system: what `packages.lock` is solved from."""

    suite: str
    packages: tuple[str, ...]
    users: tuple[User, ...] = ()


class Image(Entry):
    """One image; `name` is its folder's name."""

    name: str
    description: str
    parent: str | None = None
    uses: tuple[str, ...] = ()
    variant: str | None = None
    release: bool = True
    claims: Mapping[str, str] = Field(default_factory=dict)
    checks: Checks = Checks()
    size_limit: int | None = None
    """Compressed bytes of all layers."""
    revision: int = 1
    rootfs: Rootfs | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The images that it is built from: its parent and those its stages start from."""
        return ((self.parent,) if self.parent else ()) + self.uses


class Catalog(Entry):
    """All images, parents first, and what they share."""

    line: str
    """The release line: `2.6`."""
    repository: str
    """The last part of the repository's path: `pytorch-cuda`."""
    candidates: str
    releases: str
    platform: str
    epoch: datetime
    compression_level: int
    reference: str | None = None
    images: Mapping[str, Image]

    @property
    def candidate_repository(self) -> Repository:
        """Where builds write."""
        return Repository.parse(f"{self.candidates}/{self.repository}")

    @property
    def release_repository(self) -> Repository:
        """Where promotions write."""
        return Repository.parse(f"{self.releases}/{self.repository}")
