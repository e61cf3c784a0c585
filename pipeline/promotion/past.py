"""What became of the releases of an image, told from tags and verdicts, with all that does not fit together; pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pipeline.oci import Digest
from pipeline.promotion.standing import Standing, subject_of
from pipeline.releases import Release
from pipeline.statements import Decided


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release."""

    release: Release
    digest: Digest | None
    """Nothing where its content is gone."""
    verdicts: tuple[Decided, ...]
    """On this tag, oldest first."""
    state: str


@dataclass(frozen=True, kw_only=True)
class Past:
    """The releases of an image in one line, lowest first, and what is odd about them."""

    image: str
    line: str
    floating: str
    names: Digest | None
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def past(standing: Standing, tags: Collection[str], strays: Sequence[Decided] = ()) -> Past:
    """`tags` are all of the repository's; `strays` are verdicts on content that has no release's tag."""
    releases = sorted(standing.tags, key=lambda release: release.number)
    told = [*standing.verdicts, *strays]
    return Past(
        image=standing.image,
        line=standing.line,
        floating=standing.floating_tag,
        names=standing.floating,
        entries=tuple(_entry(release, standing) for release in releases),
        notes=(*standing.unread, *_gaps(standing, tags), *_forks(standing), *_halves(standing, told)),
    )


def _entry(release: Release, standing: Standing) -> Entry:
    verdicts = [one for one in standing.verdicts if one.tag == str(release) and standing.stands(one)]
    return Entry(
        release=release,
        digest=standing.tags[release],
        verdicts=tuple(sorted(verdicts, key=lambda one: one.finished)),
        state=", ".join(_states(release, standing)),
    )


def _states(release: Release, standing: Standing) -> Iterator[str]:
    digest = standing.tags[release]
    if digest is None:
        yield "gone"
        return
    if standing.withdrawn(release):
        yield "withdrawn"
    elif not standing.proof(release):
        yield "no verdict"
    if digest == standing.floating:
        yield "held here" if standing.hold else "current"


def _gaps(standing: Standing, tags: Collection[str]) -> Iterator[str]:
    """Numbers that this image skipped are another's, or nobody's."""
    others = {one.number for tag in tags if (one := Release.parse(tag)) and one.line == standing.line}
    mine = {release.number for release in standing.tags}
    for number in sorted(set(range(max(mine, default=-1) + 1)) - mine):
        release = Release(line=standing.line, number=number, variant=standing.variant)
        why = "other images have this number" if number in others else "no image has this number"
        yield f"`{release}` is not there: {why}"


def _forks(standing: Standing) -> Iterator[str]:
    floating = standing.floating
    if floating is None:
        if standing.tags:
            yield f"`{standing.floating_tag}` is not there: `nox -s promote -- {standing.image}` finishes, or went wrong"
        return
    releases = standing.releases(floating)
    if not releases:
        yield f"`{standing.floating_tag}` names {floating}, which is no release: somebody else has moved it"
    elif not any(standing.proof(release) for release in releases):
        yield f"`{standing.floating_tag}` names `{releases[0]}`, on which no verdict counts"
    elif standing.withdrawn(releases[0]):
        yield f"`{standing.floating_tag}` names `{releases[0]}`, which is withdrawn: {_instead(standing)}"


def _instead(standing: Standing) -> str:
    if good := standing.good:
        return f'`nox -s rollback -- {standing.image} --to {good.version} --reason "…"`'
    return f"there is no other release: build, test and `nox -s promote -- {standing.image}`"


def _halves(standing: Standing, verdicts: Sequence[Decided]) -> Iterator[str]:
    """Runs that ended before their end, and those that lost a race."""
    for one in sorted(verdicts, key=lambda one: one.finished):
        release = Release.parse(one.tag)
        if one.image != standing.image or release is None or standing.stands(one):
            continue
        named = standing.tags.get(release)
        what = f"`{release}` names {named} instead" if named else f"there is no tag `{release}`"
        yield f"{one.action} of {subject_of(one)} as `{release}` by {one.actor} at {one.finished:%Y-%m-%d %H:%M}: {what}"
    top = standing.top
    at = standing.releases(standing.floating) if standing.floating else ()
    if top and standing.tags[top] != standing.floating and at and not standing.withdrawn(at[0]):
        yield f"`{standing.floating_tag}` should name `{top}`: a run ended before it moved the tag; run it again"
