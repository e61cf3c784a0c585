"""Making a machine ready: what is looked at, planned, refused and said, without any tool."""

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import builders, daemons, dockerhost, doctor, services, setup
from pipeline.builders import Instance, Reach
from pipeline.command import Completed
from pipeline.diagnosis import State
from pipeline.dockerhost import EngineFound, NoEngine, Silence
from pipeline.errors import InputError, ToolFailed, ToolUnfit
from pipeline.readiness import Act, Need, Seen, Step, plan
from pipeline.services import Port
from pipeline.settings import Settings
from pipeline.story import Silent
from pipeline.toolchain import Cost, Found, Host, Tool

ROOT = Host(root=True, user="root", linux=True, suite="bookworm", systemd=False, environment={})
USER = replace(ROOT, root=False, user="ada")
ENGINE = EngineFound(host="unix:///var/run/docker.sock", version="28.0.0", desktop=False)
NOBODY = NoEngine(dockerhost.DOCKER_SOCKET, Silence.NOBODY, named=False)
NAMES = ("buildx", "buildkitd", "runc", "registry", "docker", "dockerd", "uv", "hadolint", "git", "trivy", "cosign")


def tools(*absent: str) -> dict[str, Found]:
    here = {name: Found(Tool(name, "9", Path("/bin") / name)) for name in NAMES}
    return here | {name: Found(None, (f"`/bin/{name}`: 0.1 is older",)) for name in absent}


def seen(*needs: Need, host: Host = ROOT, **changed: Any) -> Seen:
    facts: dict[str, Any] = {"tools": tools(), "engine": ENGINE, "registry": "localhost:5601", **changed}
    return Seen(needs=frozenset(needs), host=host, **facts)


def acts(found: Seen) -> list[tuple[Act, str]]:
    todo = plan(found)
    assert todo.refusals == ()
    return [(step.act, step.tool) for step in todo.steps]


def refusals(found: Seen) -> list[str]:
    return [str(each) for each in plan(found).refusals]


def without(*names: str) -> dict[str, Found]:
    return {name: found for name, found in tools().items() if name not in names}


def test_when_all_is_there_nothing_is_done() -> None:
    here = seen(*Need, tools=without("buildkitd", "dockerd"), port=Port.REGISTRY)
    assert acts(here) == []


def test_a_fresh_debian_as_root_gets_and_starts_everything() -> None:
    here = seen(*Need, tools=tools(*NAMES), engine=NOBODY, port=Port.FREE)
    assert acts(here) == [
        *[(Act.GET, name) for name in ("buildx", "cosign", "git", "hadolint", "trivy", "uv", "dockerd", "buildkitd", "registry")],
        (Act.ENGINE, "dockerd"),
        (Act.BUILDKITD, "buildkitd"),
        (Act.REGISTRY, "registry"),
    ]


def test_docker_and_runc_come_with_the_engine_and_are_not_fetched_twice() -> None:
    assert (Act.GET, "runc") not in acts(seen(Need.ENGINE, Need.BUILDER, tools=tools("dockerd", "runc"), engine=NOBODY))
    assert (Act.GET, "runc") in acts(seen(Need.BUILDER, tools=tools("runc")))


def test_a_user_without_an_engine_is_told_all_that_is_missing_before_anything_is_done() -> None:
    here = seen(Need.ENGINE, Need.BUILDER, Need.CLI, host=USER, tools=tools("docker", "dockerd", "git"), engine=NOBODY)
    assert len(plan(here).refusals) == 3
    with pytest.raises(ToolUnfit) as caught:
        raise setup._one(plan(here).refusals)
    for words in ("`docker` 20.10.0 or newer", "no docker engine answers", "there is no builder"):
        assert words in str(caught.value)
    assert "PIPELINE_BUILDER" in caught.value.hint


def test_a_user_whom_the_socket_refuses_hears_of_the_group_and_of_rootless() -> None:
    text = refusals(seen(Need.ENGINE, host=USER, engine=NoEngine("unix:///s", Silence.REFUSED, named=False)))[0]
    assert "docker's socket `unix:///s` refused user `ada`" in text
    assert "usermod -aG docker ada" in text
    assert "as good as root" in text
    assert "rootless" in text


@pytest.mark.parametrize("why", [Silence.NOBODY, Silence.DEAF])
def test_an_engine_that_the_user_names_is_never_replaced_by_one_of_ours(why: Silence) -> None:
    text = refusals(seen(Need.ENGINE, engine=NoEngine("unix:///mine", why, named=True)))[0]
    assert "`unix:///mine`" in text
    assert "DOCKER_HOST" in text
    assert ("when it stays silent, restart it" in text) is (why is Silence.DEAF)


def test_root_elsewhere_than_on_debian_uses_the_engine_for_a_builder_when_runc_is_missing() -> None:
    other = replace(ROOT, suite="")
    assert acts(seen(Need.BUILDER, host=other, tools=tools("runc"))) == [(Act.CONTAINER, "buildx")]
    assert acts(seen(Need.BUILDER, host=other)) == [(Act.BUILDKITD, "buildkitd")]


def test_a_user_with_an_engine_gets_a_builder_in_a_container() -> None:
    assert acts(seen(Need.BUILDER, host=USER)) == [(Act.CONTAINER, "buildx")]


def test_docker_desktop_is_told_that_its_loopback_is_another() -> None:
    desktop = replace(ENGINE, desktop=True, apart=True)
    assert "has another loopback than this machine" in refusals(seen(Need.BUILDER, host=USER, engine=desktop))[0]
    assert acts(seen(Need.BUILDER, host=USER, engine=desktop, registry="harbor.example.com")) == [(Act.CONTAINER, "buildx")]


def test_a_registry_is_started_on_linux_only() -> None:
    assert acts(seen(Need.REGISTRY, host=USER, port=Port.FREE)) == [(Act.REGISTRY, "registry")]
    text = refusals(seen(Need.REGISTRY, host=replace(USER, linux=False, suite=""), port=Port.FREE))[0]
    assert "PIPELINE_CANDIDATES" in text


def instance(driver: str, *endpoints: str, network: bool = False) -> Instance:
    return Instance(name="b", driver=driver, endpoints=endpoints, host_network=network)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (instance("docker-container", "unix:///var/run/docker.sock"), Reach.NO),
        (instance("docker-container", "unix:///var/run/docker.sock", network=True), Reach.YES),
        (instance("remote", "unix:///run/b.sock"), Reach.YES),
        (instance("remote", "tcp://localhost:1234"), Reach.UNKNOWN),
        (instance("remote", "docker-container://b"), Reach.UNKNOWN),
        (instance("remote", "tcp://build.example.com:1234"), Reach.NO),
        (instance("kubernetes", "k8s://b"), Reach.NO),
    ],
)
def test_whether_a_builder_reaches_this_machines_loopback(found: Instance, expected: Reach) -> None:
    assert builders.reach(found, engine=ENGINE) is expected


def test_a_builder_out_of_reach_is_refused_for_loopback_only() -> None:
    away = instance("kubernetes", "k8s://b")
    assert refusals(seen(Need.BUILDER, tools=without("buildkitd"), instance=away))
    assert not refusals(seen(Need.BUILDER, tools=without("buildkitd"), instance=away, registry="harbor.example.com"))


def test_the_cost_is_the_sum_of_what_is_missing_and_go_is_counted_when_it_is_needed() -> None:
    steps = [Step(Act.GET, "buildx", Cost(download=250, disk=70, peak=1800, seconds=200)), Step(Act.REGISTRY, "registry")]
    assert setup.total(steps, USER, go=True) == Cost(download=250, disk=70, peak=1800, seconds=200)
    assert setup.total(steps, USER, go=False).download == 325


@pytest.fixture
def serving() -> Iterator[Callable[[bytes], int]]:
    servers = list[socket.socket]()

    def serve(answer: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def loop() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    link.recv(4096)
                    link.sendall(answer)

        threading.Thread(target=loop, daemon=True).start()
        return int(server.getsockname()[1])

    yield serve
    for server in servers:
        server.close()


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
def test_whatever_answers_as_a_registry_is_used(serving: Callable[[bytes], int], status: str) -> None:
    port = serving(f"HTTP/1.1 {status}\r\n\r\n{{}}".encode())
    assert services.registry_port(f"localhost:{port}") is Port.REGISTRY


def test_a_port_that_something_else_has_is_named_with_its_process_and_the_variable(serving: Callable[[bytes], int]) -> None:
    port = serving(b"HTTP/1.1 404 Not Found\r\n\r\n")
    assert services.registry_port(f"localhost:{port}") is Port.TAKEN
    text = refusals(seen(Need.REGISTRY, registry=f"localhost:{port}", port=Port.TAKEN))[0]
    assert f"`localhost:{port}` is taken by `" in text
    assert "process" in text
    assert f"PIPELINE_CANDIDATES=localhost:{port + 1}/" in text


def test_a_port_with_nobody_is_free_and_a_host_without_a_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert services.registry_port(f"127.0.0.1:{port}") is Port.FREE
    with pytest.raises(InputError, match="has no port"):
        services.registry_port("localhost")


def never(*argv: str | Path, **_: Any) -> Completed:
    raise AssertionError(f"nothing is run here: {argv}")


def test_the_engine_is_the_one_of_docker_host_else_of_the_context_else_the_default(tmp_path: Path) -> None:
    meta = tmp_path / ".docker" / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "ssh://far"}}}))
    home = {"HOME": str(tmp_path)}
    assert dockerhost.engine_host(home) == (dockerhost.DOCKER_SOCKET, False)
    assert dockerhost.engine_host({**home, "DOCKER_CONTEXT": "far"}) == ("ssh://far", True)
    (tmp_path / ".docker" / "config.json").write_text('{"currentContext": "far"}')
    assert dockerhost.engine_host(home) == ("ssh://far", True)
    assert dockerhost.engine_host({**home, "DOCKER_HOST": "tcp://x:1"}) == ("tcp://x:1", True)
    with pytest.raises(ToolUnfit, match="no docker context `near`"):
        dockerhost.engine_host({**home, "DOCKER_CONTEXT": "near"})
    (tmp_path / ".docker" / "config.json").write_text("{")
    with pytest.raises(ToolFailed, match="cannot be read"):
        dockerhost.engine_host(home)


def test_an_engine_is_known_by_one_request(serving: Callable[[bytes], int]) -> None:
    body = b'HTTP/1.1 200 OK\r\n\r\n{"Version": "27.1.0", "Platform": {"Name": "Docker Desktop 4.33"}}'
    host = f"tcp://127.0.0.1:{serving(body)}"
    assert dockerhost.find_engine({"DOCKER_HOST": host}, never) == EngineFound(
        host=host, version="27.1.0", desktop=True, apart=True
    )


def test_a_stale_socket_and_a_deaf_listener_are_no_engine(tmp_path: Path, serving: Callable[[bytes], int]) -> None:
    stale = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(str(stale))
    absent = dockerhost.find_engine({"DOCKER_HOST": f"unix://{stale}"}, never)
    assert absent == NoEngine(f"unix://{stale}", Silence.NOBODY, named=True)
    deaf = f"tcp://127.0.0.1:{serving(b'hello')}"
    assert dockerhost.find_engine({"DOCKER_HOST": deaf}, never) == NoEngine(deaf, Silence.DEAF, named=True)


def test_an_engine_that_needs_more_than_a_socket_is_asked_by_the_command_line() -> None:
    def docker(*argv: str | Path, **_: Any) -> Completed:
        assert argv[:2] == ("docker", "version")
        return Completed(argv=("docker",), code=0, stdout='{"Version": "26.0.0"}', stderr="", seconds=0)

    found = dockerhost.find_engine({"DOCKER_HOST": "ssh://far"}, docker)
    assert found == EngineFound(host="ssh://far", version="26.0.0", desktop=False, apart=True)


def answering(monkeypatch: pytest.MonkeyPatch, *parts: str, ports: Sequence[int] = (), platform: str = "") -> dict[str, str]:
    """An engine at a socket that tells its parts, and the ports that its containers publish; the environment that names it."""
    told = {"Version": "28.1.0", "Platform": {"Name": platform}, "Components": [{"Name": name} for name in ("Engine", *parts)]}
    listed = [{"Ports": [{"PrivatePort": 5000, "PublicPort": port} for port in ports]}, {"Ports": None}]
    bodies = {"/version": told, "/containers/json": listed}
    monkeypatch.setattr(daemons, "ask", lambda _, path, **__: daemons.Reply(200, json.dumps(bodies[path]).encode()))
    return {"DOCKER_HOST": "unix:///x"}


@pytest.mark.parametrize(
    ("parts", "platform", "apart"),
    [((), "", False), (("rootlesskit",), "", True), ((), "Docker Desktop 4.50", True)],
    ids=["docker", "rootless", "desktop"],
)
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_an_engine_with_a_network_of_its_own_is_apart(
    monkeypatch: pytest.MonkeyPatch, system: str, parts: tuple[str, ...], platform: str, apart: bool
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    found = dockerhost.find_engine(answering(monkeypatch, *parts, platform=platform), never, registry="localhost:5601")
    assert isinstance(found, EngineFound)
    assert (found.apart, found.near) == (apart or system == "darwin", not apart and system == "linux")


def test_an_engine_at_a_users_own_socket_is_apart_although_it_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)
    found = dockerhost.find_engine({"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}, never)
    assert isinstance(found, EngineFound)
    assert found.apart


@pytest.mark.parametrize(
    ("version", "number"), [("29.10.0", 29), ("20.10.24+dfsg1", 20), ("v28.0.0-rc.1", 28), ("dev", 0), ("", 0)]
)
def test_a_version_that_is_no_number_is_the_oldest(version: str, number: int) -> None:
    assert dockerhost.major(version) == number


def test_a_registry_that_is_a_container_of_an_engine_that_is_apart_is_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = answering(monkeypatch, "rootlesskit", ports=[80, 5601])
    near, far = (dockerhost.find_engine(environment, never, registry=at) for at in ("localhost:5601", "localhost:5602"))
    assert isinstance(near, EngineFound)
    assert isinstance(far, EngineFound)
    assert (near.near, far.near) == (True, False)
    assert builders.reach(instance("docker-container", "unix:///x", network=True), engine=near) is Reach.YES
    assert builders.reach(instance("docker-container", "unix:///x"), engine=near) is Reach.NO
    assert acts(seen(Need.BUILDER, host=USER, engine=near)) == [(Act.CONTAINER, "buildx")]
    (refusal,) = plan(seen(Need.BUILDER, host=USER, engine=far, registry="localhost:5602")).refusals
    assert "`docker run -d --restart always -p 127.0.0.1:5602:5000 -e REGISTRY_STORAGE_DELETE_ENABLED=true" in refusal.hint
    remote = replace(far, host="tcp://far:2376")
    (refusal,) = plan(seen(Need.BUILDER, host=USER, engine=remote)).refusals
    assert "docker run" not in refusal.hint


def test_podman_is_refused_and_not_replaced_by_an_engine_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dockerhost.find_engine(answering(monkeypatch, "Podman Engine"), never)
    assert found == NoEngine("unix:///x", Silence.PODMAN, named=True)
    assert "it is Podman" in refusals(seen(Need.ENGINE, engine=replace(found, named=False)))[0]


def test_what_starts_containers_says_that_it_speaks_no_ssh() -> None:
    away = replace(ENGINE, host="ssh://me@gpu-box", apart=True)
    (refusal,) = plan(seen(Need.ENGINE, engine=away)).refusals
    assert "ssh is not spoken" in refusal.message
    assert "-L /tmp/docker.sock:/var/run/docker.sock me@gpu-box" in refusal.hint
    assert not refusals(seen(Need.BUILDER, host=ROOT, engine=away))


@pytest.mark.parametrize("unchecked", [True, False])
def test_the_sdk_is_told_the_engine_of_a_context_and_its_certificates(tmp_path: Path, unchecked: bool) -> None:
    hashed = hashlib.sha256(b"far").hexdigest()
    contexts = tmp_path / ".docker" / "contexts"
    (contexts / "meta" / hashed).mkdir(parents=True)
    endpoint = {"Host": "tcp://far:2376", "SkipTLSVerify": unchecked}
    (contexts / "meta" / hashed / "meta.json").write_text(json.dumps({"Endpoints": {"docker": endpoint}}))
    far = {"HOME": str(tmp_path), "DOCKER_CONTEXT": "far"}
    assert dockerhost.variables(far) == {"DOCKER_HOST": "tcp://far:2376"}
    (contexts / "tls" / hashed / "docker").mkdir(parents=True)
    assert dockerhost.variables(far) == {
        "DOCKER_HOST": "tcp://far:2376",
        "DOCKER_CERT_PATH": str(contexts / "tls" / hashed / "docker"),
        "DOCKER_TLS_VERIFY": "" if unchecked else "1",
    }
    assert dockerhost.variables({**far, "DOCKER_HOST": "unix:///x"}) == {"DOCKER_HOST": "unix:///x"}
    assert dockerhost.variables({"HOME": str(tmp_path)}) == {"DOCKER_HOST": dockerhost.DOCKER_SOCKET}


@pytest.mark.parametrize(
    ("status", "address", "folder"),
    [
        ([["driver-type", "io.containerd.snapshotter.v1"]], "/run/containerd/containerd.sock", "/var/lib/containerd"),
        ([["driver-type", "io.containerd.snapshotter.v1"]], "/var/run/docker/containerd/containerd.sock", "/data"),
        ([["Backing Filesystem", "extfs"]], "/run/containerd/containerd.sock", "/data"),
        (None, None, "/data"),
    ],
)
def test_images_are_where_the_containerd_of_the_system_has_them(status: Any, address: str | None, folder: str) -> None:
    told = {"DriverStatus": status, "Containerd": {"Address": address} if address else None, "DockerRootDir": "/data"}
    assert dockerhost.image_folder(told) == folder


def note(config: Path, name: str, driver: str, endpoint: str, network: str = "") -> None:
    (config / "instances").mkdir(parents=True, exist_ok=True)
    node = {"Name": f"{name}0", "Endpoint": endpoint, "DriverOpts": {"network": network} if network else None}
    (config / "instances" / name).write_text(json.dumps({"Name": name, "Driver": driver, "Nodes": [node]}))


BUILDX = Tool("buildx", "0.38.2", Path("/bin/buildx"))


def test_the_users_builder_is_read_from_the_users_own_configuration(tmp_path: Path) -> None:
    note(tmp_path, "mine", "docker-container", "desktop", network="host")
    builder, found = builders.users("mine", BUILDX, environment={"BUILDX_CONFIG": str(tmp_path)}, run=never)
    assert (builder.command, builder.name, builder.environment) == (("/bin/buildx",), "mine", {})
    assert found == Instance(name="mine", driver="docker-container", endpoints=("desktop",), host_network=True)


def test_a_builder_that_does_not_answer_is_refused_at_once(tmp_path: Path) -> None:
    note(tmp_path, "mine", "remote", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ToolUnfit, match="does not answer"):
        builders.users("mine", BUILDX, environment={"BUILDX_CONFIG": str(tmp_path)}, run=never)


@pytest.mark.parametrize(
    ("code", "stdout", "message"),
    [(1, "", "there is no buildx builder `x`"), (0, "Name: x\nDriver: docker\n", "cannot push by digest")],
)
def test_an_unknown_builder_and_the_engines_own_are_refused(tmp_path: Path, code: int, stdout: str, message: str) -> None:
    def inspect(*argv: str | Path, **_: Any) -> Completed:
        return Completed(argv=tuple(map(str, argv)), code=code, stdout=stdout, stderr="", seconds=0)

    with pytest.raises(ToolUnfit, match=message):
        builders.users("x", BUILDX, environment={"BUILDX_CONFIG": str(tmp_path)}, run=inspect)


def test_our_builder_counts_only_while_its_buildkitd_answers(tmp_path: Path) -> None:
    place = services.buildkitd_socket(tmp_path)
    assert builders.ours(BUILDX, tmp_path) is None
    note(builders.own_config(tmp_path), builders.OURS, "remote", f"unix://{place}")
    assert builders.ours(BUILDX, tmp_path) is None
    place.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        found = builders.ours(BUILDX, tmp_path)
        note(builders.own_config(tmp_path), builders.OURS, "remote", "unix:///another.sock")
        assert builders.ours(BUILDX, tmp_path) is None
    assert found is not None
    assert found.environment == {"BUILDX_CONFIG": str(builders.own_config(tmp_path))}


def test_a_container_whose_image_cannot_be_had_ends_with_the_remedy_and_leaves_no_builder(tmp_path: Path) -> None:
    said = list[str]()

    def buildx(*argv: str | Path, **_: Any) -> Completed:
        said.append(str(argv[1]))
        if "create" in argv:
            raise ToolFailed("pull access denied")
        return Completed(argv=tuple(map(str, argv)), code=0, stdout="", stderr="", seconds=0)

    with pytest.raises(ToolUnfit, match="pull access denied") as caught:
        builders.create_container(BUILDX, cache=tmp_path, engine=ENGINE, run=buildx, story=Silent())
    assert "PIPELINE_BUILDER" in caught.value.hint
    assert said == ["create", "rm"]


def test_buildkits_cache_is_limited_by_its_disk_and_reads_dockers_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "certs.d" / "harbor.example.com:8443").mkdir(parents=True)
    monkeypatch.setattr(services, "CERTIFICATES", tmp_path / "certs.d")
    text = services.buildkitd_config(tmp_path, socket=tmp_path / "s")
    most = int(next(line for line in text.splitlines() if line.startswith("maxUsedSpace")).split()[-1])
    assert services.CACHE_LEAST <= most <= services.CACHE_MOST
    assert f'[registry."harbor.example.com:8443"]\ntlsconfigdir = ["{tmp_path}/certs.d/harbor.example.com:8443"]' in text
    assert "certs.d" not in services.buildkitd_config(tmp_path, socket=None)


def test_a_cache_folder_too_deep_for_a_socket_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long for a socket"):
        services.start_buildkitd(Path("/bin/false"), host=ROOT, cache=tmp_path / ("x" * 100), story=Silent())


def test_a_ready_machine_costs_no_process(tmp_path: Path, serving: Callable[[bytes], int]) -> None:
    port = serving(b"HTTP/1.1 200 OK\r\n\r\n")
    ready = setup.ensure(
        frozenset({Need.REGISTRY}),
        settings=Settings(root=tmp_path, cache=tmp_path / "cache"),
        registry_host=f"127.0.0.1:{port}/candidates",
        run=never,
        story=Silent(),
        environment={},
        host=USER,
    )
    assert ready == setup.Ready(tools={}, builder=None, engine=None)


def test_the_doctor_finds_each_fault_with_its_remedy_and_changes_nothing(tmp_path: Path, serving: Callable[[bytes], int]) -> None:
    def broken(*argv: str | Path, **_: Any) -> Completed:
        raise ToolUnfit(f"`{argv[0]}` cannot be started")

    port = serving(b"nonsense")
    findings = doctor.examine(
        settings=Settings(root=tmp_path, cache=tmp_path / "cache"),
        registry_host=f"localhost:{port}",
        run=broken,
        environment={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        host=replace(USER, suite="", environment={"PATH": str(tmp_path)}),
    )
    found = {each.name: each for each in findings}
    assert found["engine"].state is State.FAULT
    assert found["registry"].state is State.FAULT
    assert f"PIPELINE_CANDIDATES=localhost:{port + 1}" in found["registry"].remedy
    assert found["uv"].remedy == "`nox -s setup`"
    assert all(each.remedy for each in findings if each.state is not State.OK)
    assert not (tmp_path / "cache").exists()


def test_a_port_that_answers_while_its_holder_dies_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = iter([daemons.Reply(0, b""), None])
    monkeypatch.setattr(daemons, "ask", lambda *_, **__: next(replies))
    monkeypatch.setattr(daemons, "holder", lambda _: None)
    assert services.registry_port("127.0.0.1:5601") is Port.FREE


@pytest.mark.parametrize(
    ("host", "address"), [("localhost:5601", "127.0.0.1:5601"), ("127.0.0.2:1", "127.0.0.2:1"), ("[::1]:5601", "[::1]:5601")]
)
def test_our_registry_listens_where_it_is_asked(host: str, address: str) -> None:
    assert services._listening(host) == address
