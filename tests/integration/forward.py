"""A second socket for a service on a Unix socket, which can be cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 2**16


class Line:
    """What goes between the two sockets; `cut` ends all of it, and nobody listens from then on."""

    def __init__(self, listener: socket.socket, target: str) -> None:
        self._listener, self._target, self._open = listener, target, [listener]

    def cut(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                near, far = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self._target)
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()


@contextmanager
def forwarded(target: str, at: Path) -> Iterator[Line]:
    """Serve the Unix socket `target` a second time at the path `at`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))
        listener.listen()
        line = Line(listener, target)
        thread = threading.Thread(target=line.serve, daemon=True)
        thread.start()
        try:
            yield line
        finally:
            line.cut()
            thread.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
