"""`rollback`, `withdraw` and `history`: taking releases back, and what became of them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline import context, names
from pipeline.call import Call, policy_of, policy_path, print_json, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, PromotionRefused
from pipeline.verbs.releases import desk_of, images_of
from pipeline.verbs.trust import expected_of

if TYPE_CHECKING:
    from pipeline.evidence import Evidence
    from pipeline.policies import Loaded
    from pipeline.policy import Allowed, Expected, Refused
    from pipeline.promote import Desk, JudgeBack


def rollback_verb(call: Call) -> int:
    """Let the floating tag name an older release, and hold it there."""
    from pipeline import promote, report
    from pipeline.policy import Refused

    arguments = call.arguments
    catalog, loaded, desk = _opened(call)
    (image,) = images_of(catalog, [arguments.image])
    reason = _reason(arguments.reason)
    prepared = promote.prepare_rollback(image, arguments.to, reason, desk, _judge(call, catalog, loaded, desk))
    call.console.show(report.decision_table(prepared.decision, prepared.evidence))
    call.console.show(report.weaknesses_screen(prepared.now, prepared.replaced))
    summarise(call, report.decision_markdown(prepared.decision, prepared.evidence))
    summarise(call, report.weaknesses_markdown(prepared.now, prepared.replaced))
    call.console.show(report.rollback_table(prepared))
    writes = not arguments.dry_run and not prepared.done and not isinstance(prepared.decision, Refused)
    if writes:
        promote.rollback(prepared, desk)
    if arguments.json:
        print_json(report.rollback_json(prepared, written=writes))
    if isinstance(prepared.decision, Refused):
        raise PromotionRefused(
            f"`{prepared.release}` may not be gone back to: the policy refuses it, see above; nothing was written",
            hint="integrity is never waived: go back to another release, or mend what is told above",
        )
    if prepared.undo and not arguments.dry_run:
        call.console.say(f"this undoes it: {prepared.undo}")
    return 0


def withdraw_verb(call: Call) -> int:
    """Mark a release as bad for good."""
    from pipeline import promote, report

    _, _, desk = _opened(call)
    withdrawal = promote.withdraw(call.arguments.tag, _reason(call.arguments.reason), desk, dry=call.arguments.dry_run)
    for line in report.withdrawal_lines(withdrawal):
        call.console.say(line)
    if call.arguments.json:
        print_json(report.withdrawal_json(withdrawal))
    return 0


def history_verb(call: Call) -> int:
    """List the releases of an image."""
    from pipeline import promote, report

    catalog, _, desk = _opened(call)
    (image,) = images_of(catalog, [call.arguments.image])
    found = promote.history(image, desk)
    if call.arguments.json:
        print_json(report.history_json(found))
    else:
        call.console.show(report.history_table(found))
        if any(not entry.verdicts for past in found for entry in past.entries):
            path = policy_path(call, catalog, loopback=catalog.release_repository.loopback)
            call.console.say(
                f"those verdicts count whose keys `{path}` lists: `--policy` or {names.ENV_POLICY} names another policy"
            )
    return 0


def _opened(call: Call) -> "tuple[Catalog, Loaded, Desk]":
    catalog = context.load(call.settings)
    loaded = policy_of(call, catalog, loopback=catalog.release_repository.loopback)
    return catalog, loaded, desk_of(call, catalog, loaded)


def _judge(call: Call, catalog: Catalog, loaded: "Loaded", desk: "Desk") -> "JudgeBack":
    from pipeline.policy import Case, decide

    def judge(image: str, evidence: "Evidence") -> "Allowed | Refused":
        case = Case(
            image=image,
            evidence=evidence,
            expected=_as_built(expected_of(call, catalog, image, context.hashes(call.settings, catalog, [image])), evidence),
            now=call.now(),
            registry_loopback=desk.repository.loopback and desk.harbor() is None,
            checkout=loaded.checkout,
            exceptions=loaded.exceptions,
        )
        return decide(loaded.policy, case, rollback=True)

    return judge


def _as_built(expected: "Expected", evidence: "Evidence") -> "Expected":
    """What it was built from then; this checkout has gone on since."""
    from pipeline.statements import Built

    built = evidence.one(Built)
    return replace(expected, input_hash=built.input_hash, inputs=built.inputs, tag=built.tag) if built else expected


def _reason(text: str) -> str:
    if not text.strip():
        raise InputError("`--reason` says nothing", hint="it is recorded in the verdict, and read by whoever comes next")
    return text
