"""Results as tables for people; they say the same without colour."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pipeline.build import BuildResult
    from pipeline.diagnosis import Finding
    from pipeline.explain import Compatibility, Explanation
    from pipeline.plan import Step
    from pipeline.update import Moved

COLOURS = {
    "ok": "green",
    "passed": "green",
    "built": "green",
    "reused": "green",
    "same": "dim",
    "warn": "yellow",
    "not-run": "yellow",
    "aborted": "yellow",
    "infrastructure": "yellow",
    "runs": "green",
    "compiles": "yellow",
    "does-not-run": "red",
    "held": "green",
    "waived": "yellow",
    "not assessed": "yellow",
    "refused": "red",
    "fault": "red",
    "failed": "red",
    "error": "red",
}
SHORT = 12
"""Hex digits of a digest in a table."""


def plan_table(steps: "Sequence[Step]") -> RenderableType:
    """What is built, what is reused, and why."""
    made = table("image", "action", "candidate", "reason")
    for step in steps:
        made.add_row(step.image, step.action, step.tag, step.reason)
    counts = [f"{sum(step.action == action for step in steps)} to {action}" for action in ("build", "reuse")]
    return Group(made, Text(", ".join(counts)))


def builds_table(results: "Sequence[BuildResult]") -> RenderableType:
    """How each image's build ended, and what to do about those that failed."""
    made = table("image", "state", "digest", "size", "took", "reason")
    for result in results:
        digest = result.pinned.digest.hex[:SHORT] if result.pinned else ""
        size = gigabytes(result.size) if result.size is not None else ""
        made.add_row(result.image, coloured(result.state), digest, size, f"{result.seconds:.1f} s", Text(result.reason))
    hints = [Text(f"{result.image}: {result.hint}") for result in results if result.hint]
    return Group(made, *hints)


def findings_table(findings: "Sequence[Finding]") -> RenderableType:
    """What was looked at on this machine; the remedies last."""
    made = table("", "state", "found")
    for finding in findings:
        made.add_row(finding.name, coloured(finding.state.value), Text(finding.detail))
    remedies = [Text(f"{finding.name}: {finding.remedy}") for finding in findings if finding.remedy]
    return Group(made, *remedies) if remedies else Group(made, Text("nothing is wrong here"))


def explanation_table(explanation: "Explanation") -> RenderableType:
    """The parts of an input hash that differ from the closest candidate's; all of them when there is none."""
    made = table("part", "state", "now", "before")
    for part in explanation.differences:
        made.add_row(Text(part.name), coloured(part.state), _short(part.now), _short(part.before))
    same = len(explanation.parts) - len(explanation.differences)
    compared = f"compared with `{explanation.closest}`" if explanation.closest else "there is no candidate to compare with"
    follow = ", ".join(explanation.descendants) or "none"
    count = len(explanation.differences)
    lines = (
        f"{explanation.image}: {explanation.input_hash}, {compared}",
        f"{count} {'part differs' if count == 1 else 'parts differ'}, {same} the same; images that follow: {follow}",
    )
    return Group(Text(lines[0]), *([made] if count else []), Text(lines[1]))


def compatibility_table(found: "Compatibility") -> RenderableType:
    """The drivers and GPUs that an image claims to run on; nothing is known of what it does not claim."""
    driver = f"runs on driver ≥ {found.driver}" if found.driver else "claims no driver"
    lines = [f"{found.image}: {driver}, " + (" ".join(found.architectures) or "claims no architectures")]
    if not found.architectures:
        return Text(f"{lines[0]}: nothing is known of the GPUs that it runs on")
    made = table("capability", "state", "by", "GPUs")
    for row in found.rows:
        capability = ".".join(map(str, row.family.capability))
        made.add_row(capability, coloured(row.runs), row.by or "-", ", ".join(row.family.gpus))
    if any(row.runs == "compiles" for row in found.rows):
        lines.append("compiles: from PTX, once for each GPU, at the first start")
    return Group(Text(lines[0]), made, *map(Text, lines[1:]))


def moved_table(moved: "Sequence[Moved]") -> RenderableType:
    """Which packages have another locked version, or stand in another lock."""
    if not moved:
        return Text("nothing moved")
    made = table("image", "package", "before", "now", "lock")
    for one in moved:
        made.add_row(one.image, one.name, one.before or "-", one.after or "-", one.lock)
    return made


def table(*columns: str) -> Table:
    """An empty table."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def coloured(word: str) -> Text:
    """A state in its colour."""
    return Text(word, style=COLOURS.get(word, ""))


def gigabytes(size: int) -> str:
    """Bytes for people: 10^9 and 10^6."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _short(text: str | None) -> Text:
    if text is None:
        return Text("-")
    return Text(text[:SHORT] if len(text) == 64 else text)
