"""From what is to be released and what stands there to every write in its order, or to the reasons why not; pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import InputError
from pipeline.oci import Digest, Pinned, Repository
from pipeline.promotion.standing import Standing
from pipeline.releases import Release


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A candidate that is to be released."""

    image: str
    source: Pinned
    parent: tuple[str, Digest | None] | None = None
    """The image that it was built on, where that is one that is released, and which digest, where its build tells."""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Why nothing can be written for one image."""

    image: str
    message: str
    solution: str
    conflict: bool = False
    """A tag names something else, or moved: exit 8, not 7."""


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Nothing is written."""

    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """One image's part of a plan."""

    image: str
    source: Pinned
    target: Pinned
    release: Release
    floating: str
    before: Digest | None
    """What the floating tag names now."""
    before_release: Release | None
    tagged: bool
    """Whether the immutable tag is there already."""
    decided: bool
    """Whether a verdict for this tag is there already, and nothing is lifted."""

    @property
    def moves(self) -> bool:
        """Whether the floating tag names something else."""
        return self.before != self.target.digest

    @property
    def done(self) -> bool:
        """Whether there is nothing to write."""
        return self.tagged and self.decided and not self.moves

    @property
    def writes(self) -> Iterator[str]:
        """Every write, in its order."""
        if not self.tagged and self.source.repository != self.target.repository:
            yield f"bring the image and its evidence to {self.target}"
        if not (self.tagged and self.decided):
            yield f"sign and attach the verdict: promote {self.release}"
        if not self.tagged:
            yield f"create the tag {self.release}"
        if self.moves:
            yield f"move the tag {self.floating} from {_shown(self.before, self.before_release)} to {self.release}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a promotion writes, parents first."""

    number: int
    promotions: tuple[Promotion, ...]
    notes: tuple[str, ...] = ()


def plan(
    wanted: Sequence[Wanted],
    standings: Mapping[str, Standing],
    tags: Collection[str],
    destination: Repository,
    *,
    line: str,
    given: int | None,
    lift: bool,
) -> Plan | Blocked:
    """What to write so that each of `wanted`, parents first, is released, under one number.

    `standings` are those of the images wanted and of their parents, `tags` all of the destination's.
    """
    number = _number(wanted, standings, tags, line) if given is None else given
    promotions = tuple(_promotion(one, standings[one.image], destination, number, lift) for one in wanted)
    before: dict[str, Digest] = {}
    obstacles: list[Obstacle] = []
    for one, promotion in zip(wanted, promotions, strict=True):
        obstacles += [*_stray(promotion, standings[one.image], given), *_obstacles(one, promotion, standings, before, lift)]
        before[one.image] = one.source.digest
    if obstacles:
        return Blocked(obstacles=tuple(obstacles))
    return Plan(number=number, promotions=promotions, notes=tuple(_notes(promotions, standings, number, lift)))


def require_number(given: int | None, *, ci: bool) -> None:
    """Raises `InputError` when nobody named the number where several may run at once."""
    if ci and given is None:
        raise InputError(
            "the release's number must be given in CI: two runs at once would both find the same one",
            hint="`--number N`, the `N` of `v2.6.N`; `nox -s history -- IMAGE` lists those there are",
        )


def _number(wanted: Sequence[Wanted], standings: Mapping[str, Standing], tags: Collection[str], line: str) -> int:
    """The line's highest and one more; that highest itself where a part of this very set has it and the rest has none above."""
    taken = [release.number for tag in tags if (release := Release.parse(tag)) and release.line == line]
    highest = max(taken, default=-1)
    mine = {one.image: standings[one.image].releases(one.source.digest) for one in wanted}
    begun = any(found and found[0].number == highest for found in mine.values())
    rest = [standings[image].highest for image, found in mine.items() if not found]
    fits = all(one is None or one.number < highest for one in rest)
    return highest if begun and fits else highest + 1


def _promotion(one: Wanted, standing: Standing, destination: Repository, number: int, lift: bool) -> Promotion:
    own = standing.releases(one.source.digest)
    release = own[0] if own else Release(line=standing.line, number=number, variant=standing.variant)
    named = standing.releases(standing.floating) if standing.floating else ()
    return Promotion(
        image=one.image,
        source=one.source,
        target=destination.at(one.source.digest),
        release=release,
        floating=standing.floating_tag,
        before=standing.floating,
        before_release=named[0] if named else None,
        tagged=bool(own),
        decided=standing.proof(release) is not None and not (lift and standing.hold),
    )


def _obstacles(
    one: Wanted, promotion: Promotion, standings: Mapping[str, Standing], before: Mapping[str, Digest], lift: bool
) -> Iterator[Obstacle]:
    standing = standings[one.image]
    yield from _tags(one, promotion, standing)
    for own in standing.releases(one.source.digest):
        if withdrawn := standing.withdrawn(own):
            text = f"it was withdrawn as `{own}` by {withdrawn.actor}: {withdrawn.reason}"
            yield Obstacle(image=one.image, message=text, solution=f"mend it, then `nox -s build test scan sign -- {one.image}`")
    for text in standing.unread:
        mend = "mend the registry, or set the clock that is wrong; what stays so must be deleted from the registry"
        yield Obstacle(image=one.image, message=text, solution=mend)
    if (hold := standing.hold) and not lift:
        text = (
            f"`{promotion.floating}` is held at `{hold.tag}` since {hold.finished:%Y-%m-%d %H:%M} by {hold.actor}: {hold.reason}"
        )
        solution = f'`nox -s promote -- {one.image} --lift-hold --reason "…"` when the cause is gone'
        yield Obstacle(image=one.image, message=text, solution=solution)
    if one.parent and not _released(*one.parent, standings, before):
        parent, digest = one.parent
        text = f"it stands on `{parent}` {digest or 'of unknown digest'}, which is no release of it"
        solution = f"`nox -s promote -- {parent} {one.image}` releases both, the parent first"
        yield Obstacle(image=one.image, message=text, solution=solution)


def _stray(promotion: Promotion, standing: Standing, given: int | None) -> Iterator[Obstacle]:
    """A tag that no verdict is about is not ours: whoever made it does not choose the number of a release."""
    release = promotion.release
    if given not in (None, release.number) and standing.proof(release) is None:
        text = f"`{release}` names it already, and no verdict that counts says that it was released so"
        solution = f"`--number {release.number}` if that is to be its number; else have that tag deleted"
        yield Obstacle(image=promotion.image, message=text, solution=solution, conflict=True)


def _tags(one: Wanted, promotion: Promotion, standing: Standing) -> Iterator[Obstacle]:
    release, highest = promotion.release, standing.highest
    if promotion.tagged:
        higher = max((release for release in standing.tags if _counts(release, standing)), key=_by_number, default=release)
        at = promotion.before_release
        above = at if at and at.number > max(higher.number, release.number) else higher
        if above.number > release.number:
            text = f"it is `{release}`, and `{above}` is there: a promotion never goes backwards"
            solution = f'`nox -s rollback -- {one.image} --to {release.version} --reason "…"`'
            yield Obstacle(image=one.image, message=text, solution=solution)
    elif release in standing.tags:
        named = standing.tags[release] or "something that is gone"
        text, solution = f"`{release}` names {named} already, not {one.source.digest}", "choose another `--number`"
        yield Obstacle(image=one.image, message=text, solution=solution, conflict=True)
    elif highest and highest.number > release.number:
        text = f"`{release}` is below `{highest}`: a promotion never goes backwards"
        yield Obstacle(image=one.image, message=text, solution=f"`--number {highest.number + 1}` or more")


def _counts(release: Release, standing: Standing) -> bool:
    """Whether the floating tag may have followed it."""
    return standing.tags[release] is not None and not standing.withdrawn(release)


def _by_number(release: Release) -> int:
    return release.number


def _released(parent: str, digest: Digest | None, standings: Mapping[str, Standing], before: Mapping[str, Digest]) -> bool:
    if digest is None:
        return False
    standing = standings[parent]
    good = [release for release in standing.releases(digest) if standing.proof(release) and not standing.withdrawn(release)]
    return before.get(parent) == digest or bool(good)


def _notes(promotions: Sequence[Promotion], standings: Mapping[str, Standing], number: int, lift: bool) -> Iterator[str]:
    for one in promotions:
        standing = standings[one.image]
        if one.release.number != number:
            yield f"`{one.image}` is released as `{one.release}` already, so it does not become number {number}"
        if one.before and not standing.releases(one.before):
            yield f"`{one.floating}` names {one.before}, which is no release"
        if lift and not standing.hold:
            yield f"`{one.image}` is not held: there is no hold to lift"


def _shown(digest: Digest | None, release: Release | None) -> str:
    return "nothing" if digest is None else f"{release or 'no release'} ({digest})"
