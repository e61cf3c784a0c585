"""The input hash of an image, and its named parts: everything that can change what is built, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

RECIPE = 1
"""Raised when the pipeline changes what it builds from the same inputs."""


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """One file of an image's build context as it is hashed."""

    path: str
    """Relative to the image's folder, `/` between the parts."""
    kind: str
    """`file` or `link`."""
    executable: bool
    digest: str
    """sha256 hex of the bytes, or of the link's target text."""


@dataclass(frozen=True, kw_only=True)
class InputHash:
    """64 hex digits, and the named parts that they are the hash of (`file:Dockerfile`, `claim:torch`, `parent:os`, …)."""

    value: str
    parts: Mapping[str, str]
