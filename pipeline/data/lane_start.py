"""Starts pytest inside an image, on copies of it that the image's own packages never see.

Runs under the image's `python3` (3.9 syntax), which must not import pytest from here: processes that a check spawns
import this file again. The image's packages come before everything that was copied in; only pytest itself and what it
is made of come from the copies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
LIBRARY = str(Path(HERE) / "lib")
OURS = ("_pytest", "iniconfig", "pluggy", "pytest")
FAULTY = 70
"""Exit status when pytest itself cannot be imported."""


class Copies:
    """Finds pytest in the copies, whatever the image has."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A module of pytest itself."""
        return PathFinder.find_spec(name, [LIBRARY]) if name in OURS else None


def main(arguments: Sequence[str]) -> int:
    """Run pytest on `arguments`, with the folders of `PIPELINE_FOLDERS` importable; returns its exit status."""
    folders = [folder for folder in os.environ["PIPELINE_FOLDERS"].split(os.pathsep) if folder]
    sys.path[:] = folders + [entry for entry in sys.path if entry != HERE] + [LIBRARY, HERE]
    sys.meta_path.insert(0, Copies)
    try:
        import pytest
    except (ImportError, SyntaxError) as error:
        print(f"the checks' pytest does not run under Python {sys.version.split()[0]}: {error}", file=sys.stderr)
        return FAULTY
    return int(pytest.main(list(arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
