"""`run` on the real engine: the caller's folder is written to as the caller, and home and user name work."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.command import Runner
from pipeline.engine import Engine, connect
from pipeline.errors import InputError
from pipeline.registry import Registry
from pipeline.run import Caller, Chosen, choose, prepare
from pipeline.settings import Settings
from pipeline.story import Silent
from tests.fakes import FakeRegistry, fake_registry
from tests.integration.images import python_image
from tests.integration.test_check import catalog

CODE = """
import getpass, os, pathlib
pathlib.Path("made").write_text("hello")
pathlib.Path.home().joinpath("kept").write_text("x")
print(os.getuid(), getpass.getuser(), os.getcwd(), os.environ.get("HF_TOKEN"))
"""


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = connect(os.environ, run="integration-run")
    yield engine
    engine.close()


@pytest.mark.parametrize("home", ["/home/user", ""], ids=["with-home", "without-home"])
def test_the_callers_folder_is_written_to_as_the_caller(
    engine: Engine, registry: FakeRegistry, tmp_path: Path, home: str
) -> None:
    pinned = python_image(registry, home=home)
    folder = tmp_path / "my project"
    folder.mkdir()
    caller = Caller(folder=folder, uid=os.getuid() or 12345, terminal=False, environment={"HF_TOKEN": "secret"})
    os.chown(folder, caller.uid, -1)
    line = prepare(
        Chosen(pinned=pinned, tag="candidate"),
        ("python3", "-c", CODE),
        caller=caller,
        engine=engine,
        registry=Registry(),
        settings=Settings(root=tmp_path, cache=tmp_path / "cache"),
        story=Silent(),
    )
    try:
        done = Runner({**os.environ, **line.environment})(*line.argv, timeout=900)
    finally:
        engine.client.remove_image(f"{pinned.repository}:candidate", force=True)
    assert done.stdout.split() == [str(caller.uid), "user", "/workspace", "secret"]
    assert (folder / "made").stat().st_uid == caller.uid
    assert "secret" not in line.argv


def test_an_image_is_found_by_reference_and_by_tag_and_a_slip_is_named(registry: FakeRegistry) -> None:
    pinned = python_image(registry)
    known = catalog(cpu=()).model_copy(update={"candidates": f"{registry.host}/team", "releases": f"{registry.host}/released"})
    assert choose(f"{pinned.repository}:candidate", known, Registry()) == Chosen(pinned=pinned, tag="candidate")
    assert choose(str(pinned), known, Registry()) == Chosen(pinned=pinned, tag="")
    assert choose("candidate", known, Registry()) == Chosen(pinned=pinned, tag="candidate")
    with pytest.raises(InputError, match="there is no image `chidl`") as error:
        choose("chidl", known, Registry())
    assert error.value.hint == "did you mean `child`?"
