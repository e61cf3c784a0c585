"""A tiny Debian archive on loopback, signed with a key of its own, and a snapshot service beside it."""

import hashlib
import io
import lzma
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pysequoia

from pipeline.debian import Mirror

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def deb(control: str, files: Mapping[str, str | tuple[bytes, int, str]]) -> bytes:
    """A package: content as text, or kind, mode and link target."""
    members = {"debian-binary": b"2.0\n", "control.tar.xz": packed({"./control": control}), "data.tar.xz": packed(files)}
    out = b"!<arch>\n"
    for name, content in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def packed(files: Mapping[str, str | tuple[bytes, int, str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.GNU_FORMAT) as tar:
        for name, what in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(what, str):
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what.encode()))
            else:
                member.type, member.mode, member.linkname = what
                tar.addfile(member)
    return buffer.getvalue()


@dataclass
class Archive:
    """What the mirror serves, by path; `suites` are the stanzas of each suite's index."""

    files: dict[str, bytes] = field(default_factory=dict)
    suites: dict[str, list[str]] = field(default_factory=dict)
    root: str = ""
    requests: list[str] = field(default_factory=list)

    @cached_property
    def key(self) -> pysequoia.Tsk:
        return pysequoia.Tsk.generate("An archive <archive@example.com>")

    def mirror(self, folder: Path) -> Mirror:
        keyring = folder / "keyring.asc"
        keyring.write_bytes(bytes(self.key.extract_certificate()))
        return Mirror(root=self.root, snapshot=f"{self.root}/snapshot", keyring=keyring)

    def add(self, suite: str, name: str, version: str, fields: str = "", content: bytes | None = None) -> bytes:
        content = content if content is not None else f"the package {name} {version}".encode()
        path = f"pool/main/{name[0]}/{name}/{name}_{version.partition(':')[2] or version}_amd64.deb"
        stanza = (
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nSize: {len(content)}\nFilename: {path}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n{fields}"
        )
        self.suites.setdefault(suite, []).append(stanza.rstrip("\n"))
        self.files[f"{archive_of(suite)}/{path}"] = content
        return content

    def publish(self, suite: str = "stable", *, valid_until: str = "", codename: str = "", by_hash: bool = True) -> None:
        for name in (suite, f"{suite}-updates", f"{suite}-security"):
            index = lzma.compress("\n\n".join(self.suites.get(name, [])).encode())
            base, digest = f"{archive_of(name)}/dists/{name}", hashlib.sha256(index).hexdigest()
            path = f"main/binary-amd64/by-hash/SHA256/{digest}" if by_hash else "main/binary-amd64/Packages.xz"
            self.files[f"{base}/{path}"] = index
            release = f"Codename: {codename or name}\nAcquire-By-Hash: {'yes' if by_hash else 'no'}\n"
            release += f"Valid-Until: {valid_until}\n" if valid_until else ""
            release += f"SHA256:\n {digest} {len(index)} main/binary-amd64/Packages.xz\n"
            signed = pysequoia.sign(self.key.signer(), release.encode(), mode=pysequoia.SignatureMode.CLEAR)
            self.files[f"{base}/InRelease"] = bytes(signed)

    def move_to_snapshot(self, name: str, version: str) -> None:
        """The mirror drops a package; the snapshot service still has it."""
        path = next(path for path in self.files if f"/{name}_{version.partition(':')[2] or version}_" in path)
        content = self.files.pop(path)
        sha1 = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        listed = f'{{"result": [{{"architecture": "arm64", "hash": "0"}}, {{"architecture": "amd64", "hash": "{sha1}"}}]}}'
        self.files[f"snapshot/mr/binary/{name}/{version}/binfiles"] = listed.encode()
        self.files[f"snapshot/file/{sha1}"] = content


def archive_of(suite: str) -> str:
    return "debian-security" if suite.endswith("-security") else "debian"


@contextmanager
def served(archive: Archive) -> Iterator[Archive]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/")
            archive.requests.append(path)
            content = archive.files.get(path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    archive.root = f"http://127.0.0.1:{server.server_port}"
    try:
        yield archive
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
