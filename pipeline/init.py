"""A new family of images that already builds: catalog, one image, policies and sessions; nothing is overwritten."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pipeline.context import writing
from pipeline.errors import InputError

RENAMED = {"noxfile.txt": "noxfile.py", "gitignore.txt": ".gitignore", "gitattributes.txt": ".gitattributes"}
"""Files that would do here what they are to do there."""
UNNAMED = "images"
"""The repository's name where the folder's gives none."""


def init(folder: Path, now: datetime) -> tuple[Path, ...]:
    """Write the family into `folder`, which is made when it lacks; returns the files.

    Its repository is named after the folder, all its dates are `now`'s day. Raises `InputError` when one of the files exists
    or a folder cannot be written, `Temporary` when the disk is full; then nothing was written.
    """
    texts = {folder / path: text for path, text in _texts(_repository(folder.name), now).items()}
    if found := [path for path in texts if os.path.lexists(path)]:
        raise InputError(f"`{found[0]}` exists already, and nothing is overwritten", hint="name another folder, or use `new`")
    made: list[Path] = []
    with writing(folder):
        try:
            for path, text in texts.items():
                _folders(path.parent, made)
                with path.open("x", encoding="utf-8") as file:
                    made.append(path)
                    file.write(text)
        except BaseException:
            _undo(made)
            raise
    return tuple(texts)


def _texts(repository: str, now: datetime) -> Mapping[str, str]:
    day = now.astimezone(UTC).strftime("%Y-%m-%dT00:00:00Z")
    found = dict(_read(resources.files("pipeline.data") / "family"))
    return {path: text.replace("@REPOSITORY@", repository).replace("@EPOCH@", day) for path, text in found.items()}


def _read(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _read(entry, f"{below}{entry.name}/")
        else:
            yield below + RENAMED.get(entry.name, entry.name), entry.read_text(encoding="utf-8")


def _repository(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or UNNAMED


def _folders(folder: Path, made: list[Path]) -> None:
    if not folder.is_dir():
        _folders(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
