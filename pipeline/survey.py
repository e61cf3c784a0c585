"""Folders and registry → plan: hashes what is on disk, and asks the registry which candidates it holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline import context, names, plan
from pipeline.catalog import Catalog
from pipeline.errors import TagConflict
from pipeline.inputs import InputHash
from pipeline.oci import Config, Digest, Pinned, Repository, Tagged
from pipeline.plan import Step
from pipeline.settings import Settings
from pipeline.story import Story

PARALLEL = 8
"""Requests at a time."""

A = TypeVar("A")
B = TypeVar("B")


class Candidates(Protocol):
    """What a survey asks of a registry; each raises when the registry does not answer."""

    def tags(self, repository: Repository) -> tuple[str, ...]:
        """All tags; none when the registry knows no such repository."""

    def resolve(self, tagged: Tagged) -> Digest | None:
        """What the tag names; None when the registry knows no such tag."""

    def config(self, pinned: Pinned) -> Config:
        """The image's configuration."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A plan, and what it was made from."""

    catalog: Catalog
    hashes: Mapping[str, InputHash]
    steps: tuple[Step, ...]


def survey(
    settings: Settings,
    catalog: Catalog,
    registry: Candidates,
    selection: Sequence[str] = (),
    *,
    rebuild: bool = False,
    story: Story,
) -> Survey:
    """What there is to do for the images named (all when none is), with one list of tags and a look at each candidate.

    Raises `TagConflict` when a candidate's tag holds something that was built from other inputs; registry errors pass
    through, since what cannot be asked is not absent. A label is what anybody who may push could have written:
    whoever reuses a candidate of a registry that others write to asks who vouches for it (`vouching`).
    """
    hashes = context.hashes(settings, catalog, selection)
    for name in hashes:
        if path := context.overlay(settings, catalog, catalog.images[name]):
            story.say(f"`{name}` is made from `{path}`, in place of the packages that its own lock names")
    existing = _existing(catalog, hashes, registry)
    return Survey(catalog=catalog, hashes=hashes, steps=plan.make(catalog, hashes, existing, selection, rebuild=rebuild))


def in_parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """`work` on each item, a few at a time; results in order, the first error is raised."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _existing(catalog: Catalog, hashes: Mapping[str, InputHash], registry: Candidates) -> Mapping[str, Digest]:
    repository = catalog.candidate_repository
    wanted = {catalog.candidate_tag(catalog.images[name], found.value): found.value for name, found in hashes.items()}
    there = sorted(wanted.keys() & set(registry.tags(repository)))
    digests = in_parallel(lambda tag: candidate(registry, repository.tag(tag), wanted[tag]), there)
    return {tag: digest for tag, digest in zip(there, digests, strict=True) if digest}


def candidate(registry: Candidates, tagged: Tagged, input_hash: str) -> Digest | None:
    """What the candidate tag names now, none when there is none; raises `TagConflict` when it is of other inputs."""
    digest = registry.resolve(tagged)
    if digest is None:
        return None
    pinned = tagged.repository.at(digest)
    labelled = registry.config(pinned).labels.get(names.LABEL_INPUT_HASH)
    if labelled != input_hash:
        raise TagConflict(
            f"`{tagged}` holds an image that was not built from these inputs\n"
            f"  it is {digest}, its input hash {labelled or 'missing'}, wanted {input_hash}",
            hint="find out who wrote it; raise `revision` in the image's `image.yaml` to build under another tag",
        )
    return digest
