"""The command line without root: what needs it is said before anything starts; with engine, builder and registry nothing does."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import services
from tests.integration.conftest import Stack
from tests.integration.families import Family, free_port, own_services, tiny

NOBODY = 65534
AS_NOBODY = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    # This checkout and its Python may lie where others may not look. Reading is all that this adds: no writing, no sockets.
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Iterator[Family]:
    """A family that belongs to nobody, and so does its cache."""
    cache = Path(tempfile.mkdtemp(prefix="user-"))
    made = tiny(tmp_path, stack, cache=cache)
    made.prefix = AS_NOBODY
    give(made.root, cache)
    yield made
    shutil.rmtree(cache)


def give(*folders: Path) -> None:
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def nothing_started(family: Family) -> bool:
    return family.left() == [] and not list(services.folder(family.cache).glob("*"))


def test_a_build_without_builder_and_engine_says_what_wants_root(family: Family) -> None:
    port = free_port()
    told = family.call("build", "--candidates", f"localhost:{port}/team", HOME=str(family.root), PIPELINE_BUILDER="")
    assert told.code == 4
    assert "there is no builder: our own wants root, or a docker engine to run in" in told.stderr
    assert "PIPELINE_BUILDER" in told.stderr
    assert "usermod -aG docker" in told.stderr
    assert nothing_started(family)


def test_checks_without_the_right_to_use_the_engine_say_who_may(family: Family) -> None:
    told = family.call("test", HOME=str(family.root))
    assert told.code == 4
    assert "refused user" in told.stderr
    assert "usermod -aG docker" in told.stderr
    assert nothing_started(family)


@pytest.fixture
def others_builder(tmp_path: Path, stack: Stack) -> Iterator[Path]:
    """The socket of a buildkitd that root has started, and lets everybody use."""
    cache = Path(tempfile.mkdtemp(prefix="root-"))
    with own_services(tiny(tmp_path / "root", stack, cache=cache)) as roots:
        assert roots.call("build", PIPELINE_BUILDER="").code == 0
        socket = services.buildkitd_socket(cache)
        socket.chmod(0o666)
        yield socket
    shutil.rmtree(cache)


def test_a_build_with_builder_and_registry_given_needs_no_root(family: Family, stack: Stack, others_builder: Path) -> None:
    config = {"HOME": str(family.root), "BUILDX_CONFIG": str(family.root / "buildx")}
    create = (*AS_NOBODY, *stack.builder.command, "create", "--name", "given", "--driver", "remote", f"unix://{others_builder}")
    subprocess.run(create, env={**family.environment, **config}, check=True)
    for state in ("built", "reused"):
        built = family.call("build", "--json", "--builder", "given", **config)
        assert (built.code, {result["state"] for result in built.data}) == (0, {state})
    assert {path.stat().st_uid for path in family.root.glob(".pipeline/statements/*/*")} == {NOBODY}
    assert nothing_started(family)
