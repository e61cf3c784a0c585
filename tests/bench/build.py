"""Speed, bytes and memory of building, measured against each other in one run on the project's own images."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench import peer, planning
from tests.bench.family import Family
from tests.bench.generated import catalog_of
from tests.faults import Faulty, faulty

ONE_GZIP_LAYER = 3.24e9
"""Bytes of the same PyTorch installation as one gzip layer."""
GROUND, TOOLS, IMAGE, GROUP, CHILD, CHILD_GROUP = "os", "build-env", "pytorch", "vision", "nlp", "data"


@dataclass(frozen=True)
class Figure:
    """One number and what it must be."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (self.at_least is None or self.value >= self.at_least)


def second(family: Family) -> Iterator[Figure]:
    """A build with nothing to do, and a plan."""
    built = family.verb("build")
    yield Figure(f"compressed size of {IMAGE}", built.of(IMAGE)["size"] / 1e9, "GB", at_most=0.75 * ONE_GZIP_LAYER / 1e9)
    yield Figure("second build", min(family.verb("build").seconds for _ in range(3)), "s", at_most=1.0)
    yield Figure("plan", min(family.verb("plan").seconds for _ in range(3)), "s", at_most=0.5)


def thousand(family: Family) -> Iterator[Figure]:
    """Plans of generated families; `growth` is the time of four times as many images, for each of them."""
    with tempfile.TemporaryDirectory() as folder:
        generated = Family(root=catalog_of(Path(folder), 1000), host=family.host, cache=family.cache)
        yield Figure("plan of 1,000 images", min(generated.verb("plan").seconds for _ in range(3)), "s", at_most=1.5)
        family.memory = max(family.memory, generated.memory)
    yield Figure("growth to 4,000 images", planning.seconds(4000) / planning.seconds(1000) / 4, "x", at_most=1.25)


def relink(family: Family) -> Iterator[Figure]:
    """A refreshed root file system below the family."""
    family.verb("build")
    family.edit_rootfs(GROUND)
    family.verb("build", GROUND)
    with faulty(family.host) as traffic:
        took = family.verb("build", through=traffic.host)
    yield Figure(f"relink of {IMAGE} and {CHILD} on a new {GROUND}", took.seconds, "s", at_most=5.0)
    yield Figure("  sent and loaded for it", _kilobytes(traffic), "kB", at_most=200.0)


def emptied(family: Family) -> Iterator[Figure]:
    """The same on a builder that has seen nothing, each image alone."""
    family.verb("build")
    family.edit_rootfs(GROUND)
    family.verb("build", GROUND)
    with family.with_empty_builder() as other:
        other.verb("build", GROUND)
        for image in (IMAGE, CHILD):
            with faulty(family.host) as traffic:
                took = other.verb("build", image, through=traffic.host)
            yield Figure(f"relink of {image} on an empty builder", took.seconds, "s", at_most=5.0)
            yield Figure("  sent and loaded for it", _kilobytes(traffic), "kB", at_most=100.0)


def group(family: Family) -> Iterator[Figure]:
    """Another content of one lock group."""
    whole = family.verb("build").of(IMAGE)["size"]
    family.edit_group(IMAGE, GROUP)
    with faulty(family.host) as traffic:
        took = family.verb("build", IMAGE, through=traffic.host)
    yield Figure(f"{IMAGE} with another {GROUP}", took.seconds, "s")
    yield Figure("  sent of the whole image", 100 * traffic.up() / whole, "%", at_most=5.0)


def edited(family: Family) -> Iterator[Figure]:
    """One requirement of the child edited, against everything."""
    family.verb("build")
    family.edit_group(CHILD, CHILD_GROUP)
    child = family.verb("build").seconds
    everything, image = _everything(family)
    yield Figure(f"{CHILD} with another {CHILD_GROUP}", child, "s")
    yield Figure("everything, downloads warm", everything, "s")
    yield Figure("  as often as the edited child", everything / child, "x", at_least=10.0)
    yield Figure(f"  of it {IMAGE}", image, "s")


def against(family: Family) -> Iterator[Figure]:
    """The whole image against one gzip layer and `docker push`; half an hour on two cores."""
    built = family.verb("build")
    tools, ground = (built.of(name)["pinned"] for name in (TOOLS, GROUND))
    theirs = peer.seconds(family, tools, ground, IMAGE)
    _, ours = _everything(family)
    yield Figure(f"{IMAGE} as one gzip layer, by docker push", theirs, "s")
    yield Figure(f"{IMAGE} by us", ours, "s")
    yield Figure("  as fast", theirs / ours, "x", at_least=2.5)


def _everything(family: Family) -> tuple[float, float]:
    """Seconds of a build in which every step runs, and every layer is compressed and sent; and those of the image."""
    for name in (GROUND, TOOLS):
        family.edit_rootfs(name)
    for name in (IMAGE, CHILD):
        family.edit_groups(name)
    took = family.verb("build")
    return took.seconds, took.of(IMAGE)["seconds"]


def _kilobytes(traffic: Faulty) -> float:
    return (traffic.up() + traffic.down()) / 1e3


PARTS: Mapping[str, Callable[[Family], Iterator[Figure]]] = {
    "second": second,
    "thousand": thousand,
    "relink": relink,
    "emptied": emptied,
    "group": group,
    "edited": edited,
    "against": against,
}
LONGEST = "against"
"""The part that must be asked for."""
