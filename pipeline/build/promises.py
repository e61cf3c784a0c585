"""What an image must be after its build, read from what the registry holds; nothing here asks anybody."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.bake import Material, Target
from pipeline.oci import Config, Descriptor, Digest, Manifest

REWRITTEN = "buildkit/rewritten-timestamp"
"""BuildKit's annotation on a layer whose times it clamped; where that fails, it only logs a warning."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image as the registry holds it."""

    manifest: Manifest
    config: Config


def broken(
    image: Image,
    target: Target,
    parent: Image | None,
    materials: Collection[Material],
    known: Collection[Digest],
    dockerfile: str,
) -> tuple[str, ...]:
    """The promises that the builder did not keep, as sentences; `known` are the digests handed to it."""
    return (
        *_facts(image.config, target),
        *_layers(image, target, parent),
        *_labels(image.config.labels, target.labels),
        *_materials(materials, known, dockerfile),
    )


def differences(one: Image, other: Image) -> tuple[str, ...]:
    """How two builds of one image differ, as sentences."""
    found = [f"{len(one.config.diff_ids)} layers against {len(other.config.diff_ids)}"]
    if len(one.config.diff_ids) == len(other.config.diff_ids):
        found = [text for number in range(len(one.config.diff_ids)) if (text := _difference(one, other, number))]
    if not found and one.config != other.config:
        found = [f"the configuration: {one.manifest.config.digest} against {other.manifest.config.digest}"]
    return tuple(found) or (f"the manifest: {one.manifest.digest} against {other.manifest.digest}",)


def _facts(config: Config, target: Target) -> Iterator[str]:
    if _seconds(config.created) != target.epoch:
        yield f"it says that it was created at `{config.created}`, not at the catalog's epoch"
    if config.platform != "/".join(target.platform.split("/")[:2]):
        yield f"it is for `{config.platform}`, not for `{target.platform}`"


def _layers(image: Image, target: Target, parent: Image | None) -> Iterator[str]:
    inherited = parent.config.diff_ids if parent else ()
    if image.config.diff_ids[: len(inherited)] != inherited:
        yield "its first layers are not its parent's"
    own: tuple[Descriptor, ...] = image.manifest.layers[len(inherited) :]
    if other := {layer.media_type for layer in image.manifest.layers if not layer.media_type.endswith("+zstd")}:
        yield f"it has layers of `{'`, `'.join(sorted(other))}`, not compressed by zstd"
    stamps = {layer.annotations.get(REWRITTEN) for layer in own}
    if target.rewrite_timestamp and stamps - {str(target.epoch)}:
        yield "the builder did not clamp the times of its layers"


def _labels(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    wrong = [name for name, text in wanted.items() if found.get(name) != text]
    if wrong:
        yield "it lacks labels, or has others than it was given: " + ", ".join(f"`{name}`" for name in wrong)


def _materials(materials: Collection[Material], known: Collection[Digest], dockerfile: str) -> Iterator[str]:
    handed = {str(digest) for digest in known}
    for material in materials:
        kind, _, value = material.digest.partition(":")
        named = material.digest in handed or value in dockerfile
        if material.image and not material.pinned:
            yield f"it was built from `{material.uri}`, which is not pinned: write `@{material.digest}` behind its name"
        elif material.image and not named:
            yield f"it was built from `{material.uri}`, which neither the catalog nor its Dockerfile names"
        elif not named:
            wanted = value if kind == "sha1" else material.digest
            yield f"it was built from `{material.uri}`, which is not pinned: write `ADD --checksum={wanted}`"


def _difference(one: Image, other: Image, number: int) -> str:
    made = f" (`{one.config.history[number]}`)" if number < len(one.config.history) else ""
    layer = f"layer {number + 1} of {len(one.config.diff_ids)}{made}"
    if one.config.diff_ids[number] != other.config.diff_ids[number]:
        return f"{layer} has other content: {one.config.diff_ids[number]} against {other.config.diff_ids[number]}"
    if one.manifest.layers[number].digest != other.manifest.layers[number].digest:
        return f"{layer} has the same content, compressed differently"
    return ""


def _seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None
