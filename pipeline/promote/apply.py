"""The writes of a promotion, in the one order in which a run may be killed anywhere; each is done again without harm.

No tag is written before the image, its evidence, the verdict and the release signature are at the destination.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline import attest
from pipeline.errors import NotThere, TagConflict, Temporary
from pipeline.evidence import Signed
from pipeline.oci import Descriptor, Digest, Manifest
from pipeline.policy import Allowed
from pipeline.promote.desk import Desk, create_tag
from pipeline.promote.floating import move
from pipeline.promote.prepare import Case, Prepared, carried
from pipeline.promote.verdict import say
from pipeline.promotion import Plan, Promotion
from pipeline.survey import in_parallel


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


def _release(case: Case, promotion: Promotion, statements: Mapping[Digest, bytes], desk: Desk, told: Told) -> None:
    if not isinstance(case.decision, Allowed):
        raise TypeError("only what is allowed is released")
    body, kind = desk.registry.raw_manifest(promotion.source)
    manifest = Manifest.parse(body)
    if promotion.source != promotion.target:
        _bring(promotion, manifest, kind, statements, desk)
    _decide(case.decision, case, promotion, desk, told)
    with desk.story.task(f"creating {promotion.release}"):
        create_tag(promotion.target, str(promotion.release), manifest, desk)
    move(promotion, manifest, desk)


def _bring(promotion: Promotion, manifest: Manifest, kind: str, statements: Mapping[Digest, bytes], desk: Desk) -> None:
    """The image and its evidence, with every digest as it was."""
    there = _listed(promotion, desk)
    missing = {digest: body for digest, body in statements.items() if there is None or digest not in there}
    if there is not None and not missing:
        return
    parsed = [manifest, *map(Manifest.parse, missing.values())] if there is None else [*map(Manifest.parse, missing.values())]
    _blobs(promotion, parsed, desk)
    if there is None:
        desk.registry.put_manifest(promotion.target.repository, manifest.body, kind)
    desk.registry.adopt(promotion.target, [*missing.values()])
    if lost := set(statements) - (_listed(promotion, desk) or set()):
        raise Temporary(
            f"`{promotion.target.repository.host}` took the evidence of `{promotion.image}` and does not list {min(lost)}",
            hint="run the same command again",
        )


def _blobs(promotion: Promotion, manifests: Sequence[Manifest], desk: Desk) -> None:
    blobs: dict[Digest, Descriptor] = {
        one.digest: one for manifest in manifests for one in (manifest.config, *manifest.layers) if not one.elsewhere
    }
    total = sum(one.size for one in blobs.values())
    source, target = promotion.source.repository, promotion.target.repository
    with desk.story.task(f"bringing {promotion.image} to {target}", total) as task:
        in_parallel(lambda one: desk.registry.copy_blob(source, target, one, advance=task.advance), blobs.values())


def _listed(promotion: Promotion, desk: Desk) -> set[Digest] | None:
    """What refers to the image at its destination; nothing where that does not hold it."""
    try:
        return {one.digest for one in desk.registry.referrers(promotion.target)}
    except NotThere:
        return None


def _decide(decision: Allowed, case: Case, promotion: Promotion, desk: Desk, told: Told) -> None:
    """The verdict, then the release signature; each once."""
    signed = [one for one in case.there if isinstance(one, Signed)]
    if not promotion.decided:
        digest = promotion.target.digest
        say(desk, case.standing, promotion.release, "promote", told.reason, digest=digest, judged=decision, there=signed)
    signatures = [*case.evidence.signatures, *(one for one in signed if one.record is None)]
    if not any("release" in one.key.roles and not one.key.revoked for one in signatures):
        with desk.story.task(f"signing {promotion.image} as released"):
            statement = attest.signature(promotion.target)
            attest.attach(promotion.target, statement, desk.key(), cosign=desk.cosign, registry=desk.registry)


def _prove(promotion: Promotion, desk: Desk) -> None:
    """Read both tags back; what they say is what is announced."""
    for tag in (str(promotion.release), promotion.floating):
        named = desk.registry.resolve(desk.repository.tag(tag))
        if named != promotion.target.digest:
            raise TagConflict(
                f"`{desk.repository}:{tag}` names {named or 'nothing'}, not {promotion.target.digest}: another has written it",
                hint=f"`nox -s history -- {promotion.image}`",
            )
