"""The stage: look at each image once, prove that something was looked at, and keep what was found before anybody judges it."""

import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline import names, records
from pipeline.errors import Interrupted, PipelineError, Temporary, Terminated, worst
from pipeline.oci import Config
from pipeline.scan import bom as boms
from pipeline.scan import database, found, made
from pipeline.scan import report as reports
from pipeline.scan.bench import Bench, Result, Subject
from pipeline.scan.database import Absent, Brought
from pipeline.scan.layers import Layers
from pipeline.scan.made import Look, called
from pipeline.scan.trivy import Trivy
from pipeline.statements import Bom, Scanned, bom_statement, findings_statement, scanned_statement

KINDS = ("scanned", "findings", "bom")
"""The statements of a scan, by the names of their files."""


def scan(subjects: Sequence[Subject], bench: Bench) -> tuple[Result, ...]:
    """Scan each image, with one database for all; one that cannot be scanned has an error, and nothing is written for it.

    Where no database can be had, vulnerabilities are not assessed, and no statement says that they were. Raises
    `ToolFailed` for a database that cannot be the real one.
    """
    with _room(bench) as room:
        trivy = Trivy(bench, room)
        brought = database.bring(trivy, bench)
        if isinstance(brought, Absent):
            bench.story.warn(f"vulnerabilities are not assessed: {brought.why}")
        layers = Layers(trivy, bench)
        return tuple(_guarded(subject, partial(_scan, subject, trivy, layers, brought, bench)) for subject in subjects)


def rescan(subject: Subject, bom: Bom, bench: Bench) -> Result:
    """The vulnerabilities of an image from the list of its packages alone, by today's database.

    Raises `Temporary` when no database can be had, `ToolFailed` when the list is another image's, and as `scan` does.
    """
    with _room(bench) as room:
        trivy = Trivy(bench, room)
        brought = database.bring(trivy, bench)
        if isinstance(brought, Absent):
            raise Temporary(f"there is no vulnerability database: {brought.why}", hint=f"name a mirror in {names.ENV_DATABASE}")
        _forget(subject, bench, ["scanned"])
        scanned = _rescanned(subject, bom, trivy, brought, bench)
    records.write(bench.settings, subject.pinned.digest, "scanned", scanned_statement(scanned))
    return Result(subject=subject, scanned=scanned, bom=bom)


def rescan_each(subjects: Sequence[Subject], listed: Callable[[Subject], Bom], bench: Bench) -> tuple[Result, ...]:
    """Each as `rescan`, by the list that `listed` finds; one that cannot be looked up has an error, the others go on."""
    return tuple(_guarded(subject, partial(_listed, subject, listed, bench)) for subject in subjects)


def exit_code(results: Sequence[Result], *, require_database: bool = False) -> int:
    """Of several images, the worst; vulnerabilities that were not assessed are fine unless `require_database`."""
    return worst([_code(result, require_database=require_database) for result in results])


def _code(result: Result, *, require_database: bool) -> int:
    if result.error:
        return result.error.exit_code
    return Temporary.exit_code if result.unscanned and require_database else 0


def _listed(subject: Subject, listed: Callable[[Subject], Bom], bench: Bench) -> Result:
    return rescan(subject, listed(subject), bench)


def _guarded(subject: Subject, work: Callable[[], Result]) -> Result:
    try:
        return work()
    except (Interrupted, Terminated):
        raise
    except PipelineError as error:
        return Result(subject=subject, error=error)


def _scan(subject: Subject, trivy: Trivy, layers: Layers, brought: Brought | Absent, bench: Bench) -> Result:
    _forget(subject, bench, KINDS)
    manifest = bench.registry.manifest(subject.pinned)
    text_of_config = bench.registry.blob(subject.pinned.repository, manifest.config)
    started, what, log = bench.now(), called(subject), _log(subject, bench)
    with bench.story.task(f"scanning {what}") as task:
        text = trivy.image(subject.pinned, vulnerabilities=isinstance(brought, Brought), log=log, task=task)
        report = reports.parse(text, what)
        system = reports.prove(report, manifest.config.digest, what, locked=subject.locked)
        bom = boms.made(str(subject.pinned), trivy.cyclonedx(boms.packages(text)), report)
        leaks = layers.leaks(report, subject, manifest, text_of_config, log=log, task=task)
    places = found.places(subject, Config.parse(text_of_config), bench.registry)
    look = Look(subject=subject, report=report, system=system, places=places)
    result = Result(
        subject=subject,
        scanned=made.scanned(look, brought, bench, started, source="image") if isinstance(brought, Brought) else None,
        findings=made.findings(look, leaks, manifest.size, bench, started),
        bom=bom,
        unscanned=brought.why if isinstance(brought, Absent) else "",
    )
    _keep(result, bench)
    return result


def _rescanned(subject: Subject, bom: Bom, trivy: Trivy, brought: Brought, bench: Bench) -> Scanned:
    manifest, config = bench.registry.manifest(subject.pinned), bench.registry.config(subject.pinned)
    started, what = bench.now(), called(subject)
    with bench.story.task(f"looking through the packages of {what}"):
        report = boms.restored(reports.parse(trivy.sbom(json.dumps(bom.document).encode()), what), bom)
        system = reports.prove(report, manifest.config.digest, what, locked=subject.locked)
    boms.see_all(report, bom)
    look = Look(subject=subject, report=report, system=system, places=found.places(subject, config, bench.registry))
    return made.scanned(look, brought, bench, started, source="sbom")


def _keep(result: Result, bench: Bench) -> None:
    """Write what there is, when all of it could be made."""
    subject, digest = str(result.subject.pinned), result.subject.pinned.digest
    if result.findings:
        records.write(bench.settings, digest, "findings", findings_statement(result.findings))
    if result.bom:
        records.write(bench.settings, digest, "bom", bom_statement(subject, result.bom.document))
    if result.scanned:
        records.write(bench.settings, digest, "scanned", scanned_statement(result.scanned))


def _forget(subject: Subject, bench: Bench, kinds: Sequence[str]) -> None:
    """What is there after a scan is what that scan found."""
    for kind in kinds:
        records.path(bench.settings, subject.pinned.digest, kind).unlink(missing_ok=True)


def _log(subject: Subject, bench: Bench) -> Path:
    """A log of this scan alone."""
    log = bench.settings.work / "logs" / f"{subject.image or subject.pinned.digest.hex}-scan.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    return log


@contextmanager
def _room(bench: Bench) -> Iterator[Path]:
    """An empty folder on the cache's disk, locked before it is there; what killed runs left of theirs goes first."""
    rooms = bench.settings.cache / "scanning"
    rooms.mkdir(parents=True, exist_ok=True)
    for left in rooms.glob("*.lock"):
        with suppress(Timeout), FileLock(left).acquire(timeout=0):
            shutil.rmtree(left.with_suffix(""), ignore_errors=True)
            left.unlink(missing_ok=True)
    room = rooms / secrets.token_hex(8)
    lock = room.with_name(f"{room.name}.lock")
    with FileLock(lock):
        room.mkdir()
        try:
            yield room
        finally:
            shutil.rmtree(room, ignore_errors=True)
            lock.unlink(missing_ok=True)
