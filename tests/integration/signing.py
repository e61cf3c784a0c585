"""Keys of the real cosign, statements that they signed, and small images with whatever hangs on them."""

import base64
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from platformdirs import user_cache_path

from pipeline import dsse, names, setup, statements
from pipeline.command import Completed, Runner
from pipeline.cosign import Cosign, PrivateKey
from pipeline.evidence import Key
from pipeline.oci import OCI_EMPTY, OCI_INDEX, OCI_MANIFEST, Descriptor, Digest, Pinned, Repository
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Bom, Built, Decided, Findings, Scanned, Statable, Statement, Tested
from pipeline.story import Silent
from tests import cases

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MAKERS: Mapping[type, Callable[[Any], Statement]] = {
    Built: statements.built_statement,
    Tested: statements.tested_statement,
    Scanned: statements.scanned_statement,
    Findings: statements.findings_statement,
    Decided: statements.decided_statement,
    Bom: lambda bom: statements.bom_statement(bom.subject, bom.document),
}
DOCUMENT = {
    "bomFormat": "CycloneDX",
    "metadata": {"timestamp": cases.YESTERDAY.isoformat()},
    "components": [{"name": "torch", "version": "2.6.0"}, {"name": "huggingface_hub", "version": "0.36.2"}],
}


def found_cosign(folder: Path, host: str) -> Path:
    """The user's cosign, or one that is got now."""
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    ready = setup.ensure(
        frozenset({Need.COSIGN}),
        settings=Settings(root=folder, cache=cache),
        registry_host=host,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    return ready.tools["cosign"].path


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A key that the real cosign holds as `<name>.key` in `folder`, and we too, for whatever cosign would not sign."""

    key: Key
    folder: Path
    cosign: Path
    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def pub(self) -> Path:
        return self.folder / f"{self.key.name}.pub"

    @cached_property
    def public(self) -> tuple[Key, dsse.PublicKey]:
        return self.key, self.private.public_key()

    def keep(self) -> "Signer":
        """Hand the key to cosign, in the same folder."""
        pem = self.folder / f"{self.key.name}.pem"
        pem.write_bytes(self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.say("import-key-pair", "--key", pem, "--output-key-prefix", self.key.name)
        self.pub.write_bytes(self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return self

    def say(self, *words: str | Path, check: bool = True) -> Completed:
        """The real cosign, as anybody uses it."""
        environment = {names.ENV_PASSWORD: "", "HOME": str(self.folder), "DOCKER_CONFIG": str(self.folder)}
        return Runner(environment)(self.cosign, *words, timeout=900, cwd=self.folder, env=environment, check=check)

    def by_cosign(self, statement: Statement) -> bytes:
        """The bundle that cosign makes of it."""
        key = PrivateKey(reference=str(self.folder / f"{self.key.name}.key"), environment={})
        return Cosign(path=self.cosign, run=Runner(os.environ)).sign(written(statement), key)

    def __call__(self, content: Statement | Statable | bytes) -> bytes:
        """The same bundle, made here."""
        payload = content if isinstance(content, bytes) else written(content if isinstance(content, dict) else stated(content))
        message = b"DSSEv1 %d %s %d %s" % (len(dsse.PAYLOAD_TYPE), dsse.PAYLOAD_TYPE.encode(), len(payload), payload)
        return bundle(payload, self.private.sign(message, ec.ECDSA(hashes.SHA256())))


def bundle(payload: bytes, *signatures: bytes) -> bytes:
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": dsse.PAYLOAD_TYPE,
        "signatures": [{"sig": base64.b64encode(one).decode()} for one in signatures],
    }
    material = {"publicKey": {"hint": "x"}}
    return json.dumps({"mediaType": dsse.BUNDLE_TYPE, "verificationMaterial": material, "dsseEnvelope": envelope}).encode()


def stated(record: Any) -> Statement:
    return MAKERS[type(record)](record)


def written(statement: Statement) -> bytes:
    return json.dumps(statement, sort_keys=True).encode()


def signature_of(digest: Digest) -> Statement:
    """What `cosign sign` says of a digest."""
    subject = [{"digest": {"sha256": digest.hex}}]
    kind = {"predicateType": statements.SIGNATURE, "predicate": {}}
    return {"_type": statements.STATEMENT_TYPES[0], "subject": subject, **kind}


def image_in(repository: Repository, content: bytes = b"a layer", labels: Mapping[str, str] = {}) -> Pinned:
    """A small image; the same content has the same digest in every repository."""
    registry = Registry()
    about = {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": []},
        "config": {"Labels": dict(labels)},
    }
    config = registry.upload(repository, json.dumps(about).encode())
    layer = registry.upload(repository, content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": told(config, CONFIG_TYPE),
        "layers": [told(layer, LAYER_TYPE)],
    }
    return registry.put_manifest(repository, json.dumps(manifest).encode(), OCI_MANIFEST)


def told(content: Descriptor, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": str(content.digest), "size": content.size}


def referrer(image: Pinned, content: bytes, *, kind: str = dsse.BUNDLE_TYPE, **changes: Any) -> dict[str, Any]:
    """A manifest that holds `content` and refers to the image, in its repository; returns its entry in a list."""
    registry = Registry()
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": kind,
        "config": told(registry.upload(image.repository, b"{}"), OCI_EMPTY),
        "layers": [told(registry.upload(image.repository, content), kind)],
        "subject": {"mediaType": OCI_MANIFEST, "digest": str(image.digest), "size": len(registry.raw_manifest(image)[0])},
    }
    written = json.dumps({**body, **changes}).encode()
    pinned = registry.put_manifest(image.repository, written, OCI_MANIFEST)
    return {"mediaType": OCI_MANIFEST, "digest": str(pinned.digest), "size": len(written), "artifactType": kind}


def hang(image: Pinned, contents: Iterable[bytes | Mapping[str, Any]]) -> list[Digest]:
    """Make the list of all that refers to the image, from bundles and from entries; at once, as attaching one by one would."""
    entries = [referrer(image, one) if isinstance(one, bytes) else one for one in contents]
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    Registry().put_manifest(image.repository, index, OCI_INDEX, f"sha256-{image.digest.hex}")
    return [Digest(entry["digest"]) for entry in entries]


def entries(image: Pinned) -> list[dict[str, Any]]:
    """What is listed already."""
    listed = Registry().referrers(image)
    return [told(one, one.media_type) | {"artifactType": one.artifact_type} for one in listed]
