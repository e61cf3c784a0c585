"""What must hold between the images of a catalog, and between an image and the files in its folder."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from heapq import heapify, heappop, heappush

from pipeline import compatibility
from pipeline.catalog import Image
from pipeline.sources import Entry
from pipeline.yaml_text import Problem

_CHECK_FILE = re.compile(r"checks/(?:.+/)?((?:test|service)_[^/]*\.py)")


def problems(entries: Mapping[str, Entry]) -> Iterator[Problem]:
    """Every broken rule; what did not parse is left out, and may be referred to."""
    yield from _cycles(entries)
    yield from _same_tags(entries)
    for entry in entries.values():
        if entry.image:
            yield from _references(entry, entry.image, entries)
            yield from _tags(entry, entry.image)
            yield from _users(entry, entry.image)
            yield from _claims(entry, entry.image)
            yield from _workdir(entry, entry.image)
            yield from _packages(entry, entry.image, entries)
            if entry.says("rootfs"):
                yield from _origin(entry, entry.image)
            if entry.says("checks"):
                yield from _checks(entry, entry.image)


def runners(entries: Mapping[str, Entry], known: Iterable[str]) -> Iterator[Problem]:
    """Kinds of runners that images name and the catalog does not."""
    for entry in entries.values():
        for position, runner in enumerate(entry.image.runners if entry.image else ()):
            if runner not in known:
                listed = ", ".join(f"`{one}`" for one in known) or "none"
                yield entry.problem(("runners", position), f"no runner `{runner}` in `images/catalog.yaml`: it names {listed}")


def parents_first(images: Mapping[str, Image]) -> tuple[str, ...]:
    """All names, each after those that it needs, else by name; images in or behind a cycle are left out."""
    missing = {name: sum(need in images for need in image.needs) for name, image in images.items()}
    children: dict[str, list[str]] = {name: [] for name in images}
    for name, image in images.items():
        for need in image.needs:
            children.get(need, []).append(name)
    ready = [name for name, count in missing.items() if count == 0]
    heapify(ready)
    order = []
    while ready:
        order.append(heappop(ready))
        for child in children[order[-1]]:
            missing[child] -= 1
            if missing[child] == 0:
                heappush(ready, child)
    return tuple(order)


def _references(entry: Entry, image: Image, known: Iterable[str]) -> Iterator[Problem]:
    for key, needs in (("parent", (image.parent,) if image.parent else ()), ("uses", image.uses)):
        for need in needs:
            if need not in known:
                near = get_close_matches(need, list(known), n=1)
                yield entry.problem((key,), f"no image `{need}`" + (f": did you mean `{near[0]}`?" if near else ""))
    if image.parent in image.uses:
        yield entry.problem(("uses",), f"`{image.parent}` is the parent, which a Dockerfile knows as `base`")


def _cycles(entries: Mapping[str, Entry]) -> Iterator[Problem]:
    images = {name: entry.image for name, entry in entries.items() if entry.image}
    left = {name: images[name] for name in images.keys() - set(parents_first(images))}
    while left:
        path = [min(left)]
        while (step := min(need for need in left[path[-1]].needs if need in left)) not in path:
            path.append(step)
        cycle = path[path.index(step) :]
        first = cycle.index(min(cycle))
        cycle = cycle[first:] + cycle[:first]
        shown = " → ".join(f"`{name}`" for name in [*cycle, cycle[0]])
        key = "parent" if images[cycle[0]].parent in cycle else "uses"
        yield entries[cycle[0]].problem((key,), f"goes in a circle: {shown}")
        rest = {name: image for name, image in left.items() if name not in cycle}
        left = {name: rest[name] for name in rest.keys() - set(parents_first(rest))}


def _same_tags(entries: Mapping[str, Entry]) -> Iterator[Problem]:
    owners: dict[str | None, str] = {}
    for name, entry in entries.items():
        if entry.image is None or not entry.says("variant", "release"):
            continue
        owner = owners.setdefault(entry.image.suffix, name)
        if owner != name and entry.image.suffix is None:
            yield entry.problem((), f"`variant` is missing: the line's image without one is `{owner}`")
        elif owner != name:
            yield entry.problem(("variant",), f"`{owner}` has tags that end with `-{entry.image.suffix}` already")


def _origin(entry: Entry, image: Image) -> Iterator[Problem]:
    dockerfile = "Dockerfile" in entry.folder.paths
    if image.rootfs and dockerfile:
        yield entry.problem(("rootfs",), "has a `rootfs` and a `Dockerfile`: it is made from one of them")
    if not image.rootfs and not dockerfile:
        yield entry.problem((), "has neither a `Dockerfile` nor a `rootfs`")
    for key in ("parent", "uses"):
        if image.rootfs and getattr(image, key):
            yield entry.problem((key,), f"a `rootfs` is made from packages alone: it has no `{key}`")


def _tags(entry: Entry, image: Image) -> Iterator[Problem]:
    if image.variant and not image.release:
        yield entry.problem(("variant",), "an image that is never released has no `variant`: its tags end with its name")


def _users(entry: Entry, image: Image) -> Iterator[Problem]:
    users = image.rootfs.users if image.rootfs else ()
    for key, values in (("name", [user.name for user in users]), ("uid", [user.uid for user in users])):
        for position, value in enumerate(values):
            if value in values[:position]:
                yield entry.problem(("rootfs", "users", position, key), f"two users have the {key} `{value}`")


def _claims(entry: Entry, image: Image) -> Iterator[Problem]:
    for name, text in compatibility.faults(image.claims).items():
        yield entry.problem(("claims", name), f"`claims.{name}` {text}")


def _workdir(entry: Entry, image: Image) -> Iterator[Problem]:
    rootfs = image.rootfs
    if rootfs and rootfs.workdir and rootfs.workdir not in rootfs.directories:
        yield entry.problem(("rootfs", "workdir"), f"`{rootfs.workdir}` is not one of the `directories`")


def _packages(entry: Entry, image: Image, entries: Mapping[str, Entry]) -> Iterator[Problem]:
    if image.packages and image.rootfs:
        yield entry.problem(("packages",), "a `rootfs` has its own `packages`: name them there")
    elif image.packages and not _may_stand_on_rootfs(entry, entries):
        yield entry.problem(("packages",), "are added to those of a `rootfs`: no image that it stands on has one")


def _may_stand_on_rootfs(entry: Entry, entries: Mapping[str, Entry]) -> bool:
    """Whether an image below has a `rootfs`, or is too faulty to tell."""
    seen: set[str] = set()
    while entry.image and entry.says("rootfs", "parent") and entry.name not in seen:
        if entry.image.rootfs:
            return True
        if entry.image.parent is None:
            return False
        seen.add(entry.name)
        if entry.image.parent not in entries:
            return True
        entry = entries[entry.image.parent]
    return True


def _checks(entry: Entry, image: Image) -> Iterator[Problem]:
    files = [path for path in entry.folder.paths if _CHECK_FILE.fullmatch(path)]
    found = Counter(_check_name(path) for path in files)
    for name in image.checks.names:
        if found[name] != 1:
            lane, names = ("cpu", image.checks.cpu) if name in image.checks.cpu else ("gpu", image.checks.gpu)
            stem = name.replace("-", "_")
            fault, word = ("has two files", "and") if found[name] else ("has no file", "or")
            wanted = f"`checks/test_{stem}.py` {word} `checks/service_{stem}.py`"
            yield entry.problem(("checks", lane, names.index(name)), f"check `{name}` {fault}: {wanted}")
    for path in files:
        if _check_name(path) not in image.checks.names:
            yield Problem(f"{entry.home}/{path}", 1, f"no check of `{entry.name}` names this file, so it would never run")


def _check_name(path: str) -> str:
    stem = path.removeprefix("checks/").removesuffix(".py")
    return "" if "/" in stem else stem.partition("_")[2].replace("_", "-")
