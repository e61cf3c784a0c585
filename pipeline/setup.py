"""Making a machine ready for a verb: say what it will take, get the tools that lack, start what does not run.

After the work comes another look, so that a step's success is never taken on trust.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline import builders, daemons, services
from pipeline.builders import Builder, Reach
from pipeline.command import Run
from pipeline.dockerhost import EngineFound
from pipeline.errors import PipelineError, ToolFailed, ToolUnfit
from pipeline.install import describe, get, ways, workshop
from pipeline.oci import Repository
from pipeline.readiness import Act, Need, Seen, Step, look, plan
from pipeline.settings import Settings
from pipeline.story import Story
from pipeline.toolchain import Cost, Go, Host, Tool, find, missing, require_space, specs

ROUNDS = 3
"""Looks and repairs before giving up: what an installed package brings shows only after it is there."""
MB = 10**6


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What the verb asked for, all of it there."""

    tools: Mapping[str, Tool]
    builder: Builder | None
    engine: EngineFound | None


def ensure(
    needs: frozenset[Need],
    *,
    settings: Settings,
    registry_host: Repository | str,
    run: Run,
    story: Story,
    environment: Mapping[str, str],
    host: Host | None = None,
) -> Ready:
    """See that all `needs` are met, and get or start what lacks; costs milliseconds when nothing does.

    Raises `ToolUnfit` before anything is done when something cannot be had; `Temporary` when a disk is too full or a
    registry that is not on this machine does not answer.
    """
    machine = host or Host.here(environment)
    registry = registry_host.host if isinstance(registry_host, Repository) else registry_host.partition("/")[0]
    steps: tuple[Step, ...] = ()
    for _ in range(ROUNDS):
        seen = look(needs, settings=settings, registry=registry, host=machine, run=run)
        todo = plan(seen)
        if todo.refusals:
            raise _one(todo.refusals)
        if not todo.steps:
            return _ready(seen, story)
        steps = todo.steps
        go = find("go", host=machine, cache=settings.cache, run=run).tool is not None
        _announce(steps, machine, go=go, cache=settings.cache, story=story)
        _do(steps, seen, settings=settings, run=run, story=story)
    raise ToolFailed(f"not ready after all was done: {_listed(steps)}", hint="`nox -s doctor` says what is wrong")


def stop(*, settings: Settings, run: Run, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Stop what was started from this cache, and nothing else; the names of what ran."""
    stopped = daemons.stop_all(services.folder(settings.cache))
    if builders.instance(builders.OURS, builders.own_config(settings.cache)):
        buildx = find("buildx", host=Host.here(environment), cache=settings.cache, run=run).tool
        if buildx and builders.stop_container(buildx, cache=settings.cache, run=run):
            return (*stopped, "builder container")
    return stopped


def _ready(seen: Seen, story: Story) -> Ready:
    engine = seen.engine if isinstance(seen.engine, EngineFound) else None
    local = Repository(seen.registry, "x").loopback
    if local and seen.instance and builders.reach(seen.instance, engine=engine) is Reach.UNKNOWN:
        story.warn(f"the builder `{seen.instance.name}` must share this machine's loopback to reach `{seen.registry}`")
    tools = {name: found.tool for name, found in seen.tools.items() if found.tool}
    return Ready(tools=tools, builder=seen.builder, engine=engine)


def _one(refusals: Sequence[PipelineError]) -> PipelineError:
    if len(refusals) == 1:
        return refusals[0]
    return ToolUnfit(
        "this machine lacks what cannot be had without you\n" + "\n".join(f"  {each.message}" for each in refusals),
        hint="\n      ".join(dict.fromkeys(each.hint for each in refusals)),
    )


def _announce(steps: Sequence[Step], host: Host, *, go: bool, cache: Path, story: Story) -> None:
    gets = [step for step in steps if step.act is Act.GET]
    if not gets:
        return
    cost = total(gets, host, go=go)
    how = ", ".join(f"{step.tool} ({describe(step.tool, ways(step.tool, host)[0])})" for step in gets)
    story.say(
        f"needs {cost.peak / 1000:.1f} GB while it works ({cost.disk / 1000:.1f} GB stay), {cost.download} MB of downloads "
        f"and about {max(1, round(cost.seconds / 60))} min: {how}"
    )
    for step in gets:
        way = ways(step.tool, host)[0]
        if isinstance(way, Go):
            story.say(f"`{step.tool}` is built from source; to have it sooner, {way.sooner}")
    require_space("setting up", cost.peak * MB, cache, remedy="free some, or set PIPELINE_CACHE to a folder on another disk")


def total(steps: Sequence[Step], host: Host, *, go: bool) -> Cost:
    """What all steps together take; with what Go itself takes when a step builds and `go` is not here."""
    costs = [step.cost for step in steps]
    if not go and any(isinstance(way, Go) for step in steps if step.act is Act.GET for way in ways(step.tool, host)[:1]):
        costs.append(ways("go", host)[0].cost)
    download, disk, seconds = (sum(getattr(cost, part) for cost in costs) for part in ("download", "disk", "seconds"))
    return Cost(download=download, disk=disk, seconds=seconds, peak=sum(cost.peak for cost in costs))


def _listed(steps: Sequence[Step]) -> str:
    return ", ".join(f"{step.tool} {specs()[step.tool].wanted}" if step.act is Act.GET else step.act for step in steps)


def _do(steps: Sequence[Step], seen: Seen, *, settings: Settings, run: Run, story: Story) -> None:
    cache, host = settings.cache, seen.host
    if any(step.act is Act.GET for step in steps):
        with workshop(cache=cache, host=host, run=run, story=story) as shop:
            for step in steps:
                if step.act is Act.GET and not find(step.tool, host=host, cache=cache, run=run).tool:
                    get(step.tool, shop)
    for step in steps:
        if step.act is not Act.GET:
            _start(step, seen, settings=settings, run=run, story=story)


def _start(step: Step, seen: Seen, *, settings: Settings, run: Run, story: Story) -> None:
    cache, host = settings.cache, seen.host
    tool = _got(step.tool, seen, cache=cache, run=run)
    match step.act:
        case Act.ENGINE:
            services.start_engine(tool.path, host=host, cache=cache, run=run, story=story)
        case Act.REGISTRY:
            services.start_registry(tool.path, at=seen.registry, host=host, cache=cache, story=story)
        case Act.BUILDKITD:
            services.start_buildkitd(tool.path, host=host, cache=cache, story=story)
            builders.create_remote(_got("buildx", seen, cache=cache, run=run), cache=cache, run=run)
        case Act.CONTAINER if isinstance(seen.engine, EngineFound):
            builders.create_container(tool, cache=cache, engine=seen.engine, run=run, story=story)


def _got(name: str, seen: Seen, *, cache: Path, run: Run) -> Tool:
    found = find(name, host=seen.host, cache=cache, run=run)
    if not found.tool:
        raise missing(name, found)
    return found.tool
