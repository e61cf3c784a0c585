"""What is different in an image from its last release: size, packages, vulnerabilities; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SHOWN = 25
"""Packages and vulnerabilities of an image that are listed; the others are counted."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What is known of an image; `None` where nobody knows."""

    tag: str = ""
    size: int | None = None
    """Compressed bytes of all layers."""
    packages: Mapping[str, Sequence[str]] | None = None
    """Name → versions."""
    vulnerabilities: Mapping[str, str] | None = None
    """Id → severity."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One image, as it is now and as it was released."""

    image: str
    now: Contents
    released: Contents | None = None
    state: str = ""
    """How its build ended."""
    reason: str = ""


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
    yield from _vulnerabilities(now, before)


def _packages(now: Contents, before: Contents) -> Iterator[str]:
    if now.packages is None or before.packages is None:
        yield f"packages are not compared: nobody knows those of {_who(now.packages, before)}"
        return
    found = moved(now.packages, before.packages)
    yield f"packages: {len(found)} differ" if found else "packages: the same"
    yield from (f"  {line}" for line in _some(found))


def _vulnerabilities(now: Contents, before: Contents) -> Iterator[str]:
    if now.vulnerabilities is None or before.vulnerabilities is None:
        yield f"vulnerabilities are not compared: nobody knows those of {_who(now.vulnerabilities, before)}"
        return
    new = sorted(f"+ {name} {now.vulnerabilities[name]}" for name in now.vulnerabilities.keys() - before.vulnerabilities.keys())
    gone = sorted(
        f"- {name} {before.vulnerabilities[name]}" for name in before.vulnerabilities.keys() - now.vulnerabilities.keys()
    )
    yield f"vulnerabilities: {len(new)} new, {len(gone)} gone"
    yield from (f"  {line}" for line in _some([*new, *gone]))


def _who(known: object | None, before: Contents) -> str:
    return "this image" if known is None else f"`{before.tag}`"


def _some(found: Sequence[str]) -> Iterator[str]:
    yield from found[:SHOWN]
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN} more"


def _moved(name: str, before: Sequence[str], now: Sequence[str]) -> str:
    if not before or not now:
        return f"{'+' if now else '-'} {name} {', '.join(sorted(now or before))}"
    return f"{name} {', '.join(sorted(before))} → {', '.join(sorted(now))}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _signed(size: int) -> str:
    return f"{'+' if size >= 0 else '-'}{abs(size) / 1e6:,.1f} MB"
