"""A new image's folder, that builds as it is: all of it, or nothing."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipeline import catalog_text, context, locks, plan
from pipeline.catalog import Image
from pipeline.errors import CatalogError, InputError
from pipeline.settings import Settings
from pipeline.sources import Folder

TEMPLATE = ".template"
"""A folder beside the images: what a family's new images begin with, in place of `PLAIN`."""
PLAIN = {
    "Dockerfile": "# The parent is `base`. Layers that are linked (`COPY --link`) survive a new one.\nFROM base\n",
    "requirements/1-packages.in": "# One requirement a line; then `nox -s update -- @NAME@` locks them.\n",
    "checks/test_imports.py": (
        '"""What the image is for can be imported."""\n\nimport sys\n\n\n'
        "def test_python_starts() -> None:\n    assert sys.version_info >= (3, 9)\n"
    ),
}
"""Path → text; `@NAME@` and `@PARENT@` are filled in."""


def new(settings: Settings, name: str, parent: str, *, variant: str | None = None) -> Path:
    """Write `images/<name>/`, an image on `parent` that adds nothing yet; returns the folder.

    Its tags end with `variant`, by default the name without hyphens. Raises `InputError` when there is such a folder or no
    such parent, `CatalogError` when the catalog would have faults with it (a name or variant that is taken or none).
    """
    catalog = context.load(settings)
    if os.path.lexists(settings.images / name):
        raise InputError(f"`{settings.images / name}` exists already", hint="choose another name, or edit what is there")
    on = plan.require(catalog, parent)
    texts = _texts(settings.images / TEMPLATE, name, on, variant or name.replace("-", ""))
    shared, folders = context.read_folders(settings)
    try:
        catalog_text.parse(shared, {**folders, name: _folder(texts)})
    except CatalogError as error:
        hint = "a name is lower case, `[a-z][a-z0-9-]*`; `--variant V` lets its tags end otherwise than with the name"
        raise CatalogError(error.problems, hint=hint) from error
    return _write(settings.images, name, texts)


def _texts(template: Path, name: str, parent: Image, variant: str) -> Mapping[str, str]:
    found = context.texts(template) if template.is_dir() else PLAIN
    texts = {path: text.replace("@NAME@", name).replace("@PARENT@", parent.name) for path, text in found.items()}
    texts |= {path.removesuffix(".in") + ".lock": _empty_lock(text) for path, text in texts.items() if path.endswith(".in")}
    return {"image.yaml": _image_yaml(name, parent, variant, _checks(texts))} | texts


def _checks(paths: Iterable[str]) -> list[str]:
    """The names of the checks among these files."""
    found = (re.fullmatch(r"checks/(?:test|service)_([a-z0-9_]+)\.py", path) for path in paths)
    return sorted(each[1].replace("_", "-") for each in found if each)


def _empty_lock(source: str) -> str:
    return locks.format_requirements(locks.RequirementsLock(locks.source_digest(source.encode()), {}))


def _image_yaml(name: str, parent: Image, variant: str, checks: Sequence[str]) -> str:
    uses = f"uses: [{', '.join(parent.uses)}]\n" if parent.uses else ""
    listed = f"checks:\n  cpu: [{', '.join(checks)}]\n" if checks else ""
    return f"description: {name} on {parent.name}\nparent: {parent.name}\n{uses}variant: {variant}\n{listed}"


def _folder(texts: Mapping[str, str]) -> Folder:
    return Folder(
        text=texts["image.yaml"].encode(),
        paths=tuple(sorted(texts)),
        locks={path: text for path, text in texts.items() if path.endswith(".lock")},
        inputs={path: text.encode() for path, text in texts.items() if path.endswith(".in")},
    )


def _write(images: Path, name: str, texts: Mapping[str, str]) -> Path:
    """Beside the images under a hidden name first, which no catalog reads, then renamed."""
    with context.writing(images):
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=images))
        try:
            for path, text in texts.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8")
            made.chmod(0o755)
            return made.rename(images / name)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
