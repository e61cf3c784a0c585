"""Verbs that are killed or interrupted in the middle: how they end, what they leave, and that the next one just works."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import Stack
from tests.integration.families import Family, ended, runs, tiny, until

LONG = 3600
"""Seconds that a step sleeps which only an interrupt ends: longer than a verb may take."""


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Family:
    return tiny(tmp_path, stack)


def in_the_step(family: Family, step: str) -> "subprocess.Popen[str]":
    """A build that is just in the step of `slow` that sleeps."""
    build = family.start("build", "--json")
    until(lambda: runs(step) or build.poll() is not None, "the step does not start")
    assert build.poll() is None, ended(build)
    assert len(family.left()) >= 3, "a stage and two processes"
    return build


def candidates(family: Family, image: str) -> list[str]:
    return [tag for tag in family.tags() if f"-{image}-" in tag]


def test_a_build_that_was_killed_is_done_by_the_next(family: Family) -> None:
    with in_the_step(family, family.slow(10)) as build:
        build.kill()
    assert candidates(family, "slow") == []
    again = family.call("build", "--json")
    assert (again.code, again.of("slow")["state"]) == (0, "built")
    assert len(candidates(family, "slow")) == 1
    until(lambda: family.left() == [], "buildx of the killed run goes on")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_all_that_runs(family: Family, signum: signal.Signals, code: int) -> None:
    step = family.slow(LONG)
    build = in_the_step(family, step)
    build.send_signal(signum)
    told = ended(build)
    assert told.code == code
    assert "Traceback" not in told.stderr
    assert family.left() == []
    until(lambda: not runs(step), "the builder goes on")
    assert candidates(family, "slow") == []
    family.slow(0)
    assert family.call("build").code == 0
