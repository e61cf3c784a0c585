"""Rules about checks: what must have passed today's checks, that nothing fails them, and that claims are true."""

import re
from collections.abc import Callable, Iterator, Sequence

from pipeline.policy.case import Case, Fault, Said, Unknown
from pipeline.policy.model import LaneAsked, Policy
from pipeline.statements import Bom, Lane, Outcome, Tested

LANES: tuple[Lane, ...] = ("cpu", "gpu")
BAD = (Outcome.FAILED, Outcome.ERROR)

Step = tuple[Callable[[Tested], bool], Callable[[Tested], str]]
"""What a result must have, and what is said of the newest when none has it."""


def lanes(policy: Policy, case: Case) -> Iterator[Said]:
    """Each required lane passed today's checks, all of them, lately, on each kind of GPU, as far up its ladders as asked."""
    for lane in LANES:
        asked, suite = policy.lanes[lane], case.expected.lanes.get(lane)
        if not asked.required:
            if not case.passed(lane):
                yield Unknown(message=f"lane `{lane}` is not required, and has no pass")
        elif suite is None or not suite.checks:
            yield Fault(
                message=f"lane `{lane}` is required, and the catalog lists no checks for it",
                solution=f"list some under `checks:` in `images/{case.image}/image.yaml`, then `nox -s lint`",
            )
        else:
            for words in asked.gpus or ((),):
                yield from _lane(asked, words, case, lane)


def failing_lane(_: Policy, case: Case) -> Iterator[Said]:
    """The newest result on each set of GPUs must not be a failure, whether its lane is required or not."""
    for lane in LANES:
        for tested in case.current(lane):
            if tested.outcome in BAD or any(check.outcome in BAD for check in tested.checks):
                yield Fault(
                    message=f"lane `{lane}` {tested.outcome.value}{_on(tested)}: {_said(tested)}", solution=_again(case, lane)
                )


def claims(_: Policy, case: Case) -> Iterator[Said]:
    """A claim that a check is named after was proved by it; any other is a component with that version."""
    listed = {name for lane in case.expected.lanes for name in _names(case, lane)}
    components = _components(case)
    for name, claim in case.expected.claims.items():
        if name in listed:
            yield from _proved(case, name, claim)
        elif components is None:
            yield Unknown(message=f"`{name}: {claim}`: nothing lists its packages")
        elif claim not in components.get(_normal(name), ()):
            found = ", ".join(components.get(_normal(name), ())) or "not in it, and no check has this name"
            yield Fault(
                message=f"it claims `{name}: {claim}`, and that is {found}",
                solution=f"write the truth under `claims:` in `images/{case.image}/image.yaml`, then "
                f"`nox -s build test scan sign -- {case.image}`",
            )


def _lane(asked: LaneAsked, words: Sequence[str], case: Case, lane: Lane) -> Iterator[Fault]:
    results = case.current(lane)
    text = _lack(_steps(asked, words, case), results) if results else _missing(case, lane)
    if text:
        kind = f" on {' or '.join(words)}" if words else ""
        yield Fault(message=f"lane `{lane}`{kind}: {text}", solution=_again(case, lane))


def _lack(steps: Sequence[Step], results: Sequence[Tested]) -> str:
    """The first step that no result takes of those that came so far, in the words of the newest; empty when one takes all."""
    for holds, says in steps:
        left = [one for one in results if holds(one)]
        if not left:
            return says(max(results, key=lambda one: one.finished))
        results = left
    return ""


def _steps(asked: LaneAsked, words: Sequence[str], case: Case) -> Sequence[Step]:
    age = f"{asked.age}".removesuffix(", 0:00:00")
    return (
        (lambda one: not words or _is_kind(one, words), lambda one: f"no result on such GPUs alone, only{_on(one)}"),
        (lambda one: one.outcome is Outcome.PASSED, lambda one: f"{one.outcome.value}{_on(one)}: {_said(one)}"),
        (lambda one: not case.lacking(one), lambda one: f"not passed, or not run{_on(one)}: {', '.join(case.lacking(one))}"),
        (lambda one: asked.rungs == "any" or not _rungs(one), lambda one: f"on a lower rung{_on(one)}: {'; '.join(_rungs(one))}"),
        (lambda one: case.now - one.finished <= asked.age, lambda one: f"passed{_on(one)} more than {age} ago"),
    )


def _missing(case: Case, lane: Lane) -> str:
    others = [one for one in case.evidence.all(Tested) if one.lane == lane]
    return "only results of other checks than today's" if others else "no result that counts"


def _is_kind(tested: Tested, words: Sequence[str]) -> bool:
    """Every GPU of the run has one of the words in its name; `A10` is not a word of `NVIDIA A100-SXM4-80GB`."""
    return bool(tested.gpus) and all(any(_has(gpu.name, word) for word in words) for gpu in tested.gpus)


def _has(name: str, word: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", name, re.IGNORECASE) is not None


def _rungs(tested: Tested) -> list[str]:
    return [f"{check.name} ({check.rung})" for check in tested.checks if check.rung and "::" not in check.name]


def _proved(case: Case, name: str, claim: str) -> Iterator[Said]:
    """Whether a lane that has not run must have is said by its own rule."""
    having = [lane for lane in LANES if lane in case.expected.lanes and name in _names(case, lane)]
    results = [tested for lane in having for tested in case.current(lane)]
    if any(_passed(tested, name, claim) for tested in results):
        return
    text = f"`{name}: {claim}` is not proved: its check has not passed with this claim"
    yield Fault(message=text, solution=_again(case, having[0])) if results else Unknown(message=text)


def _names(case: Case, lane: Lane) -> set[str]:
    return {name for _, name in case.expected.lanes[lane].checks}


def _passed(tested: Tested, name: str, claim: str) -> bool:
    outcomes = {check.outcome for check in tested.checks if check.name == name}
    return outcomes == {Outcome.PASSED} and tested.claims.get(name) == claim


def _components(case: Case) -> dict[str, set[str]] | None:
    """Versions by name as Python's index compares names; the list tells packages of one name apart by their versions alone."""
    bom = case.evidence.one(Bom)
    if bom is None:
        return None
    found: dict[str, set[str]] = {}
    for name, versions in bom.components.items():
        found.setdefault(_normal(name), set()).update(versions)
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _on(tested: Tested) -> str:
    names = sorted({gpu.name for gpu in tested.gpus})
    return f" on {', '.join(names)}" if names else ""


def _said(tested: Tested) -> str:
    return tested.reason or "; ".join(f"{check.name}: {check.reason}" for check in tested.checks if check.outcome in BAD)


def _again(case: Case, lane: Lane) -> str:
    require = " --require-gpu" if lane == "gpu" else ""
    return f"`nox -s test -- {case.image} --lane {lane}{require}`, then `nox -s sign -- {case.image}`"
