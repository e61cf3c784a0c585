"""What a change changes, as a summary in CI."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.changes import Change, Contents, difference, lines, vulnerabilities
from pipeline.report.data import plain

SCREEN = 8
"""Vulnerabilities that came, and that went, on the screen of a release manager; `--json` has all."""


def changes_markdown(found: Sequence[Change]) -> str:
    """An image a heading, with how its build ended; below it what is different from its last release."""
    if not found:
        return "No image was built.\n"
    text = []
    for change in found:
        text += [f"### {change.image}: {change.state}", "", f"- {_inert(change.reason)}"]
        text += [f"  - {_inert(line)}" if line.startswith(" ") else f"- {_inert(line)}" for line in lines(change)]
        text.append("")
    return "\n".join(text)


def weaknesses_screen(now: Contents, before: Contents | None) -> RenderableType:
    """Which vulnerabilities come and which go with what a tag will name."""
    return Group(Text(""), *map(Text, vulnerabilities(now, before, SCREEN)))


def weaknesses_markdown(now: Contents, before: Contents | None) -> str:
    """The same for a summary in CI."""
    return (
        "\n".join(f"  - {_inert(line)}" if line.startswith(" ") else f"- {_inert(line)}" for line in vulnerabilities(now, before))
        + "\n"
    )


def weaknesses_json(now: Contents, before: Contents | None) -> Any:
    """All of them; `null` where nobody knows, with the reason."""
    sides = {"this": now, "released": before or Contents(unscanned="nothing is released")}
    found = difference(now.scanned, before.scanned) if now.scanned and before and before.scanned else None
    return {
        "against": before.tag if before else None,
        "not-assessed": {side: one.unscanned for side, one in sides.items() if one.scanned is None},
        "databases": {side: one.scanned.database.updated.isoformat() for side, one in sides.items() if one.scanned},
        **{name: plain(getattr(found, name)) if found else None for name in ("new", "gone", "unsettled")},
    }


def _inert(line: str) -> str:
    return " ".join(line.split()).replace("<", "&lt;").replace("](", "]\\(")
