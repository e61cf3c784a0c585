"""Everything before the first write: candidates resolved once, evidence collected, decisions made, writes planned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline import names, promotion
from pipeline.carry import statements
from pipeline.changes import Contents
from pipeline.errors import PromotionRefused, TagConflict
from pipeline.evidence import Evidence, Ignored, Signed, collect
from pipeline.gather import found, shown
from pipeline.oci import Digest, Pinned
from pipeline.policy import Allowed, Refused
from pipeline.promote.desk import Desk
from pipeline.promote.reading import attached, known, standings
from pipeline.promotion import Blocked, Plan, Standing, Wanted
from pipeline.releases import Release, floating_tag
from pipeline.statements import Built, Decided, Scanned
from pipeline.survey import in_parallel

Judge = Callable[[str, Evidence, int | None], Allowed | Refused]
"""Decides on an image from its evidence, and the bytes of its last release."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A candidate that is to be released; `parent` is the image that it is built on, where that is released."""

    image: str
    source: Pinned
    parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A candidate that is released already, and that the floating tag names."""

    image: str
    target: Pinned
    release: Release
    floating: str
    key: str
    """Whose verdict says so."""

    @property
    def tag(self) -> str:
        """The immutable one."""
        return str(self.release)

    @property
    def number(self) -> int:
        """Its number in the line."""
        return self.release.number


@dataclass(frozen=True, kw_only=True)
class Case:
    """One image before its decision's consequences."""

    subject: Subject
    evidence: Evidence
    there: Evidence
    """Verdicts and signatures at the destination that count already."""
    decision: Allowed | Refused
    standing: Standing
    replaced: Contents | None
    """What the floating tag names now."""

    @property
    def now(self) -> Contents:
        """What it will name."""
        return Contents(scanned=self.evidence.one(Scanned))


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What would be written, or why nothing is."""

    cases: tuple[Case, ...]
    plan: Plan | Blocked

    @property
    def refusal(self) -> PromotionRefused | TagConflict | None:
        """Why nothing is written; a tag in the way comes first."""
        blocked = self.plan.obstacles if isinstance(self.plan, Blocked) else ()
        lines = [f"`{one.image}`: {one.message}\n    {one.solution}" for one in blocked]
        refused = [case for case in self.cases if isinstance(case.decision, Refused)]
        lines += [f"`{case.subject.image}`: the policy refuses it, see above" for case in refused]
        if not lines:
            return None
        kind = TagConflict if any(one.conflict for one in blocked) else PromotionRefused
        listed = "\n".join(f"  {line}" for line in lines)
        return kind(f"refused: no tag was moved, nothing was written\n{listed}", hint=_hint(refused, blocked))


def settled(subject: Subject, desk: Desk) -> Settled | None:
    """Whether the floating tag, a release's tag and a verdict that counts all name the candidate; at most three requests.

    The verdict's signature is checked, evidence and policy are not.
    """
    floating = floating_tag(desk.line, desk.variants[subject.image])
    target = desk.repository.at(subject.source.digest)
    if desk.registry.resolve(desk.repository.tag(floating)) != target.digest:
        return None
    release, key = _released_as(target, subject.image, desk)
    if release is None or release.floating != floating:
        return None
    if desk.registry.resolve(desk.repository.tag(str(release))) != target.digest:
        return None
    return Settled(image=subject.image, target=target, release=release, floating=floating, key=key)


def _released_as(target: Pinned, image: str, desk: Desk) -> tuple[Release | None, str]:
    """The release that the verdicts of the list name, and whose key says so; none unless all count and say just that."""
    told = [one for one in desk.registry.glance(target) if names.ANNOTATION_VERDICT in one.annotations]
    evidence = collect(target, [shown(one, desk.keys) for one in told], now=desk.now())
    verdicts = evidence.all(Decided)
    said = {(one.action, one.image, Pinned.parse(one.subject).repository.path, one.tag) for one in verdicts}
    if len(verdicts) != len(told) or len(said) != 1:
        return None, ""
    ((*about, tag),) = said
    return (Release.parse(tag) if about == ["promote", image, target.repository.path] else None), evidence.counted[0].key.name


def prepare(subjects: Sequence[Subject], desk: Desk, judge: Judge, *, given: int | None, lift: bool) -> Prepared:
    """Evidence, decisions and the plan for `subjects`, parents first; writes nothing."""
    images = dict.fromkeys(name for one in subjects for name in (one.image, one.parent) if name)
    with desk.story.task("reading releases, evidence and verdicts"):
        tags, standing = standings(tuple(images), desk)
        cases = tuple(in_parallel(lambda subject: _case(subject, standing[subject.image], desk, judge), subjects))
    wanted = [_wanted(case) for case in cases]
    plan = promotion.plan(wanted, standing, tags, desk.repository, line=desk.line, given=given, lift=lift)
    return Prepared(cases=cases, plan=plan)


def carried(cases: Sequence[Case], desk: Desk) -> Mapping[str, Mapping[Digest, bytes]]:
    """The manifests of the statements that counted, byte for byte, by image.

    Raises `PromotionRefused` when one is not there any more.
    """
    return {case.subject.image: _manifests(case, desk) for case in cases}


def _manifests(case: Case, desk: Desk) -> Mapping[Digest, bytes]:
    source = case.subject.source
    if source.repository == desk.repository:
        return {}
    return statements(case.subject.image, source, case.decision.statements, desk.registry)


def _case(subject: Subject, standing: Standing, desk: Desk, judge: Judge) -> Case:
    target = desk.repository.at(subject.source.digest)
    there = attached(target, desk.keys, desk.registry)
    here: Sequence[Signed | Ignored] = ()
    if subject.source.repository != desk.repository:
        here = found(subject.source, desk.keys, desk.registry)
        verdicts = [one for one in there if isinstance(one, Ignored) or isinstance(one.record, Decided)]
    else:
        verdicts = list(found(subject.source, desk.keys, desk.registry))
    evidence = collect(subject.source, [*here, *verdicts], now=desk.now())
    return Case(
        subject=subject,
        evidence=evidence,
        there=collect(target, there, now=desk.now()),
        decision=judge(subject.image, evidence, _size(standing, subject, desk)),
        standing=standing,
        replaced=known(standing, desk, subject.source.repository),
    )


def _size(standing: Standing, subject: Subject, desk: Desk) -> int | None:
    """Bytes of the last release that is another digest."""
    top = standing.top
    digest = standing.tags.get(top) if top else None
    if digest is None or digest == subject.source.digest:
        return None
    return desk.registry.manifest(desk.repository.at(digest)).size


def _wanted(case: Case) -> Wanted:
    subject, built = case.subject, case.evidence.one(Built)
    stands_on = Pinned.parse(built.parent).digest if built and built.parent else None
    parent = (subject.parent, stands_on) if subject.parent else None
    return Wanted(image=subject.image, source=subject.source, parent=parent)


def _hint(refused: Sequence[Case], blocked: Sequence[promotion.Obstacle]) -> str:
    if refused:
        return f"`nox -s verify -- {' '.join(case.subject.image for case in refused)}` shows every reason and who can mend it"
    return blocked[0].solution
