"""Images that are broken on purpose: a real candidate, one tiny layer on it, another configuration."""

import io
import json
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import zstandard

from pipeline.oci import Digest, Pinned
from pipeline.registry import Registry
from tests.fakes import FakeRegistry

SITE = "opt/venv/lib/python3.11/site-packages"
"""Where the images' Python packages lie."""
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """What is otherwise than in the candidate, and what the image then promises."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    """Their modes; they belong to root."""
    removed: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """`None` takes a variable out."""
    command: tuple[str, ...] = ()
    user: str = ""
    patch: str = ""
    """Python that every interpreter in the image runs first."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """What the catalog says otherwise; the image stays as it is."""


def breed(registry: FakeRegistry, candidate: Pinned, mutant: Mutant) -> Pinned:
    """Push a mutant; `registry` gets only what is new, for the engine holds the candidate's layers already."""
    manifest = Registry().manifest(candidate)
    content = _layer(mutant)
    config = _config(json.loads(Registry().blob(candidate.repository, manifest.config)), mutant, Digest.of(content))
    body = json.loads(manifest.body)
    body["config"] |= _described(registry.put_blob(json.dumps(config).encode()))
    body["layers"].append(registry.put_blob(zstandard.ZstdCompressor(1).compress(content)) | {"mediaType": LAYER})
    return registry.put_manifest(registry.repository(), body)


def version(module: str, text: str) -> Mutant:
    """The package `module` replaced by one that holds nothing but its version."""
    return Mutant(
        files={f"{SITE}/{module}/__init__.py": f"__version__ = {text!r}\n".encode()}, removed=(compiled(module, "__init__"),)
    )


def compiled(folder: str, module: str) -> str:
    """The bytecode of a module, which is used whatever its source says."""
    return f"{SITE}/{folder}/__pycache__/{module}.cpython-311.pyc"


def distribution(name: str, version: str, *needs: str) -> Mapping[str, bytes]:
    """A Python distribution without a module."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs), ""]
    return {f"{SITE}/{name.replace('-', '_')}-{version}.dist-info/METADATA": "\n".join(lines).encode()}


def library(needs: str) -> bytes:
    """A shared object for x86-64 that holds nothing and needs another."""
    names = b"\0" + needs.encode() + b"\0"
    at = 64 + 2 * 56
    symbols = (at + len(names) + 7) // 8 * 8
    dynamic, end = symbols + 24, symbols + 24 + 6 * 16
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    loaded = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, end, end, 4096)
    linked = struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, 96, 96, 8)
    # NEEDED, STRTAB, SYMTAB, STRSZ, SYMENT, NULL
    tags = ((1, 1), (5, at), (6, symbols), (10, len(names)), (11, 24), (0, 0))
    return (head + loaded + linked + names).ljust(dynamic, b"\0") + b"".join(struct.pack("<QQ", *tag) for tag in tags)


def _layer(mutant: Mutant) -> bytes:
    hidden = (PurePosixPath(path) for path in mutant.removed)
    patch = {f"{SITE}/of_a_mutant.pth": b"import of_a_mutant\n", f"{SITE}/of_a_mutant.py": mutant.patch.encode()}
    files = {
        **mutant.files,
        **{str(path.with_name(f".wh.{path.name}")): b"" for path in hidden},
        **(patch if mutant.patch else {}),
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, mode in mutant.folders.items():
            folder = tarfile.TarInfo(path)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            archive.addfile(folder)
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755 if data.startswith(b"#!") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def _config(config: dict[str, Any], mutant: Mutant, diff_id: Digest) -> dict[str, Any]:
    runs = config["config"]
    variables: dict[str, str | None] = {name: text for name, _, text in (pair.partition("=") for pair in runs["Env"])}
    variables |= mutant.environment
    runs["Env"] = [f"{name}={text}" for name, text in variables.items() if text is not None]
    runs["Cmd"] = list(mutant.command) or runs["Cmd"]
    runs["User"] = mutant.user or runs["User"]
    config["rootfs"]["diff_ids"].append(str(diff_id))
    config["history"].append({"created_by": "a mutant"})
    return config


def _described(blob: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: blob[name] for name in ("digest", "size")}
