"""Loading an image into an engine that cannot read its layers: a docker-archive made from the registry's own blobs.

Every layer is decompressed into an unlinked temporary file, compared with its diff-id and sent in a load of its own,
which leaves out the layers that the engine already holds: it looks a layer up by its chain before it opens the file
(moby `image/tarexport`). So neither side ever keeps a second copy of more than a few layers, and a load that was
interrupted goes on where it stopped. The last load brings the real configuration, whose digest is the image's id.
"""

import errno
import hashlib
import json
import tarfile
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Protocol

from pipeline.engine.connection import Engine, calling, inspect, refuse
from pipeline.errors import Interrupted, Temporary, ToolFailed
from pipeline.oci import Config, Descriptor, Digest, Manifest, Pinned, Repository
from pipeline.story import Story, Task

CHUNK = 2**20
AHEAD = 2
"""Layers that are decompressed at once, while another is being loaded."""


class Blobs(Protocol):
    """What is needed of a registry; every blob is verified at its end."""

    def blob(self, repository: Repository, descriptor: Descriptor) -> bytes:
        """A small blob."""

    def stream(self, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob in pieces."""


@dataclass(frozen=True, kw_only=True)
class Todo:
    """What the engine lacks of an image: the layers after the first `have`."""

    pinned: Pinned
    config: bytes
    diff_ids: tuple[Digest, ...]
    layers: tuple[Descriptor, ...]
    have: int


@dataclass(frozen=True)
class _Layer:
    content: IO[bytes]
    size: int
    """Uncompressed bytes."""
    descriptor: Descriptor


def missing(engine: Engine, pinned: Pinned, manifest: Manifest, registry: Blobs) -> Todo:
    """Compare an image with what the engine holds."""
    config = registry.blob(pinned.repository, manifest.config)
    diff_ids = Config.parse(config).diff_ids
    if len(diff_ids) != len(manifest.layers):
        raise ToolFailed(f"`{pinned}` has {len(manifest.layers)} layers, its configuration {len(diff_ids)}")
    have = _shared(diff_ids, _chains(engine))
    return Todo(pinned=pinned, config=config, diff_ids=diff_ids, layers=manifest.layers[have:], have=have)


def load(todo: Todo, *, engine: Engine, registry: Blobs, story: Story, scratch: Path) -> None:
    """Load what the engine lacks, a layer at a time."""
    scratch.mkdir(parents=True, exist_ok=True)
    title, total = f"loading {todo.pinned} into docker {engine.facts.version}", sum(layer.size for layer in todo.layers)
    with story.task(title, total) as task, _unpacking(todo, registry, scratch) as layers:
        before = ""
        for count, layer in enumerate(layers, start=todo.have + 1):
            task.note(f"layer {count} of {len(todo.diff_ids)}")
            config = todo.config if count == len(todo.diff_ids) else _partial(todo, count, engine.labels)
            _send(engine, config, count, layer, task)
            _remove(engine, before)
            before = str(Digest.of(config))
        if not todo.layers:
            _send(engine, todo.config, len(todo.diff_ids), None, task)


@contextmanager
def _unpacking(todo: Todo, registry: Blobs, scratch: Path) -> Iterator[Iterator[_Layer]]:
    """The missing layers in order, `AHEAD` of them in the making; at the end nothing is left of them."""
    stop = threading.Event()
    made: deque[Future[_Layer]] = deque()
    with ThreadPoolExecutor(AHEAD, thread_name_prefix="layer") as pool:
        try:
            yield _in_order(lambda index: pool.submit(_unpack, todo, index, registry, scratch, stop), len(todo.layers), made)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
            for future in made:
                if not future.cancelled() and not future.exception():
                    future.result().content.close()


def _in_order(start: Callable[[int], Future[_Layer]], count: int, made: deque[Future[_Layer]]) -> Iterator[_Layer]:
    rest = iter(range(count))
    made.extend(start(index) for index in islice(rest, AHEAD))
    while made:
        layer = made.popleft().result()
        made.extend(start(index) for index in islice(rest, 1))
        with layer.content:
            yield layer


def _unpack(todo: Todo, index: int, registry: Blobs, scratch: Path, stop: threading.Event) -> _Layer:
    descriptor, diff_id = todo.layers[index], todo.diff_ids[todo.have + index]
    hashed, size = hashlib.sha256(), 0
    content = tempfile.TemporaryFile(dir=scratch, buffering=CHUNK)  # noqa: SIM115 - its reader closes it
    try:
        for chunk in _plain(registry.stream(todo.pinned.repository, descriptor), descriptor):
            if stop.is_set():
                raise Interrupted("interrupted")
            hashed.update(chunk)
            size += content.write(chunk)
        if hashed.hexdigest() != diff_id.hex:
            raise ToolFailed(f"layer `{descriptor.digest}` of `{todo.pinned}` does not unpack to `{diff_id}`")
        content.seek(0)
    except BaseException as error:
        content.close()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise Temporary(f"`{scratch}` is full", hint="free some space there, or set another cache folder") from error
        raise
    return _Layer(content, size, descriptor)


def _plain(chunks: Iterator[bytes], layer: Descriptor) -> Iterator[bytes]:
    """The uncompressed content of a layer."""
    from zstandard import ZstdError

    unpacked = {"zstd": _zstd, "gzip": _gzip}.get(layer.media_type.rpartition("+")[2].rpartition(".")[2], iter)
    try:
        yield from unpacked(chunks)
    except (ZstdError, zlib.error) as error:
        raise ToolFailed(f"layer `{layer.digest}` cannot be unpacked: {error}") from error


def _zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    from zstandard import ZstdDecompressor

    reader = ZstdDecompressor().decompressobj(read_across_frames=True)
    for chunk in chunks:
        yield reader.decompress(chunk)


def _gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    reader = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        rest = chunk
        while rest:
            if reader.eof:
                reader = zlib.decompressobj(wbits=31)
            yield reader.decompress(rest)
            rest = reader.unused_data


def _partial(todo: Todo, count: int, labels: Mapping[str, str]) -> bytes:
    """The configuration of a nameless image of the first `count` layers, which holds them until the next load."""
    system, _, machine = Config.parse(todo.config).platform.partition("/")
    root = {"type": "layers", "diff_ids": [str(digest) for digest in todo.diff_ids[:count]]}
    return json.dumps({"os": system, "architecture": machine, "rootfs": root, "config": {"Labels": labels}}).encode()


def _send(engine: Engine, config: bytes, count: int, layer: _Layer | None, task: Task) -> None:
    with calling("loading an image"):
        for event in engine.client.load_image(_archive(config, count, layer, task)):  # type: ignore[no-untyped-call]
            if "error" in event:
                refuse("loading an image", str(event["error"]))
    if inspect(engine, str(Digest.of(config))) is None:
        raise ToolFailed(f"the engine took layer {count} and does not hold it")


def _remove(engine: Engine, image: str) -> None:
    if image:
        with calling("removing a partial image"):
            engine.client.remove_image(image, noprune=True)


def _archive(config: bytes, count: int, layer: _Layer | None, task: Task) -> Iterator[bytes]:
    """A docker-archive of one image of `count` layers that holds only the last of them."""
    name = f"{Digest.of(config).hex}.json"
    listed = [{"Config": name, "RepoTags": None, "Layers": [f"{number}.tar" for number in range(1, count + 1)]}]
    yield from entry("manifest.json", json.dumps(listed).encode())
    yield from entry(name, config)
    if layer:
        yield header(f"{count}.tar", layer.size)
        yield from _told(layer, task)
        yield bytes(-layer.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _told(layer: _Layer, task: Task) -> Iterator[bytes]:
    """The layer's content, told to `task` in compressed bytes, which is what the total counts."""
    sent = told = 0
    while chunk := layer.content.read(CHUNK):
        yield chunk
        sent += len(chunk)
        now = layer.descriptor.size * sent // layer.size
        task.advance(now - told)
        told = now


def entry(name: str, content: bytes) -> Iterator[bytes]:
    """A small file in a tar archive."""
    yield header(name, len(content))
    yield content + bytes(-len(content) % tarfile.BLOCKSIZE)


def header(name: str, size: int) -> bytes:
    """The header of a file in a tar archive."""
    made = tarfile.TarInfo(name)
    made.size = size
    return made.tobuf(tarfile.GNU_FORMAT)


def _chains(engine: Engine) -> list[Sequence[str]]:
    with calling("listing images"):
        keys = [str(found["Id"]) for found in engine.client.images(all=True)]
    found = (inspect(engine, key) or {} for key in keys)
    return [image.get("RootFS", {}).get("Layers") or () for image in found]


def _shared(diff_ids: Sequence[Digest], chains: Sequence[Sequence[str]]) -> int:
    """How many of the first layers are the first layers of an image that the engine holds."""
    wanted = [str(digest) for digest in diff_ids]
    return max((_common(wanted, chain) for chain in chains), default=0)


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
