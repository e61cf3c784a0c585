"""What a change changes, as a summary in CI."""

from collections.abc import Sequence

from pipeline.changes import Change, lines


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


def _inert(line: str) -> str:
    return " ".join(line.split()).replace("<", "&lt;").replace("](", "]\\(")
