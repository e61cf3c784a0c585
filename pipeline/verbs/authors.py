"""`init`, `new`, `lint`, `plan`, `explain` and `update`: what an author of images types."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import context, plan
from pipeline.call import Call, hand_on, print_json, ready_for, survey_of
from pipeline.errors import InputError
from pipeline.verbs.work import show_work

if TYPE_CHECKING:
    from pipeline.lint import Finding


def init_verb(call: Call) -> int:
    """Write a new family."""
    from pipeline.init import init

    folder = call.settings.root
    written = init(folder, call.now())
    go = "" if folder == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    call.console.say(f"wrote {len(written)} files; next: `{go}nox -s update build test`")
    return 0


def new_verb(call: Call) -> int:
    """Write a new image's folder."""
    from pipeline.new import new

    arguments = call.arguments
    folder = new(call.settings, arguments.name, arguments.parent, variant=arguments.variant)
    call.console.say(f"wrote `{folder}`; next: `nox -s build test -- {arguments.name}`")
    return 0


def lint_verb(call: Call) -> int:
    """Find faults in images; exit 2 when one is fatal."""
    from pipeline import report
    from pipeline.lint import exceptions, lint

    catalog = context.load(call.settings)
    ready = ready_for(call, catalog, "hadolint")
    names = plan.selected(catalog, call.images)
    findings = (
        *lint(names, settings=call.settings, catalog=catalog, hadolint=ready.tools["hadolint"].path, run=call.run),
        *exceptions(call.settings, catalog, call.now()),
    )
    if call.arguments.json:
        print_json(report.lint_json(findings))
    for finding in findings:
        call.console.say(str(finding))
    call.console.say(f"looked at {', '.join(f'`{name}`' for name in names)}, all locks and exceptions: {_count(findings)}")
    return InputError.exit_code if any(finding.fatal for finding in findings) else 0


def _count(findings: "Sequence[Finding]") -> str:
    fatal = sum(finding.fatal for finding in findings)
    return f"errors: {fatal}, warnings: {len(findings) - fatal}" if findings else "no fault"


def plan_verb(call: Call) -> int:
    """Say what is built and why; changes nothing."""
    from pipeline import report

    _refuse_half_a_question(call)
    catalog = context.load(call.settings)
    if call.arguments.matrix:
        return show_work(call, catalog)
    found = survey_of(call, catalog, rebuild=call.arguments.rebuild)
    if call.arguments.bake:
        from pipeline import build, surroundings

        definition = build.definition(found, call.settings, surroundings.read(call.environment))
        print_json(definition)
        if not definition["target"]:
            call.console.warn(
                "buildx has nothing to build here, and takes no empty definition: `--rebuild` defines what exists too"
            )
    elif call.arguments.json:
        print_json(report.plan_json(found.steps))
    else:
        call.console.show(report.plan_table(found.steps))
    return 0


def _refuse_half_a_question(call: Call) -> None:
    """Raises `InputError` for options that say nothing alone, and for a commit that is named by an empty word."""
    asked = {"--since": call.arguments.since is not None, "--child-pipeline": call.arguments.child_pipeline}
    if not call.arguments.matrix and (alone := [option for option, given in asked.items() if given]):
        raise InputError(f"`{alone[0]}` is about what a CI has to do", hint="give `--matrix` too, or leave it out")
    if call.arguments.since is not None and not call.arguments.since.strip():
        raise InputError("`--since` names no commit", hint="name one, or leave it out to ask the registry")


def explain_verb(call: Call) -> int:
    """List the parts of an input hash, and what differs; or what the image runs on."""
    from pipeline import report
    from pipeline.explain import compatible, explain

    catalog = context.load(call.settings)
    if call.arguments.compatibility:
        found = compatible(catalog, call.arguments.image)
        if call.arguments.json:
            print_json(report.compatibility_json(found))
        else:
            call.console.show(report.compatibility_table(found))
        return 0
    explanation = explain(call.settings, catalog, call.registry, call.arguments.image, story=call.console)
    if call.arguments.json:
        print_json(report.explanation_json(explanation))
    else:
        call.console.show(report.explanation_table(explanation))
    return 0


def update_verb(call: Call) -> int:
    """Solve locks again, and say what moved."""
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
    hand_on(call, {"moved": " ".join(dict.fromkeys(one.image for one in moved))})
    if call.arguments.json:
        print_json(report.moved_json(moved))
    else:
        call.console.show(report.moved_table(moved))
    return 0
