"""The registry client against real registries: one without a list of referrers, one behind a password, one behind TLS."""

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import requests

from pipeline import credentials
from pipeline.command import Runner
from pipeline.errors import NotThere, RegistryRefused
from pipeline.oci import OCI_MANIFEST, Descriptor, Digest, Pinned, Repository
from pipeline.registry import Registry, session
from pipeline.registry.trust import Trust
from tests.integration.conftest import Stack
from tests.integration.registries import RUN, Running, registry, tool

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PASSWORD = 's3cr$t:p"w'
HTPASSWD = "ci:$2y$05$abcdefghijklmnopqrstuuFkEvp2DTTp6/Zym6JYDxD7fNVWDoo3i\n"
"""`PASSWORD`, by bcrypt."""
ATTACHING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pipeline.oci import Pinned
from pipeline.registry import Registry
image, locks, *numbers = sys.argv[1:]
client = Registry(locks=Path(locks))
kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
with ThreadPoolExecutor(len(numbers)) as pool:
    list(pool.map(lambda number: client.attach(Pinned.parse(image), kind, number.encode(), kind, {"number": number}), numbers))
"""


def image_in(client: Registry, repository: Repository, content: bytes = b"a layer") -> Pinned:
    config = client.upload(repository, b'{"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}')
    layer = client.upload(repository, content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [described(layer, "application/vnd.oci.image.layer.v1.tar")],
    }
    return client.put_manifest(repository, json.dumps(manifest).encode(), OCI_MANIFEST)


def described(content: Descriptor, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": str(content.digest), "size": content.size}


@pytest.fixture
def client(tmp_path: Path) -> Registry:
    return Registry(locks=tmp_path / "locks")


@pytest.fixture
def repository(stack: Stack) -> Repository:
    return Repository.parse(f"{stack.candidates}/attached")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A registry that wants a password."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "htpasswd").write_text(HTPASSWD)
    with registry(folder, {"auth": {"htpasswd": {"realm": "guarded", "path": str(folder / "htpasswd")}}}) as running:
        yield running


def docker_config(folder: Path, host: str, password: str) -> credentials.Credentials:
    login = base64.b64encode(f"ci:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
    return credentials.of_docker({"DOCKER_CONFIG": str(folder)}, RUN)


def test_what_was_attached_is_found_and_not_attached_twice(client: Registry, repository: Repository) -> None:
    image = image_in(client, repository)
    first = client.attach(image, BUNDLE, b"evidence", BUNDLE, {"a": "ä"})
    assert client.attach(image, BUNDLE, b"evidence", BUNDLE, {"a": "b"}) == first
    assert client.referrers(image, BUNDLE) == (first,)
    manifest = client.manifest(image.repository.at(first.digest))
    assert client.blob(image.repository, manifest.layers[0]) == b"evidence"


def test_ten_attach_at_the_same_time_from_processes_and_threads(client: Registry, repository: Repository, tmp_path: Path) -> None:
    image = image_in(client, repository, b"attached to by ten")
    theirs = client.attach(image, "application/other", b"another tool's", "text/plain", {})
    numbers = [str(number) for number in range(10)]
    command = [sys.executable, "-c", ATTACHING, str(image), str(tmp_path / "locks")]
    processes = [subprocess.Popen([*command, *numbers[start : start + 2]]) for start in (0, 2, 4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: client.attach(image, BUNDLE, n.encode(), BUNDLE, {"number": n}), numbers[6:]))
    assert [process.wait(timeout=900) for process in processes] == [0, 0, 0]
    assert sorted(each.annotations["number"] for each in client.referrers(image, BUNDLE)) == numbers
    assert theirs in client.referrers(image)


def test_an_image_that_is_not_there_is_told_apart(client: Registry, repository: Repository) -> None:
    image_in(client, repository)
    with pytest.raises(NotThere):
        client.referrers(repository.at(Digest.of(b"not there")))


def test_a_large_blob_arrives_whole(client: Registry, repository: Repository) -> None:
    content = os.urandom(20_000_000)
    assert client.blob(repository, client.upload(repository, content)) == content


def test_a_guarded_registry_is_used_with_dockers_login(guarded: Running, tmp_path: Path) -> None:
    client = Registry(credentials=docker_config(tmp_path, guarded.host, PASSWORD), locks=tmp_path / "locks")
    client.ping(guarded.host)
    image = image_in(client, Repository(guarded.host, "team/images"))
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, {})
    assert client.referrers(image) == (attached,)


def test_a_guarded_registry_refuses_others(guarded: Running, tmp_path: Path) -> None:
    for client in (Registry(), Registry(credentials=docker_config(tmp_path, guarded.host, "wrong"))):
        for ask in (client.ping, lambda host, client=client: client.tags(Repository(host, "team/images"))):
            with pytest.raises(RegistryRefused, match=f"docker login {guarded.host}") as caught:
                ask(guarded.host)
            assert "wrong" not in str(caught.value)


def test_a_real_credential_helper_is_asked(guarded: Running, tmp_path: Path) -> None:
    helper = tmp_path / "docker-credential-test"
    told = json.dumps({"ServerURL": guarded.host, "Username": "ci", "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\nread -r host\n[ \"$1 $host\" = 'get {guarded.host}' ] && echo '{told}'\n")
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text('{"credsStore": "test"}')
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DOCKER_CONFIG": str(tmp_path)}
    Registry(credentials=credentials.of_docker(environment, Runner(environment))).ping(guarded.host)


@dataclass(frozen=True)
class Cosign:
    """The real cosign, with a key pair and the two files that keep it offline."""

    path: Path
    folder: Path

    def __call__(self, *words: str) -> str:
        environment = {"COSIGN_PASSWORD": "", "HOME": str(self.folder), "DOCKER_CONFIG": str(self.folder)}
        return RUN(self.path, *words, timeout=900, cwd=self.folder, env=environment).stdout

    def attest(self, image: Pinned, kind: str, *where: str) -> None:
        (self.folder / "predicate.json").write_text(json.dumps({"of": kind}))
        offline = ("--signing-config", "sc.json", "--trusted-root", "tr.json")
        self("attest", "--yes", "--key", "k.key", *offline, "--type", kind, "--predicate", "predicate.json", *where, str(image))

    def verifies(self, image: Pinned, kind: str) -> bool:
        offline = ("--insecure-ignore-tlog=true", "--trusted-root", "tr.json")
        envelope = json.loads(self("verify-attestation", "--key", "k.pub", *offline, "--type", kind, str(image)))
        return bool(json.loads(base64.b64decode(envelope["payload"]))["predicate"] == {"of": kind})


@pytest.fixture
def cosign(tmp_path: Path) -> Cosign:
    made = Cosign(tool("cosign"), tmp_path)
    made("generate-key-pair", "--output-key-prefix", "k")
    made("signing-config", "create", "--out", "sc.json")
    made("trusted-root", "create", "--out", "tr.json")
    return made


def test_cosign_reads_what_we_attached_and_we_read_what_cosign_attached(
    client: Registry, repository: Repository, cosign: Cosign
) -> None:
    image = image_in(client, repository, b"attested")
    ours, theirs, again = "urn:test:ours:v1", "urn:test:theirs:v1", "urn:test:again:v1"
    for kind in (ours, theirs, again):
        if kind == theirs:
            cosign.attest(image, kind)
            continue
        cosign.attest(image, kind, "--no-upload", "--bundle", "bundle.json")
        notes = {"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": kind}
        client.attach(image, BUNDLE, (cosign.folder / "bundle.json").read_bytes(), BUNDLE, notes)
    assert all(cosign.verifies(image, kind) for kind in (ours, theirs, again))
    found = client.referrers(image, BUNDLE)
    assert len(found) == 3
    for entry in found:
        manifest = client.manifest(repository.at(entry.digest))
        assert (manifest.artifact_type, manifest.subject) == (BUNDLE, image.digest)
        assert json.loads(client.blob(repository, manifest.layers[0]))["mediaType"] == BUNDLE


class Hello(BaseHTTPRequestHandler):
    """Answers everybody who got through TLS."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def certificate(folder: Path, name: str, suffix: str) -> Path:
    path = folder / f"{name}{suffix}"
    subject = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    RUN("openssl", "req", "-x509", *kind, *subject, "-keyout", path.with_suffix(".key"), "-out", path, timeout=900)
    return path


@pytest.fixture
def behind_tls(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate of its own, which lets in whom it knows; and a `certs.d` that is good for it."""
    server, folder = HTTPServer(("127.0.0.1", 0), Hello), tmp_path / "certs.d"
    host = f"127.0.0.1:{server.server_address[1]}"
    (folder / host).mkdir(parents=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = certificate(tmp_path, "server", ".pem")
    context.load_cert_chain(own, own.with_suffix(".key"))
    context.load_verify_locations(certificate(folder / host, "client", ".cert"))
    context.verify_mode = ssl.CERT_REQUIRED
    (folder / host / "ca.crt").write_bytes(own.read_bytes())
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield host, folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_dockers_certificates_are_trusted_and_shown_to_their_own_host_alone(behind_tls: tuple[str, Path], tmp_path: Path) -> None:
    host, folder = behind_tls
    with closing(session.Connections(Trust(None, folder)).opened(host, loopback=False)) as client:
        assert client.get(f"https://{host}/v2/").status_code == 200
    others = (Trust(None, tmp_path / "empty"), host), (Trust(None, folder), "other.example.com")
    for trust, name in others:
        with (
            closing(session.Connections(trust).opened(name, loopback=False)) as client,
            pytest.raises(requests.exceptions.SSLError),
        ):
            client.get(f"https://{host}/v2/")


def test_the_machines_authorities_are_those_that_were_named(behind_tls: tuple[str, Path], tmp_path: Path) -> None:
    host, folder = behind_tls
    (folder / host / "ca.crt").unlink()
    with closing(session.Connections(Trust(tmp_path / "server.pem", folder)).opened(host, loopback=False)) as client:
        assert client.get(f"https://{host}/v2/").status_code == 200
