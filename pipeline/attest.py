"""One statement, signed as it is written canonically and attached to its image, once; for stages that hold keys."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pipeline import dsse, names, statements
from pipeline.cosign import Cosign, PrivateKey
from pipeline.evidence import Key, Role, Signed
from pipeline.gather import Keys
from pipeline.oci import Descriptor, Pinned
from pipeline.registry import Registry
from pipeline.statements import SIGNATURE, Statable, Statement

SHOWN = 2**16
"""Bytes of a bundle that a list of referrers may tell."""


def attach(
    pinned: Pinned,
    statement: Statement,
    key: PrivateKey,
    *,
    cosign: Cosign,
    registry: Registry,
    annotations: Mapping[str, str] | None = None,
    keep: bool = True,
    show: bool = False,
) -> Descriptor:
    """Sign `statement` and attach it to the image; returns the entry of the manifest that holds it.

    With `show` the list of referrers tells the whole of it, unless it is large (`gather.shown` reads that).
    Without `keep` it is for the caller to see whether it stays listed.
    """
    bundle = cosign.sign(canonical(statement), key)
    told = {
        dsse.CONTENT_ANNOTATION: "dsse-envelope",
        dsse.PREDICATE_ANNOTATION: str(statement["predicateType"]),
        **(annotations or {}),
        **({names.ANNOTATION_BUNDLE: bundle.decode()} if show and len(bundle) <= SHOWN else {}),
    }
    return registry.attach(pinned, dsse.BUNDLE_TYPE, bundle, dsse.BUNDLE_TYPE, told, keep=keep)


def known(statement: Statement, record: Statable | None, role: Role, there: Iterable[Signed]) -> Signed | None:
    """The same statement among those that are attached, signed in the same role already."""
    told = None if record is None else record.model_dump(mode="json")
    for one in there:
        same = one.predicate_type == statement["predicateType"] and one.subject == statements.subject_digest(statement)
        if same and role in one.key.roles and (None if one.record is None else one.record.model_dump(mode="json")) == told:
            return one
    return None


def signature(pinned: Pinned) -> Statement:
    """What `cosign sign` writes about a digest: its name is left out, so that the signature goes with the image."""
    return {
        "_type": statements.STATEMENT_TYPES[0],
        "subject": [{"digest": {"sha256": pinned.digest.hex}}],
        "predicateType": SIGNATURE,
        "predicate": {},
    }


def canonical(statement: Mapping[str, Any]) -> bytes:
    """The bytes that are signed."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def listed(key: PrivateKey, keys: Keys, *, role: Role, cosign: Cosign, now: datetime) -> Key | None:
    """The key of a policy whose private half `key` is; nothing when it may not sign in this role now."""
    public = dsse.public_key(cosign.public(key))
    known = next((one for one, other in keys if other == public), None)
    good = known is not None and role in known.roles and not known.revoked and not (known.retired and known.retired <= now)
    return known if good else None
