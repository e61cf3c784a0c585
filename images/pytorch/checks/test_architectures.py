"""Which GPUs the binaries have machine code for: what torch says, and what lies in its libraries. Needs no GPU."""

import mmap
import re
import struct
from pathlib import Path

import torch

LIBRARIES = Path(torch.__file__).parent / "lib"
FAT_BINARY = re.compile(b"\x50\xed\x55\xba\x01\x00\x10\x00")
"""A fat binary's header: magic number, version 1, 16 bytes; its size follows, then the entries."""
MACHINE_CODE = 2


def test_torch_is_built_for_the_claimed_architectures(claims):
    agree(torch._C._cuda_getArchFlags().split(), claims)


def test_the_library_holds_machine_code_for_each_architecture(claims, measure):
    found = architectures(LIBRARIES / "libtorch_cuda.so")
    measure("architectures", " ".join(sorted(found)))
    agree(found, claims)


def agree(found, claims):
    claimed = set(claims["architectures"].split())
    assert set(found) == claimed, f"claimed only: {sorted(claimed - set(found))}; there only: {sorted(set(found) - claimed)}"


def architectures(library):
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {f"sm_{entry}" for header in FAT_BINARY.finditer(content) for entry in entries(content, header.start())}


def entries(content, start):
    (size,) = struct.unpack_from("<Q", content, start + 8)
    at, end = start + 16, start + 16 + size
    while at < end:
        kind, _, header, payload = struct.unpack_from("<HHIQ", content, at)
        if kind == MACHINE_CODE:
            yield struct.unpack_from("<I", content, at + 28)[0]
        at += header + payload
