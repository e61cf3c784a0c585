"""`scan`: what is in candidates, and what is known to be wrong with it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import context, names, plan
from pipeline.call import Call, policy_of, print_json, ready_for, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, NothingSelected
from pipeline.locks import parse_requirements
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.survey import Survey, survey
from pipeline.verbs.candidates import existing

if TYPE_CHECKING:
    from pipeline.scan import Bench, Result, Subject


def scan_verb(call: Call) -> int:
    """Scan images, or the list of one's packages."""
    from pipeline import report, scan, surroundings

    catalog, registry = context.load(call.settings), call.registry
    ready = ready_for(call, catalog, "trivy", *(["registry"] if _ours(call, catalog) else []))
    bench = scan.Bench(
        settings=call.settings,
        registry=registry,
        trivy=ready.tools["trivy"].path,
        run=call.run,
        environment=call.environment,
        around=surroundings.read(call.environment),
        story=call.console,
        now=call.now,
        run_id=call.run_id,
        platform=catalog.platform,
        unassessed=catalog.unassessed,
    )
    with call.console.fold("scanning"):
        results = _results(call, catalog, _subjects(call, catalog, registry), bench)
    if call.arguments.json:
        print_json(report.scans_json(results))
    call.console.show(report.scans_table(results))
    summarise(call, report.scans_markdown(results))
    return scan.exit_code(results, require_database=call.arguments.require_database)


def _results(call: Call, catalog: Catalog, subjects: "Sequence[Subject]", bench: "Bench") -> "Sequence[Result]":
    from pipeline import scan

    file = call.arguments.from_sbom
    if call.arguments.attached_sbom:
        return scan.rescan_each(subjects, lambda subject: _attached(call, subject.pinned, catalog), bench)
    if file is None:
        return scan.scan(subjects, bench)
    if len(subjects) != 1:
        raise InputError(
            f"`--from-sbom` is about one image, not about {len(subjects)}", hint="name the image whose packages the file lists"
        )
    return [scan.rescan(subjects[0], _bom(file, subjects[0].pinned), bench)]


def _attached(call: Call, pinned: Pinned, catalog: Catalog) -> Any:
    """The list of packages that an accepted key says to be that of the image."""
    from pipeline.gather import gather
    from pipeline.statements import Bom

    bom = gather(pinned, policy_of(call, catalog).keys, call.registry, now=call.now()).one(Bom)
    if bom is None:
        raise InputError(f"no list of packages that counts is attached to `{pinned}`", hint="scan the image itself, then sign")
    return bom


def _bom(file: Path, pinned: Pinned) -> Any:
    """The list in a file: a CycloneDX document as Trivy writes it, or the statement with one in it."""
    from pipeline.statements import Bom, bom_statement, read

    try:
        data: Mapping[str, Any] = json.loads(file.read_bytes())
        bom = read(data if "predicateType" in data else bom_statement(str(pinned), data))
    except (OSError, ValueError, TypeError, InputError) as error:
        text = error.message if isinstance(error, InputError) else str(error)
        raise InputError(f"`{file}` is no list of packages that we can read: {text}", hint="name a `bom.json` of ours") from error
    if not isinstance(bom, Bom):
        raise InputError(f"`{file}` is another statement than a list of packages", hint="name the `bom.json` beside it")
    if Pinned.parse(bom.subject).digest != pinned.digest:
        raise InputError(f"`{file}` lists the packages of `{bom.subject}`, not of `{pinned}`", hint="name the list of this image")
    return bom


def _ours(call: Call, catalog: Catalog) -> bool:
    """Whether our own registry is needed: for images named by the catalog."""
    return not call.images or any(not _elsewhere(text) for text in call.images)


def _elsewhere(text: str) -> bool:
    return "/" in text or "@" in text


def _subjects(call: Call, catalog: Catalog, registry: Registry) -> "Sequence[Subject]":
    """The images named, by the catalog's names or by reference; all that are released when none is."""
    wanted = call.images or [name for name, image in catalog.images.items() if image.release]
    if not wanted:
        raise NothingSelected("no image of the catalog is released", hint="name the images to scan")
    chosen = {text: _chosen(text, catalog, registry) for text in wanted if text not in catalog.images}
    pinned = {text: registry.config(one).labels.get(names.LABEL_IMAGE, "") for text, one in chosen.items()}
    known = [name for name in [*wanted, *pinned.values()] if name in catalog.images]
    family = dict.fromkeys(one for name in known for one in [*_below(catalog, name), name])
    found = survey(call.settings, catalog, registry, list(family), story=call.console) if known else None
    return [
        _subject(call, catalog, found, pinned[text], chosen[text]) if text in chosen else _candidate(call, catalog, found, text)
        for text in wanted
    ]


def _chosen(text: str, catalog: Catalog, registry: Registry) -> Pinned:
    from pipeline.run import choose

    return choose(text, catalog, registry).pinned


def _candidate(call: Call, catalog: Catalog, found: Survey | None, name: str) -> "Subject":
    assert found is not None
    (step,) = existing(found, [name])
    assert step.digest is not None
    return _subject(call, catalog, found, name, catalog.candidate_repository.at(step.digest), locked=True)


def _subject(call: Call, catalog: Catalog, found: Survey | None, name: str, pinned: Pinned, *, locked: bool = False) -> "Subject":
    from pipeline.scan import Subject

    if name not in catalog.images or found is None:
        return Subject(image=name, pinned=pinned)
    below = _below(catalog, name)
    steps: Mapping[str, plan.Step] = {step.image: step for step in found.steps}
    digests = {image: steps[image].digest for image in below}
    return Subject(
        image=name,
        pinned=pinned,
        lineage=[(image, catalog.candidate_repository.at(digest) if digest else None) for image, digest in digests.items()],
        locked=_locked(call, [*below, name]) if locked else frozenset(),
    )


def _below(catalog: Catalog, name: str) -> Sequence[str]:
    """The images that one stands on, the lowest first."""
    return [image.name for image in catalog.ancestors(catalog.images[name])][::-1]


def _locked(call: Call, images: Sequence[str]) -> frozenset[str]:
    """The Python distributions that the locks of these images install."""
    files = (file for image in images for file in sorted((call.settings.images / image / "requirements").glob("*.lock")))
    return frozenset(name for file in files for name in parse_requirements(file.read_text(encoding="utf-8")).requirements)
