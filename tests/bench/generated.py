"""Catalogs of any size, for figures that must hold for families that nobody has written yet."""

import hashlib
import shutil
from pathlib import Path

from pipeline.locks import Requirement, RequirementsLock, format_requirements, source_digest

CATALOG = """\
line: "2.6"
repository: generated
candidates: localhost:5601/candidates
releases: localhost:5601/releases
platform: linux/amd64
epoch: 2025-01-29T00:00:00Z
compression-level: 7
"""
CHILDREN = 5
"""How many images stand on each one, until there are enough."""
DISTRIBUTIONS = 8
"""Locked distributions of one image."""


def catalog_of(folder: Path, count: int) -> Path:
    """Write a catalog of `count` images, a tree of parents, each with a lock, checks and claims; returns its root."""
    images = folder / "images"
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    (images / "catalog.yaml").write_text(CATALOG)
    for number in range(count):
        _write_image(images / f"image-{number}", number)
    return folder


def parent_of(number: int) -> str | None:
    """The parent of the image with this number; the first has none."""
    return f"image-{(number - 1) // CHILDREN}" if number else None


def _write_image(folder: Path, number: int) -> None:
    for name in ("requirements", "checks"):
        (folder / name).mkdir(parents=True)
    names = [f"distribution-{number}-{position}" for position in range(DISTRIBUTIONS)]
    source = "".join(f"{name}==1.{number}\n" for name in names)
    (folder / "requirements" / "all.in").write_text(source)
    (folder / "requirements" / "all.lock").write_text(_lock(names, f"1.{number}", source.encode()))
    (folder / "checks" / "test_imports.py").write_text("def test_imports():\n    pass\n")
    (folder / "checks" / "test_training_step.py").write_text("def test_training_step():\n    pass\n")
    (folder / "Dockerfile").write_text("FROM base\n" if number else "FROM scratch\nCOPY --link requirements /\n")
    (folder / "image.yaml").write_text(_image_yaml(number, names))


def _image_yaml(number: int, names: list[str]) -> str:
    lines = [
        f"description: Generated image {number}",
        *([f"parent: {parent_of(number)}", f"variant: v{number}x"] if number else []),
        "claims:",
        *(f'  {name}: "1.{number}"' for name in names[:3]),
        "checks:",
        "  cpu: [imports, training-step]",
        "  gpu: [training-step]",
        "size-limit: 3.0 GB",
        "revision: 1",
    ]
    return "\n".join(lines) + "\n"


def _lock(names: list[str], version: str, source: bytes) -> str:
    requirements = {}
    for name in names:
        hashes = tuple(hashlib.sha256(f"{name} {wheel}".encode()).hexdigest() for wheel in range(3))
        requirements[name] = Requirement(name, version, hashes)
    return format_requirements(RequirementsLock(source_digest(source), requirements))
