"""The pytest plugin of the checks that run outside: the fixture `start`, beside those of `lane_plugin`.

`start` starts the image as its users do and stops it at the end of the test:

    def test_notebook(start):
        service = start("jupyter", "lab", ports=[8888], environment={"TOKEN": "x"})
        host, port = service.address(8888)
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pipeline.engine import Container, Engine, Gpus, Spec, connect, container
from pipeline.errors import Temporary
from pipeline.story import Silent

Start = Callable[..., Container]


def pytest_configure() -> None:
    """Let checks import files beside them; what is installed here comes first."""
    sys.path.extend(folder for folder in os.environ["PIPELINE_FOLDERS"].split(os.pathsep) if folder)


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start the image: `start(*command, ports=…, environment=…, binds=…, read_only=…, user=…)`; its log is shown on failure.

    What comes back has `address(port)`, `execute(command)`, `log()`, `wait(deadline)` and `running`; `command` and
    `entrypoint` are the image's own unless given. It has a network only when it has ports.
    """
    engine = connect(os.environ, run=os.environ["PIPELINE_RUN"])
    gpus = _gpus(engine)

    def begin(*command: str, **wanted: Any) -> Container:
        if wanted.get("ports"):
            refuse_out_of_reach(engine)
        spec = Spec(image=os.environ["PIPELINE_IMAGE"], command=command, gpus=gpus, **wanted)
        made = stack.enter_context(container(spec, engine=engine, story=Silent(), title="service"))
        stack.callback(lambda: print(f"--- log of {made.name}\n{made.log()}"))
        made.start()
        return made

    with ExitStack() as stack:
        stack.callback(engine.close)
        yield begin


def refuse_out_of_reach(engine: Engine) -> None:
    """Raise `Temporary` where nobody here reaches the loopback on which the engine publishes ports: no fault of the image."""
    if not engine.publishes_here:
        where = engine.facts.machine.get("host", "") or "another machine"
        raise Temporary(f"ports of a container are on the loopback of `{where}`, which is not reached from here: check there")


def _gpus(engine: Engine) -> Gpus | None:
    """Those of the lane; a lane `gpu` that was given none is a mistake of ours."""
    if os.environ["PIPELINE_LANE"] != "gpu":
        return None
    return Gpus(tuple(gpu["uuid"] for gpu in json.loads(os.environ["PIPELINE_GPUS"])), engine.facts.way)
