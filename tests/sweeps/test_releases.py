"""Promotions and rollbacks that anything happens to, at any request: the same command finishes, and nothing unproved is named."""

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from pipeline.__main__ import main
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
    count: int = 0
    unproved: list[str] = field(default_factory=list)

    def place(self) -> Releases:
        """A place where what the verb needs is, and nothing else."""
        self.count += 1
        releases = self.made.elsewhere(f"sweep-{self.count}")
        self.proxy.expect()
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


def finished(releases: Releases) -> bool:
    tags = releases.tags()
    return tags.get("v1.0") == tags.get("v1.0.0") and set(tags) >= {"v1.0", "v1.0.0"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_promotion_survives_this_fault_at_each_request(promotion: Sweep, fault: int) -> None:
    sweep(promotion, fault)


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
    place = promotion.place()
    assert promotion.run(place) == 0
    for at in range(1, len(promotion.proxy.log) + 1):
        place = promotion.place()
        assert killed(promotion, place, at) in (-signal.SIGKILL, 0)
        assert promotion.run(place) == 0
        assert finished(place)
        assert promotion.unproved == []


def killed(verb: Sweep, place: Releases, at: int) -> int:
    """Run the verb in a process of its own, which dies when its `at`-th request was answered."""
    verb.proxy.expect()
    watch, seen = verb.proxy.heard, [0]
    process = place.family.start(*verb.words, **through(verb.proxy, place))

    def kill(passed: Passed) -> None:
        seen[0] += 1
        if seen[0] == at:
            process.kill()
        watch(passed)

    verb.proxy.heard = kill
    return ended(process).code
