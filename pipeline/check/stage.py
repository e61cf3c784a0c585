"""The stage: bring an image into the engine, run its lanes, keep a record of each before anybody judges it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pipeline import records
from pipeline.catalog import Catalog
from pipeline.check import suite as suites
from pipeline.check.lane import Limits, run_inside
from pipeline.check.results import Found
from pipeline.check.service import run_outside
from pipeline.check.suite import Suite
from pipeline.command import Run
from pipeline.engine import Engine, ensure
from pipeline.errors import CheckFailed, NothingSelected, PipelineError, Temporary, ToolFailed, ToolUnfit, worst
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import NOT_SELECTED, Checked, Lane, Outcome, Tested, overall, tested_statement
from pipeline.story import Story

LANES: tuple[Lane, ...] = ("cpu", "gpu")
NO_CHECK = "the catalog lists no check"
NO_CHOICE = "no check was selected"
NO_DRIVER = "no NVIDIA driver on this machine"
DRIVER = Path("/proc/driver/nvidia/version")
"""What the NVIDIA kernel module tells; there is none without it."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A candidate to check."""

    image: str
    pinned: Pinned
    tag: str
    size: int = 0
    """Compressed bytes of all layers, for the report."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What of it to run, and how."""

    lanes: tuple[Lane, ...] = LANES
    select: str = ""
    """A pytest expression; then nothing is recorded, because the lane was not run as a whole."""
    keep: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that a check works with."""

    catalog: Catalog
    settings: Settings
    engine: Engine
    registry: Registry
    run: Run
    run_id: str
    story: Story
    now: Callable[[], datetime]
    driver: Path = DRIVER


def check(subjects: Sequence[Subject], options: Options, bench: Bench) -> tuple[Tested, ...]:
    """Check every subject in every lane, one after another; a lane that cannot run is a result too, never an exception.

    Raises `NothingSelected` when the selection fits no check of any lane.
    """
    tested = tuple(_recorded(subject, lane, options, bench) for subject in subjects for lane in options.lanes)
    if options.select and not any(_meant(one.checks, options) for one in tested):
        listed = sorted({check.name for one in tested for check in one.checks if "::" not in check.name})
        raise NothingSelected(f"`-k {options.select}` selects no check", hint=f"there are {', '.join(listed) or 'none'}")
    return tested


def exit_code(tested: Sequence[Tested], *, require_gpu: bool = False) -> int:
    """Of several lanes, the worst exit code (`errors.worst`).

    A lane `gpu` that did not run is fine unless `require_gpu`; a check of the lane `cpu`, which runs everywhere, is not.
    """
    return worst([_code(one, require_gpu=require_gpu) for one in tested])


def _code(tested: Tested, *, require_gpu: bool) -> int:
    codes = {
        Outcome.PASSED: 0,
        Outcome.FAILED: CheckFailed.exit_code,
        Outcome.ERROR: ToolFailed.exit_code,
        Outcome.INFRASTRUCTURE: Temporary.exit_code,
    }
    if tested.outcome is not Outcome.NOT_RUN:
        return codes[tested.outcome]
    if tested.lane == "gpu":
        return Temporary.exit_code if require_gpu and tested.reason != NO_CHECK else 0
    return 0 if tested.reason in (NO_CHECK, NO_CHOICE) else ToolFailed.exit_code


def _recorded(subject: Subject, lane: Lane, options: Options, bench: Bench) -> Tested:
    tested = _tested(subject, lane, options, bench)
    if options.select:
        bench.story.say(f"{subject.image}, {lane}: `-k {options.select}` ran a part of the lane, so nothing is recorded")
    else:
        records.write(bench.settings, subject.pinned.digest, f"tested-{lane}", tested_statement(tested))
    return tested


def _tested(subject: Subject, lane: Lane, options: Options, bench: Bench) -> Tested:
    suite, started = suites.read(bench.catalog, subject.image, lane, bench.settings.images), bench.now()
    found, outcome, reason = _outcome(subject, suite, options, bench)
    return Tested(
        image=subject.image,
        subject=str(subject.pinned),
        lane=lane,
        outcome=outcome,
        reason=reason,
        checks=found.checks,
        suite=suite.hash,
        machine={**bench.engine.facts.machine, **found.versions},
        started=started,
        finished=bench.now(),
        run=bench.run_id,
    )


def _outcome(subject: Subject, suite: Suite, options: Options, bench: Bench) -> tuple[Found, Outcome, str]:
    if reason := _obstacle(suite, bench):
        return Found(), Outcome.NOT_RUN, reason
    try:
        found = _run(subject, suite, options, bench)
    except (Temporary, ToolFailed, ToolUnfit) as error:
        return Found(), *_trouble(error)
    if found.trouble:
        return found, *found.trouble
    listed = [check for check in found.checks if "::" not in check.name]
    outcome = overall([check.outcome for check in _meant(listed, options)])
    return found, outcome, _summary(listed, outcome)


def _obstacle(suite: Suite, bench: Bench) -> str:
    """Why a lane cannot run here; empty when it can."""
    if not suite.checks:
        return NO_CHECK
    if suite.lane == "gpu" and not bench.driver.exists() and not bench.engine.facts.gpus:
        return NO_DRIVER
    return ""


def _trouble(error: PipelineError) -> tuple[Outcome, str]:
    outcome = Outcome.INFRASTRUCTURE if isinstance(error, Temporary) else Outcome.ERROR
    return outcome, str(error)


def _run(subject: Subject, suite: Suite, options: Options, bench: Bench) -> Found:
    image = _bring(subject, bench)
    title = f"{subject.image}-{suite.lane}"
    log = bench.settings.work / "logs" / title
    found = Found()
    if suite.of("test"):
        found += run_inside(
            image,
            suite,
            title=title,
            engine=bench.engine,
            story=bench.story,
            log=log.with_suffix(".log"),
            select=options.select,
            keep=options.keep,
            limits=options.limits,
        )
    if suite.of("service"):
        found += run_outside(
            image,
            suite,
            title=title,
            run=bench.run,
            run_id=bench.run_id,
            story=bench.story,
            log=log.with_suffix(".service.log"),
            select=options.select,
            limits=options.limits,
        )
    return found


def _bring(subject: Subject, bench: Bench) -> str:
    manifest = bench.registry.manifest(subject.pinned)
    return ensure(
        subject.pinned,
        manifest,
        engine=bench.engine,
        registry=bench.registry,
        story=bench.story,
        scratch=bench.settings.cache / "loading",
        tag=subject.tag,
    )


def _meant(listed: Sequence[Checked], options: Options) -> Sequence[Checked]:
    """With a selection, the checks that it selected."""
    return [check for check in listed if check.reason != NOT_SELECTED] if options.select else listed


def _summary(listed: Sequence[Checked], outcome: Outcome) -> str:
    """The first check that made the lane what it is."""
    if outcome is Outcome.PASSED:
        return ""
    return next((f"{check.name}: {check.reason}" for check in listed if check.outcome is outcome), NO_CHOICE)
