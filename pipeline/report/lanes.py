"""What the checks found, as the table that `build test` ends with: each lane, what could not run and why, what to do next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.report.tables import COLOURS, gigabytes, table
from pipeline.statements import NOT_SELECTED, Checked, Lane, Outcome, Tested

if TYPE_CHECKING:
    from pipeline.check import Subject

LANES: tuple[Lane, ...] = ("cpu", "gpu")
BAD = (Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE)


def lanes_table(tested: Sequence[Tested], subjects: "Sequence[Subject]" = ()) -> RenderableType:
    """An image a row, a lane a column; below it each check that failed, and how to use what passed."""
    lanes = [lane for lane in LANES if any(one.lane == lane for one in tested)]
    known = {subject.image: subject for subject in subjects}
    made = table("image", "candidate", "size", *lanes)
    for image, of_image in _by_image(tested).items():
        made.add_row(image, *_candidate(known.get(image)), *(_cell(of_image.get(lane)) for lane in lanes))
    troubles = [Text(line) for one in tested for line in _troubles(one)]
    return Group(made, *troubles, *map(Text, _use(tested, known)))


def lanes_markdown(tested: Sequence[Tested], subjects: "Sequence[Subject]" = ()) -> str:
    """The same for a summary in CI."""
    lanes = [lane for lane in LANES if any(one.lane == lane for one in tested)]
    known = {subject.image: subject for subject in subjects}
    rows = [["image", "candidate", "size", *lanes], ["---"] * (3 + len(lanes))]
    for image, of_image in _by_image(tested).items():
        tag, size = _candidate(known.get(image))
        rows.append([image, f"`{tag}`" if tag else "", size, *(_cell(of_image.get(lane)).plain for lane in lanes)])
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    troubles = (line for one in tested for line in _troubles(one))
    listed = (f"  - {line.strip()}" if line.startswith(" ") else f"- {line}" for line in troubles)
    return "\n".join([*lines, "", *listed]).rstrip() + "\n"


def _by_image(tested: Sequence[Tested]) -> Mapping[str, Mapping[Lane, Tested]]:
    found: dict[str, dict[Lane, Tested]] = {}
    for one in tested:
        found.setdefault(one.image, {})[one.lane] = one
    return found


def _candidate(subject: "Subject | None") -> tuple[str, str]:
    if subject is None:
        return "", ""
    return subject.tag, gigabytes(subject.size) if subject.size else ""


def _cell(tested: Tested | None) -> Text:
    """`passed, 10 checks` or `failed, 1 of 10` or `not-run: no NVIDIA driver on this machine`; what a selection left out."""
    if tested is None:
        return Text("")
    checks, word = _meant(tested), tested.outcome.value
    said = f"{word}, {_count(checks)}" if tested.outcome is Outcome.PASSED else f"{word}: {_first_line(tested.reason)}"
    if tested.outcome in BAD and checks:
        said = f"{word}, {sum(check.outcome in BAD for check in checks)} of {_count(checks)}"
    left_out = len(_whole(tested)) - len(checks)
    return Text(f"{said}; {left_out} {NOT_SELECTED}" if checks and left_out else said, style=COLOURS[word])


def _whole(tested: Tested) -> list[Checked]:
    """The checks themselves, without their tests."""
    return [check for check in tested.checks if "::" not in check.name]


def _meant(tested: Tested) -> list[Checked]:
    """Those that no selection left out."""
    return [check for check in _whole(tested) if check.reason != NOT_SELECTED]


def _count(checks: Sequence[Checked]) -> str:
    return "1 check" if len(checks) == 1 else f"{len(checks)} checks"


def _troubles(tested: Tested) -> list[str]:
    """Every check that is bad, with the command that runs it again and keeps the container; rungs and what was left out."""
    lines = []
    for check in _meant(tested):
        if check.outcome in BAD:
            lines.append(f"{tested.image} {tested.lane} {check.name} {check.outcome.value}: {check.reason}")
            lines.append(f"  again: nox -s test -- {tested.image} --lane {tested.lane} -k {check.name} --keep")
        elif check.reason or check.rung:
            said = "; ".join(filter(None, (check.rung, check.reason)))
            lines.append(f"{tested.image} {tested.lane} {check.name} {check.outcome.value}: {said}")
    if tested.outcome in BAD and (tested.cause or not any(check.outcome is tested.outcome for check in _whole(tested))):
        lines.append(f"{tested.image} {tested.lane} {tested.outcome.value}: {tested.reason}")
    if tested.remedy:
        lines.append(f"  remedy: {tested.remedy}")
    lines += _ran_on(tested)
    if any(check.outcome in BAD for check in _whole(tested)):
        lines.append(f"  log: .pipeline/logs/{tested.image}-{tested.lane}.log")
    return lines


def _ran_on(tested: Tested) -> list[str]:
    """The GPUs that a lane ran on, and what the reference image did there."""
    if tested.reference is None:
        return []
    models = ", ".join(f"{count} x {name}" for name, count in Counter(gpu.name for gpu in tested.gpus).items())
    known_good = tested.reference.subject and f"reference image: {tested.reference.origin}"
    return [
        f"{tested.image} {tested.lane} ran on {models}, driver {tested.machine.get('driver', 'unknown')}; "
        f"{known_good or f'no reference image: {tested.reference.origin}'}"
    ]


def _use(tested: Sequence[Tested], known: "Mapping[str, Subject]") -> list[str]:
    """How to use the last image of which nothing is bad and something passed."""
    usable = [
        image
        for image, lanes in _by_image(tested).items()
        if any(one.outcome is Outcome.PASSED for one in lanes.values()) and not any(one.outcome in BAD for one in lanes.values())
    ]
    if not usable:
        return []
    image = usable[-1]
    subject = known.get(image)
    lines = ["", f"use it:  nox -s run -- {image}"]
    return [*lines, f"image:   {subject.pinned.repository}:{subject.tag}"] if subject and subject.tag else lines


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
