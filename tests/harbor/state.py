"""What a Harbor knows besides the content: projects, accounts, artifacts, tags, rules; all in memory."""

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.tagrules import ImmutableRule, frozen_by

NEVER = "0001-01-01T00:00:00.000Z"
ADMIN, PASSWORD = "admin", "Harbor12345"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
TYPES = {
    "application/vnd.cncf.notary.signature": "signature.notation",
    "application/vnd.dev.cosign.artifact.sig.v1+json": "signature.cosign",
    "application/vnd.dev.sigstore.bundle.v0.3+json": "signature.cosign",
    "application/vnd.goharbor.harbor.sbom.v1": "sbom.harbor",
}
IMAGE_CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
ROLES = {
    2: {"repository": {"pull", "push", "read", "list"}, "artifact": {"read", "list", "create"}, "tag": {"create", "list"}},
    3: {"repository": {"pull", "read", "list"}, "artifact": {"read", "list"}, "tag": {"list"}},
}
"""Developers and guests, as far as tests need them."""
READING = {"pull", "read", "list"}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fault(Exception):
    """An answer that is an error, in Harbor's own form."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def not_found(message: str) -> Fault:
    return Fault(404, "NOT_FOUND", message)


@dataclass
class Robot:
    number: int
    name: str
    secret: str
    level: str
    permissions: list[dict[str, Any]]
    disabled: bool = False
    duration: int = -1
    created: str = field(default_factory=now)

    def may(self, project: str, resource: str, action: str) -> bool:
        held = {
            (access["resource"], access["action"])
            for each in self.permissions
            if each["kind"] == "project" and each["namespace"] in (project, "*")
            for access in each["access"]
        }
        implied = self.level == "project" and action == "pull" and ("repository", "push") in held
        return (resource, action) in held or (implied and resource == "repository")


@dataclass
class Artifact:
    number: int
    digest: str
    media_type: str
    size: int
    """Of the manifest and all that it names."""
    length: int
    manifest: dict[str, Any]
    subject: str | None
    pushed: str = field(default_factory=now)

    @property
    def artifact_type(self) -> str | None:
        return self.manifest.get("artifactType") or (self.manifest.get("config") or {}).get("mediaType")

    @property
    def children(self) -> list[str]:
        return [each["digest"] for each in self.manifest.get("manifests") or ()]


@dataclass
class Tag:
    number: int
    name: str
    digest: str
    pushed: str = field(default_factory=now)


@dataclass
class Repo:
    number: int
    name: str
    """With its project."""
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    tags: dict[str, Tag] = field(default_factory=dict)
    created: str = field(default_factory=now)

    @property
    def path(self) -> str:
        return self.name.partition("/")[2]

    def find(self, reference: str) -> Artifact:
        digest = reference if reference.startswith("sha256:") else getattr(self.tags.get(reference), "digest", "")
        if digest not in self.artifacts:
            joint = "@" if reference.startswith("sha256:") else ":"
            raise not_found(f"artifact {self.name}{joint}{reference} not found")
        return self.artifacts[digest]

    def tags_of(self, artifact: Artifact) -> list[Tag]:
        return sorted((each for each in self.tags.values() if each.digest == artifact.digest), key=lambda tag: -tag.number)

    def accessories(self, digest: str) -> list[Artifact]:
        return [each for each in self.artifacts.values() if each.subject == digest]

    def kind(self, accessory: Artifact) -> str:
        if any(tag.name.endswith(".sig") for tag in self.tags_of(accessory)):
            return "signature.cosign"
        return TYPES.get(accessory.artifact_type or "", "subject.accessory")

    def signed(self, artifact: Artifact) -> bool:
        return any(self.kind(each) == "signature.cosign" for each in self.accessories(artifact.digest))

    def parents(self, digest: str) -> bool:
        return any(digest in each.children for each in self.artifacts.values())

    def remove(self, artifact: Artifact) -> None:
        """With its tags and accessories; an index's child stays."""
        del self.artifacts[artifact.digest]
        for tag in self.tags_of(artifact):
            del self.tags[tag.name]
        for each in self.accessories(artifact.digest):
            if not self.parents(each.digest):
                self.remove(each)


@dataclass
class Project:
    number: int
    name: str
    metadata: dict[str, str]
    limit: int = -1
    members: dict[str, int] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, int] = field(default_factory=dict)
    created: str = field(default_factory=now)
    born: float = 0.0
    """On the machine's clock."""

    @property
    def used(self) -> int:
        return sum(self.blobs.values())

    @property
    def public(self) -> bool:
        return self.metadata.get("public") == "true"

    def frozen(self, repo: Repo, tag: str) -> bool:
        return frozen_by([ImmutableRule.read(each) for each in self.rules], repo.path, tag) is not None

    def make_room(self, size: int, *, probe: bool = False) -> None:
        if self.limit < 0 or self.used + size <= self.limit or (not size and not probe):
            return
        verb = f"adding {human(size)}" if size else "subtracting 0 B"
        raise Fault(
            403,
            "DENIED",
            f"{verb} of storage resource, which when updated to current usage of {human(self.used)}"
            f" will exceed the configured upper limit of {human(self.limit)}.",
        )


class State:
    """All of it; whoever looks or changes holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._numbers: dict[str, Iterator[int]] = {}
        self.users = {ADMIN: PASSWORD}
        self.robots: dict[str, Robot] = {}
        self.projects: dict[str, Project] = {}
        self.retentions: dict[int, dict[str, Any]] = {}
        self.uploads: dict[str, int] = {}
        self.read_only = False
        self.gc: dict[str, Any] = {}
        self.log: list[str] = []
        """Requests as `METHOD path`, in the order of their arrival."""
        self.add_project("library", {"public": "true"})

    def number(self, kind: str) -> int:
        return next(self._numbers.setdefault(kind, itertools.count(1)))

    def add_project(self, name: str, metadata: dict[str, str], limit: int = -1) -> Project:
        project = Project(self.number("project"), name, metadata, limit or -1, born=datetime.now(UTC).timestamp())
        self.projects[name] = project
        return project

    def add_robot(self, name: str, level: str, permissions: list[dict[str, Any]], secret: str) -> Robot:
        joined = f"{permissions[0]['namespace']}+{name}" if level == "project" else name
        robot = Robot(self.number("robot"), f"robot${joined}", secret, level, permissions)
        self.robots[robot.name] = robot
        return robot

    def repo(self, name: str) -> Repo:
        project = self.projects.get(name.partition("/")[0])
        if project is None or name not in project.repos:
            raise not_found(f"repository {name} not found")
        return project.repos[name]

    def push(self, name: str, content: bytes, digest: str, media_type: str, tag: str) -> Artifact:
        """What Harbor writes down when the registry has taken a manifest."""
        project, told = self.projects[name.partition("/")[0]], json.loads(content)
        repo = project.repos.get(name) or Repo(self.number("repo"), name)
        if tag in repo.tags and repo.tags[tag].digest != digest and project.frozen(repo, tag):
            raise Fault(412, "PRECONDITION", f"the tag {tag} configured as immutable, cannot be updated")
        project.repos[name] = repo
        if digest not in repo.artifacts:
            repo.artifacts[digest] = self._artifact(project, told, digest, media_type, len(content), tag)
        project.blobs[digest] = len(content)
        if tag and getattr(repo.tags.get(tag), "digest", "") != digest:
            number = repo.tags[tag].number if tag in repo.tags else self.number("tag")
            repo.tags[tag] = Tag(number, tag, digest)
        return repo.artifacts[digest]

    def _artifact(self, project: Project, told: dict[str, Any], digest: str, kind: str, length: int, tag: str) -> Artifact:
        parts = {each["digest"]: each["size"] for each in (*(told.get("layers") or ()), told.get("config") or {}) if each}
        for name, size in parts.items():
            project.blobs.setdefault(name, size)
        subject = (told.get("subject") or {}).get("digest")
        if tag.endswith(".sig") and any(each.get("mediaType") == SIMPLE_SIGNING for each in told.get("layers") or ()):
            subject = tag.removesuffix(".sig").replace("-", ":", 1)
        return Artifact(self.number("artifact"), digest, kind, length + sum(parts.values()), length, told, subject)


def human(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    units = iter(("KiB", "MiB", "GiB", "TiB"))
    amount = float(size)
    while amount >= 1024:
        amount, unit = amount / 1024, next(units)
    return f"{amount:.1f} {unit}"
