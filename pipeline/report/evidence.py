"""What is signed and attached: what `sign` did, and all that counts, or does not, for one digest."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.report.data import plain
from pipeline.report.tables import table
from pipeline.statements import Bom, Built, Decided, Findings, Scanned, Statable, Tested

if TYPE_CHECKING:
    from pipeline.evidence import Evidence, Signed
    from pipeline.sign import Signing

NAMES: Mapping[type, str] = {
    Built: "build",
    Scanned: "scan",
    Findings: "findings",
    Bom: "packages",
    Decided: "verdict",
    type(None): "signature",
}
WORDS = {"attached": "signed and attached", "known": "was attached already", "left": "not signed"}


def signings_json(signings: "Sequence[Signing]") -> Any:
    """What became of each statement."""
    return plain(signings)


def signings_table(signings: "Sequence[Signing]") -> RenderableType:
    """A statement a row."""
    made = table("image", "statement", "", "manifest")
    for one in signings:
        said = WORDS[one.ended] + (f": {one.text}" if one.text else "")
        made.add_row(one.image, one.kind, Text(said), one.manifest.hex[:12] if one.manifest else "")
    return made


def evidence_json(found: "Sequence[Evidence]") -> Any:
    """All that is attached to each digest."""
    return [
        {
            "subject": str(one.subject),
            "signatures": [_signed(signed) for signed in one.signatures],
            "statements": [{**_signed(signed), "record": _record(signed)} for signed in one.counted],
            "ignored": plain(one.ignored),
        }
        for one in found
    ]


def evidence_table(found: "Evidence") -> RenderableType:
    """A statement a row; below, what does not count and why."""
    made = table("statement", "says", "signed by", "of")
    for signed in found.counted:
        made.add_row(kind(signed.record), Text(says(signed.record)), signed.key.name, when(signed.record))
    for signed in found.signatures:
        made.add_row("signature", "the digest is ours", signed.key.name, "")
    lines = [f"does not count: {one.manifest[:19]}… {one.text}" for one in found.ignored]
    return Group(Text(str(found.subject)), made, *map(Text, lines))


def kind(record: Statable | None) -> str:
    """What people call a statement."""
    if isinstance(record, Tested):
        return f"lane {record.lane}"
    return NAMES[type(record)]


def says(record: Statable | None) -> str:
    """A statement in one line."""
    if isinstance(record, Tested):
        models = ", ".join(sorted({gpu.name for gpu in record.gpus}))
        return record.outcome.value + (f" on {models}" if models else "")
    if isinstance(record, Built):
        return f"{record.tag}, commit {(record.commit or 'none')[:12]}{', with changes' if record.dirty else ''}"
    if isinstance(record, Scanned):
        found, asked = len(record.vulnerabilities), record.packages
        return f"{found} vulnerabilities in {asked} packages, database of {_day(record.database.updated)}"
    if isinstance(record, Findings):
        return f"{len(record.secrets)} secrets, {len(record.licences)} licences"
    if isinstance(record, Bom):
        return f"{len(record.components)} components"
    return f"{record.action} {record.tag}" if isinstance(record, Decided) else ""


def when(record: Statable | None) -> str:
    """When a statement was made."""
    return _day(record.finished) if record is not None else ""


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _signed(signed: "Signed") -> dict[str, Any]:
    return {"manifest": str(signed.manifest), "key": signed.key.name, "type": signed.predicate_type}


def _record(signed: "Signed") -> Any:
    return signed.record.model_dump(mode="json") if signed.record is not None else None
