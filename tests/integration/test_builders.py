"""More than one builder: two BuildKits of their own, each alone and both as the nodes of one builder, give the same digests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import daemons, names, services
from pipeline.story import Silent
from pipeline.toolchain import Host
from tests.integration.conftest import Stack
from tests.integration.families import Family, tiny
from tests.integration.registries import tool

NODES = ("one", "two")


@pytest.fixture(scope="module")
def sockets() -> Iterator[dict[str, Path]]:
    """Two buildkitd, each with a cache of its own."""
    folder = Path(tempfile.mkdtemp(prefix="nodes-"))
    try:
        for node in NODES:
            services.start_buildkitd(tool("buildkitd"), host=Host.here(os.environ), cache=folder / node, story=Silent())
        yield {node: services.buildkitd_socket(folder / node) for node in NODES}
    finally:
        for node in NODES:
            daemons.stop_all(services.folder(folder / node))
        shutil.rmtree(folder)


@pytest.fixture
def family(tmp_path: Path, stack: Stack, sockets: dict[str, Path]) -> Family:
    """Builders of the user's: `one`, `two`, and `both`."""
    family = tiny(tmp_path, stack)
    family.environment |= {"BUILDX_CONFIG": str(tmp_path / "buildx")}
    for node, socket in sockets.items():
        buildx(family, stack, "create", "--name", node, "--driver", "remote", f"unix://{socket}")
        more = ("--append",) if node == "two" else ()
        buildx(family, stack, "create", "--name", "both", *more, "--driver", "remote", f"unix://{socket}")
    return family


def buildx(family: Family, stack: Stack, *words: str) -> str:
    command = [*stack.builder.command, *words]
    return subprocess.run(command, env=family.environment, check=True, capture_output=True, text=True).stdout


def built(family: Family, builder: str) -> dict[str, str]:
    """The digests of the family, built by this builder in a repository of its own."""
    to = f"{family.repository.host}/integration/{family.mark}/{builder}"
    told = family.call("build", "--json", "--builder", builder, **{names.ENV_CANDIDATES: to})
    assert told.code == 0
    assert {result["state"] for result in told.data} == {"built"}
    return {result["image"]: result["pinned"].partition("@")[2] for result in told.data}


def records(family: Family, stack: Stack, node: str) -> int:
    """How many results the cache of one node holds."""
    return len(buildx(family, stack, "du", "--builder", node, "--format", "{{.ID}}").splitlines())


def test_any_builder_gives_the_same_digests(family: Family) -> None:
    assert built(family, "one") == built(family, "two") == built(family, "both")
    assert family.left() == []


def test_a_builder_of_two_nodes_builds_each_image_once(family: Family, stack: Stack) -> None:
    before = {node: records(family, stack, node) for node in NODES}
    built(family, "both")
    grown = [node for node in NODES if records(family, stack, node) > before[node]]
    assert len(grown) == 1


def test_a_builder_whose_node_is_gone_is_refused_before_anything_is_built(
    family: Family, stack: Stack, sockets: dict[str, Path]
) -> None:
    buildx(family, stack, "create", "--name", "half", "--driver", "remote", f"unix://{sockets['one']}")
    buildx(family, stack, "create", "--name", "half", "--append", "--driver", "remote", f"unix://{family.root}/nobody.sock")
    told = family.call("build", "--builder", "half")
    assert told.code == 4
    assert "does not answer" in told.stderr
    assert family.tags() == []
