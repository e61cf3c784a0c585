"""The reference image: one that is known to be good, run with the same GPUs as a witness."""

from dataclasses import dataclass, replace

from pipeline import releases
from pipeline.check import causes
from pipeline.check.bench import Bench, Given, Limits, bring
from pipeline.check.lane import run_inside
from pipeline.check.suite import Suite, lineage
from pipeline.errors import Temporary, ToolFailed, ToolUnfit
from pipeline.failures import Row
from pipeline.oci import Pinned
from pipeline.statements import Outcome, Reference, overall

SECONDS = 1200.0
"""Deadline of a reference run: it is one check."""
NO_CANARY = "the catalog names no `canary:` among the checks of this lane"
NO_RELEASE = "nothing is released yet, and the catalog names no `reference:`"


@dataclass(frozen=True, kw_only=True)
class Witness:
    """The reference image in the engine, and what it runs; `image` is empty where there is none."""

    told: Reference
    image: str = ""
    suite: Suite | None = None


def find(image: str, suite: Suite, bench: Bench) -> Witness:
    """The witness of `image`: what the catalog names, else its last release or its nearest ancestor's.

    Raises what the registry and the engine raise: a reference that exists and cannot be had is never "none".
    """
    checks = tuple(check for check in suite.of("test") if check.name == bench.catalog.canary)
    if not checks:
        return Witness(told=Reference(origin=NO_CANARY))
    pinned, origin = _known_good(image, bench)
    if pinned is None:
        return Witness(told=Reference(origin=origin))
    told = Reference(subject=str(pinned), origin=origin)
    return Witness(told=told, image=bring(pinned, bench), suite=replace(suite, checks=checks[-1:]))


def run(witness: Witness, given: Given, bench: Bench) -> tuple[Outcome, str, str]:
    """How the reference image does with these GPUs: outcome, reason, and the row of a machine's fault that knows it."""
    if witness.suite is None:
        raise AssertionError("there is no reference image to run")
    log = bench.settings.work / "logs" / "reference-gpu.log"
    try:
        found = run_inside(
            witness.image,
            witness.suite,
            title="reference",
            engine=bench.engine,
            story=bench.story,
            log=log,
            limits=Limits(lane=SECONDS),
            given=given,
        )
    except (Temporary, ToolFailed, ToolUnfit) as error:
        return Outcome.INFRASTRUCTURE, error.message, _machines_row(causes.of_error(error, bench.failures))
    outcome = found.trouble[0] if found.trouble else overall([check.outcome for check in found.checks])
    if outcome is Outcome.PASSED:
        return outcome, "", ""
    reason = found.trouble[1] if found.trouble else causes.summary(found.checks, outcome)
    return outcome, reason, _machines_row(causes.of_checks(found, bench.failures))


def _known_good(image: str, bench: Bench) -> tuple[Pinned | None, str]:
    catalog = bench.catalog
    if catalog.reference:
        return Pinned.parse(catalog.reference), "the catalog's `reference:`"
    tags = bench.registry.tags(catalog.release_repository)
    for member in reversed(lineage(catalog, image)):
        release = releases.highest(tags, catalog.line, member.variant) if member.release else None
        digest = bench.registry.resolve(catalog.release_repository.tag(str(release))) if release else None
        if digest:
            return catalog.release_repository.at(digest), f"the release `{release}`"
    return None, NO_RELEASE


def _machines_row(row: Row | None) -> str:
    return row.name if row and row.owner in ("machine", "reference") else ""
