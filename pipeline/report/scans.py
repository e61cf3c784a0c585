"""What scans found, as a table, as data, and as a summary from which a person can decide."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.report.tables import table
from pipeline.statements import SEVERITIES, Findings, Place, Scanned, Severity, Vulnerability
from pipeline.wording import some

if TYPE_CHECKING:
    from pipeline.scan import Result

COLUMNS = ("image", "packages", "not assessed", *(each.lower() for each in SEVERITIES), "secrets", "licences")
SHOWN = 25
"""Vulnerabilities, and packages without advisories, of an image that a summary lists; the statement has all."""
NAMED = 3
"""Packages of one vulnerability that are named; the others are counted."""


def scans_table(results: "Sequence[Result]") -> RenderableType:
    """An image a row; vulnerabilities are counted once, however many packages have them."""
    made = table(*COLUMNS)
    for result in results:
        made.add_row(*map(Text, _row(result)))
    return Group(made, *(Text(line) for result in results for line in _notes(result)))


def scans_markdown(results: "Sequence[Result]") -> str:
    """The same for a summary in CI, with the worst vulnerabilities that can be mended."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_row, results)]
    lines = [_line(row) for row in rows] + [""]
    for result in results:
        lines += [f"- {note}" for note in _notes(result)]
    for result in results:
        lines += list(_listed(result.scanned)) if result.scanned else []
    return "\n".join(lines).rstrip() + "\n"


def scans_json(results: "Sequence[Result]") -> Any:
    """The records, and what kept others from being made."""
    return [
        {
            "image": result.subject.image,
            "pinned": str(result.subject.pinned),
            "error": result.error.message if result.error else None,
            "not-assessed": result.unscanned or None,
            "scanned": result.scanned.model_dump(mode="json") if result.scanned else None,
            "findings": result.findings.model_dump(mode="json") if result.findings else None,
            "components": dict(result.bom.components) if result.bom else None,
        }
        for result in results
    ]


def _row(result: "Result") -> Sequence[str]:
    name = result.subject.image or str(result.subject.pinned)
    if result.error:
        return (name, "error", *[""] * (len(COLUMNS) - 2))
    scanned = result.scanned
    counts = [_count(scanned, severity) if scanned else "not assessed" for severity in SEVERITIES]
    packages = (str(scanned.packages), str(len(scanned.unassessed))) if scanned else ("", "")
    return (name, *packages, *counts, *_others(result.findings))


def _count(scanned: Scanned, severity: Severity) -> str:
    """`3 (1 fixable)`."""
    found = [one for one in scanned.vulnerabilities if one.severity == severity]
    fixable = len({one.id for one in found if one.fixed})
    count = len({one.id for one in found})
    return f"{count} ({fixable} fixable)" if fixable else str(count)


def _others(findings: Findings | None) -> tuple[str, str]:
    if findings is None:
        return "", ""
    categories = Counter(licence.category for licence in {(one.name, one.category): one for one in findings.licences}.values())
    return str(len(findings.secrets)), ", ".join(f"{count} {category}" for category, count in categories.most_common())


def _notes(result: "Result") -> Iterator[str]:
    name = result.subject.image or str(result.subject.pinned)
    if result.error:
        yield f"{name}: {result.error.message}"
        if result.error.hint:
            yield f"{name}: {result.error.hint}"
    if result.unscanned:
        yield f"{name}: vulnerabilities not assessed: {result.unscanned}"
    if result.scanned:
        yield from _known(name, result.scanned)
    for secret in result.findings.secrets if result.findings else ():
        yield f"{name}: {secret.severity.lower()} secret of the kind {secret.rule} in {_where(secret.place)}"


def _known(name: str, scanned: Scanned) -> Iterator[str]:
    yield f"{name}: {scanned.system}, database {scanned.database.version} of {scanned.database.updated:%Y-%m-%d %H:%M} UTC"
    if scanned.end_of_life:
        yield f"{name}: {scanned.system} has reached its end of life: nobody publishes advisories for it any more"
    if scanned.unassessed:
        yield f"{name}: listed, but nothing is known of them: {some(scanned.unassessed, SHOWN)}"


def _listed(scanned: Scanned) -> Iterator[str]:
    by_rank = sorted(scanned.vulnerabilities, key=lambda one: (SEVERITIES.index(one.severity), not one.fixed, one.id))
    groups: dict[object, list[Vulnerability]] = {}
    for one in by_rank:
        groups.setdefault((one.id, one.severity, one.installed, one.fixed, one.place), []).append(one)
    worst = list(groups.values())
    if not worst:
        return
    yield from ("", f"### {scanned.image or scanned.subject}", "")
    yield from (_line(row) for row in (("vulnerability", "severity", "package", "fixed in", "where"), ["---"] * 5))
    yield from (_line(_weakness(one)) for one in worst[:SHOWN])
    if len(worst) > SHOWN:
        yield from ("", f"and {len(worst) - SHOWN} more")


def _weakness(group: Sequence[Vulnerability]) -> Sequence[str]:
    """One row for all packages of one source."""
    one, names = group[0], list(dict.fromkeys(each.package for each in group))
    fix = one.fixed or one.outlook or "-"
    return (one.id, one.severity.lower(), f"{some(names, NAMED)} {one.installed}", fix, _where(one.place))


def _where(place: Place) -> str:
    """`usr/lib/x of pytorch`."""
    file = f"`{place.file}`" if place.file else "its configuration"
    return f"{file} of {place.image}" if place.image else file


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
