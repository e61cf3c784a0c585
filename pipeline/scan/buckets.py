"""The names in the root of a vulnerability database: what it has advisories of.

A word anywhere in it proves nothing: texts name systems that it knows nothing of, and `cargo::` has `go::` in it.

Format: `go.etcd.io/bbolt` version 2, little endian.
"""

import struct
from collections.abc import Iterator
from mmap import mmap

from pipeline import names
from pipeline.errors import ToolFailed

MAGIC, VERSION = 0xED0CDAED, 2
BRANCH, LEAF = 1, 2
BUCKET = 1
"""Flag of an element of a leaf that is a bucket."""
SIZES = (4096, 8192, 16384, 65536, 1024, 2048, 32768)
"""Of pages: that of the machine that wrote it; the second page begins there."""
DEEPEST = 16
"""Pages above each other, at most."""


def roots(content: bytes | mmap) -> frozenset[str]:
    """Raises `ToolFailed` for what is no such database."""
    try:
        size, root = _root(content)
        return frozenset(_below(content, size, root, DEEPEST))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ToolFailed(
            f"the vulnerability database cannot be read: {error}", hint=f"name another mirror in {names.ENV_DATABASE}"
        ) from error


def _root(content: bytes | mmap) -> tuple[int, int]:
    """Size of a page and number of the root's, of the newer of two."""
    found = []
    for at in (0, *SIZES):
        if len(content) >= at + 80:
            magic, version, size, _, root, _, _, _, transaction = struct.unpack_from("<IIIIQQQQQ", content, at + 16)
            if (magic, version) == (MAGIC, VERSION) and at in (0, size):
                found.append((transaction, size, root))
    if not found:
        raise ValueError("it does not begin as one")
    _, size, root = max(found)
    return size, root


def _below(content: bytes | mmap, size: int, page: int, depth: int) -> Iterator[str]:
    at = page * size
    _, kind, count, _ = struct.unpack_from("<QHHI", content, at)
    if kind not in (BRANCH, LEAF) or not depth:
        raise ValueError(f"page {page} is none of its index")
    for element in range(at + 16, at + 16 + 16 * count, 16):
        if kind == BRANCH:
            yield from _below(content, size, struct.unpack_from("<IIQ", content, element)[2], depth - 1)
            continue
        flags, offset, length, _ = struct.unpack_from("<IIII", content, element)
        if flags & BUCKET:
            yield content[element + offset : element + offset + length].decode()
