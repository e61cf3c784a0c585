"""Going back: a floating tag to an older release, and a release to being none that anybody should use."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.changes import Contents
from pipeline.errors import InputError, PromotionRefused
from pipeline.evidence import Evidence, collect
from pipeline.gather import found
from pipeline.oci import Digest, Manifest, Pinned
from pipeline.policy import Allowed, Refused
from pipeline.promote.desk import Desk
from pipeline.promote.floating import follow, let_name
from pipeline.promote.reading import known, standings
from pipeline.promote.verdict import say
from pipeline.promotion import Standing, asked
from pipeline.releases import Release
from pipeline.statements import Decided, Scanned

JudgeBack = Callable[[str, Evidence], Allowed | Refused]
"""Decides on going back to an image; rules that time can break are waived."""


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """What a rollback writes, or why it does not."""

    image: str
    release: Release
    target: Pinned
    standing: Standing
    evidence: Evidence
    decision: Allowed | Refused
    reason: str
    replaced: Contents | None
    """What the floating tag names now."""

    @property
    def now(self) -> Contents:
        """What it will name."""
        return Contents(scanned=self.evidence.one(Scanned))

    @property
    def holds(self) -> bool:
        """Whether promotions are held off until somebody lifts that: always, unless one goes back to the highest release."""
        return self.release != self.standing.highest

    @property
    def decided(self) -> bool:
        """Whether the newest verdict says just that already."""
        wanted = ("rollback", str(self.release), self.holds, self.reason)
        return (newest := self._newest) is not None and (newest.action, newest.tag, newest.hold, newest.reason) == wanted

    @property
    def done(self) -> bool:
        """Whether there is nothing to write."""
        return self.decided and self.standing.floating == self.target.digest

    @property
    def undo(self) -> str:
        """The command that undoes it; nothing where the floating tag named no release that is still good."""
        standing, newest = self.standing, self._newest
        told = newest.previous if newest and self.decided else str(standing.floating or "")
        before = [one for one in standing.releases(Digest(told)) if not standing.withdrawn(one)] if told else ()
        if not before or before[0] == self.release:
            return ""
        return f'nox -s rollback -- {self.image} --to {before[0].version} --reason "…"'

    @property
    def _newest(self) -> Decided | None:
        return next((one for one in self.standing.verdicts if one.action != "withdraw"), None)


@dataclass(frozen=True, kw_only=True)
class Withdrawal:
    """A release that is withdrawn, and what is to be done besides."""

    image: str
    release: Release
    target: Pinned
    written: bool
    already: bool
    """An earlier verdict withdrew it."""
    floating: str
    names: Digest | None
    """What the floating tag names."""
    better: Release | None
    """The highest release that is still good."""

    @property
    def concerned(self) -> bool:
        """Whether users of the floating tag still get it."""
        return self.names == self.target.digest


def prepare_rollback(image: str, to: str, reason: str, desk: Desk, judge: JudgeBack) -> Rollback:
    """Evidence and decision on going back; writes nothing.

    Raises `InputError` when there is no such release, `PromotionRefused` when it is withdrawn, or no key that counts has
    ever released it.
    """
    release = asked(to, desk.line, desk.variants[image])
    with desk.story.task("reading releases, evidence and verdicts"):
        _, by_image = standings((image,), desk)
        standing = by_image[image]
        target = desk.repository.at(_there(release, standing))
        if withdrawn := standing.withdrawn(release):
            raise PromotionRefused(
                f"`{release}` was withdrawn by {withdrawn.actor}: {withdrawn.reason}", hint=f"`nox -s history -- {image}`"
            )
        if standing.proof(release) is None:
            raise PromotionRefused(
                f"no verdict on `{release}` counts: no key that the policy lets sign as `release` has released it",
                hint=f"`nox -s history -- {image}` shows those that have one",
            )
        evidence = collect(target, found(target, desk.keys, desk.registry), now=desk.now())
        replaced = known(standing, desk)
    return Rollback(
        image=image,
        release=release,
        target=target,
        standing=standing,
        evidence=evidence,
        decision=judge(image, evidence),
        reason=reason,
        replaced=replaced,
    )


def rollback(prepared: Rollback, desk: Desk) -> None:
    """Sign the verdict, then move the floating tag; raises `TagConflict` when another moves it at the same time."""
    decision, standing = prepared.decision, prepared.standing
    if not isinstance(decision, Allowed):
        raise TypeError("only what is allowed is gone back to")
    if prepared.done:
        return
    desk.may_sign()
    desk.may_write()
    manifest = Manifest.parse(desk.registry.raw_manifest(prepared.target)[0])
    if not prepared.decided:
        say(desk, standing, prepared.release, "rollback", prepared.reason, judged=decision, hold=prepared.holds)
    let_name(prepared.image, standing.floating_tag, manifest, standing.floating, desk)
    follow(prepared.image, prepared.target.digest, desk)


def withdraw(text: str, reason: str, desk: Desk, *, dry: bool) -> Withdrawal:
    """Mark a release as bad for good; nothing is deleted, and no tag moves.

    Raises `InputError` for what is no release of an image that is released.
    """
    release = Release.parse(text)
    image = next((name for name, variant in desk.variants.items() if release and variant == release.variant), None)
    if release is None or image is None or release.line != desk.line:
        example = Release(line=desk.line, number=3, variant=desk.variants.get(text))
        raise InputError(
            f"`{text}` is no release of the line {desk.line}",
            hint=f"name an immutable tag, like `{example}`; `nox -s history -- IMAGE` lists them",
        )
    _, by_image = standings((image,), desk)
    standing = by_image[image]
    target = desk.repository.at(_there(release, standing))
    new = standing.withdrawn(release) is None
    if new and not dry:
        desk.may_sign()
        desk.may_write()
        say(desk, standing, release, "withdraw", reason)
    others = [
        one
        for one, digest in standing.tags.items()
        if digest != target.digest and standing.proof(one) and not standing.withdrawn(one)
    ]
    return Withdrawal(
        image=image,
        release=release,
        target=target,
        written=new and not dry,
        already=not new,
        floating=standing.floating_tag,
        names=standing.floating,
        better=max(others, key=lambda one: one.number, default=None),
    )


def _there(release: Release, standing: Standing) -> Digest:
    digest = standing.tags.get(release)
    if digest is None:
        known = ", ".join(f"`{one}`" for one in sorted(standing.tags, key=lambda one: one.number))
        gone = "is gone from the registry" if release in standing.tags else "is no release that is there"
        raise InputError(
            f"`{release}` {gone}",
            hint=f"there are: {known}" if known else f"nothing is released yet: `nox -s promote -- {standing.image}`",
        )
    return digest
