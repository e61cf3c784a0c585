"""What is wrong with this machine, and the remedy for each fault; nothing is changed."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pipeline import builders, daemons, dockerhost, names, nvidia, ownregistry, services, surroundings
from pipeline.command import Run
from pipeline.diagnosis import Finding, State
from pipeline.dockerhost import EngineFound, NoEngine, Silence
from pipeline.errors import PipelineError
from pipeline.gpus import Gpu
from pipeline.install import ways
from pipeline.oci import Repository
from pipeline.quarantine import CLEAR, recorded
from pipeline.services import Port
from pipeline.settings import Settings
from pipeline.toolchain import Found, Host, find, free_space, machine_name, specs

T = TypeVar("T")

SPACE_WANTED, SPACE_LEAST = 40 * 10**9, 5 * 10**9
"""Bytes free: below the first a family of torch images may not fit (18 GB each in engine, builder and registry, and room to
work), below the second nothing does."""
READS_ZSTD = 23
"""The first Docker Engine that reads zstd layers; older ones are loaded from the registry."""
SHOWN = 10**7
"""Bytes below which a part of the cache is not worth a line."""
SETUP = "`nox -s setup`"
RESTART = "`nox -s setup -- --stop`, then `nox -s setup`"
FREE_SPACE = (
    "`docker system df` and the sizes below show what takes it; `nox -s setup -- --prune` finds candidates that nobody needs; "
    "another disk: PIPELINE_CACHE, docker's `data-root`"
)
TOOLKIT = "install the package `nvidia-container-toolkit`, then restart the engine"
AS_ROOT = "as root, or as a member of the groups that may read it (`adm`, `systemd-journal`)"


def examine(
    *,
    settings: Settings,
    registry_host: Repository | str,
    run: Run,
    environment: Mapping[str, str],
    host: Host | None = None,
    driver: Path = nvidia.DRIVER,
) -> tuple[Finding, ...]:
    """Look at all that a verb may need; a part that cannot be looked at is a fault of its own."""
    machine = host or Host.here(environment)
    registry = registry_host.host if isinstance(registry_host, Repository) else registry_host.partition("/")[0]
    engine = _attempt("engine", lambda: dockerhost.find_engine(environment, run, registry=registry))
    tools = {name: find(name, host=machine, cache=settings.cache, run=run) for name in specs()}
    return (
        Finding("python", State.OK, platform.python_version()),
        *(_tool(name, found, machine) for name, found in tools.items() if name not in _unneeded(engine, machine, settings)),
        engine if isinstance(engine, Finding) else _engine(engine, machine),
        _finding("builder", lambda: _builder(tools["buildx"], engine, registry, settings=settings, host=machine, run=run)),
        _finding("registry", lambda: _registry(registry, settings=settings, environment=environment, run=run)),
        *_services(settings.cache),
        *_space(settings.cache, engine),
        *_sizes(settings.cache),
        *_nvidia(run, driver),
        *_quarantines(settings.quarantine, machine_name(environment)),
    )


def _attempt(name: str, look: Callable[[], T]) -> T | Finding:
    try:
        return look()
    except PipelineError as error:
        return Finding(name, State.FAULT, error.message, error.hint)


def _finding(name: str, look: Callable[[], Finding]) -> Finding:
    return _attempt(name, look)


def _unneeded(engine: object, host: Host, settings: Settings) -> frozenset[str]:
    """Tools that nobody asks for here: Go by itself, what starts an engine where one answers, what only root can run."""
    ours = host.root and not settings.builder
    return frozenset({"go", *(() if ours else ("buildkitd", "runc")), *(("dockerd",) if isinstance(engine, EngineFound) else ())})


def _tool(name: str, found: Found, host: Host) -> Finding:
    spec = specs()[name]
    if found.tool:
        unfit = f"; passed over: {'; '.join(found.unfit)}" if found.unfit else ""
        return Finding(name, State.OK, f"{found.tool.version} at `{found.tool.path}`{unfit}")
    detail = f"{spec.minimum} or newer is needed ({spec.role}): {'; '.join(found.unfit) or 'not found'}"
    if ways(name, host):
        return Finding(name, State.WARN, detail, SETUP)
    return Finding(name, State.FAULT, detail, spec.remedy)


def _engine(engine: EngineFound | NoEngine, host: Host) -> Finding:
    if isinstance(engine, EngineFound):
        if refusal := dockerhost.over_ssh(engine):
            return Finding("engine", State.FAULT, refusal.message, refusal.hint)
        old = dockerhost.major(engine.version) < READS_ZSTD
        note = "; it cannot read zstd, so images are loaded into it from the registry" if old else ""
        return Finding("engine", State.OK, f"{engine.version} at `{engine.host}`{note}")
    error = engine.error(host.user)
    ours = engine.why is Silence.NOBODY and not engine.named and host.root and host.suite
    return (
        Finding("engine", State.WARN, error.message, SETUP) if ours else Finding("engine", State.FAULT, error.message, error.hint)
    )


def _builder(
    buildx: Found, engine: EngineFound | NoEngine | Finding, registry: str, *, settings: Settings, host: Host, run: Run
) -> Finding:
    if buildx.tool is None:
        return Finding("builder", State.WARN, "cannot be looked at without buildx", SETUP)
    if settings.builder:
        builder, instance = builders.users(settings.builder, buildx.tool, environment=host.environment, run=run)
        refusal = builders.unreachable(instance, registry, engine=engine if isinstance(engine, EngineFound) else None)
        if refusal:
            raise refusal
        return Finding("builder", State.OK, f"`{builder.name}` ({instance.driver}), yours")
    if builders.ours(buildx.tool, settings.cache):
        return Finding("builder", State.OK, f"`{builders.OURS}`, ours")
    if (host.root and host.linux) or isinstance(engine, EngineFound):
        return Finding("builder", State.WARN, "ours does not run", SETUP)
    return Finding("builder", State.FAULT, "there is none, and ours wants root or an engine", "name one in PIPELINE_BUILDER")


def _registry(host: str, *, settings: Settings, environment: Mapping[str, str], run: Run) -> Finding:
    if not Repository(host, "x").loopback:
        surroundings.registry(environment, run=run, cache=settings.cache).ping(host)
        return Finding("registry", State.OK, f"`{host}` answers")
    match services.registry_port(host):
        case Port.REGISTRY:
            return Finding("registry", State.OK, f"`{host}` answers")
        case Port.FREE:
            return Finding("registry", State.WARN, f"nobody listens at `{host}`", SETUP)
        case Port.TAKEN:
            raise services.port_taken(host)


def _services(cache: Path) -> Iterator[Finding]:
    folder = services.folder(cache)
    for name, pid in daemons.running(folder).items():
        stale = name == "buildkitd" and services.buildkitd_config_changed(cache)
        detail = f"process {pid}, started by us, log `{daemons.log_of(name, folder)}`"
        if stale:
            yield Finding(name, State.WARN, f"{detail}; its configuration is older than the machine's", RESTART)
        else:
            yield Finding(name, State.OK, detail)


def _space(cache: Path, engine: EngineFound | NoEngine | Finding) -> Iterator[Finding]:
    yield _free("space for the cache", cache)
    there = next(each for each in (cache, *cache.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            "cache", State.FAULT, f"`{there}` cannot be written", f"make it yours, or name another in {names.ENV_CACHE}"
        )
    root = dockerhost.engine_root(engine) if isinstance(engine, EngineFound) else None
    if root:
        yield _free("space for the engine", root)


def _free(name: str, folder: Path) -> Finding:
    free = free_space(folder)
    state = State.OK if free >= SPACE_WANTED else State.WARN if free >= SPACE_LEAST else State.FAULT
    detail = f"{free / 1e9:.0f} GB free at `{folder}`"
    if state is State.OK:
        return Finding(name, state, detail)
    return Finding(name, state, f"{detail}; a family of torch images wants {SPACE_WANTED / 1e9:.0f}", FREE_SPACE)


def _sizes(cache: Path) -> Iterator[Finding]:
    for part in sorted(each for each in cache.iterdir() if each.is_dir()) if cache.is_dir() else ():
        if (size := ownregistry.size(part)) >= SHOWN:
            yield Finding(f"cache: {part.name}", State.OK, f"{size / 1e9:.1f} GB in `{part}`")


def _nvidia(run: Run, driver: Path) -> Iterator[Finding]:
    """The driver, each GPU, the container toolkit, and all that is wrong with them."""
    if not (version := nvidia.driver_version(driver)):
        yield Finding("nvidia driver", State.OK, "none on this machine: checks of the lane `gpu` will be `not-run`")
        return
    found = nvidia.look(run, driver=version, host=platform.node())
    stale, hidden = nvidia.stale_specs(version)
    yield Finding("nvidia driver", State.OK, version)
    yield from (Finding(f"gpu {gpu.index}", State.OK, _described(gpu)) for gpu in found.gpus)
    yield _toolkit(found.toolkit)
    yield from (Finding("gpu trouble", State.FAULT, trouble.text, trouble.remedy) for trouble in found.troubles)
    yield from (Finding("cdi", State.WARN, trouble.text, trouble.remedy) for trouble in stale)
    yield from (Finding("not looked at", State.WARN, text, AS_ROOT) for text in (*found.unread, *hidden))
    if found.events:
        detail = f"{len(found.events)} errors of the hardware since the boot, the last: {found.events[-1]}"
        yield Finding("gpu errors", State.WARN, detail, "NVIDIA's list of Xid errors says what each wants; a reboot forgets them")


def _described(gpu: Gpu) -> str:
    capability = ".".join(map(str, gpu.capability))
    memory = f"{gpu.memory / 2**30:.0f} GiB, {gpu.used / 2**30:.1f} in use"
    processes = "1 process computes on it" if gpu.processes == 1 else f"{gpu.processes or 'no'} processes compute on it"
    return f"{gpu.name}, compute capability {capability}, {memory}, {processes}, {gpu.uuid}"


def _toolkit(version: str) -> Finding:
    if version:
        return Finding("nvidia toolkit", State.OK, version)
    return Finding("nvidia toolkit", State.WARN, "not found: engines need it to hand out GPUs", TOOLKIT)


def _quarantines(folder: Path, here: str) -> Iterator[Finding]:
    """Another machine's is no fault of this one: homes are shared, and engines may be elsewhere."""
    for each in recorded(folder):
        if refusal := each.refusal():
            yield Finding("quarantine", State.FAULT if each.host == here else State.WARN, refusal, CLEAR)
