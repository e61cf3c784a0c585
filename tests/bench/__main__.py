"""Benchmarks: `python -m tests.bench build [PART…]`, and so with `trust`, `copy` and `promote`.

Prints a table, exits 1 when a figure is not what it must be.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from platformdirs import user_cache_path

from pipeline import names
from pipeline.settings import Settings
from tests.bench import build, copying, promotion, trust
from tests.bench.build import LONGEST, Figure
from tests.bench.family import ROOT, copied

SUBJECTS = {
    "build": tuple(build.PARTS),
    "trust": tuple(trust.PARTS),
    "copy": tuple(copying.PARTS),
    "promote": tuple(promotion.PARTS),
}


def main(argv: Sequence[str]) -> int:
    """Measure the parts that are named; all but the longest when none is."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("subject", choices=list(SUBJECTS))
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(f"{k}: {' '.join(v)}" for k, v in SUBJECTS.items()))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    there = SUBJECTS[arguments.subject]
    if unknown := set(arguments.parts) - set(there):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    parts = arguments.parts or [part for part in there if part != LONGEST]
    figures = []
    measured = {"build": built, "trust": trusted, "copy": copying.measured, "promote": promotion.measured}[arguments.subject]
    for figure in measured(parts):
        tell(figure, sys.stderr if arguments.json else sys.stdout)
        figures.append(figure)
    if arguments.json:
        json.dump([asdict(figure) for figure in figures], sys.stdout, indent=2)
    return 0 if all(figure.kept for figure in figures) else 1


def built(parts: Sequence[str]) -> Iterator[Figure]:
    """All figures of the parts, as they come, and the peak memory of all that the pipeline did for them."""
    with copied() as family:
        for part in parts:
            yield from build.PARTS[part](family)
        yield Figure("peak memory of the pipeline itself", family.memory / 1e6, "MB", at_most=300.0)


def trusted(parts: Sequence[str]) -> Iterator[Figure]:
    """The figures of the candidates that are there."""
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    for part in parts:
        yield from trust.PARTS[part](Settings(root=ROOT, cache=cache))


def tell(figure: Figure, out: TextIO) -> None:
    """One row of the table."""
    limit = (
        f"≤ {figure.at_most:g}" if figure.at_most is not None else f"≥ {figure.at_least:g}" if figure.at_least is not None else ""
    )
    verdict = ("kept" if figure.kept else "MISSED") if limit else ""
    print(f"{figure.name:<48}{figure.value:>10.2f} {figure.unit:<3} {limit:>8}  {verdict}", file=out, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
