"""A driver's library that does nothing: it answers with a code, as the real one does on a machine that is broken so."""

import struct

VERSION = 12040
"""The CUDA of the driver, as `cuDriverGetVersion` says it: 12.4."""
_HEADERS = 64 + 4 * 56
_SECOND = 0x1000
"""Where the file is mapped again, writable, since the loader writes into the dynamic section."""


def libcuda(code: int, version: int = VERSION, count: int = 0) -> bytes:
    """A shared object for x86-64: `cuInit` and `cuDeviceGetCount` return `code`; version and count are told."""
    functions = {
        "cuInit": _returns(code),
        "cuDriverGetVersion": _stores(version) + _returns(0),
        "cuDeviceGetCount": _stores(count) + _returns(code),
    }
    names = b"\0libcuda.so.1\0" + b"".join(name.encode() + b"\0" for name in functions)
    parts, symbols = [_padded(names, b"\0")], [bytes(24)]
    at = _HEADERS + len(parts[0])
    for name, body in functions.items():
        symbols.append(struct.pack("<IBBHQQ", names.index(name.encode() + b"\0"), 0x12, 0, 1, at, len(body)))
        parts.append(_padded(body, b"\xcc"))
        at += len(parts[-1])
    table = at
    hashes = table + 24 * len(symbols)
    # one bucket that begins with the first symbol, each followed by the next
    chain = struct.pack(f"<{3 + len(symbols)}I", 1, len(symbols), 1, 0, *range(2, len(symbols)), 0)
    chain = _padded(chain, b"\0")
    dynamic = hashes + len(chain)
    # SONAME, HASH, STRTAB, SYMTAB, STRSZ, SYMENT, NULL
    tags = ((14, 1), (4, hashes), (5, _HEADERS), (6, table), (10, len(names)), (11, 24), (0, 0))
    body = b"".join([*parts, *symbols, chain, *(struct.pack("<QQ", *tag) for tag in tags)])
    return _head(dynamic, 16 * len(tags), _HEADERS + len(body)) + body


def _head(dynamic: int, tags: int, size: int) -> bytes:
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    read, write, run = 4, 2, 1
    moved = _SECOND + dynamic
    return head + b"".join(
        struct.pack("<IIQQQQQQ", *segment)
        for segment in (
            (1, read | run, 0, 0, 0, size, size, 4096),
            (1, read | write, 0, _SECOND, _SECOND, size, size, 4096),
            (2, read | write, dynamic, moved, moved, tags, tags, 8),
            (0x6474E551, read | write, 0, 0, 0, 0, 0, 16),
        )
    )


def _returns(code: int) -> bytes:
    """`mov eax, code; ret`."""
    return b"\xb8" + struct.pack("<I", code) + b"\xc3"


def _stores(value: int) -> bytes:
    """`mov dword ptr [rdi], value`."""
    return b"\xc7\x07" + struct.pack("<I", value)


def _padded(content: bytes, filler: bytes) -> bytes:
    return content.ljust(len(content) + -len(content) % 8, filler)
