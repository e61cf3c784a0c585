"""Bringing an image into the engine, and proving that it is the one that was meant.

An engine that reads zstd pulls by digest, or is sent the blobs when it cannot reach this machine's loopback (`layout`).
Another one is loaded layer by layer (`archive`). In every case the identity is compared: the config digest, or the
manifest digest where the engine keeps images by it (containerd's store).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engine import archive, layout
from pipeline.engine.connection import Engine, calling, inspect, refuse, sweep_images
from pipeline.errors import Temporary, ToolFailed
from pipeline.oci import Manifest, Pinned
from pipeline.story import Story, Task

EXPANSION = 2.5
"""Bytes on disk for one byte of a zstd layer: 2.28 for torch 2.6 with its CUDA libraries, rounded up."""


def ensure(
    pinned: Pinned, manifest: Manifest, *, engine: Engine, registry: archive.Blobs, story: Story, scratch: Path, tag: str = ""
) -> str:
    """The engine's id of `pinned`, brought there when it is not, and named `repository:tag` there.

    `scratch` holds one uncompressed layer at a time where the engine must be loaded. Raises `Temporary` when a disk is
    too full, `ToolFailed` when the engine ends with another image than was meant.
    """
    found = _present(engine, pinned, manifest)
    if found is None:
        _bring(pinned, manifest, engine=engine, registry=registry, story=story, scratch=scratch)
        found = _present(engine, pinned, manifest)
    if found is None:
        raise ToolFailed(f"the engine does not hold `{pinned}` after it was brought there")
    with calling("naming an image"):
        if tag:
            engine.client.tag(found, str(pinned.repository), tag)
        sweep_images(engine)
    return found


def _bring(pinned: Pinned, manifest: Manifest, *, engine: Engine, registry: archive.Blobs, story: Story, scratch: Path) -> None:
    if engine.facts.reads_zstd:
        _check_space(engine, pinned, [layer.size for layer in manifest.layers])
        if pinned.repository.loopback and not engine.shares_loopback:
            layout.send(pinned, manifest, engine=engine, registry=registry, story=story)
        else:
            _pull(pinned, manifest, engine, story)
        return
    todo = archive.missing(engine, pinned, manifest, registry)
    sizes = sorted(layer.size for layer in todo.layers)
    _check_space(engine, pinned, sizes + sizes[-1:] + sizes[-archive.AHEAD - 1 :])
    archive.load(todo, engine=engine, registry=registry, story=story, scratch=scratch)


def _present(engine: Engine, pinned: Pinned, manifest: Manifest) -> str | None:
    """The engine's id of exactly this image."""
    for name in (str(manifest.config.digest), str(pinned), str(manifest.digest)):
        found = inspect(engine, name)
        if found and found["Id"] in (str(manifest.config.digest), str(manifest.digest)):
            return str(found["Id"])
    return None


@dataclass(frozen=True, kw_only=True)
class Described:
    """What an image in the engine says of itself."""

    variables: Mapping[str, str]
    """The environment that it sets."""
    ports: tuple[int, ...]
    """The TCP ports that it exposes."""


def describe(engine: Engine, image: str) -> Described:
    """What the engine's image `image` sets and exposes; raises `ToolFailed` when the engine does not hold it."""
    found = inspect(engine, image)
    if found is None:
        raise ToolFailed(f"the engine does not hold `{image}` any more")
    config = found.get("Config") or {}
    pairs = (text.partition("=") for text in config.get("Env") or ())
    exposed = (text.partition("/") for text in config.get("ExposedPorts") or ())
    return Described(
        variables={name: value for name, _, value in pairs},
        ports=tuple(sorted(int(port) for port, _, kind in exposed if kind in ("", "tcp"))),
    )


def _check_space(engine: Engine, pinned: Pinned, sizes: list[int]) -> None:
    free, needed = engine.free(), int(sum(sizes) * EXPANSION)
    if free is not None and free < needed:
        raise Temporary(
            f"bringing `{pinned}` into the engine needs {needed / 1e9:.1f} GB, and its folder `{engine.facts.root}` "
            f"has {free / 1e9:.1f} GB free",
            hint="`docker system df` shows what can go; `docker image prune` removes images without a name",
        )


def _pull(pinned: Pinned, manifest: Manifest, engine: Engine, story: Story) -> None:
    with story.task(f"pulling {pinned}", manifest.size) as task, calling(f"pulling `{pinned}`"):
        events = engine.client.pull(str(pinned.repository), tag=str(pinned.digest), stream=True, decode=True)
        _follow(events, manifest, task)


def _follow(events: Iterator[Mapping[str, Any]], manifest: Manifest, task: Task) -> None:
    """Show a pull's progress; raises on the errors that arrive inside its stream, behind a status of 200."""
    sizes = {layer.digest.hex[:12]: layer.size for layer in manifest.layers}
    done: dict[str, int] = {}
    for event in events:
        if "error" in event:
            refuse("pulling", str(event["error"]))
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        if layer not in sizes:
            continue
        now = done.get(layer, 0)
        if status == "Downloading":
            now = max(now, int((event.get("progressDetail") or {}).get("current") or 0))
        elif status in ("Download complete", "Already exists", "Pull complete"):
            now = sizes[layer]
        task.advance(now - done.get(layer, 0))
        done[layer] = now
