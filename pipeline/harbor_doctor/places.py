"""Where releases and candidates live in a Harbor, what is needed there, and what an administrator creates for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline import names
from pipeline.catalog import Catalog
from pipeline.errors import InputError
from pipeline.oci import Repository, Tagged
from pipeline.releases import HASH_DIGITS, Release

RELEASE_TAGS = "v[0-9]*.[0-9]*.[0-9]*"
"""Freezes `v2.6.3` and `v2.6.3-nlp`, but neither `v2.6-nlp` nor a candidate's `v2.6-nlp-<12 hex>`."""
SECRET_DAYS = 90
"""How long the secret of a robot is good that an administrator creates as we say."""
READS = ("repository:pull", "artifact:read", "artifact:list", "tag:list")
WRITES = (*READS, "repository:push", "tag:create")
RELEASES = (*WRITES, "immutable-tag:list", "project:read", "quota:read")
"""What was enough for a whole promotion on Harbor 2.15.2, and what tells beforehand that it will succeed."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One project, with examples of the tags that images have in it."""

    host: str
    project: str
    releases: tuple[Tagged, ...] = ()
    """Such as `v2.6.3-nlp`: must be frozen."""
    moving: tuple[Tagged, ...] = ()
    """Such as `v2.6-nlp`: must not be."""
    candidates: tuple[Tagged, ...] = ()
    """Must be neither frozen nor deleted."""
    chosen: str = ""
    """What the command line names, where that decides."""

    @property
    def repository(self) -> Repository:
        """The repository in which rights are tried."""
        return (*self.releases, *self.candidates)[0].repository

    @property
    def apply(self) -> str:
        """How what lacks is made."""
        return f"`{names.COMMAND} doctor{f' --harbor {self.chosen}' if self.chosen else ''} --apply` makes it"

    @property
    def rights(self) -> tuple[str, ...]:
        """What a pipeline needs here."""
        return RELEASES if self.releases else WRITES


@dataclass(frozen=True, kw_only=True)
class Change:
    """A project to be made, or a rule in one."""

    project: str
    repositories: str | None = None
    """The pattern of a rule that freezes `RELEASE_TAGS`; None: the project itself."""

    def __str__(self) -> str:
        if self.repositories is None:
            return f"create the private project `{self.project}`"
        return f"freeze the tags `{RELEASE_TAGS}` of the repositories `{self.repositories}` in project `{self.project}`"


def places(catalog: Catalog, chosen: str | None = None) -> tuple[Place, ...]:
    """The projects that hold releases and candidates: those of the catalog that are not on loopback, or the chosen one.

    Raises `InputError` when what is chosen names no project.
    """
    if chosen is not None and "/" not in chosen.strip("/"):
        raise InputError(f"`{chosen}` names no project", hint="write `--harbor HOST/PROJECT`")
    releases = Repository.parse(f"{chosen}/{catalog.repository}") if chosen else catalog.release_repository
    candidates = releases if chosen else catalog.candidate_repository
    found: dict[tuple[str, str], dict[str, tuple[Tagged, ...]]] = {}
    for kind, repository, tags in (
        ("releases", releases, [str(_release(catalog, variant)) for variant in _variants(catalog)]),
        ("moving", releases, [_release(catalog, variant).floating for variant in _variants(catalog)]),
        ("candidates", candidates, [catalog.candidate_tag(each, "0" * HASH_DIGITS) for each in catalog.images.values()]),
    ):
        if chosen or not repository.loopback:
            key = (repository.host, repository.path.partition("/")[0])
            found.setdefault(key, {})[kind] = tuple(repository.tag(tag) for tag in tags)
    return tuple(
        Place(host=host, project=project, chosen=chosen or "", **examples) for (host, project), examples in found.items()
    )


def robots(wanted: Sequence[Place]) -> tuple[Mapping[str, Any], ...]:
    """What an administrator posts to `/api/v2.0/robots`: one robot that builds candidates, one that promotes them."""
    builds = {each.project: WRITES for each in wanted if each.candidates}
    promotes = {each.project: RELEASES if each.releases else READS for each in wanted}
    return tuple(_robot(name, held) for name, held in (("ci", builds), ("release", promotes)) if held)


def inside(tagged: Tagged) -> str:
    """The repository's path without its project, as rules see it."""
    return tagged.repository.path.partition("/")[2]


def _variants(catalog: Catalog) -> tuple[str | None, ...]:
    """Of what is released; the other images are only stood on."""
    return tuple(dict.fromkeys(each.variant for each in catalog.images.values() if each.release))


def _release(catalog: Catalog, variant: str | None) -> Release:
    return Release(line=catalog.line, number=3, variant=variant)


def _robot(name: str, held: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    return {
        "name": name,
        "level": "system",
        "duration": SECRET_DAYS,
        "permissions": [
            {"kind": "project", "namespace": project, "access": [_access(right) for right in rights]}
            for project, rights in held.items()
        ],
    }


def _access(right: str) -> Mapping[str, str]:
    resource, _, action = right.partition(":")
    return {"resource": resource, "action": action}
