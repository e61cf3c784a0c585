"""`summary`: what a change changes, from what the verbs of one job printed, against the last release."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline import context, releases
from pipeline.call import Call, content, policy_of, summarise
from pipeline.catalog import Catalog
from pipeline.changes import Change, Contents
from pipeline.errors import InputError, PipelineError
from pipeline.statements import Scanned

Entry = Mapping[str, Any]
KEPT = ("plan.json", "build.json", "scan.json")
"""What a job keeps in the folder; one that ended early has the first of them, perhaps empty."""


def summary_verb(call: Call) -> int:
    """Print it as Markdown, and add it to the summary of a job; a release that cannot be read is said, and is no failure."""
    from pipeline import report

    catalog, folder = context.load(call.settings), call.arguments.folder
    if not any((folder / name).is_file() for name in KEPT):
        raise InputError(
            f"`{folder}` holds none of {', '.join(f'`{name}`' for name in KEPT)}",
            hint="name the folder in which the verbs' `--json` was kept",
        )
    built = {str(one["image"]): one for one in _read(folder, "build.json")}
    scanned = {str(one["image"]): one for one in _read(folder, "scan.json")}
    told = [name for name in built if _tells(catalog, name, built[name])]
    text = report.changes_markdown([_change(call, catalog, name, built[name], scanned.get(name, {})) for name in told])
    print(text, end="")
    summarise(call, text)
    return 0


def _tells(catalog: Catalog, name: str, built: Entry) -> bool:
    """Nothing is to be said of an image that was there already and that nobody releases."""
    return built.get("state") != "reused" or name not in catalog.images or catalog.images[name].release


def _read(folder: Path, name: str) -> list[Entry]:
    """What a verb printed; nothing where it did not come to that."""
    path = folder / name
    if not path.is_file() or not (text := content(path)):
        return []
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"`{path}` is no JSON: {error}", hint="name the folder in which the verbs' `--json` was kept") from error
    return [one for one in found if isinstance(one, dict) and "image" in one]


def _change(call: Call, catalog: Catalog, name: str, built: Entry, scanned: Entry) -> Change:
    return Change(
        image=name,
        state=str(built.get("state", "")),
        reason=str(built.get("reason", "")),
        now=Contents(
            size=built.get("size"),
            packages=scanned.get("components"),
            scanned=_scanned(name, scanned.get("scanned")),
        ),
        released=_released(call, catalog, name),
    )


def _scanned(image: str, found: Any) -> Scanned | None:
    try:
        return None if found is None else Scanned.model_validate(found)
    except ValidationError as error:
        raise InputError(
            f"`scan.json` tells of `{image}` what no scan does: {error}",
            hint="keep there what `scan --json` of this version printed",
        ) from error


def _released(call: Call, catalog: Catalog, name: str) -> Contents | None:
    """The last release, by the evidence that the policy's keys signed; none where it cannot be had."""
    if name not in catalog.images or not catalog.images[name].release:
        return None
    try:
        return _contents(call, catalog, name)
    except PipelineError as error:
        call.console.warn(f"the release of `{name}` cannot be read: {error.message}")
        return None


def _contents(call: Call, catalog: Catalog, name: str) -> Contents | None:
    from pipeline.gather import gather
    from pipeline.statements import Bom

    repository = catalog.release_repository
    last = releases.highest(call.registry.tags(repository), catalog.line, catalog.images[name].variant)
    digest = call.registry.resolve(repository.tag(str(last))) if last else None
    if digest is None:
        return None
    pinned = repository.at(digest)
    keys = policy_of(call, catalog, loopback=repository.loopback).keys
    evidence = gather(pinned, keys, call.registry, now=call.now())
    bom, scanned = evidence.one(Bom), evidence.one(Scanned)
    return Contents(
        tag=str(last),
        size=call.registry.manifest(pinned).size,
        packages=bom.components if bom else None,
        scanned=scanned,
    )
