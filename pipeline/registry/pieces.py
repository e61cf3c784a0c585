"""A large blob from a registry that breaks off: it goes on where it ended, and nothing is held but one piece.

The last piece comes only when size and digest of all are right. So who passes pieces on never completes a wrong blob.
"""

import hashlib
import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing

import requests

from pipeline.errors import PipelineError, Temporary, ToolFailed
from pipeline.oci import Descriptor, Repository
from pipeline.registry import answers
from pipeline.registry.wire import Wire

PIECE = 8 * 2**20
"""Bytes of a piece. Object stores behind registries want 5 MiB at least; a few copies at a time stay below 200 MB."""
TRIES = 5
"""How often in a row a blob may break off before a whole piece of it has come."""
PAUSE = 0.5
"""Seconds before it is asked for again, twice as many each time in a row."""

_PARTIAL = re.compile(r"bytes (\d+)-")


def pieces(wire: Wire, repository: Repository, descriptor: Descriptor) -> Generator[bytes, None, None]:
    """The blob in pieces of `PIECE` bytes, the last one of that or less; an empty blob is one empty piece.

    Close it when it is not read to its end. Raises `ToolFailed` in place of the last piece unless size and digest are the
    descriptor's.
    """
    hashed, held = hashlib.sha256(), bytearray()
    with closing(_chunks(wire, repository, descriptor)) as chunks:
        for chunk in chunks:
            hashed.update(chunk)
            held += chunk
            while len(held) > PIECE:
                yield bytes(held[:PIECE])
                del held[:PIECE]
    if hashed.hexdigest() != descriptor.digest.hex:
        raise ToolFailed(f"`{repository}@{descriptor.digest}` arrived damaged: it has another digest")
    yield bytes(held)


def _chunks(wire: Wire, repository: Repository, descriptor: Descriptor) -> Generator[bytes, None, None]:
    """Exactly as many bytes as the blob has, over as many connections as that takes."""
    what, place, last, breaks = f"`{repository}@{descriptor.digest}`", 0, 0, 0
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
            breaks, last = (1, place) if place - last >= PIECE else (breaks + 1, last)
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
        yield chunk[skip:]
        skip = max(0, skip - len(chunk))
