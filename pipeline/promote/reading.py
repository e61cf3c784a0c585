"""How releases stand, read from their registry: tags, what they name, and the verdicts on that."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from pipeline.changes import Contents
from pipeline.errors import Interrupted, NotThere, PipelineError, Terminated
from pipeline.evidence import Ignored, Signed, Why, collect
from pipeline.gather import Keys, found
from pipeline.oci import Digest, Pinned, Repository
from pipeline.promote.desk import Desk
from pipeline.promotion import Past, Standing, past
from pipeline.registry import Registry
from pipeline.releases import Release, floating_tag
from pipeline.statements import SIGNATURE, SUMMARY, VULNERABILITIES, Decided, Scanned
from pipeline.survey import in_parallel

KINDS = (SUMMARY, SIGNATURE)
"""What a release has that its candidate does not need to have."""


def standings(images: Collection[str], desk: Desk) -> tuple[Sequence[str], Mapping[str, Standing]]:
    """All tags of the releases, and how each of the images stands."""
    tags = desk.registry.tags(desk.repository)
    return tags, {image: standing(image, tags, desk) for image in images}


def standing(image: str, tags: Collection[str], desk: Desk) -> Standing:
    """How one image stands, of all tags."""
    variant = desk.variants[image]
    mine = [one for tag in tags if (one := Release.parse(tag)) and (one.line, one.variant) == (desk.line, variant)]
    floating = floating_tag(desk.line, variant)
    wanted = [*map(str, mine), *([floating] if floating in tags else [])]
    named = dict(zip(wanted, in_parallel(lambda tag: desk.registry.resolve(desk.repository.tag(tag)), wanted), strict=True))
    digests = sorted({digest for digest in named.values() if digest})
    on_digests = in_parallel(lambda digest: _verdicts(desk.repository.at(digest), desk), digests)
    decided = [one for verdicts, _ in on_digests for one in verdicts]
    return Standing(
        image=image,
        line=desk.line,
        variant=variant,
        tags={one: named[str(one)] for one in mine},
        floating=named.get(floating),
        verdicts=sorted(decided, key=_when, reverse=True),
        unread=tuple(text for _, unread in on_digests for text in unread),
    )


def history(image: str, desk: Desk) -> Sequence[Past]:
    """What became of an image's releases, a line each, the oldest line first."""
    tags = desk.registry.tags(desk.repository)
    mine = {one.line for tag in tags if (one := Release.parse(tag)) and one.variant == desk.variants[image]}
    strays = _strays(tags, desk)
    lines = sorted(mine | {desk.line}, key=lambda line: Release(line=line, number=0).version)
    return tuple(past(standing(image, tags, replace(desk, line=line)), tags, strays) for line in lines)


def _strays(tags: Collection[str], desk: Desk) -> Sequence[Decided]:
    """Verdicts on content that has no release's tag, which only the tags that stand in for a list of referrers tell of."""
    released = [tag for tag in tags if Release.parse(tag)]
    named = set(in_parallel(lambda tag: desk.registry.resolve(desk.repository.tag(tag)), released))
    listed = [digest for tag in tags if (digest := Digest.listed_by(tag))]
    left = [digest for digest in listed if digest not in named]
    return [
        one for verdicts, _ in in_parallel(lambda digest: _verdicts(desk.repository.at(digest), desk), left) for one in verdicts
    ]


def attached(pinned: Pinned, keys: Keys, registry: Registry, kinds: Collection[str] = KINDS) -> tuple[Signed | Ignored, ...]:
    """Verdicts and signatures on a digest, or other `kinds`; none where the registry does not hold it."""
    try:
        return found(pinned, keys, registry, kinds=kinds)
    except NotThere:
        return ()


def known(standing: Standing, desk: Desk, *beside: Repository) -> Contents | None:
    """The vulnerabilities of what the floating tag names, by the newest look-up there or in a repository `beside`.

    None where the tag names nothing. A registry that cannot tell hinders nobody from deciding, who is told so.
    """
    digest = standing.floating
    if digest is None:
        return None
    tag = next((str(one) for one in standing.releases(digest)), f"{standing.floating_tag}, which is no release")
    try:
        return replace(_scan(digest, desk, (desk.repository, *beside)), tag=tag)
    except (Interrupted, Terminated):
        raise
    except PipelineError as error:
        return Contents(tag=tag, unscanned=error.message)


def _scan(digest: Digest, desk: Desk, places: Collection[Repository]) -> Contents:
    looked = (attached(place.at(digest), desk.keys, desk.registry, [VULNERABILITIES]) for place in dict.fromkeys(places))
    evidence = collect(desk.repository.at(digest), [one for some in looked for one in some], now=desk.now())
    if unread := evidence.because(Why.UNREADABLE, Why.CROWD):
        return Contents(unscanned=f"{unread[0].manifest} {unread[0].text}")
    return Contents(scanned=evidence.one(Scanned))


def _verdicts(pinned: Pinned, desk: Desk) -> tuple[Sequence[Decided], Sequence[str]]:
    """Also why one may lack: a withdrawal that a machine with a wrong clock has signed is one nevertheless."""
    evidence = collect(pinned, attached(pinned, desk.keys, desk.registry), now=desk.now())
    lacking = evidence.because(Why.UNREADABLE, Why.CROWD, Why.FUTURE)
    return evidence.all(Decided), [f"`{pinned}`: {one.manifest} {one.text}" for one in lacking]


def _when(decided: Decided) -> tuple[datetime, str]:
    return decided.finished, decided.tag
