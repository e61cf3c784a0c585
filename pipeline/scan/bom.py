"""The list of an image's packages: CycloneDX as Trivy writes it, and what Trivy forgets when it reads it again.

Trivy does not keep who publishes a package, and would hold a third party's package against the distribution's advisories.
So each such package gets a property of our own.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pipeline import names
from pipeline.errors import InputError, ToolFailed
from pipeline.scan.report import OS_PACKAGES, THIRD_PARTY, Group, Origin, Report
from pipeline.statements import Bom, bom_statement, read

LISTED = (OS_PACKAGES, "lang-pkgs")
"""Classes of a report's groups that hold packages."""
PACKAGE_TYPE = "aquasecurity:trivy:PkgType"
"""The property that Trivy gives to each package of a document, and to nothing else in it."""
PUBLISHER = f"{names.DISTRIBUTION}:publisher"
"""The property of ours."""


def packages(report: bytes) -> bytes:
    """A report without what was found in its packages: a list of them says what there is, not what is wrong with it."""
    whole: dict[str, Any] = json.loads(report)
    kept = ("Target", "Class", "Type", "Packages")
    groups = [group for group in whole.get("Results") or () if group["Class"] in LISTED]
    whole["Results"] = [{key: group[key] for key in kept if key in group} for group in groups]
    return json.dumps(whole).encode()


def made(subject: str, text: bytes, report: Report) -> Bom:
    """The list that Trivy made of a report; raises `ToolFailed` when it cannot be read or lacks a package."""
    foreign = {package.identifier.purl for _, package in report.packages if package.repository.kind == THIRD_PARTY}
    try:
        document: dict[str, Any] = json.loads(text)
        components = [_marked(one) if one.get("purl") in foreign else one for one in document.get("components") or ()]
        bom = read(bom_statement(subject, {**document, "components": components}))
    except (ValueError, AttributeError, InputError) as error:
        raise ToolFailed(f"trivy's list of the packages of `{subject}` cannot be read: {error}") from error
    assert isinstance(bom, Bom)
    see_all(report, bom)
    return bom


def see_all(report: Report, bom: Bom) -> None:
    """Raise `ToolFailed` unless a report and a list are of as many packages."""
    listed = sum(PACKAGE_TYPE in _properties(one) for one in bom.document.get("components") or ())
    seen = sum(1 for _ in report.packages)
    if listed != seen:
        raise ToolFailed(f"trivy's report about `{bom.subject}` is of {seen} packages, its list has {listed}")


def restored(report: Report, bom: Bom) -> Report:
    """A report about a list, as one about the image would be: third parties' packages are theirs again."""
    components = bom.document.get("components") or ()
    foreign = {one.get("purl") for one in components if _properties(one).get(PUBLISHER) == THIRD_PARTY}
    return report.model_copy(update={"results": tuple(_group(group, foreign) for group in report.groups)})


def _group(group: Group, foreign: Collection[str]) -> Group:
    origin = Origin(kind=THIRD_PARTY)
    packages = tuple(
        package.model_copy(update={"repository": origin}) if package.identifier.purl in foreign else package
        for package in group.packages or ()
    )
    known = tuple(one for one in group.vulnerabilities or () if one.pkg_identifier.purl not in foreign)
    return group.model_copy(update={"packages": packages, "vulnerabilities": known})


def _marked(component: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = {"name": PUBLISHER, "value": THIRD_PARTY}
    return {**component, "properties": [*(component.get("properties") or ()), ours]}


def _properties(component: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(_pairs(component.get("properties")))


def _pairs(properties: Any) -> Iterator[tuple[str, str]]:
    return ((str(each.get("name")), str(each.get("value"))) for each in properties or ())
