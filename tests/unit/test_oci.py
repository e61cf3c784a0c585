"""References, digests and manifests are read as registries mean them, or refused."""

import json
from typing import Any

import pytest

from pipeline.errors import InputError, ToolFailed
from pipeline.oci import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Config,
    Digest,
    Manifest,
    Pinned,
    Repository,
    Tagged,
    parse_index,
    parse_reference,
)

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"


@pytest.mark.parametrize(
    ("text", "host", "path", "tag"),
    [
        ("harbor:8443/ml/a", "harbor:8443", "ml/a", "latest"),
        ("192.168.50.1:5001/gearman", "192.168.50.1:5001", "gearman", "latest"),
        ("localhost/a:1", "localhost", "a", "1"),
        ("localhost:5000/a:1", "localhost:5000", "a", "1"),
        ("ml/a:1", "docker.io", "ml/a", "1"),
        ("a:1", "docker.io", "library/a", "1"),
        ("a", "docker.io", "library/a", "latest"),
        ("docker.io/a", "docker.io", "library/a", "latest"),
        ("index.docker.io/ml/a", "docker.io", "ml/a", "latest"),
        ("localhost:5000", "docker.io", "library/localhost", "5000"),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest"),
        ("[::1]/a:v1", "[::1]", "a", "v1"),
        ("HARBOR/a", "HARBOR", "a", "latest"),
        ("harbor.example.com/ml/deep/er/a__b.c-d--e:V_1.0-x", "harbor.example.com", "ml/deep/er/a__b.c-d--e", "V_1.0-x"),
    ],
)
def test_host_path_and_tag_are_told_apart(text: str, host: str, path: str, tag: str) -> None:
    assert parse_reference(text) == Tagged(Repository(host, path), tag)


def test_a_digest_wins_over_a_tag_beside_it() -> None:
    pinned = parse_reference(f"h.example/a:1@{DIGEST}")
    assert pinned == Pinned(Repository("h.example", "a"), Digest(DIGEST))
    assert str(pinned) == f"h.example/a@{DIGEST}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/a",
        "a/",
        "h.example//a",
        "a:",
        "h.example/a:",
        "h.example/a:b:c",
        "a:-x",
        "a:" + "x" * 129,
        "a:v2.6+cu124",
        "a:v2.6\n",
        "A",
        "h.example/A",
        "h.example/a..b",
        "h.example/a___b",
        "h.example/-a",
        "h.example/a b",
        "h_x.y/a",
        "-h.example/a",
        "h.example:port/a",
        "h.example:/a",
        "https://h.example/a",
        "user:password@h.example/a",
        f"a@{DIGEST}0",
        f"a@{DIGEST.upper()}",
        f"a@sha512:{HEX}{HEX}",
        f"a@{DIGEST}@{DIGEST}",
        f"@{DIGEST}",
        "h.example/" + "a" * 250,
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_reference(text)


def test_pinned_wants_a_digest() -> None:
    with pytest.raises(InputError, match="has no digest"):
        Pinned.parse("h.example/a:1")


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:5000"])
def test_this_machine_is_loopback(host: str) -> None:
    assert Repository(host, "a").loopback


@pytest.mark.parametrize(
    "host", ["127.example.com", "127.0.0.1.example.com", "localhost.example.com", "10.0.0.1", "0.0.0.0", "[::2]:5000", "[::11]"]
)
def test_a_host_that_only_looks_like_this_machine_is_not(host: str) -> None:
    assert not Repository(host, "a").loopback


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_is_one_that_there_is(port: str) -> None:
    with pytest.raises(InputError, match="has a port that there is not"):
        Repository.parse(f"localhost:{port}/x")
    assert Repository.parse("[::1]:65535/x").loopback


@pytest.mark.parametrize("text", ["", HEX, f"sha256:{HEX[:-1]}", f"{DIGEST}\n", f"SHA256:{HEX}", f"sha256:{HEX.upper()}"])
def test_a_digest_is_exact(text: str) -> None:
    with pytest.raises(InputError, match="is not a sha256 digest"):
        Digest(text)


def test_a_digest_is_of_bytes() -> None:
    assert str(Digest.of(b"")) == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert Digest.of(b"").hex == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def manifest(**changes: Any) -> bytes:
    blob = {"mediaType": "application/octet-stream", "digest": DIGEST, "size": 3}
    data = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": [blob, {**blob, "size": 4}], **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...}).encode()


def test_a_manifest_is_kept_byte_for_byte() -> None:
    body = manifest(annotations={"a": "b"})
    read = Manifest.parse(body)
    assert (read.body, read.digest, read.size, read.media_type) == (body, Digest.of(body), 7, OCI_MANIFEST)
    assert (read.annotations, [layer.size for layer in read.layers]) == ({"a": "b"}, [3, 4])
    assert Manifest.parse(manifest(mediaType=DOCKER_MANIFEST)).media_type == DOCKER_MANIFEST
    assert Manifest.parse(manifest(mediaType=...)).media_type == OCI_MANIFEST


@pytest.mark.parametrize(
    "body",
    [
        manifest(mediaType=OCI_INDEX),
        manifest(mediaType=..., config=..., layers=..., manifests=[]),
        manifest(mediaType=..., manifests=[]),
        manifest(schemaVersion=1),
        manifest(schemaVersion=...),
        manifest(config=...),
        manifest(layers=None),
        manifest(layers=[{"mediaType": "x", "digest": "sha256:short", "size": 1}]),
        manifest(layers=[{"mediaType": "x", "digest": DIGEST, "size": "1"}]),
        manifest(layers=[{"mediaType": "x", "digest": DIGEST, "size": -1}]),
        manifest(layers=[{"mediaType": "x", "digest": DIGEST, "size": True}]),
        manifest(layers=[{"mediaType": 3, "digest": DIGEST, "size": 1}]),
        manifest(artifactType=["x"]),
        manifest(artifactType="\ud800"),
        manifest(subject="x"),
        manifest(annotations=["a"]),
        manifest(annotations={"a": 1}),
        manifest()[:-10],
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"<html>",
        b"[" * 100_000,
    ],
)
def test_what_is_no_image_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(ToolFailed):
        Manifest.parse(body)


def test_a_manifest_tells_its_kind_and_what_it_refers_to() -> None:
    subject = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 0}
    read = Manifest.parse(manifest(artifactType="text/plain", subject=subject))
    assert (read.artifact_type, read.subject, Manifest.parse(manifest()).subject) == ("text/plain", Digest(DIGEST), None)


ENTRY = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 3, "artifactType": "text/plain", "annotations": {"a": "b"}}


def index(**changes: Any) -> bytes:
    data = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [ENTRY], **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...}).encode()


def test_an_index_is_read_without_what_other_algorithms_name() -> None:
    (read,) = parse_index(index(manifests=[ENTRY, {**ENTRY, "digest": f"sha512:{HEX}{HEX}"}]))
    assert (str(read.digest), read.size, read.artifact_type, read.annotations) == (DIGEST, 3, "text/plain", {"a": "b"})
    for changes in ({"mediaType": DOCKER_INDEX}, {"mediaType": ...}):
        assert len(parse_index(index(**changes))) == 1
    assert parse_index(index(manifests=None)) == ()


@pytest.mark.parametrize(
    "body",
    [
        index(mediaType=OCI_MANIFEST),
        index(schemaVersion=1),
        index(schemaVersion=...),
        index(layers=[]),
        index(manifests=...),
        index(manifests=[ENTRY, {**ENTRY, "digest": "sha256:short"}]),
        index(manifests=[ENTRY, {**ENTRY, "size": -1}]),
        index(manifests=[ENTRY, {}]),
        index()[:-1],
        b"[]",
        b"[" * 100_000,
    ],
    ids=lambda body: body[-30:].decode(),
)
def test_what_is_no_index_or_holds_one_entry_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ToolFailed):
        parse_index(body)


CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "created": "2025-01-29T00:00:00Z",
    "rootfs": {"type": "layers", "diff_ids": [DIGEST]},
    "config": {"Labels": {"a": "b"}, "Env": ["A=1"], "Cmd": ["bash"], "User": "1000:0", "ExposedPorts": {"8888/tcp": {}}},
    "history": [{"created_by": "COPY x"}, {"created_by": "ENV A=1", "empty_layer": True}],
}


def test_a_configuration_is_read() -> None:
    read = Config.parse(json.dumps(CONFIG).encode())
    assert (read.platform, read.diff_ids, read.labels) == ("linux/amd64", (Digest(DIGEST),), {"a": "b"})
    assert (read.environment, read.command, read.entrypoint, read.user) == (("A=1",), ("bash",), (), "1000:0")
    assert (read.exposed, read.history) == (("8888/tcp",), ("COPY x",))


@pytest.mark.parametrize("config", [None, {}, {"Labels": None, "Env": None, "Cmd": None, "ExposedPorts": None}])
def test_a_configuration_may_say_little(config: Any) -> None:
    read = Config.parse(json.dumps({**CONFIG, "config": config, "history": None, "created": None}).encode())
    assert (read.labels, read.environment, read.created, read.history) == ({}, (), "", ())


@pytest.mark.parametrize(
    "changed", [{"rootfs": None}, {"rootfs": {"diff_ids": ["x"]}}, {"os": ...}, {"config": {"Labels": {"a": 1}}}, {"config": [1]}]
)
def test_a_configuration_that_cannot_be_read_is_refused(changed: dict[str, Any]) -> None:
    data = {key: value for key, value in {**CONFIG, **changed}.items() if value is not ...}
    with pytest.raises(ToolFailed, match="an image configuration cannot be read"):
        Config.parse(json.dumps(data).encode())
