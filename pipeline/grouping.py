"""Which lock group each solved distribution goes into, read from what uv says about who wants it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import ToolFailed
from pipeline.locks import Requirement, normalised, parse_requirements


@dataclass(frozen=True)
class Solved:
    """A distribution of a solution, and who wants it: other distributions, and `.in` files by name."""

    requirement: Requirement
    by: tuple[str, ...]
    sources: tuple[str, ...]


def read_solution(text: str) -> Mapping[str, Solved]:
    """What `uv pip compile --generate-hashes --annotation-style split` prints, by name."""
    lock = parse_requirements(f"# locked from: sha256:{'0' * 64}\n{text}")
    wanted: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line[:1].isalnum():
            name = normalised(line.partition("==")[0])
        elif line.startswith("    #"):
            word = line.strip().removeprefix("#").strip().removeprefix("via").strip()
            wanted.setdefault(name, []).append(word)
    return {name: _solved(requirement, wanted.get(name, ())) for name, requirement in lock.requirements.items()}


def assign(solution: Mapping[str, Solved], groups: Sequence[str], known: Collection[str]) -> Mapping[str, Mapping[str, Solved]]:
    """The distributions of each group, but for the `known` ones: of the groups that need one, the first has it.

    `groups` are names of `.in` files. Raises `ToolFailed` when no group needs a distribution.
    """
    assigned: dict[str, Mapping[str, Solved]] = {}
    left = set(solution) - set(known)
    for group in groups:
        reached = _reached(solution, group)
        assigned[group] = {name: solution[name] for name in sorted(left & reached)}
        left -= reached
    if left:
        raise ToolFailed(f"nothing wants {', '.join(f'`{name}`' for name in sorted(left))} of the solution")
    return assigned


def _solved(requirement: Requirement, words: Sequence[str]) -> Solved:
    return Solved(
        requirement,
        by=tuple(sorted(normalised(word) for word in words if word and not word.startswith("-"))),
        sources=tuple(sorted(word.removeprefix("-r ") for word in words if word.startswith("-r "))),
    )


def _reached(solution: Mapping[str, Solved], group: str) -> set[str]:
    wants: dict[str, list[str]] = {}
    for name, solved in solution.items():
        for dependent in solved.by:
            wants.setdefault(dependent, []).append(name)
    found: set[str] = set()
    open_ends = [name for name, solved in solution.items() if group in solved.sources]
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            open_ends += wants.get(name, ())
    return found
