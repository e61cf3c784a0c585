"""Registry names and manifests as types: a digest and a tag are never confused, and parsing is at the edge.

Grammar: OCI distribution specification 1.1, `distribution/reference`. The host rule is docker's: the first component is
a host when it holds `.` or `:`, or is `localhost`.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pipeline.errors import InputError, ToolFailed

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
"""The type of `{}`, where a manifest needs a configuration and has none."""

DOCKER_HUB = "docker.io"
NAME_LIMIT = 255
"""Characters of host and path together."""

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_STAND_IN = re.compile(r"sha256-([0-9a-f]{64})")
_OTHERWISE = re.compile(r"(?!sha256:)[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[A-Za-z0-9=_-]{32,}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?")
_PORT = re.compile(r":([0-9]+)$")


@dataclass(frozen=True, order=True)
class Digest:
    """`sha256:` and 64 hex digits."""

    text: str

    def __post_init__(self) -> None:
        if not DIGEST.fullmatch(self.text):
            raise InputError(f"`{self.text}` is not a sha256 digest", hint="write `sha256:` and all of its 64 hex digits")

    def __str__(self) -> str:
        return self.text

    @property
    def hex(self) -> str:
        """The 64 hex digits."""
        return self.text.removeprefix("sha256:")

    @classmethod
    def listed_by(cls, tag: str) -> Self | None:
        """That whose referrers the index under `tag` lists, where a registry keeps no list; nothing for other tags."""
        found = _STAND_IN.fullmatch(tag)
        return cls(f"sha256:{found[1]}") if found else None

    @classmethod
    def of(cls, content: bytes) -> Self:
        """The digest of `content`."""
        return cls("sha256:" + hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, order=True)
class Repository:
    """A registry's host (with port) and a path in it: `localhost:5601/candidates/pytorch-cuda`."""

    host: str
    path: str

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or not _PATH.fullmatch(self.path) or len(str(self)) > NAME_LIMIT:
            raise InputError(f"`{self.host}/{self.path}` is not a repository", hint="write `host[:port]/path`, lower case")
        if (port := _PORT.search(self.host)) and not 0 < int(port[1]) < 2**16:
            raise InputError(f"`{self.host}/{self.path}` has a port that there is not", hint="a port is a number from 1 to 65535")

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host[:port]/path`; a name without a host is Docker Hub's."""
        host, slash, path = text.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost" or host != host.lower()):
            host, path = DOCKER_HUB, text
        if host in (DOCKER_HUB, f"index.{DOCKER_HUB}"):
            host, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
        return cls(host, path)

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine."""
        name = re.sub(r":[0-9]+$", "", self.host)
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return name == "localhost"

    def at(self, digest: Digest) -> "Pinned":
        """The content `digest` in this repository."""
        return Pinned(self, digest)

    def tag(self, name: str) -> "Tagged":
        """The tag `name` in this repository."""
        return Tagged(self, name)


@dataclass(frozen=True, order=True)
class Pinned:
    """Content: a repository and a digest."""

    repository: Repository
    digest: Digest

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host/path[:tag]@sha256:…`; a tag beside a digest is dropped, the digest wins."""
        name, at, digest = text.rpartition("@")
        if not at:
            raise InputError(f"`{text}` has no digest", hint="write `repository@sha256:…`")
        return cls(_split_tag(name)[0], Digest(digest))


@dataclass(frozen=True, order=True)
class Tagged:
    """A tag in a repository: it can move."""

    repository: Repository
    name: str

    def __post_init__(self) -> None:
        if not _TAG.fullmatch(self.name):
            raise InputError(f"`{self.name}` is not a tag", hint="letters, digits, `_`, `.` and `-`, 128 at most")

    def __str__(self) -> str:
        return f"{self.repository}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host/path[:tag]`; the tag is `latest` when there is none."""
        repository, tag = _split_tag(text)
        return cls(repository, "latest" if tag is None else tag)


def parse_reference(text: str) -> Pinned | Tagged:
    """A reference with a digest is `Pinned`, any other `Tagged`."""
    return Pinned.parse(text) if "@" in text else Tagged.parse(text)


def _split_tag(text: str) -> tuple[Repository, str | None]:
    """A colon behind the last `/` begins a tag; one before it, a port."""
    head, colon, tail = text.rpartition(":")
    if colon and "/" not in tail:
        return Repository.parse(head), tail
    return Repository.parse(text), None


@dataclass(frozen=True)
class Descriptor:
    """What a manifest says of a piece of content; `size` in bytes."""

    media_type: str
    digest: Digest
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str = ""
    elsewhere: bool = False
    """Whether it names other places that have it: then a registry takes the manifest without holding this."""


@dataclass(frozen=True)
class Manifest:
    """An image manifest, byte for byte as the registry holds it, and what it says."""

    body: bytes
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str]
    artifact_type: str = ""
    subject: Digest | None = None
    """What this manifest refers to."""

    @property
    def digest(self) -> Digest:
        """The digest of the body."""
        return Digest.of(self.body)

    @property
    def size(self) -> int:
        """Compressed bytes of all layers."""
        return sum(layer.size for layer in self.layers)

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read an image manifest; raises `ToolFailed` on an index, schema 1 or anything unreadable."""
        try:
            data = json.loads(body)
            media_type = data.get("mediaType", OCI_MANIFEST)
            if media_type not in (OCI_MANIFEST, DOCKER_MANIFEST) or data.get("schemaVersion") != 2 or "manifests" in data:
                raise ToolFailed(f"the registry answered a `{media_type}` where an image manifest was meant")
            config, layers = _descriptor(data["config"]), tuple(_descriptor(x) for x in data["layers"])
            annotations = _texts(data.get("annotations"))
            kind, subject = _text(data.get("artifactType")), data.get("subject")
            refers_to = None if subject is None else _descriptor(subject).digest
        except _UNREADABLE as error:
            raise ToolFailed(f"a manifest cannot be read: {error!r}") from error
        return cls(body, media_type, config, layers, annotations, kind, refers_to)


def parse_index(body: bytes) -> tuple[Descriptor, ...]:
    """The entries of an image index; raises `ToolFailed` on anything else, also when a single entry cannot be read.

    What is named by another algorithm than sha256 is left out: nothing that we read or write is, and anybody may list such.
    """
    try:
        data = json.loads(body)
        media_type = data.get("mediaType", OCI_INDEX)
        if media_type not in (OCI_INDEX, DOCKER_INDEX) or data.get("schemaVersion") != 2 or "layers" in data:
            raise ToolFailed(f"the registry answered a `{media_type}` where an index was meant")
        return tuple(_descriptor(each) for each in data["manifests"] or () if not _OTHERWISE.fullmatch(each["digest"]))
    except _UNREADABLE as error:
        raise ToolFailed(f"an index cannot be read: {error!r}") from error


@dataclass(frozen=True)
class Config:
    """The parts of an image's configuration that the pipeline reads."""

    diff_ids: tuple[Digest, ...]
    created: str
    labels: Mapping[str, str]
    environment: tuple[str, ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    user: str
    exposed: tuple[str, ...]
    platform: str
    history: tuple[str, ...] = ()
    """What made each layer, in the words of the builder."""

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read an image configuration; raises `ToolFailed` on anything unreadable."""
        try:
            data = json.loads(body)
            run: Mapping[str, Any] = data.get("config") or {}
            return cls(
                diff_ids=tuple(Digest(x) for x in data["rootfs"]["diff_ids"]),
                created=data.get("created") or "",
                labels=_texts(run.get("Labels")),
                environment=tuple(run.get("Env") or ()),
                entrypoint=tuple(run.get("Entrypoint") or ()),
                command=tuple(run.get("Cmd") or ()),
                user=run.get("User") or "",
                exposed=tuple(run.get("ExposedPorts") or ()),
                platform=f"{data['os']}/{data['architecture']}",
                history=tuple(x.get("created_by") or "" for x in data.get("history") or () if not x.get("empty_layer")),
            )
        except _UNREADABLE as error:
            raise ToolFailed(f"an image configuration cannot be read: {error!r}") from error


def _descriptor(data: Mapping[str, Any]) -> Descriptor:
    size = data["size"]
    if type(size) is not int or size < 0:
        raise ValueError(f"{size!r} is not a size")
    annotations, kind = _texts(data.get("annotations")), _text(data.get("artifactType"))
    return Descriptor(_text(data["mediaType"]), Digest(data["digest"]), size, annotations, kind, bool(data.get("urls")))


def _text(value: Any) -> str:
    """A text, which may be absent."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    (value or "").encode()  # half a character cannot be shown
    return value or ""


def _texts(value: Any) -> Mapping[str, str]:
    """Names and texts, which may be absent."""
    found = {} if value is None else dict(value.items())
    if not all(isinstance(text, str) for text in found.values()):
        raise TypeError(f"{value!r} holds something else than texts")
    return found
