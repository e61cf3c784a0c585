"""What the catalog is made from: the folders of images as they were read, and what their `image.yaml` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.catalog import Image
from pipeline.yaml_text import Document, Path, Problem


@dataclass(frozen=True, kw_only=True)
class Folder:
    """An image's folder; paths are relative to it, `/` between the parts."""

    text: bytes | None
    """`image.yaml`; None when there is none."""
    paths: tuple[str, ...] = ()
    """All files and links."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """Path → text of `requirements/*.lock` and `packages.lock`."""
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    """Path → bytes of `requirements/*.in`."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One folder: the image that it describes, where it could be understood, and where each value stands."""

    name: str
    folder: Folder
    document: Document
    image: Image | None
    """Without the values that are wrong, which are reported already."""

    @property
    def home(self) -> str:
        """The folder's path below the root."""
        return f"images/{self.name}"

    def says(self, *keys: str) -> bool:
        """Whether nothing is wrong with these keys, so that what they say, or leave out, can be judged."""
        return not any(self.document.is_broken(key) for key in keys)

    def problem(self, path: Path, text: str) -> Problem:
        """A fault of the value at `path` of `image.yaml`."""
        return self.document.problem(path, text)
