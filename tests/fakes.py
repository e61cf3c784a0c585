"""Fakes that several test files share."""

import base64
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pipeline.command import Completed
from pipeline.oci import OCI_INDEX, OCI_MANIFEST, Digest, Pinned, Repository


@dataclass
class Answer:
    """A canned answer; `length` lies about the body's size, then the connection breaks."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


@dataclass
class FakeRegistry:
    """An OCI registry in memory, over real HTTP on loopback; `canned` answers come first, in order, once each."""

    host: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    canned: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    connections: int = 0
    users: dict[str, str] = field(default_factory=dict)
    """Names and passwords of those who may do anything; when there are some, nobody else may."""
    token_service: bool = False
    """Tokens are wanted. As with Harbor, a wrong password gets a token that is good for nothing, but Basic is heard too."""
    token_life: int = 300
    tokens: dict[str, str] = field(default_factory=dict)
    """The scopes of the tokens that are good."""
    lists_referrers: bool = False
    mounts: bool = False
    """Blobs that it holds, from wherever."""
    uploads: dict[str, bytes] = field(default_factory=dict)
    """What open uploads have got, by the last part of their path."""
    cuts: list[int | None] = field(default_factory=list)
    """For each PATCH in turn, after how many bytes the connection breaks without an answer; None: it does not."""

    def asked(self, method: str, part: str = "") -> list[str]:
        """The paths of all requests of one method that hold `part`."""
        return [path for made, path, _ in self.requests if made == method and part in path]

    def repository(self, path: str = "team/images") -> Repository:
        return Repository(self.host, path)

    def put_blob(self, content: bytes) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": "application/octet-stream", "digest": digest, "size": len(content)}

    def put_manifest(self, repository: Repository, data: Mapping[str, Any], tag: str = "") -> Pinned:
        body = json.dumps(data).encode()
        digest = Digest.of(body)
        self.manifests[repository.path, str(digest)] = body
        if tag:
            self.manifests[repository.path, tag] = body
        return repository.at(digest)

    def put_image(
        self,
        repository: Repository,
        *,
        layers: tuple[bytes, ...] = (b"a layer",),
        created: str = "2025-01-29T00:00:00Z",
        labels: Mapping[str, str] | None = None,
        platform: str = "linux/amd64",
        tag: str = "",
        rewritten: bool = False,
        kind: str = "application/vnd.oci.image.layer.v1.tar+zstd",
    ) -> Pinned:
        """An image whose diff-ids are the digests of its layers' bytes."""
        system, _, machine = platform.partition("/")
        config = {
            "os": system,
            "architecture": machine,
            "created": created,
            "config": {"Labels": dict(labels or {})},
            "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(layer)) for layer in layers]},
            "history": [{"created_by": f"step {number}"} for number in range(len(layers))],
        }
        note = {"annotations": {"buildkit/rewritten-timestamp": "1738108800"}} if rewritten else {}
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": self.put_blob(json.dumps(config).encode()),
            "layers": [self.put_blob(layer) | {"mediaType": kind} | note for layer in layers],
        }
        return self.put_manifest(repository, manifest, tag)


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """Serve a `FakeRegistry` on a free port of loopback."""
    registry = FakeRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # or those who come at the same time wait a second for their next try


class _Handler(BaseHTTPRequestHandler):
    registry: FakeRegistry
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # so that a TLS handshake is answered in HTTP, which makes engines try plain HTTP
    wbufsize = -1  # one packet an answer, or each waits for the acknowledgement of its head

    def setup(self) -> None:
        super().setup()
        self.registry.connections += 1

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        cuts = self.registry.cuts
        cut = cuts.pop(0) if cuts else None
        if cut is None:
            self._answer()
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))[:cut]
        self.registry.requests.append((self.command, self.path, dict(self.headers)))
        self.registry.uploads[_upload(self.path)] += body
        self.close_connection = True

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.registry.requests.append((self.command, self.path, dict(self.headers)))
        canned = self.registry.canned.get((self.command, self.path))
        answer = canned.pop(0) if canned else self._token(body) or self._refusal() or self._real(body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        if answer.length is not None:
            self.close_connection = True

    def _token(self, form: bytes) -> Answer | None:
        address = urlsplit(self.path)
        if address.path != "/token":
            return None
        asked = parse_qs(form.decode() or address.query)
        text, scope = secrets.token_hex(8), " ".join(asked.get("scope", []))
        if asked.get("refresh_token", [""])[0] in self.registry.users.values() or self._known():
            self.registry.tokens[text] = scope
        elif form or not scope:
            return Answer(401)
        return Answer(200, json.dumps({"token": text, "expires_in": self.registry.token_life}).encode())

    def _refusal(self) -> Answer | None:
        given, path = self.headers.get("Authorization", ""), self.path.removeprefix("/v2/")
        rights = "pull,push" if self.command in ("PUT", "POST", "PATCH") else "pull"
        name = re.split("/(?:manifests|blobs|tags|referrers)/", path)[0]
        scope = f"repository:{name}:{rights}" if path else ""
        held = self.registry.tokens.get(given.removeprefix("Bearer "), "-").split(" ")
        if not self.registry.users or self._known() or scope in held or f"{scope},push" in held:
            return None
        wanted = f'Bearer realm="http://{self.registry.host}/token",service="fake",scope="{scope}"'
        way = wanted if self.registry.token_service and not given.startswith("Basic") else 'Basic realm="fake"'
        body = json.dumps({"errors": [{"code": "UNAUTHORIZED", "message": f"not with {given}"}]}).encode()
        return Answer(401, body, {"WWW-Authenticate": way})

    def _known(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        return given in {
            base64.b64encode(f"{user}:{password}".encode()).decode() for user, password in self.registry.users.items()
        }

    def _real(self, body: bytes) -> Answer:
        registry, path = self.registry, self.path.partition("?")[0].removeprefix("/v2/")
        if not path:
            return Answer(200)
        for kind in ("/manifests/", "/blobs/", "/tags/", "/referrers/"):
            name, found, last = path.rpartition(kind)
            if found:
                break
        if kind == "/blobs/":
            return self._blob(last, body)
        if kind == "/tags/":
            tags = sorted(tag for path, tag in registry.manifests if path == name and not tag.startswith("sha256:"))
            return Answer(200, json.dumps({"tags": tags}).encode()) if tags else unknown("NAME_UNKNOWN")
        if kind == "/referrers/":
            return self._referrers(name, last)
        if self.command == "PUT":
            return self._put(name, last, body)
        if (name, last) not in registry.manifests:
            return unknown("MANIFEST_UNKNOWN")
        held = registry.manifests[name, last]
        return Answer(200, held, {"Docker-Content-Digest": str(Digest.of(held)), "Content-Type": _kind(held)})

    def _blob(self, digest: str, body: bytes) -> Answer:
        if self.command == "POST":
            (wanted,) = parse_qs(urlsplit(self.path).query).get("mount", [""])
            if self.registry.mounts and wanted in self.registry.blobs:
                return Answer(201, headers={"Docker-Content-Digest": wanted})
            name = secrets.token_hex(4)
            self.registry.uploads[name] = b""
            return Answer(202, headers={"Location": f"{urlsplit(self.path).path}{name}?_state=a%3Db"})
        if digest.startswith("uploads/"):
            return self._upload(body)
        return Answer(200, self.registry.blobs[digest]) if digest in self.registry.blobs else unknown("BLOB_UNKNOWN")

    def _upload(self, body: bytes) -> Answer:
        uploads, name = self.registry.uploads, _upload(self.path)
        if name not in uploads:
            return unknown("BLOB_UPLOAD_UNKNOWN")
        if self.command in ("PUT", "DELETE"):
            return self._end(uploads.pop(name) + body)
        uploads[name] += body
        last = max(0, len(uploads[name]) - 1)
        headers = {"Location": f"{urlsplit(self.path).path}?_state={last}", "Range": f"0-{last}"}
        return Answer(202 if self.command == "PATCH" else 204, headers=headers)

    def _end(self, body: bytes) -> Answer:
        if self.command == "PUT":
            (wanted,) = parse_qs(urlsplit(self.path).query)["digest"]
            if wanted != str(Digest.of(body)):
                return Answer(400, b'{"errors": [{"code": "DIGEST_INVALID"}]}')
            self.registry.blobs[wanted] = body
        return Answer(201 if self.command == "PUT" else 204)

    def _put(self, name: str, last: str, body: bytes) -> Answer:
        self.registry.manifests[name, last] = self.registry.manifests[name, str(Digest.of(body))] = body
        subject = json.loads(body).get("subject") if self.registry.lists_referrers else None
        return Answer(201, headers={"OCI-Subject": subject["digest"]} if subject else {})

    def _referrers(self, name: str, digest: str) -> Answer:
        if not self.registry.lists_referrers:
            return Answer(404, b"404 page not found")
        held = {body for (path, _), body in self.registry.manifests.items() if path == name}
        entries = []
        for body in sorted(held):
            told = json.loads(body)
            if (told.get("subject") or {}).get("digest") == digest:
                entry = {"mediaType": _kind(body), "digest": str(Digest.of(body)), "size": len(body)}
                entries.append({**entry, "artifactType": told["artifactType"], "annotations": told.get("annotations")})
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
        return Answer(200, json.dumps(index).encode(), {"Content-Type": OCI_INDEX})


def _upload(path: str) -> str:
    """The name of the upload that a path is about."""
    return urlsplit(path).path.rpartition("/")[2]


def _kind(manifest: bytes) -> str:
    try:
        return str(json.loads(manifest).get("mediaType", OCI_MANIFEST))
    except ValueError:
        return OCI_MANIFEST


def unknown(code: str) -> Answer:
    return Answer(404, json.dumps({"errors": [{"code": code, "message": f"{code.lower()} to this registry"}]}).encode())


@dataclass
class FakeBuildx:
    """A `Run` that bakes into a `FakeRegistry`: the parent's layers, and one layer an image; anything else fails."""

    registry: FakeRegistry
    layers: dict[str, list[bytes]] = field(default_factory=dict)
    """What an image's own layer holds, the next one each time it is baked; its name when there is none."""
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `put_image` is told otherwise, by image."""
    materials: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    streams: dict[str, Path] = field(default_factory=dict)
    """Recorded progress of images that fail."""
    before: Callable[[str], None] = lambda _: None
    baked: list[dict[str, Any]] = field(default_factory=list)
    """The targets that were asked for."""
    cached: list[str] = field(default_factory=list)
    """The images whose cache was written."""

    def __call__(
        self,
        *argv: str | Path,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        secrets: Collection[str] = (),
        on_line: Callable[[str], None] | None = None,
        log: Path | None = None,
        check: bool = True,
        bare: bool = False,
    ) -> Completed:
        words = tuple(str(word) for word in argv)
        code = self._bake(words, stdin, on_line) if "bake" in words else 128
        return Completed(argv=words, code=code, stdout="", stderr="", seconds=0.0)

    def _bake(self, words: tuple[str, ...], stdin: bytes | None, on_line: Callable[[str], None] | None) -> int:
        name = words[-1]
        wanted = json.loads(stdin or b"{}")["target"][name]
        if wanted["output"] == ["type=cacheonly"]:
            self.cached.append(name)
            return 0
        self.baked.append({"name": name, **wanted})
        self.before(name)
        if name in self.streams:
            for line in self.streams[name].read_text().splitlines():
                if on_line:
                    on_line(line)
            return 1
        image = self._push(name, wanted)
        provenance = {"materials": self.materials.get(name)}
        made = {"containerimage.digest": str(image.digest), "buildx.build.provenance": provenance}
        Path(words[words.index("--metadata-file") + 1]).write_text(json.dumps({name: made}))
        return 0

    def _push(self, name: str, wanted: Mapping[str, Any]) -> Pinned:
        output = dict(part.split("=", 1) for part in wanted["output"][0].split(","))
        repository = Repository.parse(output["name"])
        base = wanted["contexts"].get("base", "")
        own = self.layers[name].pop(0) if self.layers.get(name) else name.encode()
        facts = {
            "layers": (*self._layers(repository, base), own),
            "labels": {key: text.replace("$${", "${") for key, text in wanted["labels"].items()},
            "rewritten": "rewrite-timestamp" in output,
            **self.facts.get(name, {}),
        }
        return self.registry.put_image(repository, **facts)

    def _layers(self, repository: Repository, base: str) -> list[bytes]:
        if not base:
            return []
        manifest = json.loads(self.registry.manifests[repository.path, base.rpartition("@")[2]])
        return [self.registry.blobs[layer["digest"]] for layer in manifest["layers"]]
