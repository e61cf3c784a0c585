"""The stage that makes room on this machine: old candidates leave our own registry and the engine."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline import names, ownregistry, pruning
from pipeline.catalog import Catalog
from pipeline.command import Run
from pipeline.engine import Engine
from pipeline.engine.candidates import candidates, forget
from pipeline.inputs import InputHash
from pipeline.oci import DOCKER_INDEX, OCI_INDEX, Config, Digest, Manifest, Pinned, Repository, parse_index
from pipeline.pruning import Held, Pruning, Shelf
from pipeline.registry import Registry
from pipeline.story import Story
from pipeline.survey import in_parallel
from pipeline.toolchain import Host

CONFIGURATIONS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
"""What an image's configuration is called; a cache's is called otherwise."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where room is made."""

    catalog: Catalog
    hashes: Mapping[str, InputHash]
    """Of all images of the catalog."""
    registry: Registry
    cache: Path
    engine: Engine | None
    """One on this machine, if there is any."""
    host: Host
    run: Run
    story: Story

    @property
    def repository(self) -> Repository:
        """Where the candidates are."""
        return self.catalog.candidate_repository


@dataclass(frozen=True, kw_only=True)
class Look:
    """What would go."""

    pruning: Pruning
    loaded: tuple[str, ...]
    """Candidates in the engine, by their tags."""


@dataclass(frozen=True, kw_only=True)
class Freed:
    """What went."""

    registry: int
    """Bytes."""
    in_use: tuple[str, ...]
    """Candidates that the engine still has, since a container uses them."""


def look(room: Room) -> Look:
    """What would go; raises `InputError` for a registry that is not ours, and what the registry of the releases answers."""
    ownregistry.require_ours(room.repository, room.cache)
    images = room.catalog.images
    wanted = {room.catalog.candidate_tag(images[name], found.value) for name, found in room.hashes.items()}
    found = pruning.plan(_shelf(room), wanted=wanted, released=_spoken_for(room))
    loaded = candidates(room.engine, room.repository) if room.engine else ()
    return Look(pruning=found, loaded=tuple(tag for tag in loaded if tag not in found.tags))


def apply(room: Room) -> Freed:
    """Look once more while nobody builds or signs, and remove it; killed anywhere, the same call ends the work.

    Raises `Temporary` when somebody does.
    """
    with ownregistry.quiet(room.cache):
        found = look(room)
        in_parallel(lambda digest: room.registry.delete_manifest(room.repository.at(digest)), found.pruning.manifests)
        freed = ownregistry.collect(
            room.repository.host, found.pruning.needed, host=room.host, cache=room.cache, run=room.run, story=room.story
        )
    used = [tag for tag in found.loaded if room.engine and not forget(room.engine, room.repository.tag(tag))]
    return Freed(registry=freed, in_use=tuple(used))


def _spoken_for(room: Room) -> Collection[Digest]:
    """What the tags of the releases name, and the image that the catalog holds for known to be good."""
    place, reference = room.catalog.release_repository, room.catalog.reference
    found = in_parallel(lambda tag: room.registry.resolve(place.tag(tag)), room.registry.tags(place))
    return {digest for digest in (*found, *([Pinned.parse(reference).digest] if reference else [])) if digest}


def _shelf(room: Room) -> Shelf:
    repository = room.repository
    tags = room.registry.tags(repository)
    named = dict(zip(tags, in_parallel(lambda tag: room.registry.resolve(repository.tag(tag)), tags), strict=True))
    digests = {*ownregistry.manifests(repository, room.cache), *(digest for digest in named.values() if digest)}
    held = in_parallel(lambda digest: _held(repository.at(digest), room.registry), sorted(digests))
    return Shelf(
        manifests={one.digest: one for one in held},
        tags={tag: digest for tag, digest in named.items() if digest},
        written=ownregistry.written(repository, tags, room.cache),
    )


def _held(pinned: Pinned, registry: Registry) -> Held:
    body, kind = registry.raw_manifest(pinned)
    if kind in (OCI_INDEX, DOCKER_INDEX):
        entries = {entry.digest: entry.size for entry in parse_index(body)}
        return Held(digest=pinned.digest, blobs=entries, children=tuple(entries))
    manifest = Manifest.parse(body)
    blobs = {one.digest: one.size for one in (manifest.config, *manifest.layers)}
    labels: Mapping[str, str] = {}
    if manifest.config.media_type in CONFIGURATIONS:
        labels = Config.parse(registry.blob(pinned.repository, manifest.config)).labels
    base = labels.get(names.LABEL_BASE)
    return Held(
        digest=pinned.digest,
        blobs=blobs,
        subject=manifest.subject,
        image=labels.get(names.LABEL_IMAGE, ""),
        input_hash=labels.get(names.LABEL_INPUT_HASH, ""),
        base=Digest(base) if base else None,
    )
