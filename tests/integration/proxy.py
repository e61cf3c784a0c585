"""A proxy in front of a registry that counts what goes through it, and can die."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Traffic:
    """Requests as `METHOD path`, and the bytes of their bodies each way."""

    host: str = ""
    requests: list[str] = field(default_factory=list)
    up: int = 0
    down: int = 0
    dies_at: str = ""
    """At the first request of this method the proxy hangs up, and nobody listens from then on."""

    def reset(self) -> None:
        self.requests.clear()
        self.up = self.down = 0


@contextmanager
def counted(registry: str, port: int = 0) -> Iterator[Traffic]:
    """Serve `registry` (host and port) a second time on a port of loopback, by default a free one."""
    traffic = Traffic()
    handler = type("Handler", (_Handler,), {"registry": registry, "traffic": traffic})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    traffic.host = f"localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield traffic
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    registry: str
    traffic: Traffic
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def _forward(self) -> None:
        if self.command == self.traffic.dies_at:
            self.server.shutdown()
            self.server.server_close()
            self.close_connection = True
            return
        body = self._body()
        upstream = http.client.HTTPConnection(self.registry, timeout=60)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in ("transfer-encoding", "content-length")
        }
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        self.traffic.requests.append(f"{self.command} {self.path}")
        self.traffic.up += len(body)
        self.traffic.down += len(content)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_GET(self) -> None:
        self._forward()

    def do_HEAD(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def do_PATCH(self) -> None:
        self._forward()

    def do_PUT(self) -> None:
        self._forward()

    def log_message(self, format: str, *args: object) -> None:
        pass
