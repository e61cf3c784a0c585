"""Which GPUs the binaries have machine code for: what torch says, what lies in its libraries, and whether it does here."""

import mmap
import re
import struct
from pathlib import Path

import pytest
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


@pytest.mark.gpus(1)
def test_there_is_machine_code_for_every_gpu_of_this_lane(gpus):
    built = [tuple(map(int, re.fullmatch(r"sm_(\d+)(\d)", one).groups())) for one in torch._C._cuda_getArchFlags().split()]
    faults = [
        f"no machine code for {gpu['name']} of compute capability {major}.{minor}"
        for gpu in gpus
        for major, minor in [gpu["capability"]]
        if not any(one == major and other <= minor for one, other in built)
    ]
    assert not faults, faults


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
