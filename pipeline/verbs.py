"""The verbs: each puts the stages together for one call, and returns its exit code."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import context, plan
from pipeline.call import Call, hand_out, print_json, reaching, ready_for, summarise, survey_of
from pipeline.catalog import Catalog
from pipeline.errors import InputError, NothingSelected, worst
from pipeline.registry import Registry
from pipeline.survey import Survey, survey

if TYPE_CHECKING:
    from pipeline.check import Subject
    from pipeline.run import Chosen


def _setup(call: Call) -> int:
    from pipeline import setup

    if call.arguments.stop:
        stopped = setup.stop(settings=call.settings, run=call.run, environment=call.environment)
        call.console.say("stopped " + ", ".join(stopped) if stopped else "nothing of ours runs")
        return 0
    catalog = context.load(call.settings)
    ready_for(call, catalog, "builder", "registry", "engine", "cli", "uv", "hadolint")
    call.console.say(f"ready: builds write to `{catalog.candidate_repository}`")
    return 0


def _doctor(call: Call) -> int:
    from pipeline import doctor, report

    catalog = context.load(call.settings)
    findings = doctor.examine(
        settings=call.settings, registry_host=catalog.candidate_repository, run=call.run, environment=call.environment
    )
    if call.arguments.json:
        print_json(report.findings_json(findings))
    else:
        call.console.show(report.findings_table(findings))
    return 4 if any(finding.state is doctor.State.FAULT for finding in findings) else 0


def _new(call: Call) -> int:
    from pipeline.new import new

    arguments = call.arguments
    folder = new(call.settings, arguments.name, arguments.parent, variant=arguments.variant)
    call.console.say(f"wrote `{folder}`; next: `nox -s build test -- {arguments.name}`")
    return 0


def _lint(call: Call) -> int:
    from pipeline import report
    from pipeline.lint import lint

    catalog = context.load(call.settings)
    ready = ready_for(call, catalog, "hadolint")
    names = plan.selected(catalog, call.images)
    findings = lint(names, settings=call.settings, catalog=catalog, hadolint=ready.tools["hadolint"].path, run=call.run)
    if call.arguments.json:
        print_json(report.lint_json(findings))
    for finding in findings:
        call.console.say(str(finding))
    return InputError.exit_code if any(finding.fatal for finding in findings) else 0


def _plan(call: Call) -> int:
    from pipeline import report

    catalog = context.load(call.settings)
    found = survey_of(call, catalog, rebuild=call.arguments.rebuild)
    if call.arguments.bake:
        from pipeline import build, surroundings

        print_json(build.definition(found, call.settings, surroundings.read(call.environment)))
    elif call.arguments.json:
        print_json(report.plan_json(found.steps))
    else:
        call.console.show(report.plan_table(found.steps))
    return 0


def _explain(call: Call) -> int:
    from pipeline import report
    from pipeline.explain import explain

    catalog = context.load(call.settings)
    explanation = explain(call.settings, catalog, Registry(), call.arguments.image, story=call.console)
    if call.arguments.json:
        print_json(report.explanation_json(explanation))
    else:
        call.console.show(report.explanation_table(explanation))
    return 0


def _build(call: Call) -> int:
    from pipeline import build, report, surroundings
    from pipeline.debian import Mirror

    catalog = context.load(call.settings)
    plan.selected(catalog, call.images)
    ready = ready_for(call, catalog, "builder", "registry")
    if ready.builder is None:
        raise AssertionError("a builder was asked for")
    around = surroundings.read(call.environment)
    shop = build.Workshop(
        settings=call.settings,
        registry=Registry(),
        run=call.run,
        story=call.console,
        builder=ready.builder,
        around=around,
        mirror=Mirror.chosen(call.environment, around.certificates),
        now=call.now,
        run_id=call.run_id,
    )
    twice = call.arguments.twice
    results = build.build(lambda: survey_of(call, catalog, rebuild=twice or call.arguments.rebuild), shop, twice=twice)
    hand_out(call, report.builds_json(results), report.builds_junit(results))
    call.console.show(report.builds_table(results))
    return worst([result.exit_code for result in results])


def _test(call: Call) -> int:
    from pipeline import check, report
    from pipeline.engine import connect

    catalog = context.load(call.settings)
    plan.selected(catalog, call.images)
    ready = ready_for(call, catalog, "registry", "engine")
    subjects = _subjects(catalog, survey_of(call, catalog), call.images)
    engine = connect(reaching(ready, call.environment), run=call.run_id)
    bench = check.Bench(
        catalog=catalog,
        settings=call.settings,
        engine=engine,
        registry=Registry(),
        run=call.run,
        run_id=call.run_id,
        story=call.console,
        now=call.now,
    )
    arguments = call.arguments
    lanes = tuple(dict.fromkeys(arguments.lane or ("cpu", "gpu")))
    options = check.Options(lanes=lanes, select=arguments.select or "", keep=arguments.keep)
    tested = check.check(subjects, options, bench)
    hand_out(call, report.lanes_json(tested, subjects), report.lanes_junit(tested))
    call.console.show(report.lanes_table(tested, subjects))
    summarise(call, report.lanes_markdown(tested, subjects))
    return check.exit_code(tested, require_gpu=arguments.require_gpu)


def _subjects(catalog: Catalog, found: Survey, names: Sequence[str]) -> "tuple[Subject, ...]":
    """The candidates of the images named; of all that list checks when none is."""
    wanted = names or [name for name, image in catalog.images.items() if image.checks.cpu or image.checks.gpu]
    if not wanted:
        raise NothingSelected("no image of the catalog lists a check", hint="add `checks:` to an `image.yaml`")
    steps = {step.image: step for step in found.steps}
    absent = [name for name in wanted if steps[name].digest is None]
    if absent:
        listed = ", ".join(f"`{name}`" for name in absent)
        raise InputError(f"there is no candidate of {listed} for these inputs", hint=f"`nox -s build -- {' '.join(absent)}`")
    return tuple(_subject(catalog, steps[name]) for name in wanted)


def _subject(catalog: Catalog, step: plan.Step) -> "Subject":
    from pipeline.check import Subject

    assert step.digest is not None
    pinned = catalog.candidate_repository.at(step.digest)
    return Subject(image=step.image, pinned=pinned, tag=step.tag, size=Registry().manifest(pinned).size)


def _run(call: Call) -> int:
    from pipeline import run
    from pipeline.command import replace
    from pipeline.engine import connect

    catalog, text = context.load(call.settings), call.arguments.image
    elsewhere = "/" in text or "@" in text
    ready = ready_for(call, catalog, "engine", "cli", *([] if elsewhere else ["registry"]))
    environment = reaching(ready, call.environment)
    engine = connect(environment, run=call.run_id)
    argv = run.prepare(
        _candidate(call, catalog, text) if text in catalog.images else run.choose(text, catalog, Registry()),
        call.arguments.command,
        caller=run.Caller(
            folder=Path.cwd(),
            uid=os.getuid(),
            terminal=sys.stdin.isatty() and sys.stdout.isatty(),
            environment=call.environment,
        ),
        engine=engine,
        registry=Registry(),
        settings=call.settings,
        story=call.console,
        docker=ready.tools["docker"].path,
    )
    engine.close()
    call.console.say(shlex.join(argv))
    return replace(argv, environment)


def _candidate(call: Call, catalog: Catalog, name: str) -> "Chosen":
    from pipeline.run import Chosen

    found = survey(call.settings, catalog, Registry(), [name], story=call.console)
    (subject,) = _subjects(catalog, found, [name])
    return Chosen(pinned=subject.pinned, tag=subject.tag)


def _update(call: Call) -> int:
    from pipeline import report, surroundings
    from pipeline.debian import Mirror
    from pipeline.update import Desk, update

    catalog = context.load(call.settings, with_locks=False)
    ready = ready_for(call, catalog, "uv")
    around = surroundings.read(call.environment)
    desk = Desk(
        settings=call.settings,
        catalog=catalog,
        uv=ready.tools["uv"].path,
        mirror=Mirror.chosen(call.environment, around.certificates),
        around=around,
        now=call.now(),
        run=call.run,
        story=call.console,
    )
    moved = update(call.images, desk)
    if call.arguments.json:
        print_json(report.moved_json(moved))
    else:
        call.console.show(report.moved_table(moved))
    return 0


VERBS: Mapping[str, Callable[[Call], int]] = {
    "setup": _setup,
    "doctor": _doctor,
    "new": _new,
    "lint": _lint,
    "plan": _plan,
    "explain": _explain,
    "build": _build,
    "test": _test,
    "run": _run,
    "update": _update,
}
