"""One upload of a large blob, part by part: after a break the registry is asked what it has got, and the rest is sent.

Protocol: OCI distribution specification 1.1, "Pushing a blob in chunks". Its address changes with each answer. Distribution
2.8, also behind Harbor, forgets an upload when a part broke off in the middle or its answer was lost; others resume.
Not every registry takes parts: Google's takes none, GitHub's none over 4 MiB, and Amazon's does not tell what it has got. All
take a blob whole, in one PATCH that names no range, as docker sends it.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import requests

from pipeline.errors import PipelineError, Temporary, ToolFailed
from pipeline.oci import Digest, Repository
from pipeline.registry import answers, writing
from pipeline.registry.answers import Streamed
from pipeline.registry.arriving import Arriving
from pipeline.registry.wire import PUSH, Wire

PART = 32 * 2**20
"""Bytes of one request. Each costs a registry about 10 ms; object stores behind registries want 5 MiB at least."""
TRIES = 5
"""How often a part is sent, or its rest."""
PAUSE = 0.5
"""Seconds before the registry is asked after a break, twice as many each time in a row."""

_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_GONE = (404, 416)
_TAKEN = (201, 202, 204)
"""Amazon's registry says 201 of a part."""
_NOT_SO = (400, 405, 411, 415)
"""How a registry refuses that a blob comes in parts."""
_FINAL = (401, 403, 429)


class LostUpload(Temporary):
    """The registry does not know the upload any more, or has other bytes than were sent."""


class PartsRefused(LostUpload):
    """The registry does not take the blob in parts, or does not tell what it has got: it must be sent whole."""


class _Broken(Exception):
    """A part did not arrive, or not as a whole."""


class Upload:
    """An upload that is open, for one thread."""

    def __init__(self, wire: Wire, repository: Repository, digest: Digest, place: str, *, whole: bool = False) -> None:
        """`place` is the address that the registry gave; what is sent `whole` is one part, and begun anew after a break."""
        self._wire, self._repository, self._digest, self._place = wire, repository, digest, place
        self._whole = whole
        self._got = 0
        """Bytes that the registry has."""
        self._renewed = False
        """Whether a new token was fetched for this part."""

    def append(self, arriving: Arriving, size: int) -> None:
        """Send the next `size` bytes, and their rest after a break.

        Raises `LostUpload` when all must be sent anew, `Temporary` when they do not get through.
        """
        start, end = self._got, self._got + size
        arriving.mark()
        for attempt in range(TRIES):
            arriving.back(self._got)
            try:
                self._send(Streamed(end - self._got, arriving.until(end)))
            except _Broken as error:
                if arriving.failed:
                    raise arriving.failed from None
                if attempt == TRIES - 1:
                    raise self._stuck(str(error)) from error
                time.sleep(PAUSE * 2**attempt)
                if self._whole:
                    raise self._lost(str(error)) from error
                self._ask(start, end)
            if self._got == end:
                return
        raise self._stuck("it takes less of each part than it is sent")

    def finish(self) -> None:
        """Make a blob of what was sent; raises `LostUpload` when all must be sent anew."""
        try:
            self._complete()
        except Temporary:
            if not writing.exists(self._wire, self._repository, self._digest):
                raise

    def cancel(self) -> None:
        """Let the registry forget the upload now."""
        cancel(self._wire, self._repository, self._place)

    def _send(self, rest: Streamed) -> None:
        place = {} if self._whole else {"Content-Range": f"{self._got}-{self._got + len(rest) - 1}"}
        kind = {"Content-Type": writing.BLOB_TYPE, **place}
        expected = self._got + len(rest)
        try:
            answer = self._wire.ask("PATCH", self._repository, self._place, rights=PUSH, body=rest, headers=kind)
        except Temporary as error:
            raise _Broken(error.message) from error
        with answer:
            self._judge(answer)
            self._believe(answer, expected)

    def _judge(self, answer: requests.Response) -> None:
        if answer.status_code == 401 and not self._renewed:
            self._renewed = True
            raise _Broken("its token is not good any more")
        self._renewed = False
        if answer.status_code == 429 or answer.status_code >= 500:
            time.sleep(answers.pause(answer, self._repository.host))
            raise _Broken(f"answered {answer.status_code}, {self._wire.reason(answer)}")
        if not self._whole and (answer.status_code in _NOT_SO or (answer.status_code == 416 and not self._got)):
            raise self._undivided(answer)
        if answer.status_code == 416:
            raise _Broken(self._wire.reason(answer))
        if answer.status_code == 404:
            raise self._lost()
        if answer.status_code not in _TAKEN:
            self._wire.fail(answer, f"`{self._repository}@{self._digest}` cannot be written", self._repository)

    def _ask(self, start: int, end: int) -> None:
        """Learn what the registry has got, which must be between `start` and `end`."""
        with self._wire.ask("GET", self._repository, self._place, rights=PUSH) as answer:
            if answer.status_code in _FINAL or answer.status_code >= 500:
                self._wire.fail(answer, f"the upload of `{self._repository}@{self._digest}` cannot go on", self._repository)
            if answer.status_code not in (200, 202, 204):
                raise self._lost()
            self._got = self._told(answer, otherwise=-1)
        if not start <= self._got <= end:
            raise self._lost()

    def _believe(self, answer: requests.Response, expected: int) -> None:
        """What the registry says that it has got, `expected` bytes when it does not say; of a whole blob it is not asked."""
        got = self._told(answer, otherwise=expected)
        if not self._whole and not self._got < got <= expected:
            raise self._undivided(answer)
        self._got = expected if self._whole else got

    def _told(self, answer: requests.Response, *, otherwise: int) -> int:
        """How many bytes the registry says to have got, and from now on where the upload goes on."""
        self._place = writing.location(answer, self._repository) or self._place
        range_ = _RANGE.fullmatch(answer.headers.get("Range", ""))
        return otherwise if range_ is None else int(range_[1]) + 1 if int(range_[1]) else 0

    def _complete(self) -> None:
        place, kind = writing.with_digest(self._place, self._digest), {"Content-Type": writing.BLOB_TYPE}
        with self._wire.ask("PUT", self._repository, place, rights=PUSH, body=b"", headers=kind) as answer:
            if answer.status_code in _NOT_SO and not self._whole:
                raise self._undivided(answer)
            if answer.status_code in _GONE or "DIGEST_INVALID" in answers.codes(answer):
                raise self._lost()
            if answer.status_code != 201:
                self._wire.fail(answer, f"`{self._repository}@{self._digest}` cannot be written", self._repository)
            if (told := answer.headers.get("Docker-Content-Digest")) not in (None, "", str(self._digest)):
                raise ToolFailed(f"`{self._repository.host}` took `{self._digest}` and says that it is `{told}`")

    def _lost(self, why: str = "") -> LostUpload:
        what = f"the upload of `{self._repository}@{self._digest}` was lost by `{self._repository.host}`"
        return LostUpload(f"{what}: {why}" if why else what, hint="run the same command again")

    def _undivided(self, answer: requests.Response) -> PartsRefused:
        said = f"answered {answer.status_code}, {self._wire.reason(answer)}"
        what = f"`{self._repository.host}` does not take `{self._repository}@{self._digest}` in parts: {said}"
        return PartsRefused(what, hint="run the same command again")

    def _stuck(self, why: str) -> Temporary:
        what = f"`{self._repository}@{self._digest}` does not get through to `{self._repository.host}` in {TRIES} tries"
        return Temporary(f"{what}, after {self._got} bytes: {why}", hint="check the network, then run the same command again")


@contextmanager
def opened(wire: Wire, repository: Repository, digest: Digest, place: str = "", *, whole: bool = False) -> Iterator[Upload]:
    """An upload, the one at `place` if the registry has opened one; cancelled when what is done with it fails or is stopped."""
    place = place or writing.opened(wire, repository, f"`{repository}@{digest}`")
    upload = Upload(wire, repository, digest, place, whole=whole)
    try:
        yield upload
    except BaseException:
        upload.cancel()
        raise


def cancel(wire: Wire, repository: Repository, place: str) -> None:
    """Let the registry forget an upload now; one that it cannot or may not forget now it forgets by itself, days later."""
    with suppress(PipelineError):
        wire.ask("DELETE", repository, place, rights="delete").close()
