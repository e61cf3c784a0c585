"""Running `service_*.py` outside: pytest in a process of its own, with a fixture that starts the image as users do."""

import os
import secrets
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from pipeline.check.bench import Given, Limits
from pipeline.check.lane import counted, environment, pytest_arguments
from pipeline.check.results import Ending, Found, interpret
from pipeline.check.suite import Suite, packed
from pipeline.command import Run
from pipeline.errors import Temporary
from pipeline.story import Story

PLUGINS = ("-p", "pipeline.data.lane_plugin", "-p", "pipeline.data.lane_fixtures", "-p", "pipeline.data.service_plugin")


def run_outside(
    image: str,
    suite: Suite,
    *,
    title: str,
    run: Run,
    run_id: str,
    story: Story,
    log: Path,
    select: str = "",
    limits: Limits | None = None,
    given: Given | None = None,
) -> Found:
    """Run the suite's `service_*.py` against the engine's image `image`; their output goes to `log`."""
    limits, nonce, listed = limits or Limits(), secrets.token_hex(16), suite.of("service")
    with (
        tempfile.TemporaryDirectory(prefix="pipeline-service-") as name,
        story.task(f"{title}: {counted(len(listed), 'service check')}") as task,
    ):
        folder = Path(name)
        _unpack(packed(suite), folder)
        result = folder / "out" / "result.json"
        told = {
            **environment(suite, nonce=nonce, result=str(result), limits=limits, given=given or Given()),
            "PIPELINE_IMAGE": image,
            "PIPELINE_RUN": run_id,
            "PIPELINE_FOLDERS": os.pathsep.join(str(folder / "suite" / image) for image in suite.folders),
        }
        argv = (sys.executable, "-m", "pytest", *PLUGINS, *pytest_arguments(listed, name, select))
        ending = _run(argv, told, run=run, log=log, limits=limits)
        if ending.code:
            task.fail()
        content = result.read_bytes() if result.is_file() else None
    return interpret(listed, content, ending, nonce=nonce, suite=suite.hash, selected=bool(select))


def _run(argv: tuple[str, ...], told: Mapping[str, str], *, run: Run, log: Path, limits: Limits) -> Ending:
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = run(*argv, timeout=limits.lane, env=told, check=False)
    except Temporary:
        return Ending(code=-1, deadline=limits.lane)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    return Ending(code=128 - done.code if done.code < 0 else done.code)


def _unpack(archive: bytes, folder: Path) -> None:
    """Debian 12's Python, 3.11.2, knows no extraction filters yet; the archive is our own."""
    with tarfile.open(fileobj=BytesIO(archive)) as members:
        members.extraction_filter = getattr(tarfile, "data_filter", None)
        members.extractall(folder)
