"""What an image's input hash is made of, what changed since a candidate, which images follow; and what it runs on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pipeline import compatibility, context, names, plan
from pipeline.catalog import Catalog, Image
from pipeline.compatibility import Claimed, Family, Row
from pipeline.inputs import InputHash
from pipeline.oci import Digest
from pipeline.releases import is_candidate
from pipeline.settings import Settings
from pipeline.story import Story
from pipeline.survey import Candidates, in_parallel
from pipeline.yaml_text import read

LIMIT = 200
"""Candidates that are looked at: tags tell no time, so there is no newest to begin with."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A named part of the input hash, now and in the closest candidate (`before`)."""

    name: str
    state: Literal["same", "changed", "added", "removed"]
    now: str | None
    before: str | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The parts of an image's input hash, by name; all are `added` when there is no candidate to compare with."""

    image: str
    input_hash: str
    tag: str
    closest: str | None
    """The tag of the candidate that has most parts in common; `tag` itself when it exists."""
    parts: tuple[Part, ...]
    descendants: tuple[str, ...]
    """The images whose input hash follows, parents first."""

    @property
    def differences(self) -> tuple[Part, ...]:
        """The parts that are not the same."""
        return tuple(part for part in self.parts if part.state != "same")


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """What an image claims to run on, its parents' claims included; empty where it claims nothing."""

    image: str
    driver: str
    """The oldest that does."""
    architectures: tuple[str, ...]
    rows: tuple[Row, ...]


def compatible(catalog: Catalog, name: str) -> Compatibility:
    """The machines that run `name`; raises `InputError` for an unknown name, or claims that cannot be read."""
    claimed = Claimed.of(_claims(catalog, plan.require(catalog, name)))
    rows = compatibility.rows(claimed, families())
    return Compatibility(image=name, driver=claimed.driver, architectures=claimed.architectures, rows=rows)


def families() -> tuple[Family, ...]:
    """The GPUs that people know: `data/gpus.yaml`."""
    content = resources.files("pipeline").joinpath("data", "gpus.yaml").read_bytes()
    return tuple(
        Family(capability=(int(major), int(minor)), gpus=gpus)
        for known, gpus in read("data/gpus.yaml", content).value.items()
        for major, minor in [known.split(".")]
    )


def _claims(catalog: Catalog, image: Image) -> Mapping[str, str]:
    below = _claims(catalog, catalog.images[image.parent]) if image.parent else {}
    return {**below, **image.claims}


def explain(settings: Settings, catalog: Catalog, registry: Candidates, name: str, *, story: Story) -> Explanation:
    """Why `name` has the input hash that it has; raises `InputError` for an unknown name, registry errors pass through."""
    image = plan.require(catalog, name)
    found = context.hashes(settings, catalog, [name])[name]
    closest, before = _closest(catalog, image, registry, found, story)
    return Explanation(
        image=name,
        input_hash=found.value,
        tag=catalog.candidate_tag(image, found.value),
        closest=closest,
        parts=compare(found.parts, before),
        descendants=plan.descendants(catalog, name),
    )


def compare(now: Mapping[str, str], before: Mapping[str, str]) -> tuple[Part, ...]:
    """Each part that one of the two has, by name."""
    return tuple(
        Part(name=name, state=_state(now.get(name), before.get(name)), now=now.get(name), before=before.get(name))
        for name in sorted(now.keys() | before.keys())
    )


def _state(now: str | None, before: str | None) -> Literal["same", "changed", "added", "removed"]:
    if now is None or before is None:
        return "removed" if now is None else "added"
    return "same" if now == before else "changed"


def _closest(
    catalog: Catalog, image: Image, registry: Candidates, input_hash: InputHash, story: Story
) -> tuple[str | None, Mapping[str, str]]:
    repository = catalog.candidate_repository
    tags = sorted(tag for tag in registry.tags(repository) if is_candidate(tag, catalog.line, image.suffix))
    own = catalog.candidate_tag(image, input_hash.value)
    if own in tags:
        tags = [own]
    if len(tags) > LIMIT:
        story.say(f"`{repository}` holds {len(tags)} candidates of `{image.name}`; comparing with {LIMIT} of them")
    digests = in_parallel(lambda tag: registry.resolve(repository.tag(tag)), tags[:LIMIT])
    there = [(tag, digest) for tag, digest in zip(tags, digests, strict=False) if digest]
    befores = in_parallel(lambda one: _parts(registry, catalog, one[1]), there)
    readable = [(tag, before) for (tag, _), before in zip(there, befores, strict=True) if before]
    if mute := len(there) - len(readable):
        story.warn(f"candidates of `{image.name}` left out, since they do not list their inputs: {mute}")
    return max(readable, key=lambda one: len(input_hash.parts.items() & one[1].items()), default=(None, {}))


def _parts(registry: Candidates, catalog: Catalog, digest: Digest) -> Mapping[str, str]:
    """The parts that a candidate's label lists; none when it has no such label."""
    label = registry.config(catalog.candidate_repository.at(digest)).labels.get(names.LABEL_INPUTS, "")
    try:
        parts = json.loads(label)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in parts.items()} if isinstance(parts, dict) else {}
