"""Which candidates a repository can do without, and what else of it goes or stays with them; pure.

A candidate stays when the plan names it, when it is the newest of its image, when it is released, or when what stays stands
on it. What refers to what stays, such as signed statements, stays too; so does each tag that is no candidate's.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.oci import Digest
from pipeline.releases import HASH_DIGITS


@dataclass(frozen=True, kw_only=True)
class Held:
    """One manifest that a repository holds, and what it tells of others."""

    digest: Digest
    blobs: Mapping[Digest, int] = field(default_factory=dict)
    """Configuration and layers, or the entries of an index, with their bytes."""
    children: tuple[Digest, ...] = ()
    """The entries of an index, some of which may be manifests."""
    subject: Digest | None = None
    image: str = ""
    """The image that it is a candidate of; empty for anything else."""
    input_hash: str = ""
    base: Digest | None = None
    """The candidate that it stands on."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """What a repository holds."""

    manifests: Mapping[Digest, Held]
    tags: Mapping[str, Digest]
    written: Mapping[str, float]
    """Seconds since the epoch at which a tag was last written, where that is known."""


@dataclass(frozen=True, kw_only=True)
class Old:
    """A candidate that nobody needs."""

    image: str
    tag: str
    digest: Digest


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What goes, and what must be there afterwards."""

    old: tuple[Old, ...]
    manifests: tuple[Digest, ...]
    """All that go: old candidates, what refers to them, and what no tag names any more."""
    tags: frozenset[str]
    """Those that stay, and those of the plan."""
    needed: frozenset[Digest]
    """The manifests that stay, and all of their content."""
    size: int
    """Bytes that nothing left in the repository needs; other repositories may."""


def plan(shelf: Shelf, *, wanted: Collection[str], released: Collection[Digest]) -> Pruning:
    """What goes when these candidate tags and these digests stay."""
    candidates = _candidates(shelf)
    doubted = candidates.keys() - _newest(candidates, shelf) - set(wanted)
    kept = _reached(shelf, [tag for tag in shelf.tags if tag not in doubted], released)
    gone = [digest for digest in shelf.manifests if digest not in kept]
    old = [Old(image=candidates[tag].image, tag=tag, digest=shelf.tags[tag]) for tag in doubted if shelf.tags[tag] not in kept]
    needed = {blob for digest in kept for blob in shelf.manifests[digest].blobs}
    freed = {blob: size for digest in gone for blob, size in shelf.manifests[digest].blobs.items() if blob not in needed}
    return Pruning(
        old=tuple(sorted(old, key=lambda one: (one.image, one.tag))),
        manifests=tuple(sorted(gone)),
        tags=frozenset(tag for tag, digest in shelf.tags.items() if digest in kept) | frozenset(wanted),
        needed=frozenset(needed | kept),
        size=sum(freed.values()),
    )


def is_candidate(tag: str, image: str, input_hash: str) -> bool:
    """Whether a tag is that of a candidate, by what the image's own labels say."""
    return bool(image and input_hash) and tag.endswith(f"-{input_hash[:HASH_DIGITS]}")


def _candidates(shelf: Shelf) -> Mapping[str, Held]:
    """Those whose time is known; any other stays, as a tag that is no candidate's does."""
    found = {tag: shelf.manifests[digest] for tag, digest in shelf.tags.items() if digest in shelf.manifests}
    return {tag: held for tag, held in found.items() if is_candidate(tag, held.image, held.input_hash) and tag in shelf.written}


def _newest(candidates: Mapping[str, Held], shelf: Shelf) -> set[str]:
    by_image: dict[str, list[str]] = {}
    for tag, held in candidates.items():
        by_image.setdefault(held.image, []).append(tag)
    return {max(tags, key=lambda tag: (shelf.written[tag], tag)) for tags in by_image.values()}


def _reached(shelf: Shelf, tags: Collection[str], released: Collection[Digest]) -> set[Digest]:
    """All manifests that stay: those named, what they stand on or list, and what refers to them."""
    subjects = dict(_subjects(shelf))
    stand_ins = {tag for tag in shelf.tags if Digest.listed_by(tag)}
    kept: set[Digest] = set()
    more = {shelf.tags[tag] for tag in tags if tag not in stand_ins} | set(released)
    more |= {digest for digest, subject in subjects.items() if subject not in shelf.manifests}
    while more := (more & shelf.manifests.keys()) - kept:
        kept |= more
        told = [shelf.manifests[digest] for digest in more]
        more = {digest for held in told for digest in (*held.children, *([held.base] if held.base else []))}
        more |= {digest for digest, subject in subjects.items() if subject in kept}
    return kept


def _subjects(shelf: Shelf) -> Iterator[tuple[Digest, Digest]]:
    """What refers to what, by itself or by the name of its tag."""
    for digest, held in shelf.manifests.items():
        if held.subject:
            yield digest, held.subject
    for tag, digest in shelf.tags.items():
        if subject := Digest.listed_by(tag):
            yield digest, subject
