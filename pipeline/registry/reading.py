"""Reading: nothing is believed before it is hashed, and what is not there is told from what could not be asked."""

import hashlib
import json
from collections.abc import Iterator
from urllib.parse import quote

import requests

from pipeline.errors import TooLarge, ToolFailed
from pipeline.oci import MANIFEST_TYPES, Descriptor, Digest, Pinned, Repository, Tagged
from pipeline.registry import answers
from pipeline.registry.wire import ACCEPT, PAGES, Wire

MANIFEST_LIMIT = 4 * 2**20
"""Bytes; what the distribution specification asks registries to support."""
TAGS_LIMIT = 16 * 2**20
"""Largest page of a list of tags."""
TAGS_ASKED = 1000
"""Tags of one page."""


def tagged_manifest(wire: Wire, tagged: Tagged) -> bytes | None:
    """The bytes that the tag names now; None only when the registry says that it knows no such tag or repository."""
    with wire.ask("GET", tagged.repository, f"manifests/{tagged.name}", headers=ACCEPT) as answer:
        if answers.absent(answer):
            return None
        content = _manifest(wire, answer, tagged)
        if not answer.headers.get("Docker-Content-Digest"):
            _must_be_one(content, tagged)
        return content


def pinned_manifest(wire: Wire, pinned: Pinned) -> tuple[bytes, str]:
    """The bytes of the manifest or index with this digest, and their media type."""
    with wire.ask("GET", pinned.repository, f"manifests/{pinned.digest}", headers=ACCEPT) as answer:
        content = _manifest(wire, answer, pinned)
        header = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if Digest.of(content) != pinned.digest:
        raise ToolFailed(f"`{pinned.repository.host}` answered `{Digest.of(content)}` where `{pinned}` was asked for")
    return content, header


def media_type(content: bytes, header: str, what: str) -> str:
    """The type of a manifest or index; raises `ToolFailed` unless its bytes and the registry agree on one that we know."""
    try:
        data = json.loads(content)
        told = data.get("mediaType") or header
        single = ("manifests" in data) + ("layers" in data) + ("fsLayers" in data) == 1
    except (ValueError, AttributeError, RecursionError) as error:
        raise ToolFailed(f"`{what}` is no manifest: {error!r}") from error
    if told not in MANIFEST_TYPES or (header in MANIFEST_TYPES and header != told) or not single:
        raise ToolFailed(f"`{what}` is of an unknown or doubtful type: it says `{told}`, the registry says `{header}`")
    return str(told)


def stream(wire: Wire, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
    """A blob in pieces; raises `ToolFailed` at the end unless size and digest are the descriptor's."""
    what, hashed, size = f"{repository}@{descriptor.digest}", hashlib.sha256(), 0
    with wire.ask("GET", repository, f"blobs/{descriptor.digest}") as answer:
        if answer.status_code != 200:
            wire.fail(answer, f"`{what}` cannot be read", repository)
        for chunk in answers.chunks(answer, f"`{what}`"):
            hashed.update(chunk)
            size += len(chunk)
            if size > descriptor.size:
                break
            yield chunk
    if size != descriptor.size or hashed.hexdigest() != descriptor.digest.hex:
        raise ToolFailed(f"`{what}` arrived damaged: {size} bytes of {descriptor.size}, or another digest")


def blob(wire: Wire, repository: Repository, descriptor: Descriptor, limit: int) -> bytes:
    """A verified blob; raises `TooLarge`, and reads nothing, when it should have more than `limit` bytes."""
    if descriptor.size > limit:
        raise TooLarge(f"`{repository}@{descriptor.digest}` has {descriptor.size} bytes, more than {limit}")
    return b"".join(stream(wire, repository, descriptor))


def content(wire: Wire, repository: Repository, digest: Digest, limit: int) -> bytes:
    """The bytes with this digest, whatever a manifest says of their size; raises `TooLarge` for more than `limit`."""
    what = f"`{repository}@{digest}`"
    with wire.ask("GET", repository, f"blobs/{digest}") as answer:
        if answer.status_code != 200:
            wire.fail(answer, f"{what} cannot be read", repository)
        found = answers.body(answer, what, limit)
    if Digest.of(found) != digest:
        raise ToolFailed(f"{what} arrived damaged: it has another digest")
    return found


def tags(wire: Wire, repository: Repository) -> tuple[str, ...]:
    """All tags of a repository, none when the registry does not know it.

    A registry need not tell that there are more: one page that is full is followed by a look behind its last tag.
    """
    found: dict[str, None] = {}
    path = begin = f"tags/list?n={TAGS_ASKED}"
    for _ in range(PAGES):
        page, before = list[str](), len(found)
        for answer in wire.pages(repository, path, f"the list of tags of `{repository}`"):
            if answers.absent(answer) and not found:
                return ()
            page = _tag_page(wire, answer, repository)
            found.update(dict.fromkeys(page))
        if len(page) != TAGS_ASKED or len(found) == before:
            return tuple(found)
        path = f"{begin}&last={quote(page[-1], safe='')}"
    raise ToolFailed(f"the list of tags of `{repository}` does not end")


def _manifest(wire: Wire, answer: requests.Response, what: Pinned | Tagged) -> bytes:
    if answer.status_code != 200:
        wire.fail(answer, f"`{what}` cannot be read", what.repository)
    content = answers.body(answer, f"the manifest of `{what}`", MANIFEST_LIMIT)
    told = answer.headers.get("Docker-Content-Digest")
    if told and told != str(Digest.of(content)):
        raise ToolFailed(f"the registry says that `{what}` is `{told}`, but sent `{Digest.of(content)}`")
    return content


def _must_be_one(content: bytes, tagged: Tagged) -> None:
    """Nobody has named its digest: the page of a login, or of a proxy, answers 200 too."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or "schemaVersion" not in told:
        raise ToolFailed(f"`{tagged}` cannot be read: `{tagged.repository.host}` answered something that is no manifest")


def _tag_page(wire: Wire, answer: requests.Response, repository: Repository) -> list[str]:
    if answer.status_code != 200:
        wire.fail(answer, f"the tags of `{repository}` cannot be listed", repository)
    try:
        listed = json.loads(answers.body(answer, f"the list of tags of `{repository}`", TAGS_LIMIT))
        return [str(tag) for tag in listed["tags"] or ()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ToolFailed(f"the list of tags of `{repository}` cannot be read: {error!r}") from error
