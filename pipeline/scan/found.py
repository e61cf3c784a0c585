"""A report as records: each thing with its file, its layer, and the image of the family whose layer that is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pipeline.oci import Config, Digest
from pipeline.scan.bench import Images, Subject
from pipeline.scan.layers import Leaked
from pipeline.scan.report import OS_PACKAGES, THIRD_PARTY, Group, Layer, License, Package, Report, known, normal
from pipeline.statements import Licence, Place, Secret, Vulnerability


@dataclass(frozen=True)
class Places:
    """Tells the place of a thing; `owners` are the images of the layers."""

    owners: Mapping[str, str]

    def at(self, file: str, layer: Layer) -> Place:
        """The place of something in a file of a layer."""
        return Place(file=file, layer=layer.diff_id, image=self.owners.get(layer.diff_id, ""))


def places(subject: Subject, config: Config, registry: Images) -> Places:
    """Which image brought each layer: what an image has more than its parent is its own, where both are known."""
    own: dict[str, str] = {}
    done, sure = 0, True
    for image, layers in _lineage(subject, config, registry):
        if layers is None or layers != config.diff_ids[: len(layers)]:
            sure = False
            continue
        if sure:
            own |= {str(layer): image for layer in layers[done:] if str(layer) not in own}
        done, sure = len(layers), True
    return Places(own)


def vulnerabilities(report: Report, places: Places) -> tuple[Vulnerability, ...]:
    """All, those of one vulnerability together."""
    found = [
        Vulnerability(
            id=one.id,
            package=one.pkg_name,
            installed=one.installed_version,
            fixed=one.fixed_version,
            severity=one.severity,
            status=one.status,
            published=one.published,
            aliases=one.aliases,
            place=places.at(one.pkg_path or _listing(group), one.layer),
        )
        for group in report.groups
        for one in group.vulnerabilities or ()
    ]
    return tuple(sorted(found, key=lambda one: (one.id, one.package, one.installed, one.place.file, one.place.layer)))


def unassessed(report: Report, patterns: Sequence[str]) -> tuple[str, ...]:
    """Packages, `name version`, that no advisory is about."""
    found = {
        f"{package.name} {package.full_version}".strip()
        for group, package in report.packages
        if not _assessed(group, package, patterns)
    }
    return tuple(sorted(found))


def assessed(report: Report, patterns: Sequence[str]) -> int:
    """How many packages there are advisories for."""
    return sum(_assessed(group, package, patterns) for group, package in report.packages)


def secrets(leaks: Iterable[Leaked], places: Places) -> tuple[Secret, ...]:
    """What looks like secrets, without their text; those of the configuration have no file."""
    found = {Secret(rule=leak.rule_id, severity=leak.severity, place=places.at(file, leak.layer)) for file, leak in leaks}
    return tuple(sorted(found, key=lambda one: (one.place.file, one.rule, one.place.layer)))


def licences(report: Report, places: Places) -> tuple[Licence, ...]:
    """The licences of packages, once for each file, and of files."""
    homes = {(package.name, package.file_path): (group, package) for group, package in report.packages}
    found = {_licence(one.name, one.category, one.pkg_name, one.file_path, homes, places) for one in _licensed(report)}
    return tuple(sorted(found, key=lambda one: (one.name, one.package, one.place.file, one.place.layer)))


def _licence(
    name: str, category: str, package: str, file: str, homes: Mapping[tuple[str, str], tuple[Group, Package]], places: Places
) -> Licence:
    group, home = homes.get((package, file), (None, None))
    path = file or (_listing(group) if group else "")
    place = places.at(path, home.layer if home else Layer())
    return Licence(name=name, package=package, category=category or "unknown", place=place)


def _lineage(subject: Subject, config: Config, registry: Images) -> Iterator[tuple[str, tuple[Digest, ...] | None]]:
    for image, pinned in subject.lineage:
        yield image, registry.config(pinned).diff_ids if pinned else None
    yield subject.image, config.diff_ids


def _licensed(report: Report) -> Iterator[License]:
    return (one for group in report.groups for one in group.licenses or ())


def _assessed(group: Group, package: Package, patterns: Sequence[str]) -> bool:
    if group.type not in known() or package.repository.kind == THIRD_PARTY:
        return False
    return not any(fnmatchcase(normal(package.name), pattern) for pattern in patterns)


def _listing(group: Group) -> str:
    return known()[group.type].listing if group.kind == OS_PACKAGES and group.type in known() else ""
