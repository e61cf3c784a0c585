"""One very large layer between two registries: memory alone matters."""

import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from pipeline import toolchain
from pipeline.oci import Descriptor, Digest, Repository
from tests.bench.build import Figure
from tests.bench.copying import MEMORY, copied
from tests.integration.registries import registry

SIZE = 3_000_000_000
BLOCK = 2**20


def layer(folder: Path) -> Iterator[Figure]:
    """It is laid into the first registry's files, since nobody holds 3 GB to upload them."""
    toolchain.require_space("a large layer in two registries", 2 * SIZE, folder, remedy="free some space, or set TMPDIR")
    for name in ("far", "near"):
        (folder / name).mkdir()
    with registry(folder / "far") as far, registry(folder / "near") as near:
        source = Repository(far.host, "bench/source")
        blob = _laid(folder / "far" / "data", source)
        memory, seconds = copied(source, Repository(near.host, "bench/target"), [blob])
        yield Figure(f"one layer of {SIZE / 1e9:g} GB between two registries", SIZE / seconds / 1e6, "MB/s")
        yield Figure("  peak memory of it", memory / 1e6, "MB", at_most=MEMORY)


def _laid(data: Path, repository: Repository) -> Descriptor:
    """A blob that no compression makes smaller, in the distribution registry's layout."""
    root, hashed, block = data / "docker" / "registry" / "v2", hashlib.sha256(), secrets.token_bytes(BLOCK)
    root.mkdir(parents=True, exist_ok=True)
    with (root / "new").open("wb") as file:
        for number in range(0, SIZE, BLOCK):
            piece = (number.to_bytes(8, "big") + block[8:])[: SIZE - number]
            hashed.update(piece)
            file.write(piece)
    digest = Digest(f"sha256:{hashed.hexdigest()}")
    place = root / "blobs" / "sha256" / digest.hex[:2] / digest.hex
    link = root / "repositories" / repository.path / "_layers" / "sha256" / digest.hex
    for one in (place, link):
        one.mkdir(parents=True)
    (root / "new").rename(place / "data")
    (link / "link").write_text(str(digest))
    return Descriptor("x", digest, SIZE)
