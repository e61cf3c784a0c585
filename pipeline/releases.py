"""Release lines and the tags made of them: floating `v2.6-nlp`, immutable `v2.6.3-nlp`, candidate `v2.6-nlp-<12 hex>`.

Tags are taken apart and put together here only; what does not read as one of these is no tag of ours, and is left alone.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from semver import Version

HASH_DIGITS = 12
"""Hex digits of the input hash in a candidate's tag."""

_RELEASE = re.compile(
    r"v(?P<line>(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*))\.(?P<number>0|[1-9][0-9]*)(?:-(?P<variant>[a-z][a-z0-9]*))?"
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of one image: the line `2.6`, its number in the line, the image's variant."""

    line: str
    number: int
    variant: str | None = None

    def __str__(self) -> str:
        """The immutable tag."""
        return f"v{self.line}.{self.number}" + _tail(self.variant)

    @property
    def version(self) -> "Version":
        """For ordering; the variant is no part of it, since semver would take it for a pre-release."""
        from semver import Version

        major, minor = self.line.split(".")
        return Version(int(major), int(minor), self.number)

    @property
    def floating(self) -> str:
        """The tag that follows the highest release of this line and variant."""
        return floating_tag(self.line, self.variant)

    @classmethod
    def parse(cls, tag: str) -> Self | None:
        """The release that an immutable tag names; nothing when it is no such tag (a candidate's, `v2.7-rc1`, `latest`)."""
        match = _RELEASE.fullmatch(tag)
        return cls(line=match["line"], number=int(match["number"]), variant=match["variant"]) if match else None


def floating_tag(line: str, suffix: str | None) -> str:
    """`v2.6`, `v2.6-nlp`."""
    return f"v{line}" + _tail(suffix)


def candidate_tag(line: str, suffix: str | None, input_hash: str) -> str:
    """`v2.6-nlp-<first 12 hex digits of the input hash>`."""
    return f"{floating_tag(line, suffix)}-{input_hash[:HASH_DIGITS]}"


def is_candidate(tag: str, line: str, suffix: str | None) -> bool:
    """Whether `tag` is a candidate's of this image, whatever its inputs."""
    head, _, digits = tag.rpartition("-")
    return head == floating_tag(line, suffix) and re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS}}}", digits) is not None


def highest(tags: Iterable[str], line: str, variant: str | None) -> Release | None:
    """The highest release among `tags` of this line and variant."""
    found = [release for tag in tags if (release := Release.parse(tag)) and (release.line, release.variant) == (line, variant)]
    return max(found, key=lambda release: release.version, default=None)


def _tail(suffix: str | None) -> str:
    return f"-{suffix}" if suffix else ""
