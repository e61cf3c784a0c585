"""What a Go binary says it was built from, read without Go."""

import mmap
from pathlib import Path

_MAGIC = b"\xff Go buildinf:"


def module_version(binary: Path, module: str) -> str:
    """The version of `module` in a Go binary's build info, without `v`; empty when it is not told.

    Format: `debug/buildinfo` of Go 1.18 and newer: magic, pointer size, flags (2: texts inline), at offset 32 two texts
    with a varint length before each. A development build's `(devel)` and a pseudo-version of v0.0.0 tell nothing.
    """
    versions = [words[2] for words in _lines(binary) if words[:2] == ["mod", module]]
    return next((each.removeprefix("v") for each in versions if each.startswith("v") and not each.startswith("v0.0.0")), "")


def built_unchanged(binary: Path, package: str) -> bool:
    """Whether a Go binary says that it is `package`, built from a checkout without changes."""
    lines = _lines(binary)
    return ["path", package] in lines and ["build", "vcs.modified=false"] in lines


def _lines(binary: Path) -> list[list[str]]:
    try:
        return [line.split("\t") for line in _module_info(binary).splitlines()]
    except (ValueError, IndexError):  # an empty file, or one that ends in the middle
        return []


def _module_info(binary: Path) -> str:
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(_MAGIC)
        while at % 16 and at >= 0:
            at = data.find(_MAGIC, at + 1)
        if at < 0 or not data[at + 15] & 2:
            return ""
        _, after = _text(data, at + 32)
        return _text(data, after)[0][16:-16].decode(errors="replace")


def _text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    length = shift = 0
    while True:
        byte = data[at]
        at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
        if byte < 128:
            return data[at : at + length], at + length
