"""Attaching content to an image, so that whoever lists what refers to the image finds it.

The manifest is the one that cosign 3.1.2 writes: an empty configuration, one layer, `subject`, annotations. A registry
that keeps no list gets an index under a tag. Nobody can change that index alone: so writers of one machine wait for each
other, and everybody looks a while afterwards whether the own entries stand, and adds them to what another has written
meanwhile. Who attaches several things looks once, after the last.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.errors import NotThere, Temporary, TooLarge, ToolFailed
from pipeline.oci import OCI_EMPTY, OCI_INDEX, OCI_MANIFEST, Descriptor, Digest, Manifest, Pinned
from pipeline.registry import reading, referrers, writing
from pipeline.registry.index_text import with_entry
from pipeline.registry.wire import Wire

EMPTY = b"{}"
AT_ONCE = 8
"""Manifests that are written at a time."""
TRIES = 10
"""How often an entry is added anew, or looked for in the registry's own list."""
PAUSE = 0.2
"""Seconds between two looks at a list that does not show the entry yet."""
SETTLE, SETTLE_HERE = 1.0, 0.3
"""Seconds after which a list that others may write too is looked at again: longer than they need from reading it to writing it.
Those of this machine, who are alone with a registry on loopback, wait for each other besides."""
LOCK_SECONDS = 300


def attach(
    wire: Wire,
    pinned: Pinned,
    artifact_type: str,
    layer: bytes,
    layer_type: str,
    annotations: Mapping[str, str],
    locks: Path,
) -> Descriptor:
    """Attach one layer to the image, and see it listed; content that is attached already is left, and its entry returned.

    Raises `NotThere` when the registry does not hold the image. Whether the entry stays is for `keep_listed` to see.
    """
    content, header = reading.pinned_manifest(wire, pinned)
    kind = reading.media_type(content, header, str(pinned))
    if found := _attached(wire, pinned, artifact_type, Digest.of(layer)):
        return found
    body = _manifest(
        Descriptor(kind, pinned.digest, len(content)),
        artifact_type,
        writing.upload(wire, pinned.repository, EMPTY, OCI_EMPTY),
        writing.upload(wire, pinned.repository, layer, layer_type),
        annotations,
    )
    entry = Descriptor(OCI_MANIFEST, Digest.of(body), len(body), dict(annotations), artifact_type)
    writing.put_manifest(wire, pinned.repository, body, OCI_MANIFEST, str(entry.digest))
    _list(wire, pinned, (entry,), locks)
    return entry


def adopt(wire: Wire, pinned: Pinned, manifests: Sequence[bytes], locks: Path) -> tuple[Descriptor, ...]:
    """Write manifests that refer to the image, byte for byte, and list them; what they hold is there already."""
    if not manifests:
        return ()
    entries = tuple(_entry(body) for body in manifests)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        put = [
            pool.submit(writing.put_manifest, wire, pinned.repository, body, OCI_MANIFEST, str(entry.digest))
            for body, entry in zip(manifests, entries, strict=True)
        ]
    for one in put:
        one.result()
    _list(wire, pinned, entries, locks)
    return entries


def keep_listed(wire: Wire, pinned: Pinned, entries: Sequence[Descriptor], locks: Path) -> None:
    """See that entries are still listed once others have had their time; raises `Temporary` when they do not stay.

    Nobody but the registry writes a list of its own: there they stay.
    """
    if not entries or pinned.repository not in wire.unlisted:
        return
    settle = SETTLE_HERE if pinned.repository.loopback else SETTLE
    for _ in range(TRIES):
        time.sleep(settle)
        if not (missing := enter(wire, pinned, entries, locks)):
            return
    raise Temporary(
        f"`{referrers.stand_in(pinned)}` lost the entry of `{missing[0].digest}` {TRIES} times: others write it at the same time",
        hint="run the same command again; what is attached already is not attached twice",
    )


def enter(wire: Wire, pinned: Pinned, entries: Sequence[Descriptor], locks: Path) -> Sequence[Descriptor]:
    """Add entries to the tag that stands in for the registry's list; returns those that were not there."""
    with _turn(pinned, locks):
        content = referrers.tag_content(wire, pinned)
        there = {each.digest for each in referrers.entries(content, pinned)}
        if missing := [entry for entry in entries if entry.digest not in there]:
            _replace(wire, pinned, reduce(with_entry, missing, content) or b"")
        return missing


def _list(wire: Wire, pinned: Pinned, entries: Sequence[Descriptor], locks: Path) -> None:
    """See entries in the registry's own list, or put them into the tag that stands in for it.

    The list tells which, not the header `OCI-Subject`: some have sent that, and have no list.
    """
    found = referrers.from_registry(wire, pinned)
    if found is None:
        enter(wire, pinned, entries, locks)
    else:
        _see_listed(wire, pinned, entries, found)


def _entry(body: bytes) -> Descriptor:
    manifest = Manifest.parse(body)
    return Descriptor(OCI_MANIFEST, manifest.digest, len(body), dict(manifest.annotations), manifest.artifact_type)


def _replace(wire: Wire, pinned: Pinned, index: bytes) -> None:
    """This tag alone is moved: it is the list itself."""
    if len(index) > reading.MANIFEST_LIMIT:
        raise ToolFailed(f"`{referrers.stand_in(pinned)}` would have more than {reading.MANIFEST_LIMIT} bytes")
    writing.put_manifest(wire, pinned.repository, index, OCI_INDEX, referrers.stand_in(pinned).name)


def _attached(wire: Wire, pinned: Pinned, artifact_type: str, layer: Digest) -> Descriptor | None:
    """The referrer that holds this layer. Without the blob there is none, which is one request."""
    if not writing.exists(wire, pinned.repository, layer):
        return None
    listed = referrers.listed(wire, pinned, artifact_type)
    return next((each for each in listed if _holds(wire, pinned, each, artifact_type, layer)), None)


def _holds(wire: Wire, pinned: Pinned, entry: Descriptor, artifact_type: str, layer: Digest) -> bool:
    if entry.media_type != OCI_MANIFEST:
        return False
    try:
        content, _ = reading.pinned_manifest(wire, pinned.repository.at(entry.digest))
    except (NotThere, TooLarge):
        return False
    try:
        manifest = Manifest.parse(content)
    except ToolFailed:
        return False
    layers = tuple(each.digest for each in manifest.layers)
    return (manifest.artifact_type, manifest.subject, layers) == (artifact_type, pinned.digest, (layer,))


def _manifest(
    subject: Descriptor, artifact_type: str, config: Descriptor, layer: Descriptor, annotations: Mapping[str, str]
) -> bytes:
    data = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": _plain(config),
        "layers": [_plain(layer)],
        "subject": _plain(subject),
        "annotations": dict(annotations),
    }
    return json.dumps(data, separators=(",", ":")).encode()


def _plain(descriptor: Descriptor) -> dict[str, object]:
    return {"mediaType": descriptor.media_type, "digest": str(descriptor.digest), "size": descriptor.size}


def _see_listed(wire: Wire, pinned: Pinned, entries: Sequence[Descriptor], found: Sequence[Descriptor]) -> None:
    """In what was `found`, or in the list a little later."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
            found = referrers.from_registry(wire, pinned) or ()
        there = {each.digest for each in found}
        if not (missing := [entry.digest for entry in entries if entry.digest not in there]):
            return
    raise Temporary(
        f"`{pinned.repository.host}` took `{missing[0]}` but does not list it among the referrers of `{pinned}`",
        hint="run the same command again",
    )


@contextmanager
def _turn(pinned: Pinned, locks: Path) -> Iterator[None]:
    """Among all of this machine that attach something to one image (or one of the same lock, of 256), one at a time."""
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / f"attach-{pinned.digest.hex[:2]}.lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.02)
    except Timeout as error:
        raise Temporary(f"others have been attaching to `{pinned}` for {LOCK_SECONDS} s", hint="run it again later") from error
    try:
        yield
    finally:
        lock.release()
