"""A second socket for a service on a Unix socket, which can be cut."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 2**16


class Line:
    """What goes between the two sockets; `cut` ends all of it, and nobody listens from then on."""

    def __init__(self, listener: socket.socket, target: str, lost: Sequence[bytes]) -> None:
        self._listener, self._target, self._open, self._lost = listener, target, [listener], lost

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
                for ends in ((near, far, self._lost), (far, near, ())):
                    threading.Thread(target=_pump, args=ends, daemon=True).start()


@contextmanager
def forwarded(target: str, at: Path, lost: Sequence[bytes] = ()) -> Iterator[Line]:
    """Serve the Unix socket `target` a second time at the path `at`; requests that name one of `lost` never get there."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))
        listener.listen()
        line = Line(listener, target, lost)
        thread = threading.Thread(target=line.serve, daemon=True)
        thread.start()
        try:
            yield line
        finally:
            line.cut()
            thread.join()


def _pump(source: socket.socket, sink: socket.socket, lost: Sequence[bytes]) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            if not any(words in data.partition(b"\r\n")[0] for words in lost):
                sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
