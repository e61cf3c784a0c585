"""Solve the locks of the project's own environments again: `python -m tests.relock`, with `--upgrade` for newest versions.

`requirements/pipeline.lock` is what the pipeline runs in, `requirements/dev.lock` the same and what its own checks need.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = {"pipeline": (), "dev": ("--group", "dev", "--constraints", "requirements/pipeline.lock")}
"""Name of the lock → how it differs from the runtime's; solved in this order."""


def sources_digest() -> str:
    """The sha256 hex of what both locks are solved from: the dependencies that `pyproject.toml` names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sources = [project["project"]["requires-python"], project["project"]["dependencies"], project["dependency-groups"]]
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()


def relock(name: str, options: Sequence[str]) -> None:
    """Write `requirements/<name>.lock`: every platform, Python 3.11 and later, every file's hash."""
    lock = ROOT / "requirements" / f"{name}.lock"
    lock.parent.mkdir(exist_ok=True)
    solve = ("pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-header")
    argv = [sys.executable, "-m", "uv", *solve, "--quiet", "--output-file", str(lock), *LOCKS[name], *options]
    subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    solved = lock.read_text(encoding="utf-8")
    lock.write_text(f"# locked from: sha256:{sources_digest()}\n{solved}", encoding="utf-8")


if __name__ == "__main__":
    for each in LOCKS:
        relock(each, sys.argv[1:])
