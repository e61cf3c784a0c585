"""Trivy's JSON report, strictly read: what is used of it must be there and of its kind; the rest may change.

Format: Trivy's report, `SchemaVersion` 2.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from importlib import resources
from string import Formatter
from typing import Literal

import yaml
from pydantic import AliasGenerator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_pascal

from pipeline.errors import ToolFailed
from pipeline.oci import Digest
from pipeline.statements.values import Severity

OS_PACKAGES = "os-pkgs"
THIRD_PARTY = "third-party"
"""What Trivy calls packages that are not the distribution's own; it has no advisories for them."""


OF_ONE = ("CVE-", "GHSA-")
"""How the names of single vulnerabilities begin; names of bulletins begin otherwise."""


class _Read(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        validate_by_name=True,
        alias_generator=AliasGenerator(validation_alias=to_pascal),
    )


class Layer(_Read):
    """The layer of something that was found."""

    diff_id: str = Field(default="", validation_alias="DiffID")


class Identifier(_Read):
    """Names a package everywhere."""

    purl: str = Field(default="", validation_alias="PURL")


class Origin(_Read):
    """Who publishes a package: `official` or `third-party`."""

    kind: str = Field(default="", validation_alias="Class")


class Package(_Read):
    """A package that was found."""

    name: str
    version: str = ""
    release: str = ""
    epoch: int = 0
    file_path: str = ""
    layer: Layer = Layer()
    identifier: Identifier = Identifier()
    repository: Origin = Origin()

    @property
    def full_version(self) -> str:
        """As the distribution writes it: `1:4.13-2`."""
        return (f"{self.epoch}:" if self.epoch else "") + self.version + (f"-{self.release}" if self.release else "")


class Weakness(_Read):
    """A vulnerability of a package."""

    id: str = Field(validation_alias="VulnerabilityID")
    pkg_name: str
    installed_version: str
    fixed_version: str = ""
    severity: Severity
    status: str = ""
    published_date: datetime | None = None
    vendor_ids: tuple[str, ...] = Field(default=(), validation_alias="VendorIDs")
    pkg_path: str = ""
    pkg_identifier: Identifier = Identifier()
    layer: Layer = Layer()

    @property
    def published(self) -> datetime | None:
        """When it became known; the year 1 is how Go writes that nobody knows."""
        return self.published_date if self.published_date and self.published_date.year > 1 else None

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names of this one: a GHSA, a CVE; one DSA, DLA or RHSA is about several."""
        return tuple(sorted(name for name in set(self.vendor_ids) - {self.id} if name.startswith(OF_ONE)))


class Leak(_Read):
    """Something that looks like a secret; its text is not read."""

    rule_id: str = Field(validation_alias="RuleID")
    severity: Severity
    layer: Layer = Layer()


class License(_Read):
    """A licence of a package or a file."""

    name: str
    category: str = ""
    pkg_name: str = ""
    file_path: str = ""


class Group(_Read):
    """What was found in one place: the packages of the distribution, or of one language; the secrets of one file."""

    target: str
    kind: str = Field(validation_alias="Class")
    type: str = ""
    packages: tuple[Package, ...] | None = None
    vulnerabilities: tuple[Weakness, ...] | None = None
    secrets: tuple[Leak, ...] | None = None
    licenses: tuple[License, ...] | None = None


class System(_Read):
    """The operating system."""

    family: str
    name: str
    eosl: bool = Field(default=False, validation_alias="EOSL")


class Metadata(_Read):
    """What was scanned."""

    os: System | None = Field(default=None, validation_alias="OS")
    image_id: str = Field(default="", validation_alias="ImageID")
    diff_ids: tuple[str, ...] | None = Field(default=None, validation_alias="DiffIDs")


class Scanner(_Read):
    """Trivy itself."""

    version: str


class Report(_Read):
    """One report."""

    schema_version: Literal[2]
    trivy: Scanner
    artifact_name: str
    artifact_type: Literal["container_image", "cyclonedx"]
    metadata: Metadata
    results: tuple[Group, ...] | None = None

    @property
    def groups(self) -> tuple[Group, ...]:
        """All that was found."""
        return self.results or ()

    @property
    def packages(self) -> Iterator[tuple[Group, Package]]:
        """All packages, with the group that each is in."""
        return ((group, package) for group in self.groups for package in group.packages or ())


class Known(BaseModel):
    """A type of packages that Trivy has advisories for (`data/trivy.yaml`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: str
    listing: str = ""


def parse(text: bytes, what: str) -> Report:
    """The report about `what`; raises `ToolFailed` when it is truncated, or is not one."""
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise ToolFailed(f"trivy's report about {what} cannot be read: {at or 'all of it'}: {first['msg']}") from error


def prove(report: Report, config: Digest, what: str, *, locked: frozenset[str] = frozenset()) -> System:
    """That something was really scanned, and that it was this image; returns the operating system.

    Raises `ToolFailed` for a report about another image, an unknown operating system, no packages, or a distribution of
    `locked` that the scanner did not see.
    """
    if report.metadata.image_id != str(config):
        raise ToolFailed(f"trivy's report is about the image `{report.metadata.image_id}`, not about {what} with `{config}`")
    system = report.metadata.os
    if system is None or not system.family or system.family == "none":
        raise ToolFailed(
            f"trivy knows no operating system in {what}, so it found nothing in it", hint="scan images that have one"
        )
    if not any(group.kind == OS_PACKAGES and group.packages for group in report.groups):
        raise ToolFailed(f"trivy found no package of {system.family} {system.name} in {what}, which cannot be")
    unseen = locked - {normal(package.name) for _, package in report.packages}
    if unseen:
        listed = ", ".join(f"`{name}`" for name in sorted(unseen)[:5])
        raise ToolFailed(f"trivy did not see {len(unseen)} of the distributions that the locks install into {what}: {listed}")
    return system


def normal(name: str) -> str:
    """A distribution's name as locks write it."""
    return "-".join(filter(None, name.lower().replace("_", "-").replace(".", "-").split("-")))


def wanted(report: Report, system: System) -> Iterator[str]:
    """Keys that a database must hold to know anything of what was found; raises `ToolFailed` for an unknown distribution."""
    if system.family not in known():
        raise ToolFailed(f"trivy has no advisories that we know of for {system.family} {system.name}")
    version = dict(zip(("major", "minor"), [*system.name.split("."), "", ""], strict=False))
    for kind in sorted({group.type for group in report.groups if group.packages} & known().keys()):
        text = known()[kind].database
        fields = {field for _, field, _, _ in Formatter().parse(text) if field}
        yield text.format(**{field: version[field] for field in fields})


@cache
def known() -> dict[str, Known]:
    """The data file."""
    text = resources.files("pipeline").joinpath("data", "trivy.yaml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Known]).validate_python(yaml.safe_load(text))
