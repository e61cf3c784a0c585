"""What is wrong outside the images: the right exit code, a remedy, nothing left, and a next run that just works."""

import os
import re
from pathlib import Path

import pytest

from tests.fakes import Answer, fake_registry
from tests.faults import Fault, Kind, faulty
from tests.integration.conftest import Stack
from tests.integration.families import Family, free_port, tiny


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Family:
    return tiny(tmp_path, stack)


@pytest.mark.parametrize("verb", ["plan", "build"])
def test_a_registry_elsewhere_that_is_down_is_temporary(family: Family, verb: str) -> None:
    told = family.call(verb, "--candidates", "registry.invalid/team")
    assert told.code == 75
    assert "registry `registry.invalid` cannot be reached" in told.stderr
    assert "hint: check the name and the network" in told.stderr


def test_a_plan_starts_no_registry(family: Family) -> None:
    port = free_port()
    told = family.call("plan", "--candidates", f"localhost:{port}/team")
    assert told.code == 75
    assert re.search(rf"registry `localhost:{port}` cannot be reached: .*Connection refused", told.stderr)
    assert "hint: check the port; `nox -s setup` starts the registry that builds write to" in told.stderr


def test_a_port_that_something_else_has_is_named_with_its_holder(family: Family) -> None:
    with fake_registry() as other:
        other.canned["GET", "/v2/"] = [Answer(404)] * 9
        told = family.call("build", "--candidates", f"{other.host}/team")
    assert told.code == 4
    assert re.search(rf"`{other.host}` is taken by `.+` \(process {os.getpid()}\), which is no registry", told.stderr)
    assert f"PIPELINE_CANDIDATES=localhost:{int(other.host.rpartition(':')[2]) + 1}/" in told.stderr


def test_an_unknown_builder_is_unfit(family: Family) -> None:
    told = family.call("build", "--builder", "nobody")
    assert told.code == 4
    assert "there is no buildx builder `nobody`" in told.stderr
    assert "buildx ls" in told.stderr


@pytest.mark.parametrize("verb", ["plan", "build", "test", "explain", "run"])
def test_an_unknown_image_is_said_with_the_nearest_name(family: Family, verb: str) -> None:
    told = family.call(verb, "ap")
    assert told.code == 2
    assert "`ap`" in told.stderr
    assert "`app`" in told.stderr


@pytest.mark.parametrize("verb", ["plan", "build", "test", "explain"])
def test_all_faults_of_a_catalog_are_said_at_once(family: Family, verb: str) -> None:
    family.image("app", "parent: oss\nclaims: {app: 1.10}\nrevisoin: 2\n", "FROM base\n")
    family.image("lab", "parent: app\nvariant: Lab\nchecks: {cpu: [it]}\n", "FROM base\n")
    told = family.call(verb, *(["app"] if verb == "explain" else []))
    assert told.code == 2
    for fault in ("app/image.yaml:2: ", "app/image.yaml:3: ", "app/image.yaml:4: ", "lab/image.yaml:3: ", "lab/image.yaml:4: "):
        assert f"images/{fault}" in told.stderr
    assert "`revision`" in told.stderr


@pytest.mark.parametrize("verb", ["test", "run"])
def test_an_engine_that_is_gone_is_unfit(family: Family, verb: str) -> None:
    told = family.call(verb, "app", DOCKER_HOST=f"unix://{family.root}/docker.sock")
    assert told.code == 4
    assert f"{family.root}/docker.sock" in told.stderr
    assert "hint: " in told.stderr


def test_a_registry_that_dies_in_the_middle_of_a_push_is_temporary(tmp_path: Path, stack: Stack) -> None:
    with faulty(stack.host, Fault(kind=Kind.GONE, method="PUT")) as proxy:
        family = tiny(tmp_path, stack, host=proxy.host)
        built = family.call("build", "--json")
    assert built.code == 75
    assert [result["state"] for result in built.data] == ["failed", "aborted"]
    assert "does not answer" in built.of("os")["reason"]
    assert family.left() == []
    with faulty(stack.host, port=int(proxy.host.rpartition(":")[2])):
        assert family.tags() == []
        assert family.call("build").code == 0
        assert len(family.tags()) == 2
