"""A YAML document's values as strict models: every fault of one value, in words, with its file and line."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline.yaml_text import Document, Path, Problem, dotted

M = TypeVar("M", bound=BaseModel)


def value(
    model: type[M],
    document: Document,
    data: Mapping[str, Any],
    problems: list[Problem],
    *,
    given: Mapping[str, str] = MappingProxyType({}),
) -> M | None:
    """`data` as a `model`; None when something is wrong in it, which is added to `problems` and to the document's `broken`.

    `given` names the keys that do not come from the file, with what they are called.
    """
    try:
        return model.model_validate(data, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path = tuple(part for part in fault["loc"] if part != "[key]")
            if path not in document.broken:
                problems.append(document.problem(path, _text(model, document, path, fault, given)))
                document.broken.add(path)
    return None


def _text(model: type[BaseModel], document: Document, path: Path, fault: ErrorDetails, given: Mapping[str, str]) -> str:
    subject = given.get(dotted(path)) or f"`{dotted(path)}`"
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "value_error":
        return f"{subject} {context['error']}"
    if kind == "missing":
        return f"{subject} is missing"
    if kind == "extra_forbidden":
        known = [key for key in _keys(model, path[:-1]) if len(path) > 1 or key not in given]
        return f"unknown key {subject}{_instead(document, path, known)}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = "at least" if kind == "greater_than_equal" else "at most"
        return f"{subject} must be {bound} {context.get('ge', context.get('le'))}"
    raw, found = document.mark(path).raw, fault["input"]
    if kind == "literal_error" and fault["loc"][-1] == "[key]":
        return f"unknown key {subject}: it must be {_plain(context['expected'])}"
    if kind == "literal_error":
        return f"{subject} must be {_plain(context['expected'])}, not {_shown(raw, found)}"
    if kind == "string_type" and not isinstance(found, tuple | dict):
        return f'{subject} must be text: quote it, `"{raw}"`'
    return f"{subject} must be {_meant(kind)}, not {_shown(raw, found)}"


def _plain(expected: str) -> str:
    return expected.replace("'", "`")


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
    return [field.alias or "" for field in model.model_fields.values()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
