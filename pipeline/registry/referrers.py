"""What refers to an image: the list of the registry, or of the tag that stands in for it where the registry keeps none.

Protocol: OCI distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema".
"""

from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import quote

import requests

from pipeline.errors import TooLarge, ToolFailed
from pipeline.oci import OCI_EMPTY, OCI_INDEX, Descriptor, Digest, Pinned, Tagged, parse_index
from pipeline.registry import answers, reading
from pipeline.registry.wire import Wire, address

REFERRERS_LIMIT = 1000
"""Referrers of one digest; more of them are an attack or a mistake, and told as such."""
LIST_LIMIT = 64 * 2**20
"""Bytes of a registry's own list: it repeats what others have noted down on what they attached."""

_NO_LIST = (HTTPStatus.SEE_OTHER, HTTPStatus.NOT_ACCEPTABLE)
"""GitHub's registry says 303, and leads to a page for people."""
_UNTOLD = ("", OCI_EMPTY)
"""What some writers put where the artifact's type belongs: then only the manifest tells."""


def listed(wire: Wire, pinned: Pinned, artifact_type: str | None) -> tuple[Descriptor, ...]:
    """All that refers to the image, of one type if one is named; each entry is only what the list says.

    An entry that does not tell its type is kept: its manifest tells. Raises `NotThere` when the registry does not hold
    the image, since some answer an empty list for anything; `ToolFailed` on more than `REFERRERS_LIMIT`.
    """
    reading.pinned_manifest(wire, pinned)
    return seen(wire, pinned, artifact_type)


def seen(wire: Wire, pinned: Pinned, artifact_type: str | None = None) -> tuple[Descriptor, ...]:
    """The same of an image that the caller has seen there."""
    found = from_registry(wire, pinned, artifact_type)
    if found is None:
        found = from_tag(wire, pinned)
    return tuple(each for each in found if artifact_type is None or each.artifact_type in (artifact_type, *_UNTOLD))


def glanced(wire: Wire, pinned: Pinned) -> tuple[Descriptor, ...]:
    """What one of the lists says; first the one that is likelier there: registries that want a login keep lists of their own."""
    if wire.guarded(pinned.repository.host):
        return from_registry(wire, pinned) or from_tag(wire, pinned)
    return from_tag(wire, pinned) or from_registry(wire, pinned) or ()


def from_registry(wire: Wire, pinned: Pinned, artifact_type: str | None = None) -> tuple[Descriptor, ...] | None:
    """The registry's own list; None where it keeps none, which is asked once."""
    if pinned.repository in wire.unlisted:
        return None
    query = f"?artifactType={quote(artifact_type, safe='')}" if artifact_type else ""
    path, what = f"referrers/{pinned.digest}{query}", f"the list of referrers of `{pinned}`"
    found: dict[Digest, Descriptor] = {}
    for answer in wire.pages(pinned.repository, path, what):
        if _unsupported(answer) and not found:
            wire.unlisted.add(pinned.repository)
            return None
        for entry in _page(wire, answer, pinned, what):
            found[entry.digest] = entry
        _count(len(found), pinned)
    return tuple(found.values())


def from_tag(wire: Wire, pinned: Pinned) -> tuple[Descriptor, ...]:
    """The list in the tag that stands in for the registry's; empty where there is no such tag."""
    return entries(tag_content(wire, pinned), pinned)


def entries(content: bytes | None, pinned: Pinned) -> tuple[Descriptor, ...]:
    """What such a tag's index lists, each once."""
    found = {entry.digest: entry for entry in (() if content is None else parse_index(content))}
    _count(len(found), pinned)
    return tuple(found.values())


def tag_content(wire: Wire, pinned: Pinned) -> bytes | None:
    """The bytes that the tag names; raises `ToolFailed` when that is no index."""
    tag = stand_in(pinned)
    content = reading.tagged_manifest(wire, tag)
    if content is not None and reading.media_type(content, "", str(tag)) != OCI_INDEX:
        raise ToolFailed(
            f"`{tag}` should list what refers to the image, but names something else",
            hint="`cosign copy` leaves such tags; remove it from the registry",
        )
    return content


def stand_in(pinned: Pinned) -> Tagged:
    """The tag `sha256-…`."""
    return pinned.repository.tag(f"sha256-{pinned.digest.hex}")


def _unsupported(answer: requests.Response) -> bool:
    """Harbor's own 404 is none of that: one entry that lost what it refers to takes the whole list away."""
    if answer.status_code in _NO_LIST:
        return True
    if answer.status_code == 404:
        return "NOT_FOUND" not in answers.codes(answer)
    return answer.status_code in (400, 405) and "UNSUPPORTED" in answers.codes(answer)


def _page(wire: Wire, answer: requests.Response, pinned: Pinned, what: str) -> Iterator[Descriptor]:
    if answer.status_code == 404:  # the image is there: that its list is not must not read as if the image was not
        text = f"{what} cannot be read: `{pinned.repository.host}` answered 404, {wire.reason(answer)}"
        raise ToolFailed(text, hint="run it again; if that stays so, delete what has lost the image that it refers to")
    if answer.status_code != 200:
        wire.fail(answer, f"{what} cannot be read", pinned.repository)
    try:
        content = answers.body(answer, what, LIST_LIMIT)
    except TooLarge as error:
        raise TooLarge(error.message, hint=_remedy(pinned)) from error
    try:
        yield from parse_index(content)
    except ToolFailed as error:
        raise ToolFailed(f"{what} cannot be read: {error.message}") from error


def _count(count: int, pinned: Pinned) -> None:
    if count > REFERRERS_LIMIT:
        raise ToolFailed(
            f"`{pinned}` has more than {REFERRERS_LIMIT} referrers, which nobody reads",
            hint=_remedy(pinned),
        )


def _remedy(pinned: Pinned) -> str:
    return f"`curl {address(pinned.repository)}/referrers/{pinned.digest}` lists them: find out whose they are, and delete theirs"
