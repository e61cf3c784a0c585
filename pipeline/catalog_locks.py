"""What must hold between an image's claims, its locks, their sources and the locks that it stands on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline import locks
from pipeline.catalog import Image
from pipeline.catalog_rules import parents_first
from pipeline.sources import Entry
from pipeline.yaml_text import Problem

PACKAGES_LOCK = "packages.lock"
_GROUPS = "requirements/"
_DEBIAN = "debian:"
"""Before the names of Debian packages, which are told apart from Python's so."""


@dataclass(frozen=True)
class _Locked:
    """A version, and the lock and line that it stands in."""

    version: str
    file: str
    line: int


def problems(entries: Mapping[str, Entry], platform: str | None) -> Iterator[Problem]:
    """Every lock that is unreadable, older than its source, of another platform, or contradicts a claim or a parent's lock."""
    images = {name: entry.image for name, entry in entries.items() if entry.image}
    below: dict[str, Mapping[str, _Locked]] = {}
    suites: dict[str, str | None] = {}
    for name in parents_first(images):
        image = images[name]
        inherited = below.get(image.parent or "", {})
        suites[name] = image.rootfs.suite if image.rootfs else suites.get(image.parent or "")
        found: list[Problem] = []
        own = dict(_locked(entries[name], image, suites[name], inherited, found, platform))
        yield from found
        yield from _moved(own, inherited, image.parent)
        below[name] = {**inherited, **own} if own else inherited
        yield from _contradicted(entries[name], image.claims, below[name])


def _locked(
    entry: Entry, image: Image, suite: str | None, inherited: Mapping[str, _Locked], found: list[Problem], platform: str | None
) -> Iterator[tuple[str, _Locked]]:
    found += _unpaired(entry, image)
    for path, text in sorted(entry.folder.locks.items()):
        file = f"{entry.home}/{path}"
        try:
            if path == PACKAGES_LOCK:
                packages = locks.parse_packages(text)
                found += (*_stale_packages(entry, image, suite, inherited, packages), *_foreign(entry, packages, platform))
                yield from ((f"{_DEBIAN}{one.name}", _Locked(one.version, file, 1)) for one in packages.packages)
            else:
                lock = locks.parse_requirements(text)
                source = path.removesuffix(".lock") + ".in"
                if source in entry.folder.inputs:
                    wanted = locks.source_digest(entry.folder.inputs[source])
                    found += _stale(entry, file, lock.locked_from, wanted, f"`{source.removeprefix(_GROUPS)}`")
                yield from ((name, _Locked(one.version, file, one.line)) for name, one in lock.requirements.items())
        except locks.LockFault as error:
            found += (Problem(file, fault.line, fault.text) for fault in error.faults)


def _stale_packages(
    entry: Entry, image: Image, suite: str | None, inherited: Mapping[str, _Locked], lock: locks.PackagesLock
) -> Iterator[Problem]:
    file = f"{entry.home}/{PACKAGES_LOCK}"
    if image.rootfs:
        wanted = locks.packages_digest(image.rootfs.suite, image.rootfs.packages)
        yield from _stale(entry, file, lock.locked_from, wanted, "the `rootfs` of `image.yaml`")
    elif image.packages and suite:
        below = {name.removeprefix(_DEBIAN): one.version for name, one in inherited.items() if name.startswith(_DEBIAN)}
        wanted = locks.packages_digest(suite, image.packages, below)
        source = f"the `packages` of `image.yaml` and what `{image.parent}` has"
        yield from _stale(entry, file, lock.locked_from, wanted, source)


def _foreign(entry: Entry, lock: locks.PackagesLock, platform: str | None) -> Iterator[Problem]:
    """Packages that no machine of the platform runs, where it is known."""
    known = {"all", platform.split("/")[1]} if platform else {one.architecture for one in lock.packages}
    for other in sorted({one.architecture for one in lock.packages} - known):
        text = f"holds packages for `{other}`, and `platform` is `{platform}`: `nox -s update -- {entry.name}`"
        yield Problem(f"{entry.home}/{PACKAGES_LOCK}", 1, text)


def _stale(entry: Entry, file: str, locked_from: str, wanted: str, source: str) -> Iterator[Problem]:
    if locked_from != wanted:
        yield Problem(file, 1, f"is not solved from {source} as it is now: `nox -s update -- {entry.name}`")


def _unpaired(entry: Entry, image: Image) -> Iterator[Problem]:
    update = f"`nox -s update -- {entry.name}`"
    groups = {path.removesuffix(".in") for path in entry.folder.inputs}
    locked = {path.removesuffix(".lock") for path in entry.folder.locks if path != PACKAGES_LOCK}
    for group in sorted(groups - locked):
        yield Problem(f"{entry.home}/{group}.in", 1, f"has no lock: {update}")
    for group in sorted(locked - groups):
        yield Problem(f"{entry.home}/{group}.lock", 1, f"has no source `{group}.in`")
    if image.has_packages and PACKAGES_LOCK not in entry.folder.locks:
        yield entry.problem(("rootfs" if image.rootfs else "packages",), f"has no `{PACKAGES_LOCK}`: {update}")
    if not image.has_packages and entry.says("rootfs", "packages") and PACKAGES_LOCK in entry.folder.locks:
        yield Problem(f"{entry.home}/{PACKAGES_LOCK}", 1, "belongs to no `rootfs` and no `packages`")


def _moved(own: Mapping[str, _Locked], inherited: Mapping[str, _Locked], parent: str | None) -> Iterator[Problem]:
    for name in sorted(own.keys() & inherited.keys()):
        now, before = own[name], inherited[name]
        if now.version != before.version:
            yield Problem(
                now.file, now.line, f"`{name}` is {now.version}, where `{parent}` brings {before.version} ({before.file})"
            )


def _contradicted(entry: Entry, claims: Mapping[str, str], known: Mapping[str, _Locked]) -> Iterator[Problem]:
    for name, claim in claims.items():
        locked = known.get(locks.normalised(name)) or known.get(f"{_DEBIAN}{name}")
        if locked and claim not in _readings(locked.version):
            where = f"{locked.file}:{locked.line}" if locked.line > 1 else locked.file
            yield entry.problem(("claims", name), f"claims `{name}` {claim}, but {where} locks {locked.version}")


def _readings(version: str) -> set[str]:
    """What may be claimed of a version: itself, without a local part (`2.6.0+cu124`), without Debian's epoch and revision."""
    upstream = version.partition(":")[2] or version
    return {version, version.partition("+")[0], upstream, upstream.rpartition("-")[0] or upstream}
