"""A large blob on its way from a registry that may break off: it goes on where it ended, and hardly anything is held.

Its last bytes come only when size and digest of all are right. So who passes them on never completes a wrong blob.
"""

import hashlib
import re
import time
from collections.abc import Generator, Iterator

import requests

from pipeline.errors import PipelineError, Temporary, ToolFailed
from pipeline.oci import Descriptor, Repository
from pipeline.registry import answers
from pipeline.registry.wire import Wire

TRIES = 5
"""How often in a row a blob may break off."""
ENOUGH = 8 * 2**20
"""Bytes after which a break is the first in a row again."""
PAUSE = 0.5
"""Seconds before it is asked for again, twice as many each time in a row."""

_PARTIAL = re.compile(r"bytes (\d+)-")


class Arriving:
    """A blob that is read and hashed from its first byte to its last; it can go back to its mark. For one thread."""

    def __init__(self, wire: Wire, repository: Repository, descriptor: Descriptor) -> None:
        """Nothing is asked for yet."""
        self._wire, self._repository, self._descriptor = wire, repository, descriptor
        self._place, self._hashed, self._rest = 0, hashlib.sha256(), b""
        self._marked, self._chunks = (0, self._hashed.copy()), self._from(0)
        self.failed: PipelineError | None = None
        """Why no more of it comes, for those who meet that error while they send."""

    def mark(self) -> None:
        """Remember where we are."""
        self._marked = self._place, self._hashed.copy()

    def back(self, place: int) -> None:
        """Go on from a byte that is not before the mark; from the mark on the blob is read and hashed again."""
        if place == self._place:
            return
        self.close()
        self._place, self._hashed, self._rest = self._marked[0], self._marked[1].copy(), b""
        self._chunks = self._from(self._place)
        for _ in self.until(place):
            pass

    def until(self, end: int) -> Iterator[bytes]:
        """The bytes from where we are to `end`; raises `ToolFailed` in place of the blob's last ones when it is damaged."""
        while self._place < end:
            chunk, wanted = self._rest or self._next(), end - self._place
            part, self._rest = chunk[:wanted], chunk[wanted:]
            self._hashed.update(part)
            self._place += len(part)
            if self._place == self._descriptor.size:
                self._next()  # raises when there is more
                self.verify()
            yield part

    def verify(self) -> None:
        """Raise `ToolFailed` unless what has come is the blob."""
        if self._hashed.hexdigest() != self._descriptor.digest.hex:
            self.failed = ToolFailed(f"`{self._repository}@{self._descriptor.digest}` arrived damaged: it has another digest")
            raise self.failed

    def close(self) -> None:
        """End the connection, if one is open."""
        self._chunks.close()

    def _next(self) -> bytes:
        try:
            return next(self._chunks, b"")
        except PipelineError as error:
            self.failed = error
            raise

    def _from(self, place: int) -> Generator[bytes, None, None]:
        return _chunks(self._wire, self._repository, self._descriptor, place)


def _chunks(wire: Wire, repository: Repository, descriptor: Descriptor, place: int) -> Generator[bytes, None, None]:
    """Exactly the bytes from `place` on, over as many connections as that takes."""
    what, last, breaks = f"`{repository}@{descriptor.digest}`", place, 0
    while place < descriptor.size:
        broken: PipelineError = ToolFailed(f"{what} arrived damaged: it ends before its {descriptor.size} bytes")
        with _asked(wire, repository, descriptor, place) as answer:
            try:
                for chunk in _rest(answer, place, what):
                    place += len(chunk)
                    if place > descriptor.size:
                        raise ToolFailed(f"{what} arrived damaged: it goes on after its {descriptor.size} bytes")
                    yield chunk
            except Temporary as error:
                broken = error
        if place < descriptor.size:
            breaks, last = (1, place) if place - last >= ENOUGH else (breaks + 1, last)
            if breaks == TRIES:
                raise broken
            time.sleep(PAUSE * 2 ** (breaks - 1))


def _asked(wire: Wire, repository: Repository, descriptor: Descriptor, place: int) -> requests.Response:
    headers = {"Range": f"bytes={place}-"} if place else {}
    answer = wire.ask("GET", repository, f"blobs/{descriptor.digest}", headers=headers)
    if answer.status_code not in (200, 206):
        with answer:
            wire.fail(answer, f"`{repository}@{descriptor.digest}` cannot be read", repository)
    return answer


def _rest(answer: requests.Response, place: int, what: str) -> Iterator[bytes]:
    """What comes after `place`, also from a registry that begins anew."""
    skip = place
    if answer.status_code == 206:
        begins = _PARTIAL.match(answer.headers.get("Content-Range", ""))
        if not begins or int(begins[1]) != place:
            raise ToolFailed(f"{what} was asked for from byte {place}, the answer has other bytes")
        skip = 0
    for chunk in answers.chunks(answer, what):
        if rest := chunk[skip:]:
            yield rest
        skip = max(0, skip - len(chunk))
