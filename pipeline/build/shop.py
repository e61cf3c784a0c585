"""What every image of a run is built with, and the target that an image becomes."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline import bake, names
from pipeline.bake import Bakery, Target
from pipeline.builders import Builder
from pipeline.catalog import Catalog, Image
from pipeline.command import Run
from pipeline.context import dockerfile_text
from pipeline.debian import Mirror
from pipeline.dockerfile import links_only, refuse_untold
from pipeline.inputs import InputHash
from pipeline.oci import Pinned, Tagged
from pipeline.plan import Step
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.story import Story
from pipeline.surroundings import Surroundings
from pipeline.survey import Survey

CACHE_TAG = "buildcache-"
"""Tags that begin so hold BuildKit's cache; candidates' begin with `v`."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """The edges that a run builds with."""

    settings: Settings
    registry: Registry
    run: Run
    story: Story
    builder: Builder
    around: Surroundings
    mirror: Mirror
    now: Callable[[], datetime]
    run_id: str

    @property
    def bakery(self) -> Bakery:
        """Those of them that bake."""
        return Bakery(builder=self.builder, around=self.around, run=self.run)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One image of a run, and what the run knows by now."""

    step: Step
    survey: Survey
    shop: Workshop
    references: Mapping[str, Pinned]
    """The images that it is built from, by name."""
    debs: Mapping[str, Path]
    """The files of its `packages.lock`, by name."""
    commit: str | None
    dirty: bool
    twice: bool
    stopping: threading.Event

    @property
    def image(self) -> Image:
        """The catalog's entry."""
        return self.survey.catalog.images[self.step.image]

    @property
    def tagged(self) -> Tagged:
        """The candidate tag."""
        return self.survey.catalog.candidate_repository.tag(self.step.tag)


def definition(survey: Survey, settings: Settings, around: Surroundings) -> dict[str, Any]:
    """The bake definition of what `survey` builds, for people to use with buildx; stands on what is there, by digest or tag.

    Left out: root file systems and images that add packages, whose contexts are made by the pipeline, and proxies, whose
    addresses can hold passwords.
    """
    at = survey.catalog.candidate_repository
    there = {step.image: str(at.at(step.digest) if step.digest else at.tag(step.tag)) for step in survey.steps}
    images = [survey.catalog.images[step.image] for step in survey.steps if step.action == "build"]
    targets = [
        target(
            image,
            survey,
            context=settings.images / image.name,
            dockerfile=dockerfile_text(settings.images / image.name),
            references={need: there[need] for need in image.needs},
        )
        for image in images
        if not image.has_packages
    ]
    return bake.definition(targets, Surroundings(certificates=around.certificates, index_url=around.index_url))


def target(
    image: Image,
    survey: Survey,
    *,
    context: Path,
    dockerfile: str,
    references: Mapping[str, str],
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> Target:
    """What BuildKit is asked for; `references` are the images that this one needs, `folders` others, by name.

    Raises `DockerfileError` for a file that BuildKit would refuse, or that may not be built.
    """
    refuse_untold(dockerfile)
    catalog, input_hash = survey.catalog, survey.hashes[image.name]
    contexts = {"base" if need == image.parent else need: f"docker-image://{text}" for need, text in references.items()}
    contexts |= {name: str(folder) for name, folder in folders.items()}
    return Target(
        name=image.name,
        repository=catalog.candidate_repository,
        context=context,
        contexts=contexts,
        labels=_labels(image, catalog, input_hash, references.get(image.parent or "")),
        platform=catalog.platform,
        epoch=int(catalog.epoch.timestamp()),
        compression_level=catalog.compression_level,
        **_export(image, catalog, dockerfile),
    )


def _export(image: Image, catalog: Catalog, dockerfile: str) -> dict[str, Any]:
    """The cache of an image that rewrites its layers would hold them a second time, so it has none."""
    links = links_only(dockerfile)
    tag = f"{CACHE_TAG}{catalog.floating_tag(image)}-zstd{catalog.compression_level}"
    return {"rewrite_timestamp": not links, "cache": catalog.candidate_repository.tag(tag) if links else None}


def _labels(image: Image, catalog: Catalog, input_hash: InputHash, base: str | None) -> dict[str, str]:
    """Hashed facts only, or the same inputs would give another digest."""
    pinned = base and "@" in base
    return {
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.version": catalog.line,
        **({names.LABEL_BASE: str(Pinned.parse(base).digest)} if base and pinned else {}),
        names.LABEL_IMAGE: image.name,
        names.LABEL_INPUT_HASH: input_hash.value,
        names.LABEL_INPUTS: json.dumps(dict(input_hash.parts), sort_keys=True, separators=(",", ":")),
        **{f"{names.LABEL_CLAIM}{claim}": text for claim, text in image.claims.items()},
    }
