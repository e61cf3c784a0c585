"""An image and statements about it, from one repository to another, with every digest as it was."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pipeline.errors import NotThere, PromotionRefused, Temporary
from pipeline.oci import Descriptor, Digest, Manifest, Pinned
from pipeline.registry import Registry
from pipeline.story import Story
from pipeline.survey import in_parallel


def statements(image: str, source: Pinned, wanted: Collection[Digest], registry: Registry) -> Mapping[Digest, bytes]:
    """The manifests of the statements that counted, byte for byte; raises `PromotionRefused` when one is not there any more.

    Each is asked for: a list that a tag stands in for still names what was deleted.
    """
    bodies = dict(zip(wanted, in_parallel(lambda digest: _body(source.repository.at(digest), registry), wanted), strict=True))
    if lost := [digest for digest, body in bodies.items() if body is None]:
        raise _deleted(image, lost)
    return {digest: body for digest, body in bodies.items() if body is not None}


def bring(
    image: str, source: Pinned, target: Pinned, evidence: Mapping[Digest, bytes], registry: Registry, story: Story
) -> tuple[Manifest, Sequence[Descriptor]]:
    """Bring what is not there yet, and see all of it listed; returns the image's manifest, and what was listed anew.

    Whether that stays listed is for the caller to see (`keep_listed`), before a tag names the image. Raises `Temporary` when
    the registry takes the evidence and does not list it.
    """
    with ThreadPoolExecutor(1) as pool:
        look = pool.submit(_listed, target, registry)
        body, kind = registry.raw_manifest(source)
        there = look.result()
    manifest = Manifest.parse(body)
    missing = {digest: body for digest, body in evidence.items() if there is None or digest not in there}
    if there is not None and not missing:
        return manifest, ()
    parsed = [manifest, *map(Manifest.parse, missing.values())] if there is None else [*map(Manifest.parse, missing.values())]
    _blobs(image, source, target, parsed, registry, story)
    if there is None:
        registry.put_manifest(target.repository, manifest.body, kind)
    entries = registry.adopt(target, [*missing.values()], keep=False)
    if entries and (lost := set(evidence) - {one.digest for one in registry.referrers(target, seen=True)}):
        raise Temporary(
            f"`{target.repository.host}` took the evidence of `{image}` and does not list {min(lost)}",
            hint="run the same command again",
        )
    return manifest, entries


def _blobs(image: str, source: Pinned, target: Pinned, manifests: Sequence[Manifest], registry: Registry, story: Story) -> None:
    blobs: dict[Digest, Descriptor] = {
        one.digest: one for manifest in manifests for one in (manifest.config, *manifest.layers) if not one.elsewhere
    }
    total = sum(one.size for one in blobs.values())
    here, there = source.repository, target.repository
    with story.task(f"bringing {image} to {there}", total) as task:
        in_parallel(lambda one: registry.copy_blob(here, there, one, advance=task.advance), blobs.values())


def _body(pinned: Pinned, registry: Registry) -> bytes | None:
    """A manifest, byte for byte; None where it is not there any more."""
    try:
        return registry.raw_manifest(pinned)[0]
    except NotThere:
        return None


def _listed(target: Pinned, registry: Registry) -> set[Digest] | None:
    """What refers to the image at its destination; nothing where that does not hold it."""
    try:
        return {one.digest for one in registry.referrers(target)}
    except NotThere:
        return None


def _deleted(image: str, lost: Collection[Digest]) -> PromotionRefused:
    return PromotionRefused(
        f"evidence of `{image}` was deleted since it was decided upon: {', '.join(map(str, sorted(lost)))}",
        hint=f"`nox -s test scan sign -- {image}`, then promote again; nothing was written",
    )
