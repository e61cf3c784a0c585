"""Going back, and what became of releases, as people and programs read it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.report.changes import weaknesses_json
from pipeline.report.data import plain
from pipeline.report.decisions import decisions_json
from pipeline.report.tables import table

if TYPE_CHECKING:
    from pipeline.promote import Rollback, Withdrawal
    from pipeline.promotion import Entry, Past


def rollback_table(rollback: "Rollback") -> RenderableType:
    """The floating tag before and after, and what was passed over."""
    before = rollback.standing.releases(rollback.standing.floating) if rollback.standing.floating else ()
    made = table("tag", "before", "after", "held")
    names = f"{rollback.release} ({rollback.target.digest.hex[:12]})"
    made.add_row(rollback.standing.floating_tag, str(before[0]) if before else "-", names, "yes" if rollback.holds else "no")
    waived = [f"passed over: {ruled.code}: {'; '.join(ruled.reasons)}" for ruled in rollback.decision.rules if ruled.waived]
    return Group(made, *map(Text, [*waived, *(["nothing to do"] if rollback.done else [])]))


def rollback_json(rollback: "Rollback", *, written: bool) -> Any:
    """The decision, which vulnerabilities come and go, and what was written."""
    return {
        "decision": decisions_json([rollback.decision])[0],
        "image": rollback.image,
        "tag": str(rollback.release),
        "target": str(rollback.target),
        "floating": rollback.standing.floating_tag,
        "before": plain(rollback.standing.floating),
        "hold": rollback.holds,
        "vulnerabilities": weaknesses_json(rollback.now, rollback.replaced),
        "written": written,
        "undo": rollback.undo,
    }


def withdrawal_lines(withdrawal: "Withdrawal") -> Iterator[str]:
    """What was done, what the floating tag names, and what to do about that."""
    what = "was withdrawn already" if withdrawal.already else "is withdrawn" if withdrawal.written else "would be withdrawn"
    yield f"{withdrawal.release} {what}"
    if withdrawal.concerned:
        better = withdrawal.better
        yield f"{withdrawal.floating} still names it: whoever pulls that gets it"
        yield (
            f'now: nox -s rollback -- {withdrawal.image} --to {better.version} --reason "…"'
            if better
            else f"there is no other release: build, test and `nox -s promote -- {withdrawal.image}`"
        )
    else:
        yield f"{withdrawal.floating} names {withdrawal.names or 'nothing'}, which stays"


def withdrawal_json(withdrawal: "Withdrawal") -> Any:
    """The same for programs."""
    return {
        "image": withdrawal.image,
        "tag": str(withdrawal.release),
        "target": str(withdrawal.target),
        "written": withdrawal.written,
        "floating": withdrawal.floating,
        "names": plain(withdrawal.names),
        "concerned": withdrawal.concerned,
        "better": str(withdrawal.better) if withdrawal.better else None,
    }


def history_table(found: "Sequence[Past]") -> RenderableType:
    """A verdict a row, a release without one a row too; what is odd stands below."""
    parts: list[RenderableType] = []
    for past in found:
        made = table("release", "digest", "when", "what", "who", "why", "")
        for entry in past.entries:
            for row in _rows(entry):
                made.add_row(*map(Text, row))
        named = past.names.hex[:12] if past.names else "nothing"
        parts += [made, Text(f"{past.floating} names {named}"), *map(Text, past.notes)]
    return Group(*parts)


def history_json(found: "Sequence[Past]") -> Any:
    """A line each, with its releases and their verdicts."""
    return [
        {
            "image": past.image,
            "line": past.line,
            "floating": past.floating,
            "names": plain(past.names),
            "releases": [_entry(entry) for entry in past.entries],
            "notes": list(past.notes),
        }
        for past in found
    ]


def _rows(entry: "Entry") -> Iterator[tuple[str, ...]]:
    digest = entry.digest.hex[:12] if entry.digest else "gone"
    if not entry.verdicts:
        yield str(entry.release), digest, "", "", "", "", entry.state
    for at, one in enumerate(entry.verdicts):
        what = one.action + (" and hold" if one.hold else "")
        head = (str(entry.release), digest) if at == 0 else ("", "")
        yield *head, f"{one.finished:%Y-%m-%d %H:%M}", what, one.actor, one.reason, entry.state if at == 0 else ""


def _entry(entry: "Entry") -> Any:
    verdicts = [one.model_dump(mode="json", exclude={"rules", "statements"}) for one in entry.verdicts]
    return {
        "tag": str(entry.release),
        "number": entry.release.number,
        "digest": plain(entry.digest),
        "state": entry.state,
        "verdicts": verdicts,
    }
