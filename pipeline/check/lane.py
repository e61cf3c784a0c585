"""Running a suite inside an image: the unmodified image, its own user, no network, one deadline for all of it.

The root is read-only, so that a run can change nothing that it should prove; `/tmp` is memory; the home that the image
names in `HOME` is a volume that begins with the image's own content, owners and rights. Suite and results are on another
volume, and pytest comes from this environment (`suite.library`).
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.check.bench import Given, Limits
from pipeline.check.results import Ending, Found, interpret
from pipeline.check.suite import Listed, Suite, library, packed
from pipeline.data.lane_start import FAULTY
from pipeline.engine import Container, Ended, Engine, Spec, container, describe
from pipeline.errors import ToolUnfit
from pipeline.story import Story, Task

FOLDER = "/pipeline"
"""Where everything is put inside, a volume."""
RESULT = f"{FOLDER}/out/result.json"
RESULT_LIMIT = 16 * 2**20
TMP = "rw,exec,nosuid,nodev,mode=1777,size=4g"
"""`exec`, because compilers of kernels load what they write there."""


def run_inside(
    image: str,
    suite: Suite,
    *,
    title: str,
    engine: Engine,
    story: Story,
    log: Path,
    select: str = "",
    keep: bool = False,
    limits: Limits | None = None,
    given: Given | None = None,
) -> Found:
    """Run the suite's `test_*.py` in the engine's image `image`; its output goes to `log`.

    Raises `ToolUnfit` when the image has no `python3`, or no GPUs can be handed to it.
    """
    limits, nonce, listed = limits or Limits(), secrets.token_hex(16), suite.of("test")
    home = describe(engine, image).variables.get("HOME", "")
    spec = specification(image, suite, home, nonce=nonce, select=select, limits=limits, given=given or Given())
    with container(spec, engine=engine, story=story, title=title, keep=keep) as made:
        made.put(FOLDER, packed(suite))
        made.put(FOLDER, library())
        made.start()
        with story.task(f"{title}: {counted(len(listed), 'check')}") as task:
            ended = made.wait(limits.lane, beat=lambda: _tell(made, task))
            if ended.code or ended.timed_out:
                task.fail()
        output = made.log()
        content = _result(made)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(output, encoding="utf-8")
    _refuse_without_python(ended, output, title)
    return interpret(listed, content, _ending(ended, limits), nonce=nonce, suite=suite.hash, selected=bool(select))


def environment(suite: Suite, *, nonce: str, result: str, limits: Limits, given: Given) -> Mapping[str, str]:
    """What the plugin inside is told."""
    return {
        "PIPELINE_LANE": suite.lane,
        "PIPELINE_CLAIMS": json.dumps(dict(suite.claims)),
        "PIPELINE_SUITE": suite.hash,
        "PIPELINE_NONCE": nonce,
        "PIPELINE_RESULT": result,
        "PIPELINE_GPUS": json.dumps([gpu.model_dump(mode="json") for gpu in given.gpus]),
        "PIPELINE_TEST_SECONDS": str(limits.test),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def counted(count: int, noun: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def pytest_arguments(listed: Sequence[Listed], folder: str, select: str) -> tuple[str, ...]:
    """pytest's command line for some files of a suite that lies in `folder`; a `conftest.py` there could forge what they find."""
    fixed = ("-c", f"{folder}/pytest.ini", "--rootdir", folder, "--import-mode=importlib", "--noconftest")
    shown = ("-p", "no:cacheprovider", "--continue-on-collection-errors", "--color=no", "--tb=short", "-rA", "-v")
    files = tuple(f"{folder}/suite/{check.file}" for check in listed)
    for check in listed:
        select = select.replace(check.name, check.name.replace("-", "_"))
    return (*fixed, *shown, *(("-k", select) if select else ()), *files)


def specification(image: str, suite: Suite, home: str, *, nonce: str, select: str, limits: Limits, given: Given) -> Spec:
    """The container that runs the suite's `test_*.py`; `home` is what the image names in `HOME`, or empty."""
    folders = ":".join(f"{FOLDER}/suite/{folder}" for folder in suite.folders)
    told = environment(suite, nonce=nonce, result=RESULT, limits=limits, given=given)
    return Spec(
        image=image,
        entrypoint=("python3",),
        command=(
            f"{FOLDER}/lane_start.py",
            "-p",
            "lane_plugin",
            "-p",
            "lane_fixtures",
            *pytest_arguments(suite.of("test"), FOLDER, select),
        ),
        environment={**told, "PIPELINE_FOLDERS": folders, "HOME": home or f"{FOLDER}/home"},
        read_only=True,
        tmpfs={"/tmp": TMP},
        volumes=(FOLDER, *([home] if home else ())),
        memory=limits.memory,
        gpus=given.handed,
        binds=given.binds,
    )


def _result(made: Container) -> bytes | None:
    return made.get(RESULT, RESULT_LIMIT)


def _tell(made: Container, task: Task) -> None:
    """Show which test runs, as far as the result file knows."""
    with suppress(ValueError, AttributeError):
        task.note(json.loads(_result(made) or b"{}").get("running", ""))


def _ending(ended: Ended, limits: Limits) -> Ending:
    return Ending(code=ended.code, deadline=limits.lane if ended.timed_out else None, out_of_memory=ended.out_of_memory)


def _refuse_without_python(ended: Ended, output: str, title: str) -> None:
    if ended.code == 127 and "exec python3 failed" in output:
        raise ToolUnfit(
            f"{title}: the image has no `python3`, which `test_*.py` needs",
            hint="write its checks as `service_*.py`, which run outside and start the image",
        )
    if ended.code == FAULTY:
        raise ToolUnfit(
            f"{title}: {output.strip()}",
            hint="the image needs Python 3.11, or 3.10 with `exceptiongroup` installed beside the pipeline",
        )
