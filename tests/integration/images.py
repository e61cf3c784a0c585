"""Small real images, made by hand: this machine's own Python in a root of its own, in layers of zstd."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import zstandard
from docker.errors import NotFound

from pipeline.engine import Engine
from pipeline.oci import OCI_MANIFEST, Digest, Pinned, Repository
from pipeline.registry import Registry
from tests.fakes import FakeRegistry

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "__pycache__",
    "lib2to3",
    "tkinter",
    "turtledemo",
}
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:0:user:/home/user:/bin/sh\n"


def python_image(registry: FakeRegistry, *extra: Mapping[str, bytes], user: str = "1000:0", home: str = "/home/user") -> Pinned:
    """Push an image with `python3`, the user `user`, and a layer for each of `extra` (path → bytes)."""
    environment = ["PATH=/usr/bin:/bin", *([f"HOME={home}"] if home else [])]
    layers = (python_layer(), *(layer(files) for files in extra))
    return push(registry, layers, {"Env": environment, "User": user, "Cmd": ["python3"]})


def push(
    registry: FakeRegistry,
    layers: tuple[bytes, ...],
    config: Mapping[str, Any],
    *,
    promised: tuple[bytes, ...] = (),
    history: Sequence[Mapping[str, Any]] = (),
) -> Pinned:
    """Push an image of these uncompressed layers, compressed with zstd; its diff-ids are those of `promised`, or their own."""
    diff_ids = [str(Digest.of(content)) for content in promised or layers]
    body: dict[str, Any] = {"os": "linux", "architecture": "amd64", "config": config}
    body |= {"rootfs": {"type": "layers", "diff_ids": diff_ids}} | ({"history": history} if history else {})
    packed = [registry.put_blob(zstandard.ZstdCompressor(1).compress(content)) for content in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": registry.put_blob(json.dumps(body).encode()) | {"mediaType": "application/vnd.oci.image.config.v1+json"},
        "layers": [blob | {"mediaType": "application/vnd.oci.image.layer.v1.tar+zstd"} for blob in packed],
    }
    return registry.put_manifest(Repository(registry.host, "team/images"), manifest, "candidate")


def forget(engine: Engine, pinned: Pinned) -> None:
    """Remove an image from the engine, whichever of its digests it is kept under there."""
    manifest = Registry().manifest(pinned)
    for name in (str(manifest.config.digest), str(manifest.digest)):
        with suppress(NotFound):
            engine.client.remove_image(name, force=True)


def layer(files: Mapping[str, bytes]) -> bytes:
    """A layer of plain files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


@cache
def python_layer() -> bytes:
    """This machine's Python with the libraries that it loads, at the paths where they are here."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted({*_interpreter(), *_libraries()}):
            archive.add(path.resolve(), str(path).lstrip("/"), recursive=False)
        _link(archive, "usr/bin/python3", str(_program()))
        _file(archive, "etc/passwd", PASSWD)
        for folder, mode, owner in (("tmp", 0o1777, 0), ("home/user", 0o775, 1000)):
            _folder(archive, folder, mode, owner)
    return content.getvalue()


def _program() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def _stdlib() -> Path:
    return Path(sys.base_prefix) / "lib" / f"python3.{sys.version_info.minor}"


def _interpreter() -> Iterator[Path]:
    yield _program()
    for path in _stdlib().rglob("*"):
        if path.is_file() and not LEFT_OUT.intersection(path.relative_to(_stdlib()).parts) and path.suffix != ".a":
            yield path


def _libraries() -> Iterator[Path]:
    modules = (path for path in (_stdlib() / "lib-dynload").glob("*.so") if "_tkinter" not in path.name)
    listed = subprocess.run(["ldd", _program(), *modules], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        words = line.replace("=>", " ").split()
        yield from (Path(word) for word in words if word.startswith("/") and not word.endswith(":"))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    if f"/{name}" != target:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)


def _file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _folder(archive: tarfile.TarFile, name: str, mode: int, owner: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid = tarfile.DIRTYPE, mode, owner
    archive.addfile(entry)
