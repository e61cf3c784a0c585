"""The input hash of an image, and its named parts: everything that can change what is built, and nothing else."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from unicodedata import ucd_3_2_0

from pipeline.catalog import Catalog, Image, Rootfs

RECIPE = 1
"""Raised when the pipeline changes what it builds from the same inputs."""
PART_DIGITS = 16
"""Hex digits that a part shows; the input hash itself is made of all 64."""


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """One file of an image's build context as it is hashed."""

    path: str
    """Relative to the image's folder, `/` between the parts; bytes that are no UTF-8 as surrogates."""
    kind: Literal["file", "link"]
    executable: bool
    digest: str
    """sha256 hex of the bytes, or of the link's target text."""


@dataclass(frozen=True, kw_only=True)
class InputHash:
    """64 hex digits, and the named parts that they are the hash of (`file:Dockerfile`, `claim:torch`, `parent:os`, …)."""

    value: str
    parts: Mapping[str, str]


def compute(
    catalog: Catalog,
    image: Image,
    files: Iterable[ContextFile],
    needs: Mapping[str, str],
    *,
    recipe: int = RECIPE,
    installer: str = "",
) -> InputHash:
    """The input hash of `image` from its context and the input hashes of the images that it `needs`.

    `installer` is the sha256 hex of what installs `packages`; it counts for images that have some.
    """
    facts = {
        "recipe": recipe,
        "platform": catalog.platform,
        "epoch": catalog.epoch.isoformat(),
        "compression-level": catalog.compression_level,
        "line": catalog.line,
        "name": image.name,
        "variant": image.variant,
        "release": image.release,
        "revision": image.revision,
        **{f"claim:{name}": text for name, text in image.claims.items()},
        **{f"uses:{name}": needs[name] for name in image.uses},
        **({f"parent:{image.parent}": needs[image.parent]} if image.parent else {}),
        **(_rootfs(image.rootfs) if image.rootfs else {}),
        **({"packages:names": sorted(image.packages), "packages:installer": installer} if image.packages else {}),
    }
    digests = {name: _digest(fact) for name, fact in facts.items()} | _files(files)
    return InputHash(value=_digest(digests), parts={name: digests[name][:PART_DIGITS] for name in sorted(digests)})


def file_parts(files: Iterable[ContextFile]) -> Mapping[str, str]:
    """The parts that stand for `files`."""
    return {name: digest[:PART_DIGITS] for name, digest in _files(files).items()}


def shown(path: str) -> str:
    """`path` as printable text, one for each path: what is not printable, and `\\`, is escaped.

    The text is a part of the input hash: what is printable may not depend on the Unicode that this Python knows, so of
    characters beyond ASCII only those of Unicode 3.2 are taken as they are.
    """
    return "".join(c if _is_plain(c) else c.encode("unicode_escape").decode() for c in path)


def _is_plain(character: str) -> bool:
    old = character.isascii() or ucd_3_2_0.category(character) != "Cn"
    return old and character.isprintable() and character != "\\"


def _files(files: Iterable[ContextFile]) -> dict[str, str]:
    return {f"file:{shown(file.path)}": _digest([file.kind, file.executable, file.digest]) for file in files}


def _rootfs(rootfs: Rootfs) -> dict[str, object]:
    return {
        "rootfs:suite": rootfs.suite,
        "rootfs:packages": sorted(rootfs.packages),
        "rootfs:users": [user.model_dump() for user in rootfs.users],
        "rootfs:directories": sorted(rootfs.directories),
        **({"rootfs:workdir": rootfs.workdir} if rootfs.workdir else {}),
    }


def _digest(fact: object) -> str:
    """sha256 hex of the one JSON text of a fact: sorted keys, ASCII."""
    return hashlib.sha256(json.dumps(fact, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
