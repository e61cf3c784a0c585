"""Lock files: what they say, and whether they still belong to what they were solved from.

Two kinds. `requirements/<group>.lock` holds Python distributions as pip and uv read them, one `name==version` with all its
hashes. `packages.lock` holds Debian packages, one a line. Both begin with the digest of their source, each its own: a group
that did not move keeps its lock, byte for byte, and so its layer.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import InputError

_LOCKED_FROM = re.compile(r"# locked from: sha256:([0-9a-f]{64})")
_SUITE = re.compile(r"# suite: ([a-z][a-z0-9-]*)")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._+!-]*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_PACKAGE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+) (?P<version>[0-9][A-Za-z0-9.+~:-]*) (?P<architecture>[a-z0-9-]+) "
    r"(?P<size>[0-9]+) (?P<sha256>[0-9a-f]{64}) (?P<path>[a-z0-9-]+(?:/[A-Za-z0-9+._~:-]+)+\.deb)"
)


@dataclass(frozen=True, order=True)
class Fault:
    """What is wrong in a file; lines count from 1."""

    line: int
    text: str


class LockFault(InputError):
    """A lock cannot be used; `faults` are all of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__(
            "a lock cannot be read\n" + "\n".join(f"  line {fault.line}: {fault.text}" for fault in self.faults),
            hint="locks are written by `nox -s update`, not by hand",
        )


@dataclass(frozen=True)
class Requirement:
    """A Python distribution: normalised name, exact version, sha256 hex of each file that may stand for it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True)
class RequirementsLock:
    """One group's distributions by name; `locked_from` is the `source_digest` of its `.in` file."""

    locked_from: str
    requirements: Mapping[str, Requirement]


@dataclass(frozen=True, order=True)
class Package:
    """A Debian package file: `size` in bytes, `path` below the mirror's root (`debian/pool/…`, `debian-security/pool/…`)."""

    name: str
    version: str
    architecture: str
    size: int
    sha256: str
    path: str


@dataclass(frozen=True)
class PackagesLock:
    """The packages of a root file system, or what an image adds to those below it; `locked_from` is a `packages_digest`."""

    locked_from: str
    suite: str
    packages: tuple[Package, ...]


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def source_digest(source: bytes) -> str:
    """The sha256 hex of a `requirements/<group>.in`, but for comments, blank lines and spaces around lines."""
    lines = (line.strip() for line in source.splitlines())
    return hashlib.sha256(b"\n".join(line for line in lines if line and not line.startswith(b"#"))).hexdigest()


def packages_digest(suite: str, packages: Iterable[str], below: Mapping[str, str] | None = None) -> str:
    """The sha256 hex of what `packages.lock` is solved from; `below` is what the images below have, name → version."""
    there = [f"{name}={version}" for name, version in sorted((below or {}).items())]
    return hashlib.sha256("\n".join([suite, *sorted(set(packages)), *there]).encode()).hexdigest()


def overlay_name(image: str, lock: bytes) -> str:
    """The file name, in the cache's `overlays` folder, of the lock that stands in for the committed one."""
    return f"{image}-{hashlib.sha256(lock).hexdigest()[:16]}.lock"


def parse_requirements(text: str) -> RequirementsLock:
    """Read `requirements/<group>.lock`; raises `LockFault` with every fault."""
    faults: list[Fault] = []
    found: dict[str, Requirement] = {}
    for number, logical in _logical_lines(text):
        requirement = _requirement(number, logical)
        if isinstance(requirement, Fault):
            faults.append(requirement)
        elif requirement.name in found:
            faults.append(Fault(number, f"`{requirement.name}` is locked twice"))
        else:
            found[requirement.name] = requirement
    locked_from = _header(text, 1, _LOCKED_FROM, "# locked from: sha256:…", faults)
    _raise(faults)
    return RequirementsLock(locked_from, found)


def parse_packages(text: str) -> PackagesLock:
    """Read `packages.lock`; raises `LockFault` with every fault."""
    faults: list[Fault] = []
    locked_from = _header(text, 1, _LOCKED_FROM, "# locked from: sha256:…", faults)
    suite = _header(text, 2, _SUITE, "# suite: …", faults)
    found: dict[str, Package] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        match = _PACKAGE.fullmatch(line)
        if match is None or "/../" in line:
            faults.append(Fault(number, f"`{line}` is not `name version architecture size sha256 path`"))
        elif match["name"] in found:
            faults.append(Fault(number, f"`{match['name']}` is locked twice"))
        else:
            found[match["name"]] = Package(**{**match.groupdict(), "size": int(match["size"])})  # type: ignore[arg-type]
    _raise(faults)
    return PackagesLock(locked_from, suite, tuple(sorted(found.values())))


def format_requirements(lock: RequirementsLock) -> str:
    """The text of `requirements/<group>.lock`, by name."""
    lines = [f"# locked from: sha256:{lock.locked_from}"]
    for name, requirement in sorted(lock.requirements.items()):
        words = [f"{name}=={requirement.version}", *(f"--hash=sha256:{value}" for value in sorted(requirement.hashes))]
        lines.append(" \\\n    ".join(words))
    return "\n".join(lines) + "\n"


def format_packages(lock: PackagesLock) -> str:
    """The text of `packages.lock`, by name."""
    head = [f"# locked from: sha256:{lock.locked_from}", f"# suite: {lock.suite}"]
    body = [f"{p.name} {p.version} {p.architecture} {p.size} {p.sha256} {p.path}" for p in sorted(lock.packages)]
    return "\n".join(head + body) + "\n"


def _requirement(number: int, logical: str) -> Requirement | Fault:
    first, *options = logical.split()
    match = _REQUIREMENT.fullmatch(first)
    if match is None:
        return Fault(number, f"`{first}` is not `name==version`")
    hashes = [_HASH.fullmatch(option) for option in options]
    if not hashes or None in hashes:
        return Fault(number, f"`{first}` wants one or more `--hash=sha256:…` behind it, and nothing else")
    return Requirement(normalised(match[1]), match[2], tuple(hash_[1] for hash_ in hashes if hash_), number)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    continued = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip() if line.lstrip().startswith("#") else line.strip()
        if continued:
            start, before = lines.pop()
            lines.append((start, f"{before} {words.removesuffix(chr(92))}"))
        elif words:
            lines.append((number, words.removesuffix("\\")))
        continued = words.endswith("\\")
    return lines


def _header(text: str, number: int, pattern: re.Pattern[str], wanted: str, faults: list[Fault]) -> str:
    lines = text.splitlines()
    match = pattern.fullmatch(lines[number - 1]) if len(lines) >= number else None
    if match is None:
        faults.append(Fault(number, f"line {number} must be `{wanted}`"))
        return ""
    return match[1]


def _raise(faults: Sequence[Fault]) -> None:
    if faults:
        raise LockFault(faults)
