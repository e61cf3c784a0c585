"""YAML text → `Catalog`, or every fault at once with file and line; reads no files.

Faults of one value come from its type (`catalog`), in the words of `yaml_models`; faults between images from
`catalog_rules`, faults of locks from `catalog_locks`.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pipeline import catalog_locks, catalog_rules
from pipeline.catalog import Catalog, Image, Shared
from pipeline.errors import CatalogError
from pipeline.sources import Entry, Folder
from pipeline.yaml_models import value
from pipeline.yaml_text import Document, Problem, Unquoted, read

SHARED_FILE = "images/catalog.yaml"

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(B|kB|MB|GB|TB)")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[Zz]|\+00:00)")

_GIVEN = {"name": "the folder's name"}


def parse(shared: bytes, folders: Mapping[str, Folder], *, with_locks: bool = True) -> Catalog:
    """The catalog that `images/catalog.yaml` and the folders beside it describe; raises `CatalogError` with all faults.

    Without `with_locks` the locks are not looked at: for those who are about to write them.
    """
    top = read(SHARED_FILE, shared)
    problems = list(top.problems)
    readable = top.value or not top.problems
    common = value(Shared, top, _converted(top, {"epoch": _moment}, problems), problems) if readable else None
    entries = {name: _entry(name, folder, problems) for name, folder in sorted(folders.items())}
    if not entries:
        problems.append(Problem(SHARED_FILE, 1, "no folder beside it describes an image: one is `images/NAME/image.yaml`"))
    problems += catalog_rules.problems(entries)
    problems += catalog_rules.runners(entries, common.runners) if common else ()
    if with_locks:
        problems += catalog_locks.problems(entries, common.platform if common else None)
    if problems or common is None:
        raise CatalogError([str(problem) for problem in sorted(set(problems))])
    images = {entry.image.name: entry.image for entry in entries.values() if entry.image}
    return Catalog(**dict(common), images={name: images[name] for name in catalog_rules.parents_first(images)})


def _entry(name: str, folder: Folder, problems: list[Problem]) -> Entry:
    file = f"images/{name}/image.yaml"
    if folder.text is None:
        problems.append(Problem(file, 1, "is missing: every folder in `images/` describes an image"))
        return Entry(name=name, document=Document(file), image=None, folder=folder)
    document = read(file, folder.text)
    problems += document.problems
    return Entry(name=name, document=document, image=_image(name, document, problems), folder=folder)


def _image(name: str, document: Document, problems: list[Problem]) -> Image | None:
    """The image, without what is wrong in it, so that the rest is judged too; None when nothing is left to judge."""
    if not document.value and document.problems:
        return None
    data = {**_converted(document, {"size-limit": _size}, problems), "name": name}
    if "name" in document.value:
        problems.append(document.problem(("name",), "unknown key `name`: the folder's name says it"))
    if image := value(Image, document, data, problems, given=_GIVEN):
        return image
    rest = {key: value for key, value in data.items() if not document.is_broken(key)}
    return value(Image, document, {"description": "-", **rest}, [], given=_GIVEN)


def _converted(document: Document, converters: Mapping[str, Callable[[Any], Any]], problems: list[Problem]) -> dict[str, Any]:
    """The document's values, those with a notation of their own read; what cannot be read is left out."""
    data = dict(document.value)
    for key in converters.keys() & data.keys():
        try:
            data[key] = converters[key](data[key])
        except ValueError as error:
            problems.append(document.problem((key,), f"`{key}` {error}"))
            document.broken.add((key,))
            del data[key]
    return data


def _size(value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = Decimal(match[1]) * _UNITS[match[2]] if match else Decimal(0)
    if not size or size != int(size):
        raise ValueError("must be a size of B, kB, MB, GB or TB, like `3.0 GB`")
    return int(size)


def _moment(value: Any) -> datetime:
    raw = value.raw if isinstance(value, Unquoted) else value
    if not isinstance(raw, str) or not _MOMENT.fullmatch(raw):
        raise ValueError("must be a moment of UTC, like `2025-01-29T00:00:00Z`")
    try:
        return datetime.fromisoformat(raw.upper()).astimezone(UTC)
    except ValueError as error:
        raise ValueError(f"must be a moment of UTC, like `2025-01-29T00:00:00Z`: {error}") from error
