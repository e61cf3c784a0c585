"""What the releases of one image are where they are kept, as immutable tags and verified verdicts tell it; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import InputError
from pipeline.oci import Digest, Pinned
from pipeline.releases import Release, floating_tag
from pipeline.statements import Decided

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The releases of one image in one line."""

    image: str
    line: str
    variant: str | None
    tags: Mapping[Release, Digest | None]
    """Every immutable tag of this line and variant; nothing where its content is gone."""
    floating: Digest | None
    verdicts: Sequence[Decided] = ()
    """What release keys signed about these digests, newest first."""
    unread: Sequence[str] = ()
    """What is attached to them and cannot be had, or is dated ahead: it may be a verdict."""

    @property
    def floating_tag(self) -> str:
        """The tag that follows the highest release."""
        return floating_tag(self.line, self.variant)

    @property
    def highest(self) -> Release | None:
        """The highest release that has a tag, whatever became of it: the next one is above."""
        return max(self.tags, key=lambda release: release.number, default=None)

    @property
    def hold(self) -> Decided | None:
        """The rollback that keeps the floating tag where it is: the newest verdict that moved it, where that says so."""
        moved = (one for one in self.verdicts if one.action != "withdraw" and self.stands(one))
        newest = next(moved, None)
        return newest if newest is not None and newest.hold else None

    @property
    def top(self) -> Release | None:
        """What the floating tag should name: what a rollback holds, else the highest proved release that is not withdrawn."""
        if hold := self.hold:
            return Release.parse(hold.tag)
        return self.good

    @property
    def good(self) -> Release | None:
        """The highest proved release that is not withdrawn, whatever is held."""
        proved = (release for release in self.tags if self.proof(release) and not self.withdrawn(release))
        return max(proved, key=lambda release: release.number, default=None)

    def stands(self, verdict: Decided) -> bool:
        """Whether the tag that a verdict names is there, and names what the verdict is about."""
        release = Release.parse(verdict.tag)
        return release is not None and self.tags.get(release) == subject_of(verdict)

    def proof(self, release: Release) -> Decided | None:
        """The newest verdict that released this, or went back to it."""
        return self._verdict(release, "promote", "rollback")

    def withdrawn(self, release: Release) -> Decided | None:
        """The verdict that withdrew this release, or another that is the same digest; it stays withdrawn."""
        digest = self.tags.get(release)
        of_it = (one for one in self.verdicts if one.action == "withdraw" and self.stands(one))
        return next((one for one in of_it if subject_of(one) == digest), None)

    def releases(self, digest: Digest) -> Sequence[Release]:
        """The releases that are this digest, highest first."""
        found = [release for release, named in self.tags.items() if named == digest]
        return sorted(found, key=lambda release: -release.number)

    def _verdict(self, release: Release, *actions: str) -> Decided | None:
        of_it = (one for one in self.verdicts if one.action in actions and one.tag == str(release) and self.stands(one))
        return next(of_it, None)


def subject_of(verdict: Decided) -> Digest:
    """The digest that a verdict is about."""
    return Pinned.parse(verdict.subject).digest


def number(text: str) -> int:
    """A release's number as it is written on a command line; raises `InputError` for `03`, `+3` or `v3`."""
    if not _NUMBER.fullmatch(text):
        raise InputError(f"`{text}` is not a release's number", hint="write it as in the tag: `3` for `v2.6.3`")
    return int(text)


def asked(text: str, line: str, variant: str | None) -> Release:
    """The release that a person names, `2.6.2`, `v2.6.2` or `v2.6.2-nlp`; raises `InputError` for what means another or none."""
    whole = Release(line=line, number=0, variant=variant)
    example = f"write `{whole.version}` or `{whole}`, with its own number"
    short = Release.parse(text if text.startswith("v") else f"v{text}")
    if short is None:
        raise InputError(f"`{text}` is no release", hint=example)
    if short.line != line:
        raise InputError(f"`{text}` is of the line {short.line}, and this checkout is of {line}", hint=example)
    if short.variant not in (None, variant):
        raise InputError(f"`{text}` is of another image", hint=example)
    if not text.startswith("v") and short.variant:
        raise InputError(f"`{text}` is no tag: `v{text}` is one", hint=example)
    return Release(line=line, number=short.number, variant=variant)
