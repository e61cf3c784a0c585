"""What to do for each image, parents first, and why."""

from dataclasses import dataclass
from typing import Literal

from pipeline.oci import Digest


@dataclass(frozen=True, kw_only=True)
class Step:
    """One image's part of a plan."""

    image: str
    action: Literal["build", "reuse"]
    reason: str
    tag: str
    """The candidate tag, `v2.6-nlp-<first 12 hex of the input hash>`."""
    input_hash: str
    digest: Digest | None
    """What the tag names, when it is reused."""
