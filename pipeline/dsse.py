"""Signed statements as cosign 3 writes them: a sigstore bundle around a DSSE envelope around an in-toto statement; pure.

Formats: sigstore bundle v0.3, DSSE v1 (a signature is over the type and the exact bytes of the payload), in-toto. Keys are
those that cosign makes or takes: ECDSA on P-256, P-384 and P-521 with the hash of that size, RSA of 2048 bits or more, Ed25519.
"""

import base64
import binascii
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.errors import InputError, ToolFailed
from pipeline.oci import OCI_EMPTY, OCI_MANIFEST, Digest, Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

    PublicKey = PublicKeyTypes
else:
    PublicKey = object

BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_ANNOTATION = "dev.sigstore.bundle.predicateType"
CONTENT_ANNOTATION = "dev.sigstore.bundle.content"
RSA_BITS = 2048

_FIELDS = {"schemaVersion", "mediaType", "artifactType", "config", "layers", "subject", "annotations"}
_PART = {"mediaType", "digest", "size"}
_EMPTY = OCI_EMPTY, Digest.of(b"{}"), 2

K = TypeVar("K")


@dataclass(frozen=True)
class Envelope:
    """What was signed, byte for byte, and the signature over it."""

    payload: bytes
    signature: bytes
    logged: bool = False
    """Whether a transparency log knows of it."""


def holder(content: bytes, subject: Digest) -> Manifest:
    """The manifest that attaches one bundle, and nothing else, to `subject`; raises `InputError` for any other.

    It has the fields that cosign writes and no more. Whoever may push can wrap what others have signed: other content must
    not travel with it, and a registry must not read other fields than we (those written in Go take `URLs` for `urls`).
    """
    try:
        data = _object(content)
        parts = data["config"], *data["layers"], data["subject"]
        plain = data.keys() <= _FIELDS and all(_PART <= one.keys() <= {*_PART, "artifactType"} for one in parts)
        found = Manifest.parse(content)
    except (KeyError, TypeError, AttributeError, ValueError, ToolFailed) as error:
        raise InputError("is no manifest of a bundle") from error
    types = found.media_type, found.artifact_type, *(layer.media_type for layer in found.layers)
    config = found.config.media_type, found.config.digest, found.config.size
    if not plain or types != (OCI_MANIFEST, BUNDLE_TYPE, BUNDLE_TYPE) or (config, found.subject) != (_EMPTY, subject):
        raise InputError("is not the manifest of one bundle alone")
    return found


def parse(content: bytes) -> Envelope:
    """The envelope of a bundle; raises `InputError` for what is none."""
    try:
        bundle = _object(content)
        envelope = bundle["dsseEnvelope"]
        if bundle["mediaType"] != BUNDLE_TYPE or envelope["payloadType"] != PAYLOAD_TYPE:
            raise InputError("is not a sigstore bundle of an in-toto statement")
        (only,) = envelope["signatures"]  # as the format wants it: thousands of them would have to be tried with each key
        logged = bool(bundle.get("verificationMaterial", {}).get("tlogEntries"))
        return Envelope(_decoded(envelope["payload"]), _decoded(only["sig"]), logged)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError("is not a sigstore bundle") from error


def statement(payload: bytes) -> Mapping[str, Any]:
    """The statement that is signed, or to be signed; raises `InputError` for no JSON object, and one that means two things."""
    try:
        return _object(payload)
    except ValueError as error:
        raise InputError(f"is no statement: {error}") from error


def signer(envelope: Envelope, keys: Iterable[tuple[K, PublicKey]]) -> K | None:
    """The name beside the first of `keys` that made the signature; None when none did."""
    message = _encoded(envelope.payload)
    return next((name for name, key in keys if _valid(key, envelope.signature, message)), None)


def public_key(pem: bytes) -> PublicKey:
    """A public key in PEM; raises `InputError` for what is none, or is too weak."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError("is no public key in PEM") from error
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= RSA_BITS:
        return key
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1):
        return key
    raise InputError(f"is neither ECDSA on P-256, P-384 or P-521, Ed25519, nor RSA of {RSA_BITS} bits or more")


def _valid(key: PublicKey, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(_hash(key.curve.key_size)))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _hash(bits: int) -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256() if bits <= 256 else hashes.SHA384() if bits <= 384 else hashes.SHA512()


def _encoded(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding; lengths in bytes."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("is no base64") from error


def _object(content: bytes) -> Mapping[str, Any]:
    """A JSON object in which no key occurs twice, no number is none and no text is half a character.

    Other readers would see other things, or fail.
    """
    try:
        found = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        if b"\\ud" in content.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("names a key twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"holds `{text}`")
