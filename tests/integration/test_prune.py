"""Making room on this machine, with a registry of the test's own and the real engine."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from pipeline import ownregistry
from pipeline.command import Runner
from pipeline.dsse import BUNDLE_TYPE
from pipeline.engine import Engine, connect
from pipeline.engine.candidates import candidates as in_engine
from pipeline.engine.candidates import forget
from pipeline.errors import NotThere, ToolFailed
from pipeline.oci import Digest, Pinned, Repository
from pipeline.registry import Registry
from pipeline.story import Silent
from pipeline.toolchain import Host
from tests.integration.conftest import Stack
from tests.integration.families import Ended, Family, free_port, own_services, tiny

LARGE = 500_000
PRUNE = ("setup", "--prune")


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Iterator[Family]:
    """A family whose registry is started by its verbs, with releases beside the candidates."""
    host, cache = f"localhost:{free_port()}", Path(tempfile.mkdtemp(prefix="prune-"))
    made = tiny(tmp_path, stack, host=host, cache=cache)
    made.environment = {**made.environment, "PIPELINE_RELEASES": f"{host}/releases"}
    with own_services(made):
        yield made
    shutil.rmtree(cache)


@pytest.fixture
def engine(stack: Stack) -> Iterator[Engine]:
    found = connect(stack.environment, run=secrets.token_hex(4))
    yield found
    found.close()


def changed(family: Family) -> Pinned:
    """Other content of `app`, built."""
    family.write("app/data", secrets.token_bytes(LARGE))
    return built(family)


def built(family: Family) -> Pinned:
    ended = family.call("build", "--json")
    assert ended.code == 0
    return Pinned.parse(ended.of("app")["pinned"])


def released(family: Family, pinned: Pinned) -> Pinned:
    """The same image under a release's tag."""
    place, registry = Repository(pinned.repository.host, "releases/family"), Registry()
    manifest = registry.manifest(pinned)
    for blob in (manifest.config, *manifest.layers):
        registry.copy_blob(pinned.repository, place, blob)
    return registry.put_manifest(place, manifest.body, manifest.media_type, "v1.0.0")


def whole(pinned: Pinned) -> bool:
    """Whether the registry still has an image, and each of its blobs."""
    registry = Registry()
    try:
        manifest = registry.manifest(pinned)
        return all(registry.blob(pinned.repository, one) for one in (manifest.config, *manifest.layers))
    except NotThere:
        return False


def attached(pinned: Pinned) -> list[bytes]:
    """The content of all that refers to an image."""
    registry = Registry()
    found = [registry.manifest(pinned.repository.at(one.digest)) for one in registry.referrers(pinned, BUNDLE_TYPE)]
    return [registry.blob(pinned.repository, one.layers[0]) for one in found]


def blobs(family: Family) -> set[Digest]:
    """What lies in the registry's folder."""
    folder = family.cache / "registry" / family.repository.host.rpartition(":")[2] / "docker/registry/v2/blobs/sha256"
    return {Digest(f"sha256:{each.name}") for each in folder.glob("*/*")}


def pruned(family: Family, *words: str) -> Ended:
    ended = family.call(*PRUNE, *words)
    assert ended.code == 0
    return ended


def test_old_candidates_go_with_their_evidence_and_all_else_stays(family: Family, engine: Engine) -> None:
    first, old, newest = changed(family), changed(family), changed(family)
    release = released(family, first)
    for pinned in (first, old, newest):
        Registry().attach(pinned, BUNDLE_TYPE, str(pinned.digest).encode(), BUNDLE_TYPE, {})
    layer = Registry().manifest(old).layers[-1].digest
    shown = pruned(family)
    assert "candidates that go: 1, " in shown.stderr
    assert f"({old.digest.hex[:12]})" in shown.stderr
    assert "nothing is removed yet" in shown.stderr
    assert all(map(whole, (first, old, newest, release)))

    before = len(blobs(family))
    assert "GB less" in pruned(family, "--apply").stderr
    assert [whole(one) for one in (first, old, newest, release)] == [True, False, True, True]
    assert [attached(one) for one in (first, newest)] == [[str(one.digest).encode()] for one in (first, newest)]
    assert layer not in blobs(family)
    assert len(blobs(family)) < before
    assert family.call("plan", "--json").of("app")["action"] == "reuse"
    left = blobs(family)
    assert (
        "candidates that go: 0, manifests that refer to them or that no tag names any more: 0" in pruned(family, "--apply").stderr
    )
    assert blobs(family) == left


def test_what_went_is_built_again_when_it_is_wanted_again(family: Family) -> None:
    content = secrets.token_bytes(LARGE)
    family.write("app/data", content)
    old, newest = built(family), changed(family)
    pruned(family, "--apply")
    assert (whole(old), whole(newest)) == (False, True)
    family.write("app/data", content)
    assert built(family) == old
    assert whole(old)


def test_a_builder_that_only_heard_of_what_went_builds_it_again(family: Family) -> None:
    family.environment = {**family.environment, "PIPELINE_BUILDER": ""}
    content = secrets.token_bytes(LARGE)
    family.write("app/data", content)
    built(family)
    assert family.call("setup", "--stop").code == 0
    shutil.rmtree(family.cache / "buildkit")
    family.write("os/data", secrets.token_bytes(1000))
    relinked = built(family)  # its layer comes from the cache in the registry, and the builder does not look into it
    changed(family)
    pruned(family, "--apply")
    assert not whole(relinked)
    family.write("app/data", content)
    assert whole(built(family))


def test_the_engines_old_candidates_go_too(family: Family, engine: Engine) -> None:
    for _ in range(2):
        last = changed(family)
        family.call("run", "app", "nothing")
    assert len(in_engine(engine, family.repository)) == 2
    assert "image in the engine that goes: " in pruned(family, "--apply").stderr
    (left,) = in_engine(engine, family.repository)
    assert Registry().resolve(family.repository.tag(left)) == last.digest
    assert forget(engine, family.repository.tag(left))


def test_nothing_goes_while_somebody_builds_or_from_a_registry_that_is_not_ours(family: Family) -> None:
    old, _ = changed(family), changed(family)
    (lock, *_) = (family.cache / "locks").glob("*.lock")
    with FileLock(lock):
        busy = family.call(*PRUNE, "--apply")
    assert busy.code == 75
    assert whole(old)
    for elsewhere in ("registry.example.com/x", "localhost:5601/candidates"):
        other = family.call(*PRUNE, "--apply", "--candidates", elsewhere)
        assert (other.code, "is not ours to prune" in other.stderr) == (2, True)
    assert family.call("setup", "--apply").code == 2
    with pytest.raises(ValueError, match="is not on loopback"):
        Registry().delete_manifest(Repository("registry.example.com", "x").at(old.digest))


def test_when_the_registry_would_remove_what_is_needed_nothing_is_removed(family: Family, stack: Stack) -> None:
    pinned = changed(family)
    loose = Registry().upload(family.repository, secrets.token_bytes(1000)).digest
    run, host = Runner(stack.environment), Host.here(stack.environment)

    def collect(*needed: Digest) -> int:
        at = family.repository.host
        return ownregistry.collect(at, needed, host=host, cache=family.cache, run=run, story=Silent())

    with pytest.raises(ToolFailed, match=f"would remove {loose}"):
        collect(loose, pinned.digest)
    assert loose in blobs(family)
    assert whole(pinned), "the registry answers again"
    assert collect(pinned.digest) > 0
    assert loose not in blobs(family)
    assert whole(pinned)
