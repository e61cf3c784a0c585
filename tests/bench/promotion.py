"""What it takes to release: our copy against crane, regctl, oras and skopeo on the same registries, and the whole verb.

Each copy goes to a repository that is not there yet. The start of a process is left out: of the peers' times that of
telling their version is taken off, ours runs in a process that is warm. All take turns, so that a loud moment meets all.
"""

import gzip
import io
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pipeline import dsse
from pipeline.evidence import Key
from pipeline.oci import OCI_MANIFEST, Digest, Pinned, Repository
from pipeline.registry import Registry, attaching
from tests.bench import candidate, large
from tests.bench.build import Figure
from tests.bench.ours import Ours, ours
from tests.bench.peers import Peer, peers, versions
from tests.bench.trust import eight
from tests.faults import Fault, Kind, Passed, faulty
from tests.integration.registries import registry
from tests.integration.signing import CONFIG_TYPE, Signer, told

ALONE, EVIDENCE = "image alone", "with evidence"
LAYERS, BLOBS = 10, 11
"""The configuration is a blob too."""
SMALL, LARGE = 500_000, 20_000_000
"""Bytes of a layer: within one registry none of them is moved."""
RUNS, SLOW_RUNS, VERB_RUNS = 9, 5, 3
LATENCY = 0.02
PER_STATEMENT = 3
"""Requests."""
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An image, and the registry that copies of it go to, each also as it is called through a proxy."""

    image: Pinned
    target: str
    proxy: str = ""

    def fresh(self) -> Pinned:
        """The same image in a repository that is not there yet."""
        return Repository(self.target, f"bench/{secrets.token_hex(6)}").at(self.image.digest)

    def asked(self, pinned: Pinned) -> Pinned:
        """As those who copy call it."""
        return Repository(self.proxy or pinned.repository.host, pinned.repository.path).at(pinned.digest)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Ours and the peers, which have all started once."""

    ours: Ours
    peers: Sequence[Peer]
    starts: Mapping[str, float]

    def who(self, what: str) -> Sequence[str]:
        """Those who can do this, ourselves last."""
        return [*(one.name for one in self.peers if what == ALONE or one.evidence), "ours"]

    def seconds(self, name: str, what: str, place: Place) -> float:
        """One copy, without the start of its process; fails unless all of it has arrived."""
        target = place.fresh()
        source, to = place.asked(place.image), place.asked(target)
        wanted = {one.digest for one in Registry().referrers(place.image)} if what == EVIDENCE else set()
        took = self.ours.seconds(source, to, wanted) if name == "ours" else self._peer(name, what, source, to)
        assert {one.digest for one in Registry().referrers(target)} == wanted, name
        return took

    def medians(self, what: str, place: Place, runs: int) -> Mapping[str, float]:
        """Of so many copies by each, who take turns."""
        rounds = [{name: self.seconds(name, what, place) for name in self.who(what)} for _ in range(runs)]
        return {name: statistics.median(one[name] for one in rounds) for name in self.who(what)}

    def _peer(self, name: str, what: str, source: Pinned, target: Pinned) -> float:
        peer = next(one for one in self.peers if one.name == name)
        words = peer.evidence if what == EVIDENCE and peer.evidence else peer.alone
        return peer.seconds(*words(source, target.repository.tag("released"))) - self.starts[name]


def same(folder: Path) -> Iterator[Figure]:
    """From one repository to another of one registry: requests, bytes, seconds; and seconds with a slow line in between."""
    with registry(folder) as running, contest() as them:
        image = _image(Repository(running.host, "bench/source"), SMALL)
        count = _evidence(image, folder)
        print(f"{versions()}; {LAYERS} layers, {count} statements", file=sys.stderr)
        for name, seconds in them.starts.items():
            yield Figure(f"start of {name}, left out below", seconds * 1000, "ms")
        for what in (ALONE, EVIDENCE):
            yield from _counted(them, what, image)
        for what in (ALONE, EVIDENCE):
            yield from _timed(them, what, Place(image=image, target=running.host), "", RUNS, 0.8)
        with faulty(running.host, Fault(kind=Kind.DELAY, times=sys.maxsize, seconds=LATENCY)) as slow:
            place = Place(image=image, target=running.host, proxy=slow.host)
            for what in (ALONE, EVIDENCE):
                yield from _timed(them, what, place, f", {LATENCY * 1000:.0f} ms away", SLOW_RUNS, 0.4)


def across(folder: Path) -> Iterator[Figure]:
    """From one registry to another: bytes a second."""
    for name in ("far", "near"):
        (folder / name).mkdir()
    with registry(folder / "far") as far, registry(folder / "near") as near, contest() as them:
        image = _image(Repository(far.host, "bench/source"), LARGE)
        taken = them.medians(ALONE, Place(image=image, target=near.host), RUNS)
        rates = {name: LAYERS * LARGE / seconds / 1e6 for name, seconds in taken.items()}
        for name, rate in rates.items():
            yield Figure(f"{name}: {LAYERS * LARGE / 1e6:.0f} MB between two registries", rate, "MB/s")
        fastest = max(rate for name, rate in rates.items() if name != "ours")
        yield Figure("  ours against the fastest", rates["ours"] / fastest, "x", at_least=0.9)


def verb(folder: Path) -> Iterator[Figure]:
    """`promote` as a process from start to end: verification, decision, copy, verdict, signatures and tags."""
    with redirect_stdout(io.StringIO()):
        releases = candidate.signed(folder, LAYERS)
        taken = []
        for number in range(VERB_RUNS):
            place = releases.elsewhere(f"bench-{number}")
            started = time.perf_counter()
            assert place.call("promote", candidate.IMAGE).code == 0
            taken.append(time.perf_counter() - started)
        (digest,) = set(place.tags().values())
        arrived = len(Registry().referrers(place.repository.at(digest)))
    yield Figure("the whole verb", statistics.median(taken), "s", at_most=6.0)
    yield Figure("  statements and signatures on what it released", arrived, "")


@contextmanager
def contest() -> Iterator[Contest]:
    """Everybody ready."""
    others = peers()
    with ours() as process:
        yield Contest(ours=process, peers=others, starts={one.name: one.start() for one in others})


def _counted(them: Contest, what: str, image: Pinned) -> Iterator[Figure]:
    """What one copy asks of the registry."""
    for name in them.who(what):
        with faulty(image.repository.host) as proxy:
            them.seconds(name, what, Place(image=image, target=image.repository.host, proxy=proxy.host))
            mine, blobs = name == "ours", sum(one.up + one.down for one in proxy.asked(path="/blobs/"))
            yield Figure(f"{name}, {what}: requests", len(proxy.log), "")
            yield Figure("  bytes of blobs, both ways", blobs / 1000, "kB", at_most=0 if mine else None)
            yield Figure("  bytes of all bodies", sum(one.up + one.down for one in proxy.log) / 1000, "kB")
            if mine:
                yield from _about(proxy.log, image, what)


def _about(log: Sequence[Passed], image: Pinned, what: str) -> Iterator[Figure]:
    """What our requests are about; what is left is the list in a tag, and the empty configuration that statements share."""
    statements = [image.repository.at(one.digest) for one in Registry().referrers(image)] if what == EVIDENCE else []
    shared = Digest.of(attaching.EMPTY)
    counts = [sum(_concerns(one.path, pinned, shared) for one in log) for pinned in (image, *statements)]
    yield Figure("  about the image", counts[0], "", at_most=BLOBS + 3)
    if statements:
        yield Figure("  about a statement", max(counts[1:]), "", at_most=PER_STATEMENT)
        yield Figure("  about the list of statements", len(log) - sum(counts), "")


def _concerns(path: str, pinned: Pinned, shared: Digest) -> bool:
    manifest = Registry().manifest(pinned)
    digests = {pinned.digest, *(one.digest for one in (manifest.config, *manifest.layers))} - {shared}
    return "/referrers/" not in path and any(str(one) in unquote(path) for one in digests)


def _timed(them: Contest, what: str, place: Place, where: str, runs: int, limit: float) -> Iterator[Figure]:
    taken = them.medians(what, place, runs)
    for name, seconds in taken.items():
        yield Figure(f"{name}, {what}{where}", seconds * 1000, "ms")
    if what == EVIDENCE:
        fastest = min(seconds for name, seconds in taken.items() if name != "ours")
        yield Figure("  ours against the fastest", taken["ours"] / fastest, "x", at_most=limit)


def _image(repository: Repository, size: int) -> Pinned:
    """Ten layers that no two registries have ever seen."""
    client, contents = Registry(), [secrets.token_bytes(size) for _ in range(LAYERS)]
    about = {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(one)) for one in contents]},
        "config": {},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": told(client.upload(repository, json.dumps(about).encode()), CONFIG_TYPE),
        "layers": [told(client.upload(repository, gzip.compress(one, 0)), GZIP) for one in contents],
    }
    return client.put_manifest(repository, json.dumps(manifest).encode(), OCI_MANIFEST)


def _evidence(image: Pinned, folder: Path) -> int:
    """Statements of the sizes that a large image's have, signed by a key of ours; returns how many."""
    signer = Signer(key=Key(name="bench", roles=frozenset({"ci"})), folder=folder, cosign=Path(os.devnull))
    bundles = [signer(statement) for statement in eight(image)]
    for one in bundles:
        Registry().attach(image, dsse.BUNDLE_TYPE, one, dsse.BUNDLE_TYPE, {})
    return len(bundles)


def measured(parts: Sequence[str]) -> Iterator[Figure]:
    """The figures of the parts, each in a folder of its own."""
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            yield from PARTS[part](Path(folder))


PARTS: Mapping[str, Callable[[Path], Iterator[Figure]]] = {
    "same": same,
    "across": across,
    "verb": verb,
    "layer": large.layer,
}
