"""Promotions and rollbacks that anything happens to, at any request: the same command finishes, and nothing unproved is named."""

import secrets
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from pipeline.__main__ import main
from pipeline.oci import Manifest, Repository
from pipeline.registry import Registry
from tests.faults import Fault, Faulty, Passed, each_fault, faulty
from tests.integration.conftest import Stack
from tests.integration.families import ended
from tests.integration.releasing import Releases, proved, through

KNOWN = {0, 5, 7, 8, 9, 75}
"""Exit codes that say what is wrong; none of them is a bug's."""
FAULTS = {str(fault).removesuffix("-1"): number for number, fault in enumerate(each_fault(1))}


@dataclass
class Sweep:
    """One verb in this process, through a proxy, again and again."""

    made: Releases
    proxy: Faulty
    words: tuple[str, ...]
    seed: Repository | None = None
    """What is at each place before; nothing by default."""
    unproved: list[str] = field(default_factory=list)

    def place(self) -> Releases:
        """A place where what the verb needs is, and nothing else."""
        releases = self.made.elsewhere(f"sweep-{secrets.token_hex(4)}")
        if self.seed:
            copied(self.seed, releases.repository)
        self.proxy.heard = lambda passed: self._watch(releases, passed)
        return releases

    def run(self, releases: Releases, *faults: Fault) -> int:
        self.proxy.expect(*faults)
        return call(releases, self.proxy, *self.words)

    def _watch(self, releases: Releases, passed: Passed) -> None:
        """At no moment does a floating tag name what is not proved."""
        if passed.method == "PUT" and passed.path.endswith("/manifests/v1.0"):
            named = Registry().resolve(releases.repository.tag("v1.0"))
            if named and not proved(releases.repository.at(named)):
                self.unproved.append(f"{releases.repository}: {named}")


def call(releases: Releases, proxy: Faulty, *words: str) -> int:
    environment: Mapping[str, str] = {**releases.family.environment, **through(proxy, releases)}
    return main([*words, "--root", str(releases.family.root)], environment)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Releases:
    return Releases(tmp_path_factory.mktemp("made"), stack)


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Faulty]:
    with faulty(stack.host) as running:
        yield running


@pytest.fixture
def promotion(made: Releases, proxy: Faulty) -> Sweep:
    return Sweep(made=made, proxy=proxy, words=("promote", "core"))


@pytest.fixture(scope="module")
def twice(made: Releases) -> Repository:
    """A place with two releases, which others are copies of."""
    place = made.elsewhere("twice")
    assert place.call("promote", "core").code == 0
    place.change()
    assert place.call("promote", "core").code == 0
    return place.repository


@pytest.fixture
def rollback(made: Releases, proxy: Faulty, twice: Repository) -> Sweep:
    return Sweep(made=made, proxy=proxy, words=("rollback", "core", "--to", "1.0.0", "--reason", "it burns"), seed=twice)


def copied(source: Repository, target: Repository) -> None:
    """All images, with what refers to them and with their tags."""
    registry = Registry()
    for tag in sorted(registry.tags(source)):
        if tag.startswith("sha256-"):
            continue
        digest = registry.resolve(source.tag(tag))
        assert digest is not None
        body, kind = registry.raw_manifest(source.at(digest))
        attached = [registry.raw_manifest(source.at(one.digest))[0] for one in registry.referrers(source.at(digest))]
        for manifest in map(Manifest.parse, (body, *attached)):
            for blob in (manifest.config, *manifest.layers):
                registry.copy_blob(source, target, blob)
        registry.put_manifest(target, body, kind)
        registry.adopt(target.at(digest), attached)
        registry.put_manifest(target, body, kind, tag)


def finished(releases: Releases) -> bool:
    tags = releases.tags()
    return tags.get("v1.0") == tags.get("v1.0.0") and set(tags) >= {"v1.0", "v1.0.0"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_promotion_survives_this_fault_at_each_request(promotion: Sweep, fault: int) -> None:
    sweep(promotion, fault)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_rollback_survives_this_fault_at_each_request(rollback: Sweep, fault: int) -> None:
    sweep(rollback, fault)


def sweep(verb: Sweep, fault: int) -> None:
    place = verb.place()
    assert verb.run(place) == 0
    requests = len(verb.proxy.log)
    assert requests > 20
    for at in range(1, requests + 1):
        place = verb.place()
        this = each_fault(at)[fault]
        assert verb.run(place, this) in KNOWN, this
        assert verb.run(place) == 0, this
        assert finished(place), this
        assert verb.unproved == [], this


def test_a_promotion_survives_its_death_after_each_request(promotion: Sweep) -> None:
    deaths(promotion)


def test_a_rollback_survives_its_death_after_each_request(rollback: Sweep) -> None:
    deaths(rollback)


def deaths(verb: Sweep) -> None:
    place = verb.place()
    assert verb.run(place) == 0
    for at in range(1, len(verb.proxy.log) + 1):
        place = verb.place()
        assert killed(verb, place, at) in (-signal.SIGKILL, 0)
        assert verb.run(place) == 0
        assert finished(place)
        assert verb.unproved == []


def killed(verb: Sweep, place: Releases, at: int) -> int:
    """Run the verb in a process of its own, which dies when its `at`-th request was answered."""
    verb.proxy.expect()
    watch, seen = verb.proxy.heard, [0]

    def kill(passed: Passed) -> None:
        seen[0] += 1
        if seen[0] == at:
            process.kill()
        watch(passed)

    verb.proxy.heard = kill
    process = place.family.start(*verb.words, **through(verb.proxy, place))
    return ended(process).code
