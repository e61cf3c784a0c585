"""One lane as it went, and the suite's run that all lanes share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.blame import Verdict
from pipeline.check import causes
from pipeline.check.bench import Bench, Given, Options, Subject
from pipeline.check.lane import run_inside
from pipeline.check.results import Found
from pipeline.check.service import run_outside
from pipeline.check.suite import Suite
from pipeline.errors import PipelineError, Temporary
from pipeline.gpus import Gpu
from pipeline.oci import Pinned
from pipeline.statements import NOT_SELECTED, Checked, Outcome, Reference, Tested, overall


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a lane ended, and all that the record keeps of it."""

    verdict: Verdict
    found: Found = field(default_factory=Found)
    gpus: tuple[Gpu, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    reference: Reference | None = None
    events: tuple[str, ...] = ()

    def record(self, image: str, pinned: Pinned, suite: Suite, *, started: datetime, finished: datetime, run: str) -> Tested:
        """The lane's result as it is kept."""
        return Tested(
            image=image,
            subject=str(pinned),
            lane=suite.lane,
            outcome=self.verdict.outcome,
            reason=self.verdict.reason,
            cause=self.verdict.cause,
            remedy=self.verdict.remedy,
            checks=self.found.checks,
            suite=suite.hash,
            claims=suite.claims,
            machine={**self.machine, **self.found.versions},
            memory=self.found.memory,
            gpus=self.gpus,
            reference=self.reference,
            events=self.events,
            started=started,
            finished=finished,
            run=run,
        )


def run_suite(image: str, subject: Subject, suite: Suite, options: Options, bench: Bench, *, given: Given) -> Ran:
    """Run a suite's checks inside the engine's image `image`, then those outside; raises what the engine raises."""
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
            given=given,
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
            given=given,
        )
    return Ran(verdict=verdict(found, options), found=found)


def of_error(error: PipelineError) -> Verdict:
    """The verdict where the engine failed."""
    outcome = Outcome.INFRASTRUCTURE if isinstance(error, Temporary) else Outcome.ERROR
    return Verdict(outcome=outcome, reason=error.message, remedy=error.hint)


def meant(checks: Sequence[Checked], options: Options) -> Sequence[Checked]:
    """With a selection, the checks that it selected."""
    return [check for check in checks if check.reason != NOT_SELECTED] if options.select else checks


def verdict(found: Found, options: Options) -> Verdict:
    """What the checks say of the lane, before anybody asks whose fault it is."""
    if found.trouble:
        return Verdict(outcome=found.trouble[0], reason=found.trouble[1])
    listed = [check for check in found.checks if "::" not in check.name]
    outcome = overall([check.outcome for check in meant(listed, options)])
    return Verdict(outcome=outcome, reason=causes.summary(listed, outcome))
