"""What a plan may take, said before it starts: an upper bound, since the builder's cache and the registry may hold most of it."""

from pipeline import builders
from pipeline.build.shop import Workshop
from pipeline.catalog import Catalog
from pipeline.survey import Survey
from pipeline.toolchain import free_space

DISK_FACTOR = 10
"""Bytes on disk for each compressed byte: 1 in the registry, 2 to 3 each for unpacked stages, their linked copies, downloads
and what was compressed. Seen with the torch images: 22.8 GB in BuildKit and 2.5 GB in the registry for 2.44 GB."""
SECONDS_PER_GB = 110
"""For each compressed GB, downloads included: 263 s for 2.35 GB on two cores."""
NOTABLE = 10**9
"""Plans that take less than this are not worth a word."""


def announce(survey: Survey, shop: Workshop) -> None:
    """Say what building may take, and warn when this machine's disk is too small for it."""
    compressed = sum(own_size(survey.catalog, step.image) for step in survey.steps if step.action == "build")
    disk = compressed * DISK_FACTOR
    if disk < NOTABLE:
        return
    minutes = max(1, round(compressed / 1e9 * SECONDS_PER_GB / 60))
    shop.story.say(
        f"building takes up to {disk / 1e9:.0f} GB of disk and {minutes} min on two cores; what is cached takes nothing"
    )
    free = free_space(shop.settings.cache)
    if shop.builder.name == builders.OURS and free < disk:
        shop.story.warn(f"there are {free / 1e9:.0f} GB free at `{shop.settings.cache}`: `nox -s doctor` shows what takes space")


def own_size(catalog: Catalog, name: str) -> int:
    """Compressed bytes that an image may add to its parent, from the size limits; 0 when it has none."""
    image = catalog.images[name]
    parent = catalog.images[image.parent] if image.parent else None
    return max(0, (image.size_limit or 0) - (parent.size_limit or 0 if parent else 0))
