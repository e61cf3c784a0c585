"""The engine's machine: looked at directly where the engine is here, through a container where it is elsewhere."""

import shutil
from collections.abc import Callable, Sequence

from pipeline import nvidia, turns
from pipeline.check.bench import Given, Hardware
from pipeline.command import Completed, Run
from pipeline.engine import Engine, Gpus, Spec, container
from pipeline.errors import Temporary
from pipeline.gpus import Gpu, Host
from pipeline.quarantine import Quarantine
from pipeline.settings import Settings
from pipeline.story import Story

LOOK_SECONDS = 120.0
"""Deadline of one question through a container: without persistence mode the driver wakes each GPU first."""
EVERY = "all"
"""What both ways of handing GPUs out call all of them."""
UNREAD = "the kernel's log, which is on another machine"
Look = Callable[[Callable[[], str]], Host | None]


def hardware(engine: Engine, *, settings: Settings, run: Run, story: Story) -> Hardware:
    """The GPUs of the machine that `engine` runs on."""
    name = engine.facts.machine.get("host", "")
    return Hardware(
        examine=_here(run, engine, name) if _shows_itself(engine) else _elsewhere(engine, name, story),
        give=lambda chosen: _given(chosen, engine),
        quarantine=Quarantine(settings.cache / "quarantine", name),
        turns=turns.FOLDER,
    )


def _shows_itself(engine: Engine) -> bool:
    """Whether `nvidia-smi` here tells of the engine's GPUs: also in a container that has its socket, and that program."""
    return engine.here or (engine.native and bool(nvidia.driver_version()) and shutil.which("nvidia-smi") is not None)


def _given(chosen: Sequence[Gpu], engine: Engine) -> Given:
    return Given(gpus=tuple(chosen), handed=Gpus(tuple(gpu.uuid for gpu in chosen), engine.facts.way))


def _here(run: Run, engine: Engine, name: str) -> Look:
    def look(_: Callable[[], str]) -> Host | None:
        driver = nvidia.driver_version()
        return nvidia.look(run, driver=driver, host=name, way=engine.facts.way) if driver else None

    return look


def _elsewhere(engine: Engine, name: str, story: Story) -> Look:
    def look(image: Callable[[], str]) -> Host | None:
        if not engine.facts.gpus:
            return None
        brought = image()  # what keeps an image away is no fault of the GPUs
        found = nvidia.examine(ask=lambda words: _asked(brought, words, engine, story), driver="", host=name)
        return found.model_copy(update={"unread": (*found.unread, UNREAD)})

    return look


def _asked(image: str, words: Sequence[str], engine: Engine, story: Story) -> Completed:
    spec = Spec(image=image, entrypoint=words[:1], command=words[1:], read_only=True, gpus=Gpus((EVERY,), engine.facts.way))
    with container(spec, engine=engine, story=story, title="look") as made:
        made.start()
        ended = made.wait(LOOK_SECONDS)
        said = made.log()
    if ended.timed_out:
        raise Temporary(f"`{words[0]}` in a container did not end within {LOOK_SECONDS:.0f} s")
    return Completed(argv=tuple(words), code=ended.code, stdout=said, stderr="", seconds=ended.seconds)
