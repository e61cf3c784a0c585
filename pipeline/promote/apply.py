"""The writes of a promotion, in the one order in which a run may be killed anywhere; each is done again without harm.

No tag is written before the image, its evidence, the verdict and the release signature are at the destination.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline import attest
from pipeline.carry import bring
from pipeline.errors import TagConflict
from pipeline.oci import Descriptor, Digest, Manifest
from pipeline.policy import Allowed
from pipeline.promote.desk import Desk, create_tag
from pipeline.promote.floating import move
from pipeline.promote.prepare import Case, Prepared, carried
from pipeline.promote.verdict import say
from pipeline.promotion import Plan, Promotion
from pipeline.statements import Decided


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a person says of the promotion, if anything."""

    reason: str = ""


def apply(prepared: Prepared, desk: Desk, told: Told) -> tuple[Promotion, ...]:
    """Write what was planned, parents first, and read every tag back; returns what was written.

    Raises `PromotionRefused` when evidence or permission is gone before the first write, `TagConflict` when another was
    faster.
    """
    if prepared.refusal or not isinstance(prepared.plan, Plan):
        raise prepared.refusal or AssertionError
    todo = [one for one in zip(prepared.cases, prepared.plan.promotions, strict=True) if not one[1].done]
    if todo:
        desk.may_sign()
        desk.may_write()
    manifests = carried([case for case, _ in todo], desk)
    for case, promotion in todo:
        _release(case, promotion, manifests[promotion.image], desk, told)
    for promotion in prepared.plan.promotions:
        _prove(promotion, desk)
    return tuple(promotion for _, promotion in todo)


def _release(case: Case, promotion: Promotion, evidence: Mapping[Digest, bytes], desk: Desk, told: Told) -> None:
    if not isinstance(case.decision, Allowed):
        raise TypeError("only what is allowed is released")
    manifest, brought = _brought(promotion, evidence, desk)
    decided = [*_decide(case.decision, case, promotion, desk, told)]
    desk.registry.keep_listed(promotion.target, (*brought, *decided))
    with desk.story.task(f"creating {promotion.release}"):
        create_tag(promotion.target, str(promotion.release), manifest, desk)
    move(promotion, manifest, desk)


def _brought(promotion: Promotion, evidence: Mapping[Digest, bytes], desk: Desk) -> tuple[Manifest, Sequence[Descriptor]]:
    if promotion.source == promotion.target:
        return desk.registry.manifest(promotion.source), ()
    return bring(promotion.image, promotion.source, promotion.target, evidence, desk.registry, desk.story)


def _decide(decision: Allowed, case: Case, promotion: Promotion, desk: Desk, told: Told) -> Iterator[Descriptor]:
    """The verdict, then the release signature; each once."""
    if not promotion.decided:
        digest = promotion.target.digest
        yield from say(
            desk,
            case.standing,
            promotion.release,
            "promote",
            told.reason,
            digest=digest,
            judged=decision,
            there=case.there.all(Decided),
            keep=False,
        )
    if not (case.evidence.signed_by("release") or case.there.signed_by("release")):
        with desk.story.task(f"signing {promotion.image} as released"):
            statement = attest.signature(promotion.target)
            yield attest.attach(promotion.target, statement, desk.key(), cosign=desk.cosign, registry=desk.registry, keep=False)


def _prove(promotion: Promotion, desk: Desk) -> None:
    """Read both tags back; what they say is what is announced."""
    for tag in (str(promotion.release), promotion.floating):
        named = desk.registry.resolve(desk.repository.tag(tag))
        if named != promotion.target.digest:
            raise TagConflict(
                f"`{desk.repository}:{tag}` names {named or 'nothing'}, not {promotion.target.digest}: another has written it",
                hint=f"`nox -s history -- {promotion.image}`",
            )
