"""The verdict that a promotion, a rollback or a withdrawal signs about a release."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal

from pipeline import attest, names
from pipeline.oci import Descriptor, Digest, Pinned
from pipeline.policy import Judged
from pipeline.promote.desk import Desk
from pipeline.promotion import Standing
from pipeline.releases import Release
from pipeline.statements import Decided, decided_statement

TICK = timedelta(seconds=1)
"""How much later than all that it follows a verdict is dated at least: the newest counts."""


def say(
    desk: Desk,
    standing: Standing,
    release: Release,
    action: Literal["promote", "rollback", "withdraw"],
    reason: str,
    *,
    digest: Digest | None = None,
    judged: Judged | None = None,
    hold: bool = False,
    there: Iterable[Decided] = (),
    keep: bool = True,
) -> Sequence[Descriptor]:
    """Sign a verdict and attach it to the release, unless it counts `there` already; `digest` where that has no tag yet.

    Returns what is listed anew; without `keep` it is for the caller to see whether it stays listed.
    """
    target = desk.repository.at(digest or _digest(standing, release))
    newest = max((one.finished for one in standing.verdicts), default=None)
    now = desk.now()
    decided = Decided(
        image=standing.image,
        subject=str(target),
        action=action,
        tag=str(release),
        previous=str(standing.floating or ""),
        policy=desk.policy,
        rules=judged.rules if judged else (),
        statements=[str(one) for one in judged.statements] if judged else (),
        hold=hold,
        actor=desk.actor,
        reason=reason,
        finished=max(now, newest + TICK) if newest else now,
        run=desk.run,
    )
    return () if any(_same(one, decided) for one in there) else (_sign(decided, desk, keep=keep),)


def _digest(standing: Standing, release: Release) -> Digest:
    digest = standing.tags[release]
    assert digest is not None
    return digest


def _sign(decided: Decided, desk: Desk, *, keep: bool) -> Descriptor:
    with desk.story.task(f"signing the verdict: {decided.action} {decided.tag}"):
        return attest.attach(
            Pinned.parse(decided.subject),
            decided_statement(decided),
            desk.key(),
            cosign=desk.cosign,
            registry=desk.registry,
            annotations={names.ANNOTATION_VERDICT: f"{decided.action} {decided.tag}"},
            keep=keep,
            show=decided.action == "promote",
        )


def _same(one: Decided, wanted: Decided) -> bool:
    """Whether a verdict says what is to be said now, whenever and by whom it was said."""
    changes = {"finished": wanted.finished, "run": wanted.run, "actor": wanted.actor, "rules": wanted.rules}
    return one.model_copy(update=changes).model_dump(mode="json") == wanted.model_dump(mode="json")
