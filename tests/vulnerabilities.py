"""Real vulnerability databases for Trivy, made by hand: one bbolt file, packed and pushed as Trivy's own mirror holds it.

Formats: `go.etcd.io/bbolt` (pages of 4096 bytes, little endian), trivy-db's schema 2 (bucket of a distribution or of an index
→ package → advisory), an OCI artifact with one layer.
"""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Union

from pipeline.oci import OCI_MANIFEST, Tagged
from pipeline.registry import Registry

Tree = Mapping[str, Union["Tree", bytes]]
PAGE = 4096
BRANCH, LEAF, META, FREELIST = 1, 2, 4, 16
CONFIG_TYPE = "application/vnd.aquasec.trivy.config.v1+json"
LAYER_TYPE = "application/vnd.aquasec.trivy.db.layer.v1.tar+gzip"
PIP = "pip::GitHub Security Advisory Pip"


@dataclass(frozen=True, kw_only=True)
class Advisory:
    """What a database says of one package: `source` is `debian 12`, or `PIP`; without `fixed` there is no mended version."""

    source: str
    package: str
    id: str
    fixed: str = ""
    vulnerable: str = ""
    """Of an index: which versions, as `< 2.7.1`."""
    severity: str = "HIGH"
    """Empty where nobody tells anything of it, as of a CVE that was rejected."""
    vendor_ids: Sequence[str] = ()


def database(advisories: Sequence[Advisory]) -> bytes:
    """A `trivy.db` with these advisories."""
    tree: dict[str, Any] = {"vulnerability": {}, "data-source": {}}
    for one in advisories:
        tree.setdefault(one.source, {}).setdefault(one.package, {})[one.id] = _json(_advisory(one))
        if one.severity:
            tree["vulnerability"][one.id] = _json(
                {"Title": one.id, "Severity": one.severity, "PublishedDate": "2025-01-02T03:04:05Z"}
            )
        tree["data-source"][one.source] = _json(
            {"ID": one.source.partition(" ")[0], "Name": one.source, "URL": "https://example.com"}
        )
    return bolt(tree)


def metadata(updated: datetime, version: int = 2) -> bytes:
    """The `metadata.json` beside it."""
    return _json({"Version": version, "NextUpdate": _time(updated + timedelta(days=1)), "UpdatedAt": _time(updated)})


def push(mirror: Tagged, content: bytes, about: bytes, registry: Registry | None = None) -> None:
    """Put a database into a registry, as `trivy` pulls it."""
    client, place = registry or Registry(), mirror.repository
    packed = client.upload(place, _packed({"trivy.db": content, "metadata.json": about}))
    layer = {"mediaType": LAYER_TYPE, "digest": str(packed.digest), "size": packed.size}
    empty = client.upload(place, b"{}")
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": CONFIG_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": str(empty.digest), "size": empty.size},
        "layers": [layer | {"annotations": {"org.opencontainers.image.title": "db.tar.gz"}}],
    }
    client.put_manifest(place, _json(manifest), OCI_MANIFEST, mirror.name)


def bolt(tree: Tree) -> bytes:
    """A bbolt file with these buckets, no page of which is a branch."""
    pages: list[bytes] = []
    root = _bucket(tree, pages)
    end = 3 + len(pages)
    freelist = _page(2, FREELIST, 0, b"")[0]
    return b"".join([_meta(0, root, end), _meta(1, root, end), freelist, *pages])


def _advisory(one: Advisory) -> Mapping[str, Any]:
    named = {"VendorIDs": list(one.vendor_ids)} if one.vendor_ids else {}
    if one.source.startswith("pip::"):
        return named | {"VulnerableVersions": [one.vulnerable]} | ({"PatchedVersions": [one.fixed]} if one.fixed else {})
    return named | ({"FixedVersion": one.fixed} if one.fixed else {})


def _bucket(tree: Tree, pages: list[bytes]) -> int:
    """Adds the pages of a bucket, those below it first; returns the number of its own."""
    items = []
    for key, value in sorted(tree.items(), key=lambda item: item[0].encode()):
        if isinstance(value, bytes):
            items.append((0, key.encode(), value))
        else:
            items.append((1, key.encode(), struct.pack("<QQ", _bucket(value, pages), 0)))
    number = 3 + len(pages)
    pages += _page(number, LEAF, len(items), _elements(items))
    return number


def _elements(items: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    heads, data, size = b"", b"", 16 * len(items)
    for index, (flags, key, value) in enumerate(items):
        heads += struct.pack("<IIII", flags, size - 16 * index + len(data), len(key), len(value))
        data += key + value
    return heads + data


def _page(number: int, flags: int, count: int, content: bytes) -> list[bytes]:
    overflow = (16 + len(content) - 1) // PAGE
    whole = (struct.pack("<QHHI", number, flags, count, overflow) + content).ljust((overflow + 1) * PAGE, b"\0")
    return [whole[at : at + PAGE] for at in range(0, len(whole), PAGE)]


def _meta(number: int, root: int, end: int) -> bytes:
    fields = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, PAGE, 0, root, 0, 2, end, number)
    return _page(number, META, 0, fields + struct.pack("<Q", _fnv(fields)))[0]


def _fnv(content: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def _packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
