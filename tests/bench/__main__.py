"""Benchmarks: `python -m tests.bench build [PART…]`; prints a table, exits 1 when a figure is not what it must be."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from tests.bench.build import LONGEST, PARTS, Figure
from tests.bench.family import copied


def main(argv: Sequence[str]) -> int:
    """Measure the parts that are named; all but the longest when none is."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("subject", choices=["build"])
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    figures = measure(
        arguments.parts or [part for part in PARTS if part != LONGEST], sys.stderr if arguments.json else sys.stdout
    )
    if arguments.json:
        json.dump([asdict(figure) for figure in figures], sys.stdout, indent=2)
    return 0 if all(figure.kept for figure in figures) else 1


def measure(parts: Sequence[str], out: TextIO) -> list[Figure]:
    """All figures of the parts, told as they come, and the peak memory of all that the pipeline did for them."""
    figures = []
    with copied() as family:
        for part in parts:
            for figure in PARTS[part](family):
                tell(figure, out)
                figures.append(figure)
        figures.append(Figure("peak memory of the pipeline itself", family.memory / 1e6, "MB", at_most=300.0))
        tell(figures[-1], out)
    return figures


def tell(figure: Figure, out: TextIO) -> None:
    """One row of the table."""
    limit = (
        f"≤ {figure.at_most:g}" if figure.at_most is not None else f"≥ {figure.at_least:g}" if figure.at_least is not None else ""
    )
    verdict = ("kept" if figure.kept else "MISSED") if limit else ""
    print(f"{figure.name:<48}{figure.value:>10.2f} {figure.unit:<3} {limit:>8}  {verdict}", file=out, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
