"""What is known of a failure: its row in `failures.yaml`, from what the failing checks said."""

from collections.abc import Collection, Sequence

from pipeline.check.results import Found
from pipeline.engine import Engine, Spec, container
from pipeline.errors import PipelineError
from pipeline.failures import Failures, Row
from pipeline.statements import Checked, Outcome
from pipeline.story import Story

DRIVER_FILES = ("libcuda.so", "libnvidia-ml.so")
"""What a driver brings and no image may hold."""
LOOK = f"""\
import os, sys
names = {DRIVER_FILES!r}
sys.exit(any(name.startswith(names) for _, _, files in os.walk("/") for name in files))
"""
NO_CHOICE = "no check was selected"


def of_checks(found: Found, failures: Failures, facts: Collection[str] = ()) -> Row | None:
    """The row that knows the first failure that any row knows; else the one of the run's exit status."""
    bad = (check for check in found.checks if check.outcome not in (Outcome.PASSED, Outcome.NOT_RUN))
    rows = (failures.find(f"{check.reason}\n{check.detail}", facts=facts) for check in bad)
    known = next((row for row in rows if row), None)
    return known or failures.find(found.trouble[1] if found.trouble else "", code=found.code, facts=facts)


def of_error(error: PipelineError, failures: Failures) -> Row | None:
    """The row that knows an error of the engine."""
    return failures.find(error.message)


def summary(checks: Sequence[Checked], outcome: Outcome) -> str:
    """The first check that made a lane what it is; empty for a pass."""
    if outcome is Outcome.PASSED:
        return ""
    return next((f"{check.name}: {check.reason}" for check in checks if check.outcome is outcome), NO_CHOICE)


def driver_in_image(image: str, engine: Engine, story: Story) -> bool:
    """Whether a part of a driver lies in the image itself, where one of the machine belongs; started without GPUs."""
    spec = Spec(image=image, entrypoint=("python3",), command=("-c", LOOK), user="0:0", read_only=True)
    with container(spec, engine=engine, story=story, title="driver-files") as made:
        made.start()
        return made.wait(120).code == 1
