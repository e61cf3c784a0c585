"""Debian's dependency relations: which packages a list of packages needs, from the texts of an archive's indices.

Grammar and meaning: Debian Policy 7. Of each package only the newest version counts. The same texts and the same list give
the same selection.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache

from pipeline.errors import InputError

PRIORITIES = ("required", "important", "standard", "optional", "extra")
_NAME = re.compile(rb"^Package: (\S+)$", re.MULTILINE)
_BASE = re.compile(rb"^(?:Essential: yes|Priority: required)$", re.MULTILINE)
_PROVIDES = re.compile(rb"^Provides: (.+)$", re.MULTILINE)


class Unsolvable(InputError):
    """The archive cannot give what is wanted; `problems` are all that were found.

    `held` are the packages that are installed already and would have to be other ones.
    """

    def __init__(self, problems: Sequence[str], held: Iterable[str] = ()) -> None:
        self.problems, self.held = tuple(problems), frozenset(held)
        super().__init__(
            "the packages cannot be solved\n" + "\n".join(f"  {problem}" for problem in problems),
            hint="correct `packages` in the image's `image.yaml`",
        )


@dataclass(frozen=True)
class Relation:
    """`name (operator version)`; both are empty when any version will do."""

    name: str
    operator: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.operator} {self.version})" if self.operator else self.name


Alternatives = tuple[Relation, ...]


@dataclass(frozen=True)
class Candidate:
    """One package of an index; `fields` is all that the index says, `origin` the archive that the index is of."""

    name: str
    version: str
    priority: str
    depends: tuple[Alternatives, ...]
    provides: tuple[Relation, ...]
    refuses: tuple[Relation, ...]
    """Conflicts and Breaks."""
    origin: str
    fields: Mapping[str, str]


class Universe:
    """All packages of some indices (origin, text). Stanzas are parsed when they are asked for: an index holds 60,000."""

    def __init__(self, indices: Iterable[tuple[str, bytes]]) -> None:
        self._stanzas: dict[str, list[tuple[str, bytes]]] = {}
        self._providers: dict[str, set[str]] = {}
        self._base: set[str] = set()
        for origin, text in indices:
            for stanza in text.split(b"\n\n"):
                self._add(origin, stanza)
        self.candidate = cache(self._newest)

    def installed(self, name: str, version: str) -> Candidate:
        """The package at exactly this version.

        Where no index has that version any more, its relations are guessed from the newest one's; dpkg knows the true ones.
        """
        known = self._candidates(name)
        newest = self.candidate(name) or Candidate(name, version, "", (), (), (), "", {})
        guessed = replace(newest, version=version, provides=tuple(Relation(one.name) for one in newest.provides))
        return next((candidate for candidate in known if candidate.version == version), guessed)

    def _add(self, origin: str, stanza: bytes) -> None:
        if not (match := _NAME.search(stanza)):
            return
        name = match[1].decode()
        self._stanzas.setdefault(name, []).append((origin, stanza))
        if _BASE.search(stanza):
            self._base.add(name)
        for provided in _PROVIDES.findall(stanza):
            for word in provided.decode().split(","):
                self._providers.setdefault(word.split()[0].partition(":")[0], set()).add(name)

    def _newest(self, name: str) -> Candidate | None:
        from debian.debian_support import NativeVersion

        return max(self._candidates(name), key=lambda c: NativeVersion(c.version), default=None)

    def _candidates(self, name: str) -> list[Candidate]:
        return [_candidate(origin, stanza.decode()) for origin, stanza in self._stanzas.get(name, ())]

    @property
    def base(self) -> tuple[str, ...]:
        """Names of the essential and required packages."""
        return tuple(sorted(self._base))

    def providers(self, name: str) -> tuple[Candidate, ...]:
        """Packages that provide `name`, those that more systems have first."""
        found = [c for c in map(self.candidate, sorted(self._providers.get(name, ()))) if c]
        return tuple(sorted(found, key=lambda c: (_rank(c.priority), c.name)))

    def nearest(self, name: str) -> str | None:
        """The name in the archive that `name` may be a slip of."""
        return next(iter(get_close_matches(name, self._stanzas, 1)), None)


def close(universe: Universe, wanted: Iterable[str]) -> tuple[Candidate, ...]:
    """`wanted`, the essential and required packages, and all that they depend on, by name.

    Of alternatives, one that is selected already wins, then the first that the archive has. Raises `Unsolvable`.
    """
    return _select(universe, {*universe.base, *wanted}, {})


def add(universe: Universe, wanted: Iterable[str], installed: Mapping[str, str]) -> tuple[Candidate, ...]:
    """What has to come to the packages `installed` (name → version) for `wanted`, by name.

    As `close`, but what is installed stays as it is. Raises `Unsolvable`, also when it would have to be another version.
    """
    there = {name: universe.installed(name, version) for name, version in installed.items()}
    return _select(universe, set(wanted) - there.keys(), there)


def _select(universe: Universe, wanted: Collection[str], installed: Mapping[str, Candidate]) -> tuple[Candidate, ...]:
    selected, problems, held = dict(installed), list[str](), set[str]()
    queue = deque(_named(universe, wanted, problems))
    selected |= {candidate.name: candidate for candidate in queue}
    while queue:
        dependent = queue.popleft()
        for alternatives in dependent.depends:
            if any(satisfies(c, alternative) for alternative in alternatives for c in selected.values()):
                continue
            if chosen := next((c for c in _available(universe, alternatives) if c.name not in selected), None):
                selected[chosen.name] = chosen
                queue.append(chosen)
            else:
                blocking = [installed[one.name] for one in alternatives if one.name in installed]
                held |= {candidate.name for candidate in blocking}
                problems.append(_unmet(dependent, alternatives, blocking))
    for candidate, other, relation in _conflicts(selected.values()):
        if not {candidate.name, other.name} <= installed.keys():
            held |= {candidate.name, other.name} & installed.keys()
            problems.append(f"`{candidate.name}` conflicts with `{other.name}` (`{relation}`)")
    if problems:
        raise Unsolvable(problems, held)
    return tuple(selected[name] for name in sorted(selected.keys() - installed.keys()))


def _named(universe: Universe, names: Iterable[str], problems: list[str]) -> Iterator[Candidate]:
    for name in sorted(names):
        if candidate := universe.candidate(name):
            yield candidate
        else:
            problems.append(f"no package `{name}`" + (f"; did you mean `{near}`?" if (near := universe.nearest(name)) else ""))


def _unmet(dependent: Candidate, alternatives: Alternatives, blocking: Sequence[Candidate]) -> str:
    there = " and ".join(f"`{candidate.name}` {candidate.version}" for candidate in blocking)
    reason = f"but {there} is there already" if blocking else "which the archive does not have"
    return f"`{dependent.name}` wants `{' | '.join(map(str, alternatives))}`, {reason}"


def satisfies(candidate: Candidate, relation: Relation) -> bool:
    """Whether `candidate` is, or provides, what `relation` names; an unversioned provision meets no versioned relation."""
    if candidate.name == relation.name and _compares(candidate.version, relation):
        return True
    return any(
        provided.name == relation.name and (not relation.operator or (provided.version and _compares(provided.version, relation)))
        for provided in candidate.provides
    )


def _available(universe: Universe, alternatives: Alternatives) -> Iterator[Candidate]:
    for relation in alternatives:
        real = universe.candidate(relation.name)
        for candidate in ((real,) if real else ()) + universe.providers(relation.name):
            if satisfies(candidate, relation):
                yield candidate


def _conflicts(selected: Iterable[Candidate]) -> Iterator[tuple[Candidate, Candidate, Relation]]:
    """Who refuses whom, and by which relation, by name."""
    by_name: dict[str, list[Candidate]] = {}
    for candidate in selected:
        for name in {candidate.name, *(provided.name for provided in candidate.provides)}:
            by_name.setdefault(name, []).append(candidate)
    for candidate in sorted({c.name: c for group in by_name.values() for c in group}.values(), key=lambda c: c.name):
        for relation in candidate.refuses:
            for other in by_name.get(relation.name, ()):
                if other is not candidate and satisfies(other, relation):
                    yield candidate, other, relation


def _compares(version: str, relation: Relation) -> bool:
    from debian.debian_support import NativeVersion

    left, right = NativeVersion(version), NativeVersion(relation.version or version)
    return {
        "": True,
        "<<": left < right,
        "<=": left <= right,
        "=": left == right,
        ">=": left >= right,
        ">>": left > right,
    }[relation.operator]


def _candidate(origin: str, stanza: str) -> Candidate:
    from debian.deb822 import Packages

    fields = Packages(stanza)
    return Candidate(
        name=fields["Package"],
        version=fields["Version"],
        priority=fields.get("Priority", "optional"),
        depends=_relations(fields.get("Pre-Depends", "")) + _relations(fields.get("Depends", "")),
        provides=tuple(a for group in _relations(fields.get("Provides", "")) for a in group),
        refuses=tuple(a for key in ("Conflicts", "Breaks") for group in _relations(fields.get(key, "")) for a in group),
        origin=origin,
        fields=dict(fields),
    )


def _relations(text: str) -> tuple[Alternatives, ...]:
    from debian.deb822 import PkgRelation

    if not text.strip():
        return ()
    return tuple(
        tuple(Relation(word["name"], *(word.get("version") or ("", ""))) for word in group)
        for group in PkgRelation.parse_relations(text)
    )


def _rank(priority: str) -> int:
    return PRIORITIES.index(priority) if priority in PRIORITIES else len(PRIORITIES)
