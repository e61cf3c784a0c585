"""`build`, `test` and `run`: candidates are made, checked and used."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import context, names, plan, records
from pipeline.call import Call, hand_out, policy_of, reaching, ready_for, summarise, survey_of
from pipeline.catalog import Catalog
from pipeline.errors import CheckFailed, InputError, NothingSelected, worst
from pipeline.oci import Digest, Repository
from pipeline.survey import Survey, survey
from pipeline.verbs.pods import collect_verb, render
from pipeline.verbs.tries import put_off, refuse_suspected

if TYPE_CHECKING:
    from pipeline.check import Subject
    from pipeline.run import Chosen
    from pipeline.statements import Tested

GPUS = re.compile(r"all|[1-9][0-9]{0,3}|(?:GPU|MIG)-[^,\s]+(?:, ?(?:GPU|MIG)-[^,\s]+)*")
"""What `--gpus` may say."""


def build_verb(call: Call) -> int:
    """Build what has no candidate."""
    from pipeline import build, report, surroundings
    from pipeline.debian import Mirror

    catalog = context.load(call.settings)
    parents, expect = _parents(call, catalog), _expected(call)
    plan.selected(catalog, call.images)
    ready = ready_for(call, catalog, "builder", "registry", fresh=True)
    if ready.builder is None:
        raise AssertionError("a builder was asked for")
    around = surroundings.read(call.environment)
    shop = build.Workshop(
        settings=call.settings,
        registry=call.registry,
        run=call.run,
        story=call.console,
        builder=ready.builder,
        around=around,
        mirror=Mirror.chosen(call.environment, around.certificates),
        now=call.now,
        run_id=call.run_id,
    )
    if parents:
        _bring_parents(call, catalog, parents)
    twice = call.arguments.twice
    with call.console.fold("building"):
        results = build.build(lambda: _vouched(call, catalog, rebuild=twice or call.arguments.rebuild), shop, twice=twice)
    hand_out(call, report.builds_json(results), report.builds_junit(results))
    call.console.show(report.builds_table(results))
    for result in results:
        if expect and result.image == call.images[0] and result.pinned and result.pinned.digest != expect:
            raise CheckFailed(
                f"`{result.image}` is {result.pinned.digest}, and was to be {expect}", hint=f"`nox -s explain -- {result.image}`"
            )
    return worst([result.exit_code for result in results])


def _parents(call: Call, catalog: Catalog) -> Repository | None:
    """Where parents may be brought from; raises `InputError` when what the user chose is no place."""
    chosen = call.settings.parents
    return context.place(chosen, catalog, f"`{names.ENV_PARENTS}`") if chosen else None


def _expected(call: Call) -> Digest | None:
    expect = call.arguments.expect
    if expect is not None and len(call.images) != 1:
        raise InputError("`--expect` is about one image", hint="name that image alone")
    return None if expect is None else Digest(expect)


def _bring_parents(call: Call, catalog: Catalog, source: Repository) -> None:
    """Bring what the images named stand on, the nearest first, which saves the rest; what cannot be had is built."""
    from pipeline.parents import bring

    tried = set(call.images or catalog.images)
    while True:
        found = survey(call.settings, catalog, call.registry, call.images, story=call.console)
        lack = [step for step in found.steps if step.action == "build" and step.image not in tried]
        if not lack:
            return
        tried.add(lack[-1].image)
        bring(
            lack[-1],
            source=source,
            target=catalog.candidate_repository,
            keys=policy_of(call, catalog, loopback=False).keys,
            registry=call.registry,
            now=call.now(),
            story=call.console,
        )


def _vouched(call: Call, catalog: Catalog, *, rebuild: bool) -> Survey:
    """The plan; what it reuses was built by somebody whom the policy accepts where others may write too, or is on record here."""
    from pipeline.vouching import unrecorded, unvouched, vouched

    found = survey_of(call, catalog, rebuild=rebuild)
    if catalog.candidate_repository.loopback:
        return _marked(call, catalog, found, lambda steps: unrecorded(steps, catalog, call.settings, call.registry))
    reused = [step for step in found.steps if step.action == "reuse"]
    if not reused:
        return found
    keys, now = policy_of(call, catalog).keys, call.now()
    if call.arguments.prove:
        return _marked(call, catalog, found, lambda steps: unvouched(steps, catalog, keys, call.registry, now=now))
    vouched(reused, catalog, keys, call.registry, now=now)
    return found


def _marked(call: Call, catalog: Catalog, found: Survey, mark: Callable[[Sequence[plan.Step]], tuple[plan.Step, ...]]) -> Survey:
    """The plan, in which what `mark` says is built again, with the images that it is built from."""
    steps = mark(found.steps)
    if steps == found.steps:
        return found
    mine = {step.image: step for step in steps}
    below = plan.selected(catalog, [step.image for step in steps if step.action == "build"])
    wider = survey(call.settings, catalog, call.registry, [*mine, *below], story=call.console)
    merged = [mine.get(step.image, step) for step in wider.steps]
    return replace(wider, steps=plan.needed(catalog, mark(merged), mine))


def test_verb(call: Call) -> int:
    """Check candidates, lane by lane, here or as Jobs of a cluster."""
    _refuse_what_means_nothing(call)
    if call.arguments.collect:
        return collect_verb(call)
    if call.arguments.render:
        return _render(call)
    return put_off(call, lambda: _test(call)) if call.arguments.later else _test(call)[0]


def _refuse_what_means_nothing(call: Call) -> None:
    """Options that the others make void are mistakes, not decoration."""
    arguments = call.arguments
    if arguments.queue and not arguments.render:
        raise InputError("`--queue` is of rendered Jobs", hint="give `--render kubernetes` too")
    if not GPUS.fullmatch(arguments.gpus):
        raise InputError(f"`--gpus {arguments.gpus}` names no GPUs", hint="`all`, a number, or UUIDs with commas between")
    if arguments.lane and "gpu" not in arguments.lane and (arguments.gpus != "all" or arguments.require_gpu):
        raise InputError("`--gpus` and `--require-gpu` are of the lane `gpu`, which is left out", hint="give `--lane gpu` too")


def _render(call: Call) -> int:
    catalog = context.load(call.settings)
    plan.selected(catalog, call.images)
    ready_for(call, catalog, "registry")
    return render(call, subjects_of(call, catalog, survey_of(call, catalog), call.images), catalog)


def _test(call: Call) -> "tuple[int, Sequence[Tested]]":
    """The exit code, and what was found."""
    from pipeline import check, report
    from pipeline.engine import connect

    catalog = context.load(call.settings)
    plan.selected(catalog, call.images)
    ready = ready_for(call, catalog, "registry", "engine")
    records.may_write(call.settings)
    subjects = subjects_of(call, catalog, survey_of(call, catalog), call.images)
    engine = connect(reaching(ready, call.environment), run=call.run_id)
    bench = check.Bench(
        catalog=catalog,
        settings=call.settings,
        engine=engine,
        registry=call.registry,
        run=call.run,
        run_id=call.run_id,
        story=call.console,
        now=call.now,
        hardware=check.hardware(engine, settings=call.settings, run=call.run, story=call.console),
        failures=context.failures(call.settings),
    )
    arguments = call.arguments
    refuse_suspected(arguments.avoid.split(), engine, bench.hardware)
    lanes = tuple(dict.fromkeys(arguments.lane or ("cpu", "gpu")))
    options = check.Options(lanes=lanes, select=arguments.select or "", keep=arguments.keep, gpus=arguments.gpus)
    with call.console.fold("checking"):
        tested = check.check(subjects, options, bench)
    hand_out(call, report.lanes_json(tested, subjects), report.lanes_junit(tested))
    call.console.show(report.lanes_table(tested, subjects))
    summarise(call, report.lanes_markdown(tested, subjects))
    return check.exit_code(tested, require_gpu=arguments.require_gpu), tested


def subjects_of(call: Call, catalog: Catalog, found: Survey, names: Sequence[str]) -> "tuple[Subject, ...]":
    """The candidates of the images named; of all that list checks when none is."""
    wanted = names or [name for name, image in catalog.images.items() if image.checks.cpu or image.checks.gpu]
    if not wanted:
        raise NothingSelected("no image of the catalog lists a check", hint="add `checks:` to an `image.yaml`")
    return tuple(_subject(call, catalog, step) for step in existing(found, wanted))


def existing(found: Survey, wanted: Sequence[str]) -> Sequence[plan.Step]:
    """The steps of the images named; raises `InputError` when one has no candidate."""
    steps = {step.image: step for step in found.steps}
    absent = [name for name in wanted if steps[name].digest is None]
    if absent:
        listed = ", ".join(f"`{name}`" for name in absent)
        raise InputError(f"there is no candidate of {listed} for these inputs", hint=f"`nox -s build -- {' '.join(absent)}`")
    return [steps[name] for name in wanted]


def _subject(call: Call, catalog: Catalog, step: plan.Step) -> "Subject":
    from pipeline.check import Subject

    assert step.digest is not None
    pinned = catalog.candidate_repository.at(step.digest)
    return Subject(image=step.image, pinned=pinned, tag=step.tag, size=call.registry.manifest(pinned).size)


def run_verb(call: Call) -> int:
    """Become a container of an image."""
    from pipeline import run
    from pipeline.command import replace
    from pipeline.engine import connect

    catalog, text = context.load(call.settings), call.arguments.image
    elsewhere = "/" in text or "@" in text
    ready = ready_for(call, catalog, "engine", "cli", *([] if elsewhere else ["registry"]))
    environment = reaching(ready, call.environment)
    engine = connect(environment, run=call.run_id)
    line = run.prepare(
        _candidate(call, catalog, text) if text in catalog.images else run.choose(text, catalog, call.registry),
        call.arguments.command,
        caller=run.Caller(
            folder=Path.cwd(),
            uid=os.getuid(),
            terminal=sys.stdin.isatty() and sys.stdout.isatty(),
            environment=environment,
        ),
        engine=engine,
        registry=call.registry,
        settings=call.settings,
        story=call.console,
        docker=ready.tools["docker"].path,
    )
    engine.close()
    call.console.say(shlex.join(line.argv))
    return replace(line.argv, line.environment)


def _candidate(call: Call, catalog: Catalog, name: str) -> "Chosen":
    from pipeline.run import Chosen

    found = survey(call.settings, catalog, call.registry, [name], story=call.console)
    (subject,) = subjects_of(call, catalog, found, [name])
    return Chosen(pinned=subject.pinned, tag=subject.tag)
