"""buildx builders: the one that the user names, or one of our own, and whether it reaches this machine's loopback.

buildx keeps an instance as one JSON file; reading it costs a millisecond where `buildx inspect` takes half a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from filelock import FileLock

from pipeline import daemons, dockerhost, services
from pipeline.command import Run
from pipeline.dockerhost import EngineFound
from pipeline.errors import ToolFailed, ToolUnfit
from pipeline.oci import Repository
from pipeline.story import Story
from pipeline.toolchain import Tool, specs

OURS = "pipeline"
"""The name of our own builder, in a buildx configuration of our own."""
CREATE_SECONDS = 300.0
PULL_SECONDS = 1800.0
"""How long BuildKit's image may take to come."""
DRIVER_HINT = "`docker buildx create --name NAME --driver docker-container --driver-opt network=host`"


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A buildx builder: the words that start buildx, its name, what to add to the environment."""

    command: tuple[str, ...]
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """What buildx notes of a builder; `host_network`: all its nodes share the host's network."""

    name: str
    driver: str
    endpoints: tuple[str, ...] = ()
    host_network: bool = False


class Reach(Enum):
    """Whether a builder's loopback is this machine's."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def instance(name: str, config: Path) -> Instance | None:
    """The builder `name` in the buildx configuration `config`."""
    data = dockerhost.read_json(config / "instances" / name)
    nodes = data.get("Nodes") or ()
    if not nodes:
        return None
    return Instance(
        name=name,
        driver=str(data.get("Driver") or "docker-container"),
        endpoints=tuple(str(node.get("Endpoint")) for node in nodes),
        host_network=all((node.get("DriverOpts") or {}).get("network") == "host" for node in nodes),
    )


def config_folder(environment: Mapping[str, str]) -> Path:
    """The user's own buildx configuration."""
    return Path(environment.get("BUILDX_CONFIG") or dockerhost.docker_config(environment) / "buildx")


def reach(found: Instance, *, engine: EngineFound | None) -> Reach:
    """Whether `found` reaches a registry on this machine's loopback; `engine` is the one that its container is in."""
    match found.driver:
        case "docker-container":
            return Reach.YES if found.host_network and (engine is None or engine.near) else Reach.NO
        case "remote" if all(each.startswith("unix://") for each in found.endpoints):
            return Reach.YES
        case "remote" if all(_on_loopback(each) for each in found.endpoints):
            return Reach.UNKNOWN
        case _:
            return Reach.NO


def users(name: str, buildx: Tool, *, environment: Mapping[str, str], run: Run) -> tuple[Builder, Instance]:
    """The builder that the user names, with the user's own configuration.

    Raises `ToolUnfit` when there is none, or its driver cannot push by digest (the engine's own BuildKit).
    """
    found = instance(name, config_folder(environment)) or _inspected(name, buildx, run)
    if found.driver == "docker":
        raise ToolUnfit(f"the builder `{name}` is the engine's own: it cannot push by digest", hint=DRIVER_HINT)
    for endpoint in found.endpoints:
        if endpoint.startswith("unix://") and found.driver == "remote" and not daemons.listens(Path(endpoint[7:])):
            raise ToolUnfit(
                f"the builder `{name}` does not answer at `{endpoint}`", hint="start its buildkitd, or name another builder"
            )
    return Builder(command=(str(buildx.path),), name=name), found


def unreachable(found: Instance, registry: str, *, engine: EngineFound | None) -> ToolUnfit | None:
    """Why a builder cannot push to `registry`, when that is on this machine's loopback and surely out of its reach."""
    if not Repository(registry, "x").loopback or reach(found, engine=engine) is not Reach.NO:
        return None
    remedy = DRIVER_HINT
    if engine and engine.apart and engine.host.startswith("unix://") and found.driver == "docker-container":
        remedy = f"have the registry in the engine, where both reach it: {registry_hint(registry)}"
        remedy += f", and a builder that shares the engine's network: {DRIVER_HINT}" if not found.host_network else ""
    return ToolUnfit(
        f"the builder `{found.name}` ({found.driver}) has another loopback than this machine: it cannot reach `{registry}`",
        hint=f"{remedy}; or name a registry that it reaches in PIPELINE_CANDIDATES",
    )


def registry_hint(registry: str) -> str:
    """How to have `registry` (host and port) in an engine; without the right to delete nothing could be pruned."""
    port = registry.rpartition(":")[2]
    command = f"docker run -d --restart always -p 127.0.0.1:{port}:5000 -e REGISTRY_STORAGE_DELETE_ENABLED=true registry:3"
    return f"`{command}`, after `nox -s setup -- --stop` where one of ours runs"


def ours(buildx: Tool, cache: Path) -> Builder | None:
    """Our own builder, if it was made and its buildkitd answers, or it is a container (which buildx starts by itself)."""
    found = instance(OURS, own_config(cache))
    if found is None:
        return None
    socket = services.buildkitd_socket(cache)
    alive = found.driver != "remote" or (found.endpoints == (f"unix://{socket}",) and daemons.listens(socket))
    return _own(buildx, cache) if alive else None


def own_config(cache: Path) -> Path:
    """The buildx configuration that holds our own builder."""
    return cache / "buildx"


def create_remote(buildx: Tool, *, cache: Path, run: Run) -> None:
    """Make our own builder on our buildkitd."""
    endpoint = f"unix://{services.buildkitd_socket(cache)}"
    _create(buildx, ("--driver", "remote", endpoint), cache=cache, run=run, timeout=CREATE_SECONDS)


def create_container(buildx: Tool, *, cache: Path, engine: EngineFound, run: Run, story: Story) -> None:
    """Make our own builder in a container that shares the host's network; raises `ToolUnfit` when its image cannot be had."""
    config = services.folder(cache) / "buildkitd-container.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(services.buildkitd_config(cache, socket=None), encoding="utf-8")
    image = f"image=moby/buildkit:v{specs()['buildkitd'].wanted}"
    words = ("--driver", "docker-container", "--driver-opt", "network=host", "--driver-opt", image, "--config", str(config))
    with story.task("making a builder in a container"):
        try:
            _create(buildx, (*words, "--bootstrap", engine.host), cache=cache, run=run, timeout=PULL_SECONDS)
        except ToolFailed as error:
            _remove(buildx, cache=cache, run=run)
            raise ToolUnfit(
                f"a builder in a container could not be made\n{error.message}",
                hint=f"name a builder of yours in PIPELINE_BUILDER ({DRIVER_HINT}), or run `nox -s setup` as root",
            ) from error


def stop_container(buildx: Tool, *, cache: Path, run: Run) -> bool:
    """Stop our own builder if it is a container; whether there was one."""
    found = instance(OURS, own_config(cache))
    if found is None or found.driver != "docker-container":
        return False
    run(buildx.path, "stop", OURS, timeout=CREATE_SECONDS, env=_own(buildx, cache).environment)
    return True


def _create(buildx: Tool, words: tuple[str, ...], *, cache: Path, run: Run, timeout: float) -> None:
    own_config(cache).mkdir(parents=True, exist_ok=True)
    with FileLock(services.folder(cache) / "builder.lock"):
        if ours(buildx, cache):
            return
        if instance(OURS, own_config(cache)):
            _remove(buildx, cache=cache, run=run)
        run(buildx.path, "create", "--name", OURS, *words, timeout=timeout, env=_own(buildx, cache).environment)


def _remove(buildx: Tool, *, cache: Path, run: Run) -> None:
    run(buildx.path, "rm", "--force", OURS, timeout=CREATE_SECONDS, env=_own(buildx, cache).environment, check=False)


def _own(buildx: Tool, cache: Path) -> Builder:
    return Builder(command=(str(buildx.path),), name=OURS, environment={"BUILDX_CONFIG": str(own_config(cache))})


def _inspected(name: str, buildx: Tool, run: Run) -> Instance:
    """A builder without a file of its own: docker's contexts are builders of the driver `docker`."""
    told = run(buildx.path, "inspect", name, timeout=CREATE_SECONDS, check=False)
    drivers = [line.split()[1] for line in told.stdout.splitlines() if line.startswith("Driver:")]
    if told.code != 0 or not drivers:
        raise ToolUnfit(f"there is no buildx builder `{name}`", hint=f"`docker buildx ls` shows them; make one by {DRIVER_HINT}")
    return Instance(name=name, driver=drivers[0])


def _on_loopback(endpoint: str) -> bool:
    scheme, _, place = endpoint.partition("://")
    return scheme == "docker-container" or place.startswith(("localhost:", "127.", "[::1]:"))
