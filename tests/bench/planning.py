"""How long a family takes to be read, hashed and planned: `python -m tests.bench.planning`."""

import json
import sys
import tempfile
import time
from pathlib import Path

from pipeline import context, plan
from pipeline.settings import Settings
from tests.bench.generated import catalog_of

SIZES = (250, 1000, 4000)
REPEATS = 3


def seconds(count: int) -> float:
    """The fastest of a few plans of a catalog of `count` images, without the start of Python."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(root=catalog_of(Path(folder), count), cache=Path(folder) / "cache")
        return min(_once(settings) for _ in range(REPEATS))


def _once(settings: Settings) -> float:
    started = time.monotonic()
    catalog = context.load(settings)
    plan.make(catalog, context.hashes(settings, catalog), {})
    return time.monotonic() - started


def main() -> None:
    """Print the seconds for each size, and how they grow from the second to the third (1: linear)."""
    took = {count: seconds(count) for count in SIZES}
    growth = (took[SIZES[2]] / SIZES[2]) / (took[SIZES[1]] / SIZES[1])
    json.dump({"seconds": {str(count): round(value, 3) for count, value in took.items()}, "growth": round(growth, 2)}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
