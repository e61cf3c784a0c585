"""Adding to an index without touching what others wrote: their entries, and all else, stay byte for byte."""

import json

from pipeline.errors import ToolFailed
from pipeline.oci import OCI_INDEX, Descriptor, parse_index

_BETWEEN = " \t\r\n,:"


def with_entry(content: bytes | None, entry: Descriptor) -> bytes:
    """The index with one more entry at its end, a new index when there is none; raises `ToolFailed` when it is no index."""
    added = json.dumps(_as_data(entry))
    if content is None:
        return f'{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":[{added}]}}'.encode()
    parse_index(content)
    comma = "," if json.loads(content)["manifests"] else ""
    try:
        text = content.decode()
        end = _end_of_entries(text)
    except (ValueError, IndexError) as error:
        raise ToolFailed(f"an index cannot be added to: {error!r}") from error
    return f"{text[:end]}{comma}{added}{text[end:]}".encode()


def _end_of_entries(text: str) -> int:
    """Where the `]` of the top level's `manifests` is; the last of several counts, as for parsers."""
    decoder, place, found = json.JSONDecoder(), text.index("{") + 1, -1
    while text[place := _next(text, place)] != "}":
        name, place = decoder.raw_decode(text, place)
        _, place = decoder.raw_decode(text, _next(text, place))
        found = place - 1 if name == "manifests" else found
    if text[found] != "]":
        raise ValueError("its `manifests` are no list")
    return found


def _next(text: str, place: int) -> int:
    """The next place that is neither space nor between two values."""
    while text[place] in _BETWEEN:
        place += 1
    return place


def _as_data(entry: Descriptor) -> dict[str, object]:
    data = {"mediaType": entry.media_type, "digest": str(entry.digest), "size": entry.size}
    return {**data, "artifactType": entry.artifact_type, "annotations": dict(entry.annotations)}
