"""The GPU lane: gates, turns, a reference image before, the checks, the machine and the reference again after a failure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from pipeline import turns
from pipeline.blame import Case, Verdict, judge, reference_fails
from pipeline.check import causes, gates, reference
from pipeline.check.bench import Bench, Given, Hardware, Options, Subject, bring
from pipeline.check.gates import passable
from pipeline.check.ran import Ran, of_error, run_suite
from pipeline.check.reference import Witness
from pipeline.check.suite import Suite
from pipeline.compatibility import Claimed
from pipeline.errors import Temporary, ToolFailed, ToolUnfit
from pipeline.failures import Row
from pipeline.gpus import Gpu, Host
from pipeline.statements import Outcome, Reference

CLEAR = "mend the machine, then `nox -s doctor -- --clear`"


def run(subject: Subject, suite: Suite, options: Options, bench: Bench) -> Ran:
    """The lane as it went; three proved faults of the machine in a row, and it refuses what follows.

    Raises `InputError` when `options.gpus` names no GPUs of this machine.
    """
    hardware = bench.hardware
    if hardware is None:
        return Ran(verdict=Verdict(outcome=Outcome.NOT_RUN, reason=gates.NO_DRIVER))
    try:
        return _counted(subject, suite, options, bench, hardware)
    except (Temporary, ToolFailed, ToolUnfit) as error:
        return Ran(verdict=of_error(error))


def _counted(subject: Subject, suite: Suite, options: Options, bench: Bench, hardware: Hardware) -> Ran:
    quarantine = hardware.quarantine
    if refusal := quarantine.refusal():
        return Ran(verdict=Verdict(outcome=Outcome.INFRASTRUCTURE, reason=refusal, remedy=CLEAR))
    ran = _run(subject, suite, options, bench, hardware)
    if ran.verdict.proved:
        quarantine.strike(ran.verdict.reason, run=bench.run_id, at=bench.now())
    elif ran.verdict.outcome is Outcome.PASSED and not options.select:
        quarantine.passed()
    return ran


def _run(subject: Subject, suite: Suite, options: Options, bench: Bench, hardware: Hardware) -> Ran:
    image = cache(lambda: bring(subject.pinned, bench, tag=subject.tag))
    host = hardware.examine(image)
    chosen, shut = passable(host, suite.claims, options.gpus)
    if shut:
        return Ran(verdict=shut, gpus=chosen, machine=gates.told(host))
    with turns.taking(chosen, story=bench.story, folder=hardware.turns):
        host = hardware.examine(image)
        chosen, shut = passable(host, suite.claims, ",".join(gpu.uuid for gpu in chosen))
        if shut or host is None:
            return Ran(
                verdict=shut or Verdict(outcome=Outcome.NOT_RUN, reason=gates.NO_DRIVER), gpus=chosen, machine=gates.told(host)
            )
        taken = _Taken(
            subject=subject, suite=suite, options=options, bench=bench, hardware=hardware, host=host, gpus=chosen, image=image
        )
        return replace(_witnessed(taken), gpus=chosen, machine=gates.told(host))


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """GPUs that are ours for a while, and what runs on them."""

    subject: Subject
    suite: Suite
    options: Options
    bench: Bench
    hardware: Hardware
    host: Host
    gpus: tuple[Gpu, ...]
    image: Callable[[], str]

    @property
    def given(self) -> Given:
        return self.hardware.give(self.gpus)


def _witnessed(taken: _Taken) -> Ran:
    """The checks between two runs of the reference image, the second one only after a failure."""
    bench = taken.bench
    try:
        witness = reference.find(taken.subject.image, taken.suite, bench)
    except (Temporary, ToolFailed, ToolUnfit) as error:
        reason = f"the reference image cannot be had: {error.message}"
        return Ran(verdict=Verdict(outcome=Outcome.INFRASTRUCTURE, reason=reason, remedy=error.hint))
    told = witness.told
    if witness.image:
        outcome, reason, cause = reference.run(witness, taken.given, bench)
        told = told.model_copy(update={"before": outcome, "reason": reason, "cause": cause})
        if outcome is not Outcome.PASSED:
            return Ran(verdict=reference_fails(told), reference=told)
    return _judged(taken, witness, told)


def _judged(taken: _Taken, witness: Witness, told: Reference) -> Ran:
    bench = taken.bench
    ran, row = _checked(taken)
    if ran.verdict.outcome not in (Outcome.PASSED, Outcome.NOT_RUN) and witness.image:
        outcome, reason, cause = reference.run(witness, taken.given, bench)
        told = told.model_copy(update={"after": outcome, "reason": reason, "cause": cause})
    events = gates.worse(taken.host, taken.hardware.examine(taken.image), taken.gpus)
    case = Case(outcome=ran.verdict.outcome, reason=ran.verdict.reason, reference=told, row=row, events=events)
    return replace(ran, verdict=judge(case), reference=told, events=events)


def _checked(taken: _Taken) -> tuple[Ran, Row | None]:
    """The candidate's checks, and what is known of their failure."""
    bench = taken.bench
    try:
        ran = run_suite(taken.image(), taken.subject, taken.suite, taken.options, bench, given=taken.given)
    except (Temporary, ToolFailed, ToolUnfit) as error:
        return Ran(verdict=of_error(error)), causes.of_error(error, bench.failures)
    if ran.verdict.outcome in (Outcome.PASSED, Outcome.NOT_RUN):
        return ran, None
    return ran, causes.of_checks(ran.found, bench.failures, _facts(taken))


def _facts(taken: _Taken) -> set[str]:
    """What the conditions of `failures.yaml` may ask."""
    found = set()
    if Claimed.of(taken.suite.claims).driver_refusal(taken.host.driver):
        found.add("driver-below-claim")
    if causes.driver_in_image(taken.image(), taken.bench.engine, taken.bench.story):
        found.add("driver-in-image")
    return found
