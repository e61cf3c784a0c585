"""What is different in an image from a release: size, packages, vulnerabilities; pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.statements import SEVERITIES, Scanned, Severity
from pipeline.wording import some

SHOWN = 25
"""Packages, and vulnerabilities that came and that went, that are listed; the others are counted."""
PACKAGES = 3
"""Packages of one vulnerability that are named; the others are counted."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What is known of an image; `None` where nobody knows."""

    tag: str = ""
    size: int | None = None
    """Compressed bytes of all layers."""
    packages: Mapping[str, Sequence[str]] | None = None
    """Name → versions."""
    scanned: Scanned | None = None
    """Its vulnerabilities."""
    unscanned: str = "no look-up of them counts"
    """Why nobody knows its vulnerabilities, where that is so."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One image, as it is now and as it was released."""

    image: str
    now: Contents
    released: Contents | None = None
    state: str = ""
    """How its build ended."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """One vulnerability of an image, with all packages that have it."""

    id: str
    severity: Severity
    fixable: bool
    """Whether there is a fix for one of the packages."""
    packages: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    """Its other names: what had a GHSA alone may get a CVE later."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The vulnerabilities of one image that another has not, each once, the worst first."""

    new: tuple[Known, ...]
    gone: tuple[Known, ...]
    unsettled: tuple[Known, ...]
    """Of one image alone, in packages that the other has too, without advisories that could tell."""


def difference(now: Scanned, before: Scanned) -> Difference:
    """What came and what went, by id or another name."""
    here, there = known(now).values(), known(before).values()
    came, went = _beside(here, there), _beside(there, here)
    dark = [one for one in came if _in_dark(one, before)] + [one for one in went if _in_dark(one, now)]
    return Difference(
        new=_by_severity([one for one in came if one not in dark]),
        gone=_by_severity([one for one in went if one not in dark]),
        unsettled=_by_severity(dark),
    )


def known(scanned: Scanned) -> Mapping[str, Known]:
    """Each vulnerability once, by its id, with the worst of its severities."""
    found: dict[str, Known] = {}
    for one in scanned.vulnerabilities:
        other = found.get(one.id)
        found[one.id] = Known(
            id=one.id,
            severity=min(one.severity, other.severity if other else one.severity, key=SEVERITIES.index),
            fixable=bool(one.fixed) or (other is not None and other.fixable),
            packages=tuple(sorted({one.package, *(other.packages if other else ())})),
            aliases=tuple(sorted({*one.aliases, *(other.aliases if other else ())})),
        )
    return found


def moved(now: Mapping[str, Sequence[str]], before: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """`name 1 → 2`, `+ name 2`, `- name 1`, by name."""
    return tuple(
        _moved(name, before.get(name, ()), now.get(name, ()))
        for name in sorted(now.keys() | before.keys())
        if sorted(now.get(name, ())) != sorted(before.get(name, ()))
    )


def lines(change: Change) -> Iterator[str]:
    """What a person wants to know of it, a line each."""
    now, before = change.now, change.released
    if before is None:
        yield "it was never released, or its release cannot be read: nothing to compare with"
        return
    if now.size is not None and before.size is not None:
        yield f"size against `{before.tag}`: {_megabytes(now.size)}, {_signed(now.size - before.size)}"
    yield from _packages(now, before)
    yield from vulnerabilities(now, before)


def _packages(now: Contents, before: Contents) -> Iterator[str]:
    if now.packages is None or before.packages is None:
        yield f"packages are not compared: nobody knows those of {_who(now.packages, before)}"
        return
    found = moved(now.packages, before.packages)
    yield f"packages: {len(found)} differ" if found else "packages: the same"
    yield from (f"  {line}" for line in _some(found))


def vulnerabilities(now: Contents, before: Contents | None, shown: int = SHOWN) -> Iterator[str]:
    """How many came and went, then at most `shown` lines of each; where one side is not known, that and why."""
    if before is None:
        yield "vulnerabilities are not compared: nothing is released that they could be compared with"
    elif now.scanned is None or before.scanned is None:
        sides = [("this image", now), (f"`{before.tag}`", before)]
        unknown = [f"nobody knows those of {name}: {one.unscanned}" for name, one in sides if one.scanned is None]
        yield f"vulnerabilities are not compared: {'; '.join(unknown)}"
    else:
        yield from _differing(now.scanned, before.scanned, before.tag, shown)


def _differing(now: Scanned, before: Scanned, tag: str, shown: int) -> Iterator[str]:
    found = difference(now, before)
    unsettled = f", {len(found.unsettled)} that one side cannot tell" if found.unsettled else ""
    yield f"vulnerabilities against `{tag}`: {len(found.new)} new, {len(found.gone)} gone{unsettled}{_databases(now, before)}"
    for sign, listed in (("+", found.new), ("-", found.gone), ("?", found.unsettled)):
        yield from (f"  {line}" for line in _some([f"{sign} {_told(one)}" for one in listed], shown))


def _databases(now: Scanned, before: Scanned) -> str:
    """Of a newer database more is known: then not all that is new came with the image."""
    new, old = now.database.updated, before.database.updated
    return "" if new == old else f"; by databases of {new:%Y-%m-%d %H:%M} and, for the release, {old:%Y-%m-%d %H:%M}"


def _told(one: Known) -> str:
    fix = "with a fix" if one.fixable else "without a fix"
    return f"{one.id} {one.severity}, {fix}: {some(one.packages, PACKAGES)}"


def _beside(some: Collection[Known], others: Collection[Known]) -> Sequence[Known]:
    """Those of which the others have none, under no name."""
    names = {name for other in others for name in (other.id, *other.aliases)}
    return [one for one in some if names.isdisjoint((one.id, *one.aliases))]


def _in_dark(one: Known, other: Scanned) -> bool:
    """Whether the other image has a package of it without advisories: that it is not known there says nothing."""
    return not {package.rpartition(" ")[0] for package in other.unassessed}.isdisjoint(one.packages)


def _by_severity(found: Sequence[Known]) -> tuple[Known, ...]:
    return tuple(sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.id)))


def _who(known: object | None, before: Contents) -> str:
    return "this image" if known is None else f"`{before.tag}`"


def _some(found: Sequence[str], shown: int = SHOWN) -> Iterator[str]:
    yield from found[:shown]
    if len(found) > shown:
        yield f"and {len(found) - shown} more"


def _moved(name: str, before: Sequence[str], now: Sequence[str]) -> str:
    if not before or not now:
        return f"{'+' if now else '-'} {name} {', '.join(sorted(now or before))}"
    return f"{name} {', '.join(sorted(before))} → {', '.join(sorted(now))}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _signed(size: int) -> str:
    return f"{'+' if size >= 0 else '-'}{abs(size) / 1e6:,.1f} MB"
