"""Bundles as cosign writes them: what counts is what was signed, byte for byte, by a key of ours."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pipeline import dsse
from pipeline.errors import InputError
from pipeline.oci import OCI_MANIFEST, Digest

STATEMENT = b'{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://example.com/x","predicate":{"a":1}}'
CURVE = ec.generate_private_key(ec.SECP256R1())
STRONG = rsa.generate_private_key(65537, 2048)
SIG = [{"sig": "e30="}]


def message(payload: bytes, kind: str = dsse.PAYLOAD_TYPE) -> bytes:
    return f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


def bundle(payload: bytes = STATEMENT, *signatures: bytes, **changes: Any) -> bytes:
    made = signatures or (CURVE.sign(message(payload), ec.ECDSA(hashes.SHA256())),)
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": dsse.PAYLOAD_TYPE,
        "signatures": [{"sig": base64.b64encode(one).decode()} for one in made],
    }
    whole = {"mediaType": dsse.BUNDLE_TYPE, "verificationMaterial": {"publicKey": {"hint": "x"}}, "dsseEnvelope": envelope}
    return json.dumps({**whole, **changes}).encode()


def pem(key: Any) -> bytes:
    content: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return content


def keys(*privates: Any) -> list[tuple[int, Any]]:
    return [(number, dsse.public_key(pem(one))) for number, one in enumerate(privates)]


def test_the_key_that_signed_is_found_among_others() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    assert dsse.signer(dsse.parse(bundle()), keys(other, CURVE)) == 1
    assert dsse.signer(dsse.parse(bundle()), keys(other)) is None
    assert dsse.signer(dsse.parse(bundle()), []) is None


def test_all_kinds_of_keys_that_cosign_makes_or_takes_are_known() -> None:
    for curve, algorithm in ((ec.SECP384R1(), hashes.SHA384()), (ec.SECP521R1(), hashes.SHA512())):
        key = ec.generate_private_key(curve)
        signed = key.sign(message(STATEMENT), ec.ECDSA(algorithm))
        assert dsse.signer(dsse.parse(bundle(STATEMENT, signed)), keys(key)) == 0
    signed = STRONG.sign(message(STATEMENT), padding.PKCS1v15(), hashes.SHA256())
    assert dsse.signer(dsse.parse(bundle(STATEMENT, signed)), keys(STRONG)) == 0
    edwards = ed25519.Ed25519PrivateKey.generate()
    assert dsse.signer(dsse.parse(bundle(STATEMENT, edwards.sign(message(STATEMENT)))), keys(edwards)) == 0


def test_no_kind_of_key_takes_another_signature() -> None:
    privates = [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate(), STRONG]
    bad = (b"", b"0" * 64, b"0" * 256, CURVE.sign(message(STATEMENT), ec.ECDSA(hashes.SHA256())))
    for signature in (*bad, ed25519.Ed25519PrivateKey.generate().sign(message(STATEMENT))):
        assert dsse.signer(dsse.parse(bundle(STATEMENT, signature)), keys(*privates)) is None
    other: Any = x25519.X25519PrivateKey.generate().public_key()
    assert dsse.signer(dsse.parse(bundle()), [(0, other)]) is None


def test_one_byte_of_what_was_signed_changes_everything() -> None:
    envelope = dsse.parse(bundle())
    changed = dsse.Envelope(envelope.payload.replace(b":1", b":2"), envelope.signature)
    assert dsse.signer(changed, keys(CURVE)) is None
    assert dsse.signer(dsse.Envelope(envelope.payload, b""), keys(CURVE)) is None


def test_a_signature_over_the_bare_payload_or_another_type_is_none() -> None:
    for signed in (STATEMENT, message(STATEMENT, "text/plain")):
        made = CURVE.sign(signed, ec.ECDSA(hashes.SHA256()))
        assert dsse.signer(dsse.parse(bundle(STATEMENT, made)), keys(CURVE)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"{}",
        bundle(mediaType="application/vnd.dev.sigstore.bundle.v0.2+json"),
        bundle(dsseEnvelope=None),
        bundle(dsseEnvelope={"payload": "e30=", "payloadType": "text/plain", "signatures": SIG}),
        bundle(dsseEnvelope={"payload": "!", "payloadType": dsse.PAYLOAD_TYPE, "signatures": SIG}),
        bundle(dsseEnvelope={"payload": "e3 0=", "payloadType": dsse.PAYLOAD_TYPE, "signatures": SIG}),
        bundle(dsseEnvelope={"payload": "e30", "payloadType": dsse.PAYLOAD_TYPE, "signatures": SIG}),
        bundle(dsseEnvelope={"payload": "e30=", "payloadType": dsse.PAYLOAD_TYPE, "signatures": [{"sig": 3}]}),
        bundle(dsseEnvelope={"payload": "e30=", "payloadType": dsse.PAYLOAD_TYPE, "signatures": 3}),
        bundle(verificationMaterial=3),
        bundle(STATEMENT, b"one", b"two"),
        bundle(dsseEnvelope={"payload": "e30=", "payloadType": dsse.PAYLOAD_TYPE, "signatures": []}),
        bundle().decode().encode("utf-16"),
        b"\xef\xbb\xbf" + bundle(),
        b"[" * 100_000,
    ],
)
def test_what_is_no_bundle_is_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        dsse.parse(content)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":-1e999}',
        b'{"a":' + b"1" * 5000 + b"}",
        b'{"a":"\\uD800"}',
        b'{"\\udfff":1}',
        b"\xff",
        b"[" * 100_000,
        '{"a":1}'.encode("utf-16"),
    ],
    ids=lambda payload: payload[:12].hex(),
)
def test_a_payload_that_readers_would_read_differently_is_refused(payload: bytes) -> None:
    with pytest.raises(InputError):
        dsse.statement(payload)


def test_characters_beyond_the_first_65536_are_no_halves() -> None:
    assert dsse.statement(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_a_bundle_tells_whether_a_log_knows_of_it() -> None:
    assert not dsse.parse(bundle()).logged
    assert dsse.parse(bundle(verificationMaterial={"tlogEntries": [{"logIndex": "1"}]})).logged


EMPTY = {
    "mediaType": "application/vnd.oci.empty.v1+json",
    "digest": str(Digest.of(b"{}")),
    "size": 2,
    "artifactType": dsse.BUNDLE_TYPE,
}
IMAGE = Digest.of(b"image")
HOLDER: dict[str, Any] = {
    "schemaVersion": 2,
    "mediaType": OCI_MANIFEST,
    "artifactType": dsse.BUNDLE_TYPE,
    "config": EMPTY,
    "layers": [{"mediaType": dsse.BUNDLE_TYPE, "digest": str(Digest.of(b"x")), "size": 1}],
    "subject": {"mediaType": OCI_MANIFEST, "digest": str(IMAGE), "size": 9},
    "annotations": {"a": "b"},
}


def holder(**changes: Any) -> bytes:
    return json.dumps({**HOLDER, **changes}).encode()


def test_the_manifest_of_a_bundle_is_read() -> None:
    found = dsse.holder(holder(), IMAGE)
    assert ([layer.digest for layer in found.layers], found.annotations) == ([Digest.of(b"x")], {"a": "b"})


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        holder()[:-1] + b',"x":' + b"[" * 100_000,
        holder()[:-1] + b',"layers":[]}',
        b"{}",
        holder(layers=3),
        holder(layers=[]),
        holder(layers=HOLDER["layers"] * 2),
        holder(layers={"a": "b"}),
        holder(layers=[{**HOLDER["layers"][0], "urls": []}]),
        holder(layers=[{**HOLDER["layers"][0], "mediaType": "text/plain"}]),
        holder(Layers=[]),
        holder(manifests=[]),
        holder(config={**EMPTY, "size": 3}),
        holder(config={**EMPTY, "data": "e30="}),
        holder(subject={**HOLDER["subject"], "URLs": []}),
        holder(config={**EMPTY, "digest": str(IMAGE)}),
        holder(subject=None),
        holder(subject={**HOLDER["subject"], "digest": str(Digest.of(b"other"))}),
        holder(artifactType="text/plain"),
        holder(mediaType="application/vnd.docker.distribution.manifest.v2+json"),
    ],
    ids=lambda content: content[-20:].hex(),
)
def test_a_manifest_of_more_or_less_than_one_bundle_on_the_image_is_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        dsse.holder(content, IMAGE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n",
        pem(rsa.generate_private_key(65537, 1024)),
        pem(ec.generate_private_key(ec.SECP224R1())),
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(x25519.X25519PrivateKey.generate()),
        b"-----BEGIN PUBLIC KEY-----\nMBkwEwYHKoZIzj0CAQYIKoZIzj0DAQUDAgAE\n-----END PUBLIC KEY-----\n",
    ],
    ids=["nothing", "no key", "short", "weak curve", "another curve", "another kind", "unknown curve"],
)
def test_what_is_no_strong_public_key_is_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        dsse.public_key(content)
