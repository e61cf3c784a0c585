"""A proxy in front of a registry, or of anything that speaks HTTP on loopback, that makes one request go wrong.

It counts and keeps what goes through, so that tests can say how many requests and bytes something may take.
"""

import http.client
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 2**16
OWN_FRAMING = ("transfer-encoding", "content-length", "connection")
NOT_NOW = struct.pack("ii", 1, 0)
"""`SO_LINGER` with which a close is a reset."""


class Kind(Enum):
    """What goes wrong."""

    RESET = auto()
    """The connection breaks, and nothing reaches the registry."""
    CUT = auto()
    """Half of the body reaches the registry, then both connections break."""
    DELAY = auto()
    """It takes `seconds` longer."""
    TRUNCATE = auto()
    """Half of the answer's body arrives, then the connection breaks; an answer without a body does not arrive."""
    ANSWER = auto()
    """The proxy answers `status`, and nothing reaches the registry."""
    LOSE = auto()
    """The registry does it, and the answer is lost."""
    EXPIRE = auto()
    """The token that comes along is good for nothing from now on."""
    GONE = auto()
    """The proxy hangs up, also on connections that are open; nobody listens from then on."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with the requests that fit, from the `at`-th of them on (the first is 1), `times` times in a row."""

    kind: Kind
    at: int = 1
    times: int = 1
    method: str = ""
    path: str = ""
    """A regular expression that is found in path and query."""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind.name.lower()}{self.status or ''}-{self.at}"

    def fits(self, method: str, path: str) -> bool:
        """Whether this request counts."""
        return self.method in ("", method) and re.search(self.path, path) is not None


def each_fault(at: int, *, method: str = "", path: str = "") -> tuple[Fault, ...]:
    """One of every kind that is over again, for the `at`-th request that fits."""
    passing = [kind for kind in Kind if kind not in (Kind.ANSWER, Kind.GONE)]
    kinds = [Fault(kind=kind, at=at, method=method, path=path, seconds=0.2) for kind in passing]
    for status in (401, 403, 404, 409, 412, 429, 500, 503):
        headers = {"Retry-After": "1"} if status == 429 else {}
        kinds.append(Fault(kind=Kind.ANSWER, status=status, headers=headers, at=at, method=method, path=path))
    return tuple(kinds)


@dataclass(frozen=True, kw_only=True)
class Passed:
    """One request that came; `status` is 0 when no answer was sent."""

    method: str
    path: str
    status: int
    up: int
    """Bytes of its body that reached the registry."""
    down: int
    """Bytes of the answer's body that were sent on."""


@dataclass
class Faulty:
    """A proxy that runs."""

    host: str
    faults: Sequence[Fault] = ()
    log: list[Passed] = field(default_factory=list)
    heard: Callable[[Passed], None] = lambda _: None
    """Told of each request after its end."""
    _seen: dict[int, int] = field(default_factory=dict)
    _expired: set[str] = field(default_factory=set)
    _gone: Fault | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, *faults: Fault) -> None:
        """From now on these faults, counted anew, and an empty log."""
        with self._lock:
            self.faults, self._seen = faults, {}
            self._expired.clear()
            self.log.clear()

    def asked(self, method: str = "", path: str = "") -> list[Passed]:
        """The requests that fit, in the order of their ends."""
        wanted = Fault(kind=Kind.DELAY, method=method, path=path)
        return [each for each in self.log if wanted.fits(each.method, each.path)]

    def up(self, method: str = "", path: str = "") -> int:
        """Bytes that requests brought."""
        return sum(each.up for each in self.asked(method, path))

    def down(self, method: str = "", path: str = "") -> int:
        """Bytes that answers brought."""
        return sum(each.down for each in self.asked(method, path))

    def meets(self, method: str, path: str, authorization: str) -> Fault | None:
        """The fault of a request that came now."""
        met = None
        with self._lock:
            for place, fault in enumerate(self.faults):
                if fault.fits(method, path):
                    number = self._seen[place] = self._seen.get(place, 0) + 1
                    met = fault if fault.at <= number < fault.at + fault.times else met
            if met and met.kind is Kind.EXPIRE:
                self._expired.add(authorization)
            if met and met.kind is Kind.GONE:
                self._gone = met
        return self._gone or met

    def expired(self, authorization: str) -> bool:
        """Whether this token is good for nothing any more."""
        return authorization.startswith("Bearer ") and authorization in self._expired


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what this is for."""


@contextmanager
def faulty(registry: str, *faults: Fault, port: int = 0) -> Iterator[Faulty]:
    """Serve `registry` (host and port) a second time on a port of loopback, by default a free one."""
    proxy = Faulty(host="", faults=faults)
    handler = type("Handler", (_Handler,), {"registry": registry, "proxy": proxy})
    server = _Server(("127.0.0.1", port), handler)
    proxy.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    registry: str
    proxy: Faulty
    protocol_version = "HTTP/1.1"
    wbufsize = 2 * BLOCK  # the end of an answer is sent when the request is in the log

    def _pass(self) -> None:
        fault = self.proxy.meets(self.command, self.path, self.headers.get("Authorization", ""))
        kind = fault.kind if fault else None
        body, self._up, self._down, self._status = self._body(), 0, 0, 0
        try:
            if kind is Kind.RESET:
                self._break()
            elif kind is Kind.GONE:
                self.server.shutdown()
                self.server.server_close()
                self._break()
            elif kind is Kind.CUT:
                self._cut(body)
            elif fault and kind is Kind.ANSWER:
                self._answer(fault)
            else:
                threading.Event().wait(fault.seconds if fault and kind is Kind.DELAY else 0)
                self._forward(body, kind)
        finally:
            passed = Passed(method=self.command, path=self.path, status=self._status, up=self._up, down=self._down)
            self.proxy.log.append(passed)
            self.proxy.heard(passed)

    def do_GET(self) -> None:
        self._pass()

    def do_HEAD(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def do_PUT(self) -> None:
        self._pass()

    def do_PATCH(self) -> None:
        self._pass()

    def do_DELETE(self) -> None:
        self._pass()

    def _break(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOT_NOW)
        self.connection.close()

    def _cut(self, body: bytes) -> None:
        host, _, port = self.registry.partition(":")
        head = [f"{self.command} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items())]
        with socket.create_connection((host, int(port))) as upstream:
            upstream.sendall("\r\n".join([*head, "", ""]).encode())
            upstream.sendall(body[: len(body) // 2])
        self._up = len(body) // 2
        self._break()

    def _answer(self, fault: Fault) -> None:
        self._head(fault.status, {**fault.headers, "Content-Length": str(len(fault.body))})
        if self.command != "HEAD":
            self.wfile.write(fault.body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _forward(self, body: bytes, kind: Kind | None) -> None:
        wanted = {name for name in self.headers if name.lower() not in OWN_FRAMING}
        headers = {name: ", ".join(self.headers.get_all(name, [])) for name in wanted}
        if self.proxy.expired(headers.get("Authorization", "")):
            headers["Authorization"] = "Bearer expired"
        with closing(http.client.HTTPConnection(self.registry, timeout=900)) as upstream:
            upstream.request(self.command, self.path, body or None, headers)
            self._up = len(body)
            with upstream.getresponse() as answer:
                self._send_on(answer, kind)

    def _send_on(self, answer: http.client.HTTPResponse, kind: Kind | None) -> None:
        if kind is Kind.LOSE:
            answer.read()
            self._break()
            return
        told, content = answer.getheader("Content-Length"), b""
        if told is None:
            content = answer.read()
        length = int(told) if told is not None else len(content)
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in OWN_FRAMING}
        if kind is Kind.TRUNCATE and (not length or self.command == "HEAD"):
            self._break()
            return
        self._head(answer.status, {**headers, "Content-Length": str(length)} if answer.status != 204 else headers)
        limit = length // 2 if kind is Kind.TRUNCATE else length
        while self.command != "HEAD" and limit > self._down:
            block = content or answer.read(min(BLOCK, limit - self._down))
            if not block:
                break
            self._down += self.wfile.write(block[: limit - self._down])
        if kind is Kind.TRUNCATE:
            self.wfile.flush()
            self.close_connection = True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, format: str, *args: object) -> None:
        pass
