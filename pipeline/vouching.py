"""Who vouches for a candidate that is about to be reused: on a registry that others write to, a label alone does not.

Anybody who may push can write a label. So a candidate counts only with a verified `Built` of its inputs, by a key that the
release policy accepts; otherwise the run stops and says what is there, or it is built again, and its digest proves it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pipeline import dsse, records
from pipeline.catalog import Catalog
from pipeline.errors import TagConflict
from pipeline.gather import Keys, gather
from pipeline.oci import Pinned
from pipeline.plan import Step
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import PROVENANCE, Built

UNRECORDED = "it exists, and nothing says how it was built"
UNVOUCHED = "it exists, and no accepted key says to have built it"


def unrecorded(steps: Sequence[Step], catalog: Catalog, settings: Settings, registry: Registry) -> tuple[Step, ...]:
    """The plan, in which a candidate that exists and whose `Built` is nowhere is built again: its digest then proves it.

    Nowhere is neither among the unsigned statements of this checkout nor attached to the candidate, by whomever.
    """
    return tuple(
        replace(step, action="build", reason=UNRECORDED) if _is_unrecorded(step, catalog, settings, registry) else step
        for step in steps
    )


def _is_unrecorded(step: Step, catalog: Catalog, settings: Settings, registry: Registry) -> bool:
    if step.action != "reuse" or step.digest is None or records.path(settings, step.digest, "built").is_file():
        return False
    entries = registry.referrers(catalog.candidate_repository.at(step.digest))
    return not any(entry.annotations.get(dsse.PREDICATE_ANNOTATION) == PROVENANCE for entry in entries)


def vouched(steps: Sequence[Step], catalog: Catalog, keys: Keys, registry: Registry, *, now: datetime) -> None:
    """Raises `TagConflict` for the first candidate of `steps` that exists and that no accepted key says to have built."""
    for step in steps:
        if step.digest is not None:
            _one(step, catalog.candidate_repository.at(step.digest), keys, registry, now)


def unvouched(steps: Sequence[Step], catalog: Catalog, keys: Keys, registry: Registry, *, now: datetime) -> tuple[Step, ...]:
    """The plan, in which a candidate that exists and whose build no accepted key has signed is built again.

    A run that ended between its build and its signature leaves one. Raises `TagConflict` where a key has signed a build of
    other inputs; whoever builds again gets it for another digest.
    """
    return tuple(_proved(step, catalog, keys, registry, now) for step in steps)


def _proved(step: Step, catalog: Catalog, keys: Keys, registry: Registry, now: datetime) -> Step:
    if step.action != "reuse" or step.digest is None:
        return step
    pinned = catalog.candidate_repository.at(step.digest)
    built = gather(pinned, keys, registry, now=now).one(Built)
    if built is None:
        return replace(step, action="build", reason=UNVOUCHED)
    _require(step, pinned, built)
    return step


def _one(step: Step, pinned: Pinned, keys: Keys, registry: Registry, now: datetime) -> None:
    _require(step, pinned, gather(pinned, keys, registry, now=now).one(Built))


def _require(step: Step, pinned: Pinned, built: Built | None) -> None:
    if built is not None and (built.image, built.input_hash) == (step.image, step.input_hash):
        return
    said = (
        f"a build of other inputs, {built.input_hash[:12]}" if built else "no build that a key of the release policy has signed"
    )
    again = f"nox -s build -- {step.image} --rebuild"
    raise TagConflict(
        f"`{pinned.repository}:{step.tag}` exists, and there is {said} on its digest {pinned.digest}",
        hint=f"`nox -s sign -- {step.image}` where it was built, or prove it by its digest: `{again}`",
    )
