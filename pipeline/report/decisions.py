"""A decision on one screen, that a person can decide from: what the image is, what is proved, each rule, and what to do."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.changes import known
from pipeline.notices import AGEING
from pipeline.report.data import plain
from pipeline.report.tables import coloured, table
from pipeline.statements import Built, Ruled, Scanned, Tested

if TYPE_CHECKING:
    from pipeline.evidence import Evidence
    from pipeline.policy import Allowed, Judged, Reason, Refused

CALLS = re.compile(r"(?<![A-Za-z0-9_])([@#]|GH-)(?=[A-Za-z0-9])")
"""What would call a person or name an issue, as `@babel/core` does."""
IN_GRACE = "in their grace"
REASONS = 3
"""Reasons of one rule that a table shows; all of them stand below it."""


def decisions_json(decisions: "Sequence[Allowed | Refused]") -> Any:
    """Each decision, with `allowed`, every rule and every reason."""
    return [
        {
            "allowed": _is_allowed(one),
            "image": one.image,
            "subject": str(one.subject),
            "at": one.at.isoformat(),
            "policy": one.policy,
            "rules": [ruled.model_dump(mode="json") for ruled in one.rules],
            "reasons": plain(_reasons(one)),
            "lanes": [_lane_json(tested) for tested in one.lanes],
            "statements": plain(one.statements),
            "notes": list(one.notes),
        }
        for one in decisions
    ]


def decision_table(decision: "Allowed | Refused", evidence: "Evidence") -> RenderableType:
    """A rule a row, below what the image is; then each reason with the command that mends it, exceptions and notes."""
    facts = table("", "")
    facts.show_header = False
    for name, fact in _facts(decision, evidence):
        facts.add_row(name, Text(fact))
    rules = table("rule", "", "why")
    for ruled in decision.rules:
        rules.add_row(ruled.code, coloured(_state(ruled)), Text(_why(ruled)))
    lines = [_heading(decision), *_last(decision)]
    return Group(Text(lines[0]), facts, Text(""), rules, *map(Text, lines[1:]))


def decision_markdown(decision: "Allowed | Refused", evidence: "Evidence") -> str:
    """The same for a summary in CI."""
    lines = [f"### {_heading(decision)}", "", "| | |", "| --- | --- |"]
    lines += [_row(name, fact) for name, fact in _facts(decision, evidence)]
    lines += ["", "| rule | | why |", "| --- | --- | --- |"]
    lines += [_row(ruled.code, _state(ruled), _why(ruled)) for ruled in decision.rules]
    for line in _last(decision):
        indent = "  - " if line.startswith(" ") else "- "
        lines.append(f"{indent}{_inert(line.strip())}" if line else "")
    return "\n".join(lines).rstrip() + "\n"


def issue_markdown(decision: "Allowed | Refused", below: Sequence[str]) -> str:
    """What is wrong by now with an image that was fit once, and what will be, for an issue; empty where nothing is."""
    wrong = [reason for reason in _reasons(decision) if reason.rule in AGEING]
    coming = [note for note in decision.notes if note.startswith(tuple(f"{rule}:" for rule in AGEING)) and IN_GRACE in note]
    if not wrong and not coming:
        return ""
    lines = [f"`{decision.subject}`, judged {decision.at:%Y-%m-%d %H:%M} UTC by the policy `{decision.policy}`.", ""]
    lines += [f"- {reason.rule}: {_quiet(reason.message)}\n  - {_quiet(reason.solution)}" for reason in wrong]
    lines += [f"- {_quiet(note)}" for note in coming]
    lines += ["", f"Released images that stand on it: {', '.join(below) if below else 'none'}."]
    return "\n".join(lines) + "\n"


def _heading(decision: "Allowed | Refused") -> str:
    count = len(_reasons(decision))
    reasons = "1 reason" if count == 1 else f"{count} reasons"
    return f"{decision.image}: " + ("ALLOWED" if _is_allowed(decision) else f"REFUSED, for {reasons}")


def _facts(decision: "Judged", evidence: "Evidence") -> Iterator[tuple[str, str]]:
    yield "digest", str(decision.subject)
    built, scanned = evidence.one(Built), evidence.one(Scanned)
    if built:
        changes = " with changes that are not committed" if built.dirty else ""
        yield "built", f"{built.tag} from commit {built.commit or 'none'}{changes}, {built.finished:%Y-%m-%d %H:%M}"
    for tested in decision.lanes:
        yield f"lane {tested.lane}", _lane(tested)
    yield "scan", _scan(scanned) if scanned else "vulnerabilities: not assessed"
    yield "policy", f"{decision.policy}, at {decision.at:%Y-%m-%d %H:%M}"


def _lane(tested: Tested) -> str:
    """`passed on 2x NVIDIA H100 with driver 550.54.15, 12 checks, 2026-05-01 12:00; lower rungs: all-reduce (one GPU)`."""
    gpus = Counter(gpu.name for gpu in tested.gpus)
    driver = f" with driver {tested.machine['driver']}" if gpus and tested.machine.get("driver") else ""
    on = ", ".join(f"{count}x {name}" for name, count in sorted(gpus.items())) + driver
    said = f"{tested.outcome.value}{f' on {on}' if on else ''}, {_checks(tested)}, {tested.finished:%Y-%m-%d %H:%M}"
    rungs = "; ".join(f"{check.name} ({check.rung})" for check in tested.checks if check.rung and "::" not in check.name)
    return said + (f"; lower rungs: {rungs}" if rungs else "") + (f"; {tested.reason}" if tested.reason else "")


def _checks(tested: Tested) -> str:
    count = sum("::" not in check.name for check in tested.checks)
    return "1 check" if count == 1 else f"{count} checks"


def _scan(scanned: Scanned) -> str:
    """Vulnerabilities by severity, each once by its worst, and those with a fix in one of their packages."""
    each = known(scanned).values()
    counts, fixable = Counter(one.severity for one in each), Counter(one.severity for one in each if one.fixable)
    said = ", ".join(f"{count} {severity} ({fixable[severity]} with a fix)" for severity, count in sorted(counts.items()))
    return (
        f"{said or 'no vulnerability'} in {scanned.packages} packages, {len(scanned.unassessed)} not assessed; {scanned.system}; "
        f"looked up {scanned.finished:%Y-%m-%d %H:%M}, database of {scanned.database.updated:%Y-%m-%d %H:%M}"
    )


def _state(ruled: Ruled) -> str:
    if ruled.held:
        return "held"
    if not ruled.assessed:
        return "not assessed"
    return "waived" if ruled.waived else "refused"


def _why(ruled: Ruled) -> str:
    more = len(ruled.reasons) - REASONS
    said = "; ".join(ruled.reasons[:REASONS]) + (f"; and {more} more" if more > 0 else "")
    return said + (f" (exceptions: {', '.join(ruled.exceptions)})" if ruled.exceptions else "")


def _last(decision: "Allowed | Refused") -> Iterator[str]:
    """What stands below the rules; what belongs to the line above begins with spaces."""
    if reasons := _reasons(decision):
        yield ""
        for reason in reasons:
            yield f"{reason.rule}: {reason.message}"
            yield f"  {reason.solution}"
    if decision.notes:
        yield ""
        yield from decision.notes


def _reasons(decision: "Allowed | Refused") -> "Sequence[Reason]":
    from pipeline.policy import Refused

    return decision.reasons if isinstance(decision, Refused) else ()


def _is_allowed(decision: "Judged") -> bool:
    from pipeline.policy import Allowed

    return isinstance(decision, Allowed)


def _lane_json(tested: Tested) -> Mapping[str, Any]:
    told = tested.model_dump(mode="json", include={"lane", "outcome", "reason", "suite", "run"})
    rungs = {check.name: check.rung for check in tested.checks if check.rung and "::" not in check.name}
    return {**told, "finished": tested.finished.isoformat(), "gpus": [gpu.name for gpu in tested.gpus], "rungs": rungs}


def _row(*cells: str) -> str:
    return "| " + " | ".join(_inert(cell).replace("|", "\\|") for cell in cells) + " |"


def _inert(text: str) -> str:
    """One line, no HTML and no links: some of it was said inside images."""
    return " ".join(text.splitlines()).replace("<", "&lt;").replace("](", "]\\(")


def _quiet(text: str) -> str:
    """The same for an issue, which would also call by their names whom a package is named after."""
    return CALLS.sub("\\1\u200b", _inert(text))
