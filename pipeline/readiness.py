"""What a verb needs of this machine, what of it is there, and what is to be done about the rest.

A look is cheap and changes nothing; the plan that follows from it is pure. What cannot be had, or wants root, is in the
plan as a refusal, all of it, so that it is said before anything is done.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pipeline import builders, dockerhost, services, surroundings
from pipeline.builders import Builder, Instance
from pipeline.command import Run
from pipeline.dockerhost import EngineFound, NoEngine, Silence
from pipeline.errors import PipelineError, ToolUnfit
from pipeline.install import ways
from pipeline.oci import Repository
from pipeline.services import Port
from pipeline.settings import Settings
from pipeline.toolchain import Cost, Found, Host, find, missing


class Need(StrEnum):
    """What a verb needs."""

    BUILDER = "builder"
    REGISTRY = "registry"
    ENGINE = "engine"
    CLI = "cli"
    UV = "uv"
    HADOLINT = "hadolint"
    GIT = "git"
    TRIVY = "trivy"
    COSIGN = "cosign"


_TOOLS = {
    Need.BUILDER: "buildx",
    Need.CLI: "docker",
    **{Need(name): name for name in ("uv", "hadolint", "git", "trivy", "cosign")},
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a look showed; `None`: not looked at, or not there."""

    needs: frozenset[Need]
    host: Host
    registry: str
    """Host and port."""
    tools: dict[str, Found]
    engine: EngineFound | NoEngine | None = None
    builder: Builder | None = None
    instance: Instance | None = None
    """The builder that the user named."""
    port: Port | None = None
    """What is at the registry's port, when it is on loopback."""


FREE = Cost()


class Act(StrEnum):
    """What a step does."""

    GET = "get"
    ENGINE = "start docker"
    BUILDKITD = "start buildkitd"
    CONTAINER = "start buildkitd in a container"
    REGISTRY = "start a registry"


@dataclass(frozen=True)
class Step:
    """One thing to do; `tool` is what it gets or starts."""

    act: Act
    tool: str
    cost: Cost = FREE


@dataclass(frozen=True)
class Todo:
    """What is to be done, and what cannot be: then nothing is."""

    steps: tuple[Step, ...]
    refusals: tuple[PipelineError, ...] = ()


_Item = Step | PipelineError


def look(needs: frozenset[Need], *, settings: Settings, registry: str, host: Host, run: Run) -> Seen:
    """What of `needs` is there. Raises what is wrong with the builder or the remote registry that the user named."""
    port = _registry(registry, settings=settings, host=host, run=run) if Need.REGISTRY in needs else None
    names = [_TOOLS[need] for need in sorted(needs & _TOOLS.keys())] + (["registry"] if port is Port.FREE else [])
    found = {name: find(name, host=host, cache=settings.cache, run=run) for name in names}
    builder, instance = _builder(found.get("buildx"), settings=settings, host=host, run=run)
    own = Need.BUILDER in needs and not builder and not settings.builder
    engine = dockerhost.find_engine(host.environment, run, registry=registry) if Need.ENGINE in needs or own or instance else None
    more = ["buildkitd", "runc"] if own else []
    more += ["dockerd"] if Need.ENGINE in needs and isinstance(engine, NoEngine) else []
    found |= {name: find(name, host=host, cache=settings.cache, run=run) for name in more}
    return Seen(
        needs=needs, host=host, registry=registry, tools=found, engine=engine, builder=builder, instance=instance, port=port
    )


def plan(seen: Seen) -> Todo:
    """What to do about what lacks, tools first."""
    items = [*_asked_tools(seen), *_engine(seen), *_builder_steps(seen), *_registry_steps(seen)]
    gets = {item.tool: item for item in items if isinstance(item, Step) and item.act is Act.GET}
    brought = {"runc", "docker"} if "dockerd" in gets else set()
    starts = [item for item in items if isinstance(item, Step) and item.act is not Act.GET]
    refusals = tuple(item for item in items if isinstance(item, PipelineError))
    return Todo((*(step for name, step in gets.items() if name not in brought), *starts), refusals)


def _registry(at: str, *, settings: Settings, host: Host, run: Run) -> Port | None:
    if Repository(at, "x").loopback:
        return services.registry_port(at)
    surroundings.registry(host.environment, run=run, cache=settings.cache).ping(at)
    return None


def _builder(buildx: Found | None, *, settings: Settings, host: Host, run: Run) -> tuple[Builder | None, Instance | None]:
    if buildx is None or buildx.tool is None:
        return None, None
    if settings.builder:
        return builders.users(settings.builder, buildx.tool, environment=host.environment, run=run)
    return builders.ours(buildx.tool, settings.cache), None


def _asked_tools(seen: Seen) -> Iterator[_Item]:
    for need in sorted(seen.needs & _TOOLS.keys()):
        yield from _tool(_TOOLS[need], seen)


def _tool(name: str, seen: Seen) -> Iterator[_Item]:
    if seen.tools[name].tool:
        return
    open_ways = ways(name, seen.host)
    yield Step(Act.GET, name, open_ways[0].cost) if open_ways else missing(name, seen.tools[name])


def _engine(seen: Seen) -> Iterator[_Item]:
    if Need.ENGINE in seen.needs and isinstance(seen.engine, EngineFound) and (refusal := dockerhost.over_ssh(seen.engine)):
        yield refusal
    if Need.ENGINE not in seen.needs or not isinstance(seen.engine, NoEngine):
        return
    if not _can_start(seen.engine, seen):
        yield seen.engine.error(seen.host.user)
        return
    yield from _tool("dockerd", seen)
    yield Step(Act.ENGINE, "dockerd")


def _can_start(absent: NoEngine, seen: Seen) -> bool:
    ours = absent.why is Silence.NOBODY and not absent.named and seen.host.root and seen.host.linux
    return ours and bool(seen.tools["dockerd"].tool or ways("dockerd", seen.host))


def _builder_steps(seen: Seen) -> Iterator[_Item]:
    engine = seen.engine if isinstance(seen.engine, EngineFound) else None
    if seen.instance and (refusal := builders.unreachable(seen.instance, seen.registry, engine=engine)):
        yield refusal
    if Need.BUILDER not in seen.needs or "buildkitd" not in seen.tools:
        return
    if seen.host.root and seen.host.linux and all(_obtainable(name, seen) for name in ("buildkitd", "runc")):
        yield from (*_tool("buildkitd", seen), *_tool("runc", seen))
        yield Step(Act.BUILDKITD, "buildkitd")
    elif engine:
        made = Instance(name=builders.OURS, driver="docker-container", host_network=True)
        yield builders.unreachable(made, seen.registry, engine=engine) or Step(Act.CONTAINER, "buildx")
    else:
        yield _no_builder(seen)


def _obtainable(name: str, seen: Seen) -> bool:
    return bool(seen.tools[name].tool or ways(name, seen.host))


def _no_builder(seen: Seen) -> ToolUnfit:
    remedy = "name a buildx builder of yours in PIPELINE_BUILDER, or run `nox -s setup` as root on Linux, or get a docker engine"
    absent = seen.engine if isinstance(seen.engine, NoEngine) and Need.ENGINE not in seen.needs else None
    if absent and absent.why is Silence.REFUSED:
        remedy += f" that you may use: {absent.error(seen.host.user).hint}"
    return ToolUnfit("there is no builder: our own wants root, or a docker engine to run in", hint=remedy)


def _registry_steps(seen: Seen) -> Iterator[_Item]:
    if seen.port is Port.TAKEN:
        yield services.port_taken(seen.registry)
    if seen.port is not Port.FREE:
        return
    if not seen.host.linux:
        yield ToolUnfit(
            f"no registry answers at `{seen.registry}`, and one is started by us on Linux only",
            hint=f"{builders.registry_hint(seen.registry)}, or name another in PIPELINE_CANDIDATES",
        )
        return
    yield from _tool("registry", seen)
    yield Step(Act.REGISTRY, "registry")
