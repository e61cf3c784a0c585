"""Families that know nothing of PyTorch: a web service without Python, and what `init` writes; both up to a release."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import names
from pipeline.dsse import BUNDLE_TYPE
from pipeline.engine import connect
from pipeline.oci import Pinned, Repository
from pipeline.registry import Registry
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT, Ended, Family, free_port
from tests.integration.images import forget

WEB = PROJECT / "tests" / "data" / "web"
POLICIES = PROJECT / "pipeline" / "data" / "family" / "policies"
NEWCOMER = Path(__file__).with_name("newcomer.sh")
ENDS_WITHIN = 3600.0
"""Seconds for a root file system and all that follows, on a machine that has other work."""


class Project:
    """A family in a folder of its own, which releases to a repository of its own on loopback."""

    def __init__(self, root: Path, stack: Stack, repository: str) -> None:
        self.family = Family(root, stack)
        shutil.rmtree(root / "images")
        path = self.family.repository.path.removesuffix("/family")
        self.candidates = Repository(stack.host, f"{path}/{repository}")
        self.releases = Repository(stack.host, f"{path}/released/{repository}")
        self.family.environment |= {
            names.ENV_CANDIDATES: f"{stack.host}/{path}",
            names.ENV_RELEASES: f"{stack.host}/{path}/released",
            names.ENV_DATABASE: f"localhost:{free_port()}/no/trivy-db:2",
        }

    def call(self, *argv: str) -> Ended:
        """A program, to its end."""
        done = subprocess.run(
            argv,
            cwd=self.family.root,
            env=self.family.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )
        print(done.stderr)
        return Ended(done.returncode, done.stdout, done.stderr)

    def verb(self, *words: str) -> Any:
        """The data of a verb that succeeds."""
        told = self.call(sys.executable, "-m", "pipeline", *words, "--json")
        assert told.code == 0, told.stdout
        return told.data

    def tags(self) -> list[str]:
        """What was released, the lists of referrers left out."""
        return sorted(tag for tag in Registry().tags(self.releases) if not tag.startswith("sha256-"))


def clean(project: Project, stack: Stack) -> None:
    engine = connect(stack.environment, run="integration-second")
    for tag in Registry().tags(project.candidates):
        if tag.startswith("v") and (digest := Registry().resolve(project.candidates.tag(tag))):
            forget(engine, project.candidates.at(digest))
    engine.close()


@pytest.fixture
def web(tmp_path: Path, stack: Stack) -> Iterator[Project]:
    project = Project(tmp_path, stack, "web")
    shutil.copytree(WEB, tmp_path, dirs_exist_ok=True)
    shutil.copytree(POLICIES, tmp_path / "policies")
    yield project
    clean(project, stack)


@pytest.fixture
def newcomer(tmp_path: Path, stack: Stack) -> Iterator[Project]:
    project = Project(tmp_path, stack, "services")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("pipeline", "-m pipeline"), ("nox", "-m nox")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    project.family.environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    yield project
    clean(project, stack)


def test_a_web_service_without_python_goes_all_the_way(web: Project) -> None:
    assert web.verb("lint") == []
    assert {step["image"]: step["action"] for step in web.verb("plan")} == {"os": "build", "web": "build"}
    built = {result["image"]: Pinned.parse(result["pinned"]) for result in web.verb("build")}
    lanes = {lane["lane"]: lane for lane in web.verb("test")}
    assert (lanes["cpu"]["outcome"], len(lanes["cpu"]["checks"])) == ("passed", 2 + 5)
    assert lanes["gpu"]["outcome"] == "not-run"
    web.verb("scan")
    web.verb("sign")
    assert [decision["allowed"] for decision in web.verb("verify", "web")] == [True]
    web.verb("promote", "web")
    assert web.tags() == ["v3.1", "v3.1.0"]
    released = Registry().resolve(web.releases.tag("v3.1.0"))
    assert released == built["web"].digest
    assert len(Registry().referrers(web.releases.at(released), BUNDLE_TYPE)) > len(("built", "tested-cpu", "bom", "findings"))
    assert web.family.left() == []


def test_a_service_that_does_not_answer_fails_its_lane(web: Project) -> None:
    dockerfile = web.family.root / "images/web/Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace('"/srv"]', '"/nothing"]'))
    web.verb("build")
    told = web.call(sys.executable, "-m", "pipeline", "test", "web", "--json")
    assert (told.code, told.of("web")["outcome"]) == (6, "failed")
    assert "✗ web-cpu: " in told.stderr


def test_a_newcomer_is_at_a_release_in_under_ten_commands(newcomer: Project) -> None:
    commands = [line for line in NEWCOMER.read_text().splitlines() if line and not line.startswith(("#", "set "))]
    assert len(commands) < 10
    told = newcomer.call("sh", str(NEWCOMER))
    assert told.code == 0, told.stdout
    assert newcomer.tags() == ["v0.1", "v0.1-web", "v0.1.0", "v0.1.0-web"]
    assert "v0.1.0-web" in told.stderr
    assert newcomer.family.left() == []
