"""Blobs from one repository to another: by a mount within a registry, else streamed, with no file in between."""

from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlencode

import requests

from pipeline.errors import NotThere, RegistryRefused, ToolFailed
from pipeline.oci import Descriptor, Repository
from pipeline.registry import answers, uploads, writing
from pipeline.registry.arriving import Arriving
from pipeline.registry.uploads import LostUpload, PartsRefused
from pipeline.registry.wire import PUSH, Wire

SMALL = 4 * 2**20
"""Bytes of a blob that is sent in one request, from memory."""
_NO_MOUNT = (400, 401, 403, 404, 405)
"""What registries answer that do not mount this: Harbor answers 401 also where the source is open to all."""


def mount(wire: Wire, repository: Repository, descriptor: Descriptor, source: Repository) -> bool:
    """Whether the registry took the blob over from `source`, without a byte of it sent; False where it must be sent.

    Raises `RegistryRefused` when `source` may not be read, `NotThere` when it does not hold the blob.
    """
    mounted, place = _offered(wire, repository, descriptor, source)
    if place:
        uploads.cancel(wire, repository, place)
    return mounted


def copy_blob(wire: Wire, source: Repository, target: Repository, descriptor: Descriptor, advance: Callable[[int], None]) -> None:
    """Bring a blob into `target` unless it is there; what breaks off goes on, and what is lost is begun anew, a few times.

    `advance` hears of each byte once; whatever it raises ends the copy and cancels the upload.
    """
    mounted, place = _offered(wire, target, descriptor, source)
    if mounted:
        advance(descriptor.size)
    elif writing.exists(wire, target, descriptor.digest):
        if place:
            uploads.cancel(wire, target, place)
        advance(descriptor.size)
    else:
        _send(wire, source, target, descriptor, place, advance)


def _send(
    wire: Wire, source: Repository, target: Repository, descriptor: Descriptor, place: str, advance: Callable[[int], None]
) -> None:
    if descriptor.size > SMALL:
        _stream(wire, source, target, descriptor, place, _Progress(advance))
        return
    if place:
        uploads.cancel(wire, target, place)
    with closing(Arriving(wire, source, descriptor)) as arriving:
        content = b"".join(arriving.until(descriptor.size))
        arriving.verify()
    writing.send(wire, target, content, descriptor.digest)
    advance(descriptor.size)


def _stream(
    wire: Wire, source: Repository, target: Repository, descriptor: Descriptor, place: str, progress: "_Progress"
) -> None:
    for attempt in range(1, writing.UPLOADS + 1):
        whole = attempt == writing.UPLOADS or target.host in wire.undivided
        try:
            _in_parts(wire, source, target, descriptor, place, progress, whole=whole)
            return
        except LostUpload as error:
            if attempt == writing.UPLOADS:
                raise
            if isinstance(error, PartsRefused):
                wire.undivided.add(target.host)
        place = ""


def _in_parts(
    wire: Wire,
    source: Repository,
    target: Repository,
    descriptor: Descriptor,
    place: str,
    progress: "_Progress",
    *,
    whole: bool,
) -> None:
    """What is sent `whole` is one part."""
    part = descriptor.size if whole else uploads.PART
    progress.restart()
    with (
        uploads.opened(wire, target, descriptor.digest, place, whole=whole) as upload,
        closing(Arriving(wire, source, descriptor)) as arriving,
    ):
        for begin in range(0, descriptor.size, part):
            size = min(part, descriptor.size - begin)
            upload.append(arriving, size)
            progress.advance(size)
        upload.finish()


class _Progress:
    """Bytes that were told once are not told again when they are sent anew."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance, self._told, self._done = advance, 0, 0

    def restart(self) -> None:
        self._done = 0

    def advance(self, amount: int) -> None:
        self._done += amount
        new = max(0, self._done - self._told)
        self._told += new
        self._advance(new)


def _offered(wire: Wire, target: Repository, descriptor: Descriptor, source: Repository) -> tuple[bool, str]:
    """Whether the blob was mounted, and if not, the address of the upload that the registry opened instead, if it did."""
    if source.host != target.host:
        return False, ""
    path = f"blobs/uploads/?{urlencode({'mount': str(descriptor.digest), 'from': source.path})}"
    try:
        answer = wire.ask("POST", target, path, rights=PUSH, also=source, body=b"")
    except RegistryRefused:  # a token service that gives no token for both repositories
        _must_hold(wire, source, descriptor)
        return False, ""
    with answer:
        return _judged(wire, answer, target, descriptor, source)


def _judged(
    wire: Wire, answer: requests.Response, target: Repository, descriptor: Descriptor, source: Repository
) -> tuple[bool, str]:
    if answer.status_code == 201:
        if (told := answer.headers.get("Docker-Content-Digest")) not in (None, "", str(descriptor.digest)):
            raise ToolFailed(f"`{target.host}` mounted `{descriptor.digest}` and says that it is `{told}`")
        return True, ""
    if answer.status_code == 202:
        return False, writing.location(answer, target)
    if answer.status_code not in _NO_MOUNT or answers.full(answer):
        wire.fail(answer, f"`{target}@{descriptor.digest}` cannot be mounted from `{source}`", target)
    _must_hold(wire, source, descriptor)
    return False, ""


def _must_hold(wire: Wire, source: Repository, descriptor: Descriptor) -> None:
    if not writing.exists(wire, source, descriptor.digest):
        raise NotThere(f"`{source}@{descriptor.digest}` is not there")
