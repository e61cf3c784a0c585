"""What a run was told by the command line and the environment, read once by `__main__`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Folders and choices of one run; `None` means that the user did not choose."""

    root: Path
    """The folder that holds `images/` and `policies/`."""
    cache: Path
    """The user's cache folder: tools, downloads, the data of services that we start."""
    candidates: str | None = None
    """Where builds write, in place of the catalog's `candidates`."""
    releases: str | None = None
    """Where promotions write, in place of the catalog's `releases`."""
    parents: str | None = None
    """Where candidates are that others built, and that builds may stand on."""
    builder: str | None = None
    """A buildx builder of the user's, in place of our own."""
    database: str | None = None
    """Where vulnerability databases come from, `host/repository:2`, in place of Trivy's own."""
    least_database: int | None = None
    """Bytes that a database has at least, in place of what the real one has."""
    statements: Path | None = None
    """Where unsigned statements go, in place of `.pipeline/statements`."""

    @property
    def images(self) -> Path:
        """The folder of images."""
        return self.root / "images"

    @property
    def work(self) -> Path:
        """Where a run leaves its records: statements, logs, reports (ignored by git)."""
        return self.root / ".pipeline"

    @property
    def quarantine(self) -> Path:
        """Where the strikes of sick machines are kept."""
        return self.cache / "quarantine"
