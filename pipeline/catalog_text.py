"""YAML text → `Catalog`, or every fault at once with file and line; reads no files.

Faults of one value come from its type (`catalog`), faults between images from `catalog_rules`, faults of locks from
`catalog_locks`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline import catalog_locks, catalog_rules
from pipeline.catalog import Catalog, Image, Shared
from pipeline.errors import CatalogError
from pipeline.sources import Entry, Folder
from pipeline.yaml_text import Document, Path, Problem, Unquoted, dotted, read

SHARED_FILE = "images/catalog.yaml"

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(B|kB|MB|GB|TB)")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[Zz]|\+00:00)")

M = TypeVar("M", bound=BaseModel)


def parse(shared: bytes, folders: Mapping[str, Folder], *, with_locks: bool = True) -> Catalog:
    """The catalog that `images/catalog.yaml` and the folders beside it describe; raises `CatalogError` with all faults.

    Without `with_locks` the locks are not looked at: for those who are about to write them.
    """
    top = read(SHARED_FILE, shared)
    problems = list(top.problems)
    readable = top.value or not top.problems
    common = _value(Shared, top, _converted(top, {"epoch": _moment}, problems), problems) if readable else None
    entries = {name: _entry(name, folder, problems) for name, folder in sorted(folders.items())}
    problems += catalog_rules.problems(entries)
    if with_locks:
        problems += catalog_locks.problems(entries)
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
    if image := _value(Image, document, data, problems):
        return image
    rest = {key: value for key, value in data.items() if not document.is_broken(key)}
    return _value(Image, document, {"description": "-", **rest}, [])


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


def _value(model: type[M], document: Document, data: Mapping[str, Any], problems: list[Problem]) -> M | None:
    """`data` as a `model`; None when something is wrong in it, which is added to `problems` and to the document's `broken`."""
    try:
        return model.model_validate(data, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path = tuple(part for part in fault["loc"] if part != "[key]")
            if path not in document.broken:
                problems.append(document.problem(path, _text(model, document, path, fault)))
                document.broken.add(path)
    return None


def _text(model: type[BaseModel], document: Document, path: Path, fault: ErrorDetails) -> str:
    subject = "the folder's name" if path == ("name",) else f"`{dotted(path)}`"
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "value_error":
        return f"{subject} {context['error']}"
    if kind == "missing":
        return f"{subject} is missing"
    if kind == "extra_forbidden":
        return f"unknown key {subject}" + _instead(document, path, _keys(model, path[:-1]))
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = "at least" if kind == "greater_than_equal" else "at most"
        return f"{subject} must be {bound} {context.get('ge', context.get('le'))}"
    raw, value = document.mark(path).raw, fault["input"]
    if kind == "string_type" and not isinstance(value, tuple | dict):
        return f'{subject} must be text: quote it, `"{raw}"`'
    return f"{subject} must be {_meant(kind)}, not {_shown(raw, value)}"


def _meant(kind: str) -> str:
    if kind == "string_type":
        return "text"
    if kind == "int_type":
        return "a whole number"
    if kind == "bool_type":
        return "`true` or `false`"
    return "a list" if kind == "tuple_type" else "keys and values"


def _shown(raw: str, value: Any) -> str:
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, dict):
        return "keys and values"
    return f"`{raw}`"


def _instead(document: Document, path: Path, known: Sequence[str]) -> str:
    key = str(path[-1])
    near = get_close_matches(key, known, n=1) or get_close_matches(key.replace("_", "-"), known, n=1)
    if not near:
        return ", known are " + ", ".join(f"`{name}`" for name in known)
    document.broken.add((*path[:-1], near[0]))
    return f": did you mean `{near[0]}`?"


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that the mapping at `path` may have."""
    for part in path:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        if isinstance(part, str) and part in fields:
            model = _model_in(fields[part]) or model
    return [field.alias or "" for name, field in model.model_fields.items() if (model, name) != (Image, "name")]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


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
