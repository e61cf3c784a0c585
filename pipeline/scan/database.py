"""The vulnerability database: brought once a run, proved, and kept as it was for all scans of the run.

Trivy believes any database, also an empty one, and then finds nothing. So its size, its schema and its date are looked at,
and whether it holds anything at all about the systems and languages of an image.
"""

import hashlib
import mmap
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline import names
from pipeline.errors import RegistryRefused, Temporary, ToolFailed
from pipeline.scan.bench import Bench
from pipeline.scan.buckets import roots
from pipeline.scan.trivy import Trivy
from pipeline.statements import Database
from pipeline.toolchain import require_space

SPACE = 3 * 10**9
"""Bytes free before a download: the packed database, the unpacked one, and the one before it."""
FILE, ABOUT = "trivy.db", "metadata.json"


@dataclass(frozen=True, kw_only=True)
class Brought:
    """A database that may be believed."""

    kept: Path
    """Where it is for the next run."""
    about: Database
    known: frozenset[str]
    """What it has advisories of."""


@dataclass(frozen=True)
class Absent:
    """There is none, and why."""

    why: str


class _About(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    version: Literal[2] = Field(alias="Version")
    updated: datetime = Field(alias="UpdatedAt")


class _Told(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    version: str = Field(alias="Version")
    database: _About | None = Field(default=None, alias="VulnerabilityDB")


def bring(trivy: Trivy, bench: Bench) -> Brought | Absent:
    """The newest database of the mirror, or the last one that was had from it, with a warning; else why there is none.

    Raises `ToolFailed` for a database that cannot be the real one.
    """
    mirror = bench.settings.database
    kept = bench.settings.cache / "trivy" / hashlib.sha256((mirror or "").encode()).hexdigest()[:12]
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(kept / "lock"):
        failure = _download(trivy, kept, mirror, bench)
        if not (kept / "db" / FILE).is_file():
            return Absent(failure)
        _take(kept / "db", trivy.cache / "db")
    brought = _proved(trivy, kept, bench)
    if failure:
        bench.story.warn(f"the vulnerability database is the last that was had, of {brought.about.updated:%Y-%m-%d}: {failure}")
    return brought


def require(brought: Brought, keys: Iterable[str], what: str) -> None:
    """Raise `ToolFailed` when the database knows nothing of a system or a language that `what` is made of."""
    absent = [key for key in keys if not any(name.startswith(key) for name in brought.known)]
    if absent:
        _discard(brought.kept)
        listed = ", ".join(f"`{key}`" for key in absent)
        raise ToolFailed(
            f"the vulnerability database knows nothing of {listed}, so it would find nothing in {what}",
            hint=_hint("another mirror"),
        )


def _download(trivy: Trivy, kept: Path, mirror: str | None, bench: Bench) -> str:
    """Why it could not be had; empty when it was."""
    try:
        require_space("the vulnerability database", SPACE, kept, remedy="free some, or set PIPELINE_CACHE to another disk")
        with bench.story.task(f"vulnerability database{f' of {mirror}' if mirror else ''}") as task:
            trivy.download(kept, mirror, task)
    except (Temporary, ToolFailed, RegistryRefused) as error:
        return error.message
    return ""


def _take(source: Path, place: Path) -> None:
    """The files as they are now: a newer database is written beside, never into them."""
    place.mkdir()
    try:
        (place / FILE).hardlink_to(source / FILE)
    except OSError:
        shutil.copyfile(source / FILE, place / FILE)
    shutil.copyfile(source / ABOUT, place / ABOUT)


def _discard(kept: Path) -> None:
    """Keep it no longer: Trivy would bring no other before the hour, or the date in it, is over."""
    with FileLock(kept / "lock"):
        shutil.rmtree(kept / "db", ignore_errors=True)


def _proved(trivy: Trivy, kept: Path, bench: Bench) -> Brought:
    try:
        about = _about(trivy, bench)
        with (trivy.cache / "db" / FILE).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return Brought(kept=kept, about=about, known=roots(content))
    except ToolFailed:
        _discard(kept)
        raise


def _about(trivy: Trivy, bench: Bench) -> Database:
    file, about = trivy.cache / "db" / FILE, _told(trivy).database
    if about is None:
        raise ToolFailed("trivy tells nothing of its vulnerability database", hint=_hint("another mirror"))
    if (size := file.stat().st_size) < bench.least_database:
        raise ToolFailed(
            f"the vulnerability database has {size} bytes, a real one has more than {bench.least_database}",
            hint=_hint("another mirror") + f", or, where it is so small on purpose, say so in {names.ENV_LEAST_DATABASE}",
        )
    if about.updated.year < 2000 or about.updated.tzinfo is None:
        raise ToolFailed(f"the vulnerability database tells no date: `{about.updated}`", hint=_hint("another mirror"))
    return Database(version=str(about.version), updated=about.updated)


def _told(trivy: Trivy) -> _Told:
    text = trivy.version()
    try:
        return _Told.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise ToolFailed(f"what trivy tells of its version and database cannot be read: {at}: {first['msg']}") from error


def _hint(what: str) -> str:
    return f"name {what} in {names.ENV_DATABASE}"
