"""All that is attached to one digest, fetched, checked against keys, and told apart: what counts and what does not.

Nothing that a registry says is believed: bytes are compared with their digests, signatures with our keys, the subject with
what was asked for. What cannot be had is told as such, since nobody knows what it says.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from pipeline import dsse, names, statements
from pipeline.errors import InputError, NotThere, TooLarge, ToolFailed
from pipeline.evidence import Evidence, Ignored, Key, Signed, Why, collect
from pipeline.oci import OCI_EMPTY, Descriptor, Digest, Manifest, Pinned
from pipeline.registry import Registry

ATTACHED = 500
"""What is looked at; more on one image is an attempt to hide some."""
STATEMENT_LIMIT = 16 * 2**20
"""Bytes of a bundle: the list of packages of a large image has one or two million."""
AT_ONCE = 8
MAYBE = (dsse.BUNDLE_TYPE, OCI_EMPTY, "")
"""What a list says of bundles; older writers of stand-in lists name the type of the empty configuration, or none."""
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+/-]{0,126}")

Keys = Sequence[tuple[Key, dsse.PublicKey]]


def gather(pinned: Pinned, keys: Keys, registry: Registry, *, now: datetime) -> Evidence:
    """The evidence of `pinned`. Raises `NotThere` when the registry does not hold it, `ToolFailed` when it lies."""
    return collect(pinned, found(pinned, keys, registry), now=now)


def found(pinned: Pinned, keys: Keys, registry: Registry, *, kinds: Collection[str] = ()) -> tuple[Signed | Ignored, ...]:
    """All that is attached to `pinned`, whether it counts or not; raises as `gather` does.

    With `kinds`, what the list says to be of another predicate type is left out, for those who look for few things.
    """
    registry.raw_manifest(pinned)
    listed = [entry for entry in registry.referrers(pinned, seen=True) if not kinds or _told(entry) in ("", *kinds)]
    entries = [entry for entry in listed if entry.artifact_type in MAYBE]
    others = [_foreign(entry) for entry in listed if entry.artifact_type not in MAYBE]
    left = [_crowd(len(entries), entries[ATTACHED])] if len(entries) > ATTACHED else []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return (*pool.map(_looker(pinned, keys, registry), entries[:ATTACHED]), *left, *others)


def shown(entry: Descriptor, keys: Keys) -> Signed | Ignored:
    """The statement whose bundle a list of referrers tells: it proves itself, whoever wrote the list."""
    try:
        return _read(entry.digest, entry.annotations, entry.annotations.get(names.ANNOTATION_BUNDLE, "").encode(), keys)
    except InputError as error:
        return Ignored(manifest=str(entry.digest), why=Why.FOREIGN, text=error.message)


def _looker(pinned: Pinned, keys: Keys, registry: Registry) -> Callable[[Descriptor], Signed | Ignored]:
    def look(entry: Descriptor) -> Signed | Ignored:
        try:
            holder = dsse.holder(registry.manifest_body(pinned.repository.at(entry.digest)), pinned.digest)
            return _read(entry.digest, holder.annotations, _content(pinned, holder, registry), keys)
        except TooLarge:
            text = f"has more than {STATEMENT_LIMIT} bytes, which none that we sign has"
            return Ignored(manifest=str(entry.digest), why=Why.FOREIGN, text=text)
        except NotThere:
            return _unread(entry, "is listed, and the registry does not hold it")
        except ToolFailed as error:
            return _unread(entry, f"cannot be believed: {error.message}")
        except InputError as error:
            return Ignored(manifest=str(entry.digest), why=Why.FOREIGN, text=error.message)

    return look


def _content(pinned: Pinned, holder: Manifest, registry: Registry) -> bytes:
    """The bundle that a referrer holds; its size is not believed before, and must be right for those who believe it."""
    (layer,) = holder.layers
    content = registry.content(pinned.repository, layer.digest, limit=STATEMENT_LIMIT)
    if len(content) != layer.size:
        raise InputError(f"says that its bundle has {layer.size} bytes, and it has {len(content)}")
    return content


def _read(manifest: Digest, told: Mapping[str, str], content: bytes, keys: Keys) -> Signed | Ignored:
    """A bundle's statement, if one of `keys` signed it; nothing of it is looked at before that."""
    envelope = dsse.parse(content)
    key = dsse.signer(envelope, keys)
    if key is None:
        return Ignored(manifest=str(manifest), why=Why.UNSIGNED, text="is signed by none of the keys")
    kind = ""
    try:
        statement = dsse.statement(envelope.payload)
        kind = str(statement.get("predicateType"))
        subject = statements.subject_digest(statement)
        record = None if kind == statements.SIGNATURE else statements.read(statement)
    except InputError as error:
        return Ignored(manifest=str(manifest), why=_why(kind, key), text=f"is signed by `{key.name}`, but {error.message}")
    if told.get(dsse.PREDICATE_ANNOTATION, kind) != kind or (names.ANNOTATION_VERDICT in told and kind != statements.SUMMARY):
        raise InputError("is noted down as something else than it is")
    return Signed(manifest=manifest, key=key, subject=subject, record=record, predicate_type=kind)


def _why(kind: str, key: Key) -> Why:
    """One of our keys said something of our kind that we cannot read: a newer pipeline's failure must not be hidden by that."""
    return Why.UNREADABLE if kind in statements.OURS and not key.revoked else Why.FOREIGN


def _foreign(entry: Descriptor) -> Ignored:
    """What the list says of its type is shown only where it looks like one: others chose the words."""
    kind = f"`{entry.artifact_type}`" if _TYPE.fullmatch(entry.artifact_type) else "of a type that is none"
    return Ignored(manifest=str(entry.digest), why=Why.FOREIGN, text=f"is {kind}, and no bundle")


def _crowd(count: int, first: Descriptor) -> Ignored:
    text = f"is the first of {count - ATTACHED} that were not looked at: {count} are attached to this image"
    return Ignored(manifest=str(first.digest), why=Why.CROWD, text=text)


def _told(entry: Descriptor) -> str:
    return entry.annotations.get(dsse.PREDICATE_ANNOTATION, "")


def _unread(entry: Descriptor, text: str) -> Ignored:
    return Ignored(manifest=str(entry.digest), why=Why.UNREADABLE, text=text)
