"""Sending an image to an engine that reads zstd and cannot reach the registry: loopback seen from a virtual machine.

One stream in both formats that engines load: an OCI layout, which containerd's image store takes as it is, and the
`manifest.json` of a docker-archive over the same blobs, which the classic store takes. Nothing is unpacked or kept here.
"""

import json
import tarfile
from collections.abc import Iterator

from pipeline.engine.archive import Blobs, entry, header
from pipeline.engine.connection import Engine, calling, refuse
from pipeline.oci import Descriptor, Manifest, Pinned
from pipeline.story import Story, Task


def send(pinned: Pinned, manifest: Manifest, *, engine: Engine, registry: Blobs, story: Story) -> None:
    """Load the whole image."""
    title = f"sending {pinned} to docker {engine.facts.version}"
    with story.task(title, manifest.size) as task, calling(f"loading `{pinned}`"):
        for event in engine.client.load_image(stream(pinned, manifest, registry, task)):  # type: ignore[no-untyped-call]
            if "error" in event:
                refuse("loading an image", str(event["error"]))


def stream(pinned: Pinned, manifest: Manifest, registry: Blobs, task: Task) -> Iterator[bytes]:
    """The image as a tar archive."""
    yield from entry("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
    yield from entry("index.json", json.dumps(_index(pinned, manifest)).encode())
    yield from entry("manifest.json", json.dumps(_docker(manifest)).encode())
    yield from entry(_path(manifest.digest.hex), manifest.body)
    yield from entry(_path(manifest.config.digest.hex), registry.blob(pinned.repository, manifest.config))
    for layer in {layer.digest: layer for layer in manifest.layers}.values():
        yield from _blob(pinned, layer, registry, task)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _blob(pinned: Pinned, layer: Descriptor, registry: Blobs, task: Task) -> Iterator[bytes]:
    yield header(_path(layer.digest.hex), layer.size)
    for chunk in registry.stream(pinned.repository, layer):
        yield chunk
        task.advance(len(chunk))
    yield bytes(-layer.size % tarfile.BLOCKSIZE)


def _index(pinned: Pinned, manifest: Manifest) -> dict[str, object]:
    """With a name by digest, because a store keeps no nameless image."""
    name = {"io.containerd.image.name": str(pinned)}
    described = {
        "mediaType": manifest.media_type,
        "digest": str(manifest.digest),
        "size": len(manifest.body),
        "annotations": name,
    }
    return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}


def _docker(manifest: Manifest) -> list[dict[str, object]]:
    layers = [_path(layer.digest.hex) for layer in manifest.layers]
    return [{"Config": _path(manifest.config.digest.hex), "RepoTags": None, "Layers": layers}]


def _path(digest: str) -> str:
    return f"blobs/sha256/{digest}"
