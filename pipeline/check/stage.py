"""The stage: run the lanes of each subject, and keep a record of each before anybody judges it."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline import records
from pipeline.blame import Verdict
from pipeline.check import causes, gpu_lane
from pipeline.check import suite as suites
from pipeline.check.bench import Bench, Given, Options, Subject, bring
from pipeline.check.ran import Ran, meant, of_error, run_suite
from pipeline.check.suite import Suite
from pipeline.errors import CheckFailed, NothingSelected, Temporary, ToolFailed, ToolUnfit, worst
from pipeline.statements import Lane, Outcome, Tested, tested_statement

NO_CHECK = "the catalog lists no check"
NOT_ATTEMPTED = "not attempted: the lane `cpu` did not pass"


def check(subjects: Sequence[Subject], options: Options, bench: Bench) -> tuple[Tested, ...]:
    """Check every subject in every lane, one after another; a lane that cannot run is a result too, never an exception.

    Raises `NothingSelected` when the selection fits no check of any lane, `InputError` when `--gpus` names none of this machine.
    """
    tested: list[Tested] = []
    for subject in subjects:
        first: Tested | None = None
        for lane in options.lanes:
            first = _recorded(subject, lane, options, bench, after=first)
            tested.append(first)
    if options.select and not any(meant(one.checks, options) for one in tested):
        listed = sorted({check.name for one in tested for check in one.checks if "::" not in check.name})
        raise NothingSelected(f"`-k {options.select}` selects no check", hint=f"there are {', '.join(listed) or 'none'}")
    return tuple(tested)


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
    return 0 if tested.reason in (NO_CHECK, causes.NO_CHOICE) else ToolFailed.exit_code


def _recorded(subject: Subject, lane: Lane, options: Options, bench: Bench, *, after: Tested | None) -> Tested:
    tested = _tested(subject, lane, options, bench, after)
    if options.select:
        bench.story.say(f"{subject.image}, {lane}: `-k {options.select}` ran a part of the lane, so nothing is recorded")
    elif tested.reason == NO_CHECK:
        records.remove(bench.settings, subject.pinned.digest, f"tested-{lane}")
    else:
        records.write(bench.settings, subject.pinned.digest, f"tested-{lane}", tested_statement(tested))
    return tested


def _tested(subject: Subject, lane: Lane, options: Options, bench: Bench, after: Tested | None) -> Tested:
    suite, started = suites.read(bench.catalog, subject.image, lane, bench.settings.images), bench.now()
    ran = _ran(subject, suite, options, bench, after)
    ran = replace(ran, machine={**bench.engine.facts.machine, **ran.machine})
    return ran.record(subject.image, subject.pinned, suite, started=started, finished=bench.now(), run=bench.run_id)


def _ran(subject: Subject, suite: Suite, options: Options, bench: Bench, after: Tested | None) -> Ran:
    if not suite.checks:
        return Ran(verdict=Verdict(outcome=Outcome.NOT_RUN, reason=NO_CHECK))
    if suite.lane == "gpu":
        if after and after.outcome not in (Outcome.PASSED, Outcome.NOT_RUN):
            return Ran(verdict=Verdict(outcome=Outcome.NOT_RUN, reason=NOT_ATTEMPTED))
        return gpu_lane.run(subject, suite, options, bench)
    try:
        ran = run_suite(bring(subject.pinned, bench, tag=subject.tag), subject, suite, options, bench, given=Given())
    except (Temporary, ToolFailed, ToolUnfit) as error:
        return Ran(verdict=of_error(error))
    return _explained(ran, bench)


def _explained(ran: Ran, bench: Bench) -> Ran:
    """With what is known of a failure; without GPUs that never changes whose fault it is."""
    if ran.verdict.outcome in (Outcome.PASSED, Outcome.NOT_RUN):
        return ran
    row = causes.of_checks(ran.found, bench.failures)
    return replace(ran, verdict=replace(ran.verdict, cause=row.name, remedy=row.remedy)) if row else ran
