"""`retry`, and the part of `test` that makes a second try possible: once, on another machine, and only for exit code 75."""

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline import context, matrix, tries
from pipeline.call import Call, content, hand_on, summarise
from pipeline.errors import InputError, Temporary

if TYPE_CHECKING:
    from pipeline.check.bench import Hardware
    from pipeline.engine import Engine
    from pipeline.statements import Tested


def retry_verb(call: Call) -> int:
    """Print the jobs of a second try as JSON; in Actions, set the output `gpu`, which is empty where none is."""
    catalog = context.load(call.settings)
    files = sorted(call.arguments.folder.glob("*.json"))
    found: Mapping[str, tries.Try] = {file.stem: tries.parse(file.name, content(file)) for file in files}
    again = matrix.again(
        catalog,
        {job: one.images for job, one in found.items()},
        {job: one.machines for job, one in found.items()},
    )
    print(matrix.compact(again))
    hand_on(call, {"gpu": matrix.include(again)})
    summarise(call, tries.markdown(found))
    return 0


def put_off(call: Call, test: "Callable[[], tuple[int, Sequence[Tested]]]") -> int:
    """Run a test; what would be exit code 75 is written for `retry`, and is 0. Every other end stays as it is."""
    if not call.images:
        raise InputError("`--later` is about the images of one job", hint="name them")
    try:
        code, tested = test()
    except Temporary as error:
        _write(call, (), error.message)
        call.console.warn(f"left for another machine: {error.message}")
        return 0
    if code != Temporary.exit_code:
        return code
    reason = next((one.reason for one in tested if _undecided(one)), "no lane says why")
    _write(call, [one for one in tested if _undecided(one)], reason)
    call.console.warn(f"left for another machine: {reason}")
    return 0


def refuse_suspected(avoid: Sequence[str], engine: "Engine", hardware: "Hardware | None") -> None:
    """Raises `Temporary` on a machine, or with a GPU, that a first try suspects."""
    if not avoid:
        return
    here = [platform.node(), engine.facts.machine.get("host", "")]
    if hardware and engine.here and (host := hardware.examine(lambda: "")):
        here += [gpu.uuid for gpu in host.gpus]
    if known := tries.suspected([_plain(name) for name in here], avoid):
        raise Temporary(f"`{known[0]}` is what the first try suspects", hint="run it on another machine")


def _undecided(tested: "Tested") -> bool:
    from pipeline.statements import Outcome

    return tested.outcome in (Outcome.INFRASTRUCTURE, Outcome.NOT_RUN)


def _write(call: Call, tested: "Sequence[Tested]", reason: str) -> None:
    from pipeline import records

    here = [platform.node(), *(one.machine.get("host", "") for one in tested)]
    gpus = [gpu.uuid for one in tested for gpu in one.gpus]
    written = tries.Try(
        images=tuple(dict.fromkeys(one.image for one in tested)) or tuple(call.images),
        machines=tuple(dict.fromkeys(map(_plain, filter(None, [*here, *gpus])))),
        reason=reason[:2000],
        cause=next((one.cause for one in tested if one.cause), ""),
    )
    records.write_text(call.arguments.later, written.model_dump_json())


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name)[:128]
