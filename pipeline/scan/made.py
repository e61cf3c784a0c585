"""Records from a look at an image."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pipeline.errors import ToolFailed
from pipeline.scan import database, found
from pipeline.scan.bench import Bench, Subject
from pipeline.scan.database import Brought
from pipeline.scan.found import Places
from pipeline.scan.layers import Leaked
from pipeline.scan.report import Report, System, wanted
from pipeline.statements import Findings, Scanned


@dataclass(frozen=True, kw_only=True)
class Look:
    """A report that was proved."""

    subject: Subject
    report: Report
    system: System
    places: Places

    @property
    def scanner(self) -> str:
        """The scanner's package URL."""
        return f"pkg:golang/github.com/aquasecurity/trivy@{self.report.trivy.version}"


def scanned(look: Look, brought: Brought, bench: Bench, started: datetime, *, source: Literal["image", "sbom"]) -> Scanned:
    """The vulnerabilities; raises `ToolFailed` where none could have been found."""
    what = called(look.subject)
    database.require(brought, wanted(look.report, look.system), what)
    assessed = found.assessed(look.report, bench.unassessed)
    if not assessed:
        raise ToolFailed(f"trivy has advisories for none of the packages in {what}")
    return Scanned(
        image=look.subject.image,
        subject=str(look.subject.pinned),
        scanner=look.scanner,
        database=brought.about,
        system=f"{look.system.family} {look.system.name}".strip(),
        end_of_life=look.system.eosl,
        packages=assessed,
        unassessed=found.unassessed(look.report, bench.unassessed),
        vulnerabilities=found.vulnerabilities(look.report, look.places),
        source=source,
        started=started,
        finished=bench.now(),
        run=bench.run_id,
    )


def findings(look: Look, leaks: Iterable[Leaked], size: int, bench: Bench, started: datetime) -> Findings:
    """The licences, and what looks like secrets; `size` in bytes."""
    return Findings(
        image=look.subject.image,
        subject=str(look.subject.pinned),
        scanner=look.scanner,
        licences=found.licences(look.report, look.places),
        secrets=found.secrets(leaks, look.places),
        size=size,
        started=started,
        finished=bench.now(),
        run=bench.run_id,
    )


def called(subject: Subject) -> str:
    """An image in a sentence."""
    return f"`{subject.image or subject.pinned}`"
