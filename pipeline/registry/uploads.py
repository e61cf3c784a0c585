"""One upload of a large blob, part by part: after a break the registry is asked what it has got, and the rest is sent.

Protocol: OCI distribution specification 1.1, "Pushing a blob in chunks". Its address changes with each answer. Distribution
2.8, also behind Harbor, forgets an upload when a part broke off in the middle or its answer was lost; others resume.
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


class LostUpload(Temporary):
    """The registry does not know the upload any more, or has other bytes than were sent."""


class _Broken(Exception):
    """A part did not arrive, or not as a whole."""


class Upload:
    """An upload that is open, for one thread."""

    def __init__(self, wire: Wire, repository: Repository, digest: Digest, place: str) -> None:
        """`place` is the address that the registry gave."""
        self._wire, self._repository, self._digest, self._place = wire, repository, digest, place
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
        kind = {"Content-Type": writing.BLOB_TYPE, "Content-Range": f"{self._got}-{self._got + len(rest) - 1}"}
        expected = self._got + len(rest)
        try:
            answer = self._wire.ask("PATCH", self._repository, self._place, rights=PUSH, body=rest, headers=kind)
        except Temporary as error:
            raise _Broken(error.message) from error
        with answer:
            self._judge(answer)
            self._take(answer, self._got, expected, told=expected)

    def _judge(self, answer: requests.Response) -> None:
        if answer.status_code == 401 and not self._renewed:
            self._renewed = True
            raise _Broken("its token is not good any more")
        self._renewed = False
        if answer.status_code == 429 or answer.status_code >= 500:
            time.sleep(answers.pause(answer, self._repository.host))
            raise _Broken(f"answered {answer.status_code}, {self._wire.reason(answer)}")
        if answer.status_code == 416:
            raise _Broken(self._wire.reason(answer))
        if answer.status_code == 404:
            raise self._lost()
        if answer.status_code != 202:
            self._wire.fail(answer, f"`{self._repository}@{self._digest}` cannot be written", self._repository)

    def _ask(self, start: int, end: int) -> None:
        """Learn what the registry has got, which must be between `start` and `end`."""
        with self._wire.ask("GET", self._repository, self._place, rights=PUSH) as answer:
            if answer.status_code in _GONE:
                raise self._lost()
            if answer.status_code not in (200, 202, 204):
                self._wire.fail(answer, f"the upload of `{self._repository}@{self._digest}` cannot go on", self._repository)
            self._take(answer, start, end, told=-1)

    def _take(self, answer: requests.Response, start: int, end: int, *, told: int) -> None:
        """Where the upload goes on, and what the registry has got: `told` bytes when it does not say."""
        self._place = writing.location(answer, self._repository) or self._place
        range_ = _RANGE.fullmatch(answer.headers.get("Range", ""))
        self._got = told if range_ is None else int(range_[1]) + 1 if int(range_[1]) else 0
        if not start <= self._got <= end:
            raise self._lost()

    def _complete(self) -> None:
        place, kind = writing.with_digest(self._place, self._digest), {"Content-Type": writing.BLOB_TYPE}
        with self._wire.ask("PUT", self._repository, place, rights=PUSH, body=b"", headers=kind) as answer:
            if answer.status_code in _GONE or "DIGEST_INVALID" in answers.codes(answer):
                raise self._lost()
            if answer.status_code != 201:
                self._wire.fail(answer, f"`{self._repository}@{self._digest}` cannot be written", self._repository)
            if (told := answer.headers.get("Docker-Content-Digest")) not in (None, "", str(self._digest)):
                raise ToolFailed(f"`{self._repository.host}` took `{self._digest}` and says that it is `{told}`")

    def _lost(self) -> LostUpload:
        what = f"the upload of `{self._repository}@{self._digest}` was lost by `{self._repository.host}`"
        return LostUpload(what, hint="run the same command again")

    def _stuck(self, why: str) -> Temporary:
        what = f"`{self._repository}@{self._digest}` does not get through to `{self._repository.host}` in {TRIES} tries"
        return Temporary(f"{what}, after {self._got} bytes: {why}", hint="check the network, then run the same command again")


@contextmanager
def opened(wire: Wire, repository: Repository, digest: Digest, place: str = "") -> Iterator[Upload]:
    """An upload, the one at `place` if the registry has opened one; cancelled when what is done with it fails or is stopped."""
    place = place or writing.opened(wire, repository, f"`{repository}@{digest}`")
    upload = Upload(wire, repository, digest, place)
    try:
        yield upload
    except BaseException:
        upload.cancel()
        raise


def cancel(wire: Wire, repository: Repository, place: str) -> None:
    """Let the registry forget an upload now; one that it cannot or may not forget now it forgets by itself, days later."""
    with suppress(PipelineError):
        wire.ask("DELETE", repository, place, rights="delete").close()
