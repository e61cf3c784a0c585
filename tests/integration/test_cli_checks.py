"""`test` as people and CI use it, on real containers: what is run again, and how it ends when it is killed or left alone."""

import signal
import subprocess
from collections.abc import Iterator

import pytest

from pipeline import dockerhost, names
from pipeline.command import Runner
from pipeline.dockerhost import EngineFound
from pipeline.engine import Engine, connect
from tests.integration.conftest import Stack
from tests.integration.families import LINKS, Family, ended, until
from tests.integration.forward import forwarded
from tests.integration.images import forget, python_layer

PYTHON = (
    "FROM scratch AS unpacked\nADD python.tar /layer/\n"
    "FROM scratch\nCOPY --link --from=unpacked /layer/ /\nENV PATH=/usr/bin:/bin HOME=/home/user\nUSER 1000:0\n"
)


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Engine]:
    engine = connect(stack.environment, run="integration-cli")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, stack: Stack, engine: Engine) -> Iterator[Family]:
    """A family whose one image has Python; each test adds an image of its own."""
    family = Family(tmp_path_factory.mktemp("python"), stack)
    family.image("python", "release: false\n", PYTHON)
    family.write("python/python.tar", python_layer())
    assert family.call("build").code == 0
    yield family
    for digest in family.digests():
        forget(engine, family.repository.at(digest))


def test_a_changed_check_is_run_again_and_nothing_is_built(python: Family) -> None:
    python.image("app", "parent: python\nvariant: app\nchecks: {cpu: [it]}\n", LINKS, data=b"x")
    python.write("app/checks/test_it.py", "def test_it():\n    pass\n")
    assert python.call("build", "app").code == 0
    passed = python.call("test", "app", "--json")
    assert (passed.code, [lane["outcome"] for lane in passed.data if lane["lane"] == "cpu"]) == (0, ["passed"])
    assert "✓ app-cpu: 1 check" in passed.stderr

    python.write("app/checks/test_it.py", "def test_it():\n    assert 1 + 1 == 3\n")
    assert {step["action"] for step in python.call("plan", "app", "--json").data} == {"reuse"}
    failed = python.call("test", "app", "--json", "--lane", "cpu")
    assert (failed.code, [lane["outcome"] for lane in failed.data]) == (6, ["failed"])
    assert [lane["suite"] for lane in failed.data] != [lane["suite"] for lane in passed.data][:1]
    assert "1 + 1" in failed.stderr
    assert "✗ app-cpu: 1 check" in failed.stderr
    assert python.left() == []


def test_a_new_image_builds_and_passes_its_checks_as_it_is(python: Family) -> None:
    written = python.call("new", "fresh", "--parent", "python")
    assert (written.code, written.stdout) == (0, "")
    assert python.call("build", "fresh").code == 0
    tested = python.call("test", "fresh", "--json", "--lane", "cpu")
    assert (tested.code, [check["name"] for check in tested.data[0]["checks"]]) == (0, ["imports", "imports::test_python_starts"])


SLEEPS = "import time\n\n\ndef test_it():\n    time.sleep(600)\n"


def containers(engine: Engine, family: Family) -> list[str]:
    """The ids of what runs of this family have left, or run, in the engine."""
    listed = engine.client.containers(all=True, filters={"label": f"{names.LABEL_RUN}={family.mark}"})
    return [container["Id"] for container in listed if container["State"] in ("running", "exited", "created")]


def in_the_check(family: Family, engine: Engine, **environment: str) -> "subprocess.Popen[str]":
    """A run of the check of `app` that sleeps, whose container has just started."""
    family.image("app", "parent: python\nvariant: app\nchecks: {cpu: [it]}\n", LINKS, data=b"x")
    family.write("app/checks/test_it.py", SLEEPS)
    assert family.call("build", "app").code == 0
    # CI gives a run its id, by which its containers are found here.
    test = family.start("test", "app", "--lane", "cpu", "--json", GITHUB_RUN_ID=family.mark, **environment)
    until(lambda: asleep(engine, family) or test.poll() is not None, "the check does not start")
    assert test.poll() is None, ended(test)
    return test


def asleep(engine: Engine, family: Family) -> bool:
    listed = engine.client.containers(filters={"label": f"{names.LABEL_RUN}={family.mark}"})
    return any("pytest" in " ".join(map(str, engine.client.top(each["Id"])["Processes"])) for each in listed)


def passes_again(family: Family) -> bool:
    family.write("app/checks/test_it.py", "def test_it():\n    pass\n")
    return family.call("test", "app", "--lane", "cpu", GITHUB_RUN_ID=family.mark).code == 0


def test_the_container_of_a_killed_run_is_removed_by_the_next(python: Family, engine: Engine) -> None:
    with in_the_check(python, engine) as test:
        test.kill()
    assert len(containers(engine, python)) == 1
    assert passes_again(python)
    assert containers(engine, python) == []
    assert python.left() == []


def test_an_interrupt_leaves_no_container(python: Family, engine: Engine) -> None:
    test = in_the_check(python, engine)
    test.send_signal(signal.SIGINT)
    told = ended(test)
    assert told.code == 130
    assert "Traceback" not in told.stderr
    assert containers(engine, python) == []
    assert python.left() == []


def test_an_engine_that_dies_under_a_check_is_the_machines_fault(python: Family, engine: Engine, stack: Stack) -> None:
    found = dockerhost.find_engine(stack.environment, Runner(stack.environment))
    assert isinstance(found, EngineFound)
    at = python.root / "engine.sock"
    with forwarded(found.host.removeprefix("unix://"), at) as line:
        test = in_the_check(python, engine, DOCKER_HOST=f"unix://{at}")
        line.cut()
        told = ended(test)
    assert told.code == 75
    assert told.data[0]["outcome"] == "infrastructure"
    assert passes_again(python)
    assert containers(engine, python) == []
