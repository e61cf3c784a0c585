"""The engine, the registry and buildkitd of this machine: what answers already, and how ours are run.

What answers is used as it is. Ours listen on loopback or on a Unix socket only, and keep their data in the cache folder.
"""

import json
import shutil
import time
from contextlib import suppress
from enum import Enum
from pathlib import Path

from pipeline import daemons
from pipeline.command import Run
from pipeline.daemons import Reply, Service
from pipeline.dockerhost import DOCKER_SOCKET
from pipeline.errors import InputError, ToolUnfit
from pipeline.story import Story
from pipeline.toolchain import Host

LOOKS = 3
SOCKET_LIMIT = 100
"""Bytes of a Unix socket's path; Linux takes 107."""
CACHE_LEAST, CACHE_MOST, CACHE_SHARE = 15 * 10**9, 20 * 10**9, 4
"""BuildKit's cache gets one part in four of its disk, within these bounds in bytes. A torch family was seen at 22.8 GB: 5.9 of
downloads, 5.4 each of unpacked stages and of their linked copies, the rest compressed. What a running build uses is not
collected before its end, so the cache may for a while be larger by one such family."""
FREE_LEAST = 10 * 10**9
"""Bytes of its disk that BuildKit's cache leaves free, whatever it may use."""
CERTIFICATES = Path("/etc/docker/certs.d")
"""Where docker keeps the certificate authorities of single registries; our buildkitd reads the same."""


class Port(Enum):
    """What is at a loopback registry's port."""

    REGISTRY = "a registry"
    FREE = "nothing"
    TAKEN = "something else"


def folder(cache: Path) -> Path:
    """Where records, sockets, configurations and logs of our services are."""
    return cache / "services"


def engine_service(dockerd: Path, *, host: Host, cache: Path, socket: Path, options: tuple[str, ...] = ()) -> Service:
    """Our dockerd on `socket`; `options` are added to its command line."""
    # A process id file of ours: the default one may be from before a reboot and name a process that is another's now.
    pidfile = folder(cache) / "dockerd.pid"

    def prepare() -> None:
        pidfile.unlink(missing_ok=True)
        _forget_dead("containerd", Path("/var/run/docker/containerd/containerd.pid"))

    return Service(
        name="dockerd",
        argv=(str(dockerd), "--pidfile", str(pidfile), "-H", f"unix://{socket}", *options),
        environment=daemons.handed_down(host),
        answers=lambda: _ok(daemons.ask(socket, "/_ping")),
        prepare=prepare,
    )


def start_engine(dockerd: Path, *, host: Host, cache: Path, run: Run, story: Story) -> None:
    """Start the engine at docker's default socket, by systemd where that rules; one that is just starting is waited for."""
    if host.systemd:
        with story.task("starting docker"):
            run("systemctl", "start", "docker", timeout=daemons.READY_SECONDS)
        return
    service = engine_service(dockerd, host=host, cache=cache, socket=Path(DOCKER_SOCKET.removeprefix("unix://")))
    if other := _alive("dockerd", Path("/var/run/docker.pid")):
        daemons.wait(service, other, folder(cache))
        return
    daemons.start(service, folder=folder(cache), story=story)


def registry_port(host: str) -> Port:
    """What is at a loopback registry's port, on each address that its name stands for.

    The port of a process that is just dying accepts for an instant, and nobody holds it: then it is looked at again.
    """
    for _ in range(LOOKS):
        replies = [daemons.ask(address, "/v2/", host=host) for address in _addresses(host)]
        states = {Port.REGISTRY if reply.status in (200, 401) else Port.TAKEN for reply in replies if reply}
        if Port.TAKEN not in states:
            return Port.REGISTRY if states else Port.FREE
        if daemons.holder(_port(host)):
            break
        time.sleep(0.1)
    return Port.TAKEN


def port_taken(host: str) -> ToolUnfit:
    """What to tell the user when something else listens at the registry's port."""
    holder = daemons.holder(_port(host))
    who = f"`{holder[1]}` (process {holder[0]})" if holder else "another user's process"
    return ToolUnfit(
        f"`{host}` is taken by {who}, which is no registry",
        hint=f"stop it, or choose another port: `export PIPELINE_CANDIDATES=localhost:{_port(host) + 1}/candidates`",
    )


def start_registry(binary: Path, *, at: str, host: Host, cache: Path, story: Story) -> None:
    """Start a distribution registry on loopback, with its data in the cache folder."""
    config = registry_config(at, cache)
    settings = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(registry_data(at, cache))}, "delete": {"enabled": True}},
        "http": {"addr": _listening(at)},
    }
    service = Service(
        name=registry_name(at),
        argv=(str(binary), "serve", str(config)),
        environment={**daemons.handed_down(host), "OTEL_TRACES_EXPORTER": "none"},
        answers=lambda: registry_port(at) is Port.REGISTRY,
        prepare=lambda: config.write_text(json.dumps(settings), encoding="utf-8"),
    )
    daemons.start(service, folder=folder(cache), story=story)


def registry_name(at: str) -> str:
    """What our registry at this address is called among our services."""
    return f"registry-{_port(at)}"


def registry_config(at: str, cache: Path) -> Path:
    """Its configuration."""
    return folder(cache) / f"{registry_name(at)}.yml"


def registry_data(at: str, cache: Path) -> Path:
    """The folder of its data."""
    return cache / "registry" / str(_port(at))


def kept(host: str, cache: Path) -> bool:
    """Whether a registry of ours has kept anything that was written to `host`, which has a port."""
    return registry_data(host, cache).is_dir()


def buildkitd_socket(cache: Path) -> Path:
    """Where our buildkitd listens."""
    return folder(cache) / "buildkitd.sock"


def start_buildkitd(binary: Path, *, host: Host, cache: Path, story: Story) -> None:
    """Start buildkitd as root, with a limit on its cache and the machine's certificate authorities."""
    socket, config = buildkitd_socket(cache), folder(cache) / "buildkitd.toml"
    if len(str(socket).encode()) > SOCKET_LIMIT:
        raise InputError(f"the path of the cache folder is too long for a socket: `{socket}`", hint="set PIPELINE_CACHE")
    text = buildkitd_config(cache, socket=socket)
    service = Service(
        name="buildkitd",
        argv=(str(binary), "--config", str(config)),
        environment=daemons.handed_down(host),
        answers=lambda: daemons.listens(socket),
        prepare=lambda: config.write_text(text, encoding="utf-8"),
    )
    daemons.start(service, folder=folder(cache), story=story)


def buildkitd_config(cache: Path, *, socket: Path | None) -> str:
    """buildkitd.toml; without `socket` that of a container, which has folders of its own.

    Registries on loopback are plain HTTP to BuildKit unless told otherwise, so none is named.
    """
    cache.mkdir(parents=True, exist_ok=True)
    most = min(max(shutil.disk_usage(cache).total // CACHE_SHARE, CACHE_LEAST), CACHE_MOST)
    lines = [f"[worker.oci]\ngc = true\nmaxUsedSpace = {most}\nminFreeSpace = {FREE_LEAST}"]
    if socket:
        lines.insert(0, f"root = {json.dumps(str(cache / 'buildkit'))}\n[grpc]\naddress = {json.dumps([f'unix://{socket}'])}")
        lines.append("[worker.containerd]\nenabled = false")
    lines += [
        f"[registry.{json.dumps(each.name)}]\ntlsconfigdir = {json.dumps([str(each)])}" for each in _certificates() if socket
    ]
    return "\n".join(lines) + "\n"


def buildkitd_config_changed(cache: Path) -> bool:
    """Whether our buildkitd was started with another configuration than it would get now (new certificates)."""
    written = folder(cache) / "buildkitd.toml"
    return written.exists() and written.read_text(encoding="utf-8") != buildkitd_config(cache, socket=buildkitd_socket(cache))


def _certificates() -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in CERTIFICATES.iterdir() if each.is_dir())
    return []


def _ok(reply: Reply | None) -> bool:
    return reply is not None and reply.status == 200


def _addresses(host: str) -> tuple[tuple[str, int], ...]:
    name = host.rpartition(":")[0].strip("[]")
    return tuple((each, _port(host)) for each in (("127.0.0.1", "::1") if name == "localhost" else (name,)))


def _listening(host: str) -> str:
    """Where a registry listens that is to answer as `host`, in Go's words."""
    address, port = _addresses(host)[0]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _port(host: str) -> int:
    port = host.rpartition(":")[2]
    if not port.isdecimal():
        raise InputError(f"the registry `{host}` has no port", hint="write it, such as `localhost:5601`")
    return int(port)


def _alive(name: str, pidfile: Path) -> int:
    with suppress(OSError, ValueError):
        pid = int(pidfile.read_text(encoding="utf-8"))
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == name and daemons.birth(pid):
            return pid
    return 0


def _forget_dead(name: str, pidfile: Path) -> None:
    """Remove a process id file whose process is gone or another's: dockerd would take that for its `name` and wait for it."""
    if not _alive(name, pidfile):
        pidfile.unlink(missing_ok=True)
