"""Images that another registry holds already, brought to where builds write, so that a change need not build what it stands on.

Only what an accepted key says to have built from the same inputs is brought, and that statement with it.
"""

from datetime import datetime

from pipeline import carry
from pipeline.errors import RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.evidence import Signed
from pipeline.gather import Keys, gather
from pipeline.oci import Digest, Pinned, Repository
from pipeline.plan import Step
from pipeline.registry import Registry
from pipeline.statements import Built
from pipeline.story import Story
from pipeline.survey import candidate


def bring(
    step: Step, *, source: Repository, target: Repository, keys: Keys, registry: Registry, now: datetime, story: Story
) -> bool:
    """Whether the candidate of `step` is in `target` now; what `source` lacks, or cannot be believed, is left to be built."""
    try:
        digest = candidate(registry, source.tag(step.tag), step.input_hash)
        if digest is None:
            return False
        built = _built(step, source.at(digest), keys, registry, now)
        if built is None:
            story.warn(f"`{source.at(digest)}` is not taken: no accepted key says to have built it from these inputs")
            return False
        _copy(step, source.at(digest), built.manifest, target, registry, story)
    except (RegistryRefused, TagConflict, Temporary, ToolFailed) as error:
        story.warn(f"`{step.image}` is not taken from `{source}`: {error.message}")
        return False
    return True


def _built(step: Step, pinned: Pinned, keys: Keys, registry: Registry, now: datetime) -> Signed | None:
    counted = gather(pinned, keys, registry, now=now).counted
    return next(
        (
            signed
            for signed in counted
            if isinstance(signed.record, Built)
            and (signed.record.image, signed.record.input_hash) == (step.image, step.input_hash)
        ),
        None,
    )


def _copy(step: Step, pinned: Pinned, statement: Digest, target: Repository, registry: Registry, story: Story) -> None:
    """The tag comes last: what breaks off before is not there."""
    to = target.at(pinned.digest)
    proof, _ = registry.raw_manifest(pinned.repository.at(statement))
    manifest, entries = carry.bring(step.image, pinned, to, {statement: proof}, registry, story)
    registry.keep_listed(to, entries)
    registry.create_tag(target, step.tag, manifest)
