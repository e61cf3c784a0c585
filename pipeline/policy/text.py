"""YAML text → `Policy` and `Exceptions`, or every fault at once with file and line; and the digest of what was read."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import TypeVar

from pipeline.catalog import Entry
from pipeline.errors import CatalogError
from pipeline.policy.model import Exceptions, Policy, Waiver
from pipeline.policy.waivers import useless
from pipeline.yaml_models import value
from pipeline.yaml_text import Document, Problem, read

E = TypeVar("E", bound=Entry)

WRITE = "`policies/release.yaml` as it came shows every key"


def parse(content: bytes, file: str) -> Policy:
    """The policy in `content`, YAML in UTF-8; raises `CatalogError` with all faults, as `file:line: text`.

    Every key must be there: an empty policy, or one that lacks a rule, is a fault, not a permission.
    """
    document = read(file, content)
    found, problems = _read(Policy, document)
    problems += _relations(found, document) if found else ()
    return _whole(found, problems, file, WRITE)


def parse_exceptions(content: bytes, file: str) -> Exceptions:
    """The exceptions in `content`; raises `CatalogError` as `parse` does."""
    document = read(file, content)
    found, problems = _read(Exceptions, document)
    problems += _twice(found, document) if found else ()
    return _whole(found, problems, file, "without exceptions the file says `exceptions: []`")


def idle_exceptions(content: bytes, file: str, images: Collection[str], now: datetime) -> tuple[Problem, ...]:
    """The exceptions in `content` that cannot count now: of an image that is none of `images`, expired, or too wide.

    Raises `CatalogError` as `parse` does.
    """
    document, found = read(file, content), parse_exceptions(content, file).exceptions
    told = [(at, f"exception `{one.label}` {text}") for at, one in enumerate(found) if (text := _idle(one, images, now))]
    return tuple(document.problem(("exceptions", at), text) for at, text in told)


def digest(contents: Mapping[str, bytes]) -> str:
    """`sha256:…` over policy, exceptions and public keys: their paths from the policies' folder, and their bytes."""
    told = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    return "sha256:" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _read(model: type[E], document: Document) -> tuple[E | None, list[Problem]]:
    problems = list(document.problems)
    return (value(model, document, document.value, problems) if document.value or not problems else None), problems


def _whole(found: E | None, problems: list[Problem], file: str, hint: str) -> E:
    if problems or found is None:
        raise CatalogError([str(problem) for problem in sorted(set(problems))], what=f"`{file}`", hint=hint)
    return found


def _relations(found: Policy, document: Document) -> Iterator[Problem]:
    """What is wrong between values."""
    for at, key in enumerate(found.keys):
        before, place = found.keys[:at], ("keys", at)
        if len(key.origins) != 1:
            yield document.problem(place, f"`{key.name}` must have one of `file`, `kms` and `development: true`")
        if key.name in [one.name for one in before]:
            yield document.problem(place, f"there is a key `{key.name}` already")
        if set(key.origins) & {origin for one in before for origin in one.origins}:
            yield document.problem(place, f"`{key.name}` is listed already, under another name")
        if key.development and found.registry != "loopback":
            yield document.problem(place, f"`{key.name}`: a development key needs `registry: loopback`")
    for at, frozen in enumerate(found.freeze):
        if frozen.begin >= frozen.end:
            yield document.problem(("freeze", at), f"`freeze[{at}]` ends before it begins")


def _idle(one: Waiver, images: Collection[str], now: datetime) -> str:
    if one.image not in images:
        near = get_close_matches(one.image, images, n=1)
        return f"is of no image: there is no `{one.image}`" + (f", did you mean `{near[0]}`?" if near else "; remove it")
    return f"{text}; mend it or remove it" if (text := useless(one, now)) else ""


def _twice(found: Exceptions, document: Document) -> Iterator[Problem]:
    for at, one in enumerate(found.exceptions):
        if (one.label, one.image) in [(other.label, other.image) for other in found.exceptions[:at]]:
            yield document.problem(("exceptions", at), f"`{one.label}` of `{one.image}` is excepted already")
