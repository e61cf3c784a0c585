"""Moving a floating tag: compared with the plan right before, read back, and then compared with what came meanwhile."""

from pipeline.errors import TagConflict
from pipeline.oci import Digest, Manifest
from pipeline.promote.desk import Desk
from pipeline.promote.reading import standing
from pipeline.promotion import Promotion, Standing

TRIES = 5
"""How often the tag is moved after others who release or roll back at the same time."""


def move(promotion: Promotion, manifest: Manifest, desk: Desk) -> None:
    """Let the floating tag name what is released now.

    Raises `TagConflict` when another moved it meanwhile, or when a higher release or a rollback came; then it follows that.
    """
    with desk.story.task(f"moving {promotion.floating}"):
        let_name(promotion.image, promotion.floating, manifest, promotion.before, desk)
    follow(promotion.image, manifest.digest, desk)


def let_name(image: str, floating: str, manifest: Manifest, expected: Digest | None, desk: Desk) -> None:
    """Move the tag from what it is expected to name; raises `TagConflict` when it names something else.

    Another who lost a race for the same release may have moved it too: then it is ours to move again.
    """
    for attempt in range(TRIES):
        try:
            desk.registry.move_tag(desk.repository, floating, manifest, expected=expected)
            return
        except TagConflict:
            found = standing(image, desk.registry.tags(desk.repository), desk)
            ours = found.top is not None and found.tags[found.top] == manifest.digest
            if not ours or found.floating == expected or attempt == TRIES - 1:
                raise
            expected = found.floating


def follow(image: str, wanted: Digest, desk: Desk) -> None:
    """Look at all releases and verdicts once more; raises `TagConflict` when the floating tag must name something else."""
    found = _settled(image, wanted, desk)
    top = found.tags.get(found.top) if found.top else None
    if top == wanted:
        return
    hold = found.hold
    why = f"was held at `{hold.tag}` by {hold.actor}: {hold.reason}" if hold else f"follows `{found.top}`, which came meanwhile"
    raise TagConflict(f"`{found.floating_tag}` {why}", hint=f"`nox -s history -- {image}`")


def _settled(image: str, wanted: Digest, desk: Desk) -> Standing:
    """How the image stands once its floating tag names what it should."""
    found = standing(image, desk.registry.tags(desk.repository), desk)
    for _ in range(TRIES):
        top = found.tags.get(found.top) if found.top else None
        if top is None or top == found.floating or found.floating != wanted:
            break
        body, _kind = desk.registry.raw_manifest(desk.repository.at(top))
        desk.registry.move_tag(desk.repository, found.floating_tag, Manifest.parse(body), expected=found.floating)
        found = standing(image, desk.registry.tags(desk.repository), desk)
    return found
