"""One process that is a Harbor: this server, and behind it a real registry with a folder of its own.

`with started(folder) as harbor:` serves it on a free port of loopback. The administrator is `admin` with `PASSWORD`.
"""

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, cast

from platformdirs import user_cache_path

from pipeline import daemons, names, toolchain
from pipeline.command import Runner, spawn
from pipeline.install import get, workshop
from pipeline.story import Silent
from pipeline.toolchain import Host
from tests.harbor.api import Api
from tests.harbor.callers import Tokens, caller_of
from tests.harbor.state import Fault, Robot, State
from tests.harbor.v2 import V2
from tests.harbor.web import Answer, Request, wrong
from tests.ports import free_port

STARTS_WITHIN = 300.0
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True)
class Double:
    """A Harbor that runs; `state` may be looked at and changed under its lock."""

    host: str
    state: State
    log: Path
    """What the registry behind it says."""

    def project(self, name: str, **metadata: str) -> None:
        with self.state.lock:
            self.state.add_project(name, {"public": "false", **metadata})

    def robot(self, name: str, **rights: str) -> Robot:
        """A robot of the system with rights in projects: `robot("ci", alpha="repository:pull repository:push")`."""
        permissions = [
            {
                "kind": "project",
                "namespace": project,
                "access": [dict(zip(("resource", "action"), right.split(":"), strict=True)) for right in text.split()],
            }
            for project, text in rights.items()
        ]
        with self.state.lock:
            return self.state.add_robot(name, "system", permissions, secrets.token_urlsafe(16))


@contextmanager
def started(folder: Path, port: int = 0) -> Iterator[Double]:
    """Run it until the end of the block; the registry keeps its content in `folder`, all else is forgotten."""
    with _registry(folder) as (registry, log):
        state, tokens = State(), Tokens()
        handler = type(
            "Handler", (_Handler,), {"state": state, "tokens": tokens, "api": Api(state, tokens), "v2": V2(state, registry)}
        )
        server = _Server(("127.0.0.1", port), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield Double(host=f"localhost:{server.server_address[1]}", state=state, log=log)
        finally:
            server.shutdown()
            thread.join()
            server.hang_up()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    """So that closing waits for all who still answer."""
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no fault of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    state: State
    tokens: Tokens
    api: Api
    v2: V2
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def finish(self) -> None:
        self.v2.close()
        super().finish()

    def _serve(self) -> None:
        with self.state.lock:
            self.state.log.append(f"{self.command} {self.path}")
            caller = caller_of(self.state, self.tokens, self.headers.get("Authorization"))
        request = Request(
            self.command,
            self.path,
            cast("Mapping[str, str]", self.headers),
            self.headers.get("Host", ""),
            caller,
            cast("BinaryIO", self.rfile),
        )
        try:
            answer = self._answered(request)
        except Fault as fault:
            answer = wrong(fault)
        for _ in request.chunks():
            continue
        self._send(answer)

    def _answered(self, request: Request) -> Answer:
        if ";" in self.path.partition("?")[2]:
            raise Fault(400, "BAD_REQUEST", "invalid semicolon separator in query")
        if request.method not in SAFE:
            if "sid=" in self.headers.get("Cookie", ""):
                raise Fault(403, "FORBIDDEN", "CSRF token not found in request")
            if self.state.read_only and not self.path.endswith("/configurations"):
                raise Fault(403, "DENIED", "The system is in read only mode. Any modification is prohibited.")
        if request.path.startswith("/v2/"):
            return self.v2.answer(request)
        if request.path.startswith(("/api/", "/service/token")):
            request.body()
            with self.state.lock:
                return self.api.answer(request)
        return Answer(404, b"<html>", {"Content-Type": "text/html; charset=utf-8"})

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        sid = secrets.token_hex(16)
        marks = {
            "X-Request-Id": self.headers.get("X-Request-Id") or secrets.token_hex(8),
            "Set-Cookie": f"sid={sid}; Path=/; HttpOnly",
        }
        for name, value in {**answer.headers, **marks}.items():
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", answer.length or str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            for piece in answer.pieces() if answer.pieces else (answer.body,):
                self.wfile.write(piece)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _registry(folder: Path) -> Iterator[tuple[str, Path]]:
    host = f"127.0.0.1:{free_port()}"
    settings: dict[str, Any] = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": host},
    }
    (folder / "config.yml").write_text(json.dumps(settings))
    log = folder / "log"
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    pid = spawn(_tool(), "serve", folder / "config.yml", log=log, env=environment)
    try:
        _await(host, pid, log)
        yield host, log
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _await(host: str, pid: int, log: Path) -> None:
    name, _, port = host.partition(":")
    end = time.monotonic() + STARTS_WITHIN
    while daemons.ask((name, int(port)), "/v2/", host=host) is None:
        assert daemons.birth(pid), log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.02)


def _tool() -> Path:
    """The registry of the user's cache, got now when it is not there."""
    host, cache, run = Host.here(os.environ), user_cache_path(names.DISTRIBUTION, appauthor=False), Runner(os.environ)
    if not toolchain.find("registry", host=host, cache=cache, run=run).tool:
        with workshop(cache=cache, host=host, run=run, story=Silent()) as shop:
            get("registry", shop)
    found = toolchain.find("registry", host=host, cache=cache, run=run).tool
    assert found is not None
    return found.path
