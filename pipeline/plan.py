"""What to do for each image, parents first, and why."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from pipeline.catalog import Catalog, Image
from pipeline.errors import InputError
from pipeline.inputs import InputHash
from pipeline.oci import Digest


@dataclass(frozen=True, kw_only=True)
class Step:
    """One image's part of a plan."""

    image: str
    action: Literal["build", "reuse"]
    reason: str
    tag: str
    """The candidate tag, `v2.6-nlp-<first 12 hex of the input hash>`."""
    input_hash: str
    digest: Digest | None
    """What the tag names now: when it is reused, and when it is built although it exists."""


def selected(catalog: Catalog, names: Sequence[str]) -> tuple[str, ...]:
    """The images that `names` name and those that they are built from, parents first; all when none is named.

    Raises `InputError` for a name that the catalog does not have.
    """
    wanted = set(names or catalog.images)
    for name in names:
        require(catalog, name)
    for name in reversed(tuple(catalog.images)):
        if name in wanted:
            wanted.update(catalog.images[name].needs)
    return tuple(name for name in catalog.images if name in wanted)


def descendants(catalog: Catalog, name: str) -> tuple[str, ...]:
    """The images whose inputs change with those of `name`, parents first."""
    found = {name}
    for image in catalog.images.values():
        if found.intersection(image.needs):
            found.add(image.name)
    return tuple(image for image in catalog.images if image in found - {name})


def require(catalog: Catalog, name: str) -> Image:
    """The image called `name`; raises `InputError` with the nearest name there is."""
    if name in catalog.images:
        return catalog.images[name]
    near = get_close_matches(name, catalog.images, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "there are " + ", ".join(f"`{image}`" for image in catalog.images)
    raise InputError(f"no image `{name}`", hint=hint)


def make(
    catalog: Catalog,
    hashes: Mapping[str, InputHash],
    existing: Mapping[str, Digest],
    names: Sequence[str] = (),
    *,
    rebuild: bool = False,
) -> tuple[Step, ...]:
    """One step for each image named (all when none is) and each that one of these must be built from, parents first.

    `existing` maps candidate tags to what they name. With `rebuild`, what is named is built although it exists.
    """
    order = selected(catalog, names)
    named = set(names or catalog.images)
    steps: dict[str, Step] = {}
    for name in order:
        image, input_hash = catalog.images[name], hashes[name].value
        tag = catalog.candidate_tag(image, input_hash)
        digest = existing.get(tag)
        build = digest is None or (rebuild and name in named)
        steps[name] = Step(
            image=name,
            action="build" if build else "reuse",
            reason=_reason(image, digest, build, steps),
            tag=tag,
            input_hash=input_hash,
            digest=digest,
        )
    return needed(catalog, [steps[name] for name in order], named)


def _reason(image: Image, digest: Digest | None, build: bool, steps: Mapping[str, Step]) -> str:
    if digest is not None:
        return "`--rebuild`" if build else "candidate exists"
    anew = [f"`{need}`" for need in image.needs if steps[need].action == "build"]
    built = f"; {' and '.join(anew)} {'is' if len(anew) == 1 else 'are'} built anew" if anew else ""
    return "no candidate for these inputs" + built


def needed(catalog: Catalog, steps: Sequence[Step], named: Collection[str]) -> tuple[Step, ...]:
    """Of `steps`, parents first, those that are named or that one of these must be built from: no ancestor of what exists."""
    wanted = set(named)
    for step in reversed(steps):
        if step.image in wanted and step.action == "build":
            wanted.update(catalog.images[step.image].needs)
    return tuple(step for step in steps if step.image in wanted)
