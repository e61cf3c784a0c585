"""What is sent to engines, and whose leftovers are whose."""

import io
import json
import signal
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import names
from pipeline.engine import Container, Engine, Facts, Gpus, Spec, connection, container, containers, layout
from pipeline.engine.connection import refuse
from pipeline.engine.containers import not_started
from pipeline.engine.facts import tell
from pipeline.engine.owners import Owner, gone
from pipeline.errors import Interrupted, PipelineError, RegistryRefused, Temporary, ToolFailed, ToolUnfit
from pipeline.oci import Digest
from pipeline.registry import Registry
from pipeline.story import Silent, SilentTask
from tests.fakes import FakeRegistry, fake_registry

ME = Owner.current()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


def owner(**changes: object) -> Owner:
    return Owner(**{**vars(ME), **changes})


def test_a_sent_image_is_an_oci_layout_and_a_docker_archive_over_the_same_blobs(registry: FakeRegistry) -> None:
    pinned = registry.put_image(registry.repository(), layers=(b"one", b"two", b"one"))
    manifest = Registry().manifest(pinned)
    whole = b"".join(layout.stream(pinned, manifest, Registry(), SilentTask()))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}  # type: ignore[union-attr]
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/sha256/")}
    assert all(Digest.of(content).hex == name.rpartition("/")[2] for name, content in blobs.items())
    assert json.loads(files["index.json"])["manifests"][0]["digest"] == str(pinned.digest)
    (image,) = json.loads(files["manifest.json"])
    assert [files[name] for name in image["Layers"]] == [b"one", b"two", b"one"]
    assert files[image["Config"]] == registry.blobs[str(manifest.config.digest)]


def test_an_owner_is_read_from_its_label_and_nothing_else_is() -> None:
    assert Owner.parse(str(ME)) == ME
    assert Owner.parse("somebody") is None
    assert Owner.parse("a/b/c/d/e") is None


@pytest.mark.parametrize(
    ("other", "running", "dead"),
    [
        (owner(), True, False),
        (owner(pid=2**22 + 1), True, True),
        (owner(started="1"), True, True),
        (owner(pid=2**22 + 1, host="elsewhere"), False, False),
        (owner(pid=2**22 + 1, namespace="1"), False, False),
        (owner(boot="before"), False, True),
        (owner(boot="before"), True, False),
    ],
    ids=["me", "ended", "another-process-with-its-id", "another-machine", "another-container", "before-a-reboot", "a-namesake"],
)
def test_only_what_surely_ended_is_gone(other: Owner, running: bool, dead: bool) -> None:
    assert gone(other, me=ME, running=running) is dead


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", Temporary),
        ("Get http://localhost:1/v2/: dial tcp: connect: connection refused", Temporary),
        ("pull access denied for x", RegistryRefused),
        ("unauthorized: authentication required", RegistryRefused),
        (
            "could not kill container 4f: tried to kill container, but did not receive an exit event",
            Temporary,
        ),
        ("archive/tar: invalid tar header", ToolFailed),
    ],
)
def test_the_engines_words_become_our_errors(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="the engine failed at pulling"):
        refuse("pulling", text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', Temporary),
        ('could not select device driver "cdi" with capabilities: []', Temporary),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-1", Temporary),
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", Temporary),
        (
            "OCI runtime create failed: error running hook #0: error running hook: exit status 1, stdout: , stderr: "
            "Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: load library failed: "
            "libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
            Temporary,
        ),
        ("nvidia-container-cli: device error: GPU-1: unknown device: unknown", Temporary),
        ('exec: "python4": executable file not found in $PATH: unknown', ToolUnfit),
        ("something else", None),
    ],
)
def test_a_refused_start_is_the_machines_where_gpus_are_the_reason(text: str, error: type[PipelineError] | None) -> None:
    found = not_started(text, "x")
    assert found is None if error is None else type(found) is error


class FakeClient:
    """The SDK's client, of an engine whose container hangs in the kernel: what kills it is not answered."""

    def __init__(self) -> None:
        from docker import APIClient

        self.real = APIClient(base_url="tcp://127.0.0.1:1", version="1.41")
        self.created: dict[str, Any] = {}
        self.end = threading.Event()

    create_host_config = property(lambda self: self.real.create_host_config)

    def create_container(self, image: str, **wanted: Any) -> None:
        self.created = wanted

    def wait(self, name: str, timeout: int) -> None:
        from requests.exceptions import ReadTimeout

        raise ReadTimeout("timed out")

    def kill(self, name: str) -> None:
        self.end.wait(300)

    def remove_container(self, name: str, **wanted: Any) -> None:
        self.end.wait(300)

    def containers(self, **wanted: Any) -> list[dict[str, Any]]:
        label = str(owner(pid=2**22 + 1))
        return [{"Id": "1", "Names": ["/left"], "State": "running", "Labels": {names.LABEL_OWNER: label}}]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    client = FakeClient()
    for module, name in ((containers, "DYING"), (containers, "BEAT"), (connection, "REMOVAL")):
        monkeypatch.setattr(module, name, 0.01)
    yield Engine(client, Facts(version="28", root="", gpus=True), "run")  # type: ignore[arg-type]
    client.end.set()
    client.real.close()


def test_one_that_ignores_even_sigkill_ends_the_run_with_a_remedy(stuck: Engine) -> None:
    with (
        pytest.raises(Temporary, match="was killed and does not end") as error,
        container(Spec(image="x"), engine=stuck, story=Silent(), title="test") as made,
    ):
        made.wait(0.01)
    assert "reboot" in error.value.hint


class Slow:
    """An engine that creates a container only after the one who waits was interrupted; what it did, in order."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.create_host_config = self.client.real.create_host_config
        self.did: list[str] = []
        self.interrupted = threading.Event()

    def create_container(self, *_: object, **__: object) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        self.interrupted.wait(60)
        self.did.append("created")

    def remove_container(self, *_: object, **__: object) -> None:
        self.did.append("removed")


def test_an_interrupt_while_a_container_is_created_removes_it() -> None:
    client = Slow()

    def break_off(*_: object) -> None:
        client.interrupted.set()
        raise Interrupted("interrupted")

    before = signal.signal(signal.SIGUSR1, break_off)
    try:
        engine = Engine(client, Facts(version="28", root="", gpus=False), "run")  # type: ignore[arg-type]
        with pytest.raises(Interrupted), container(Spec(image="x"), engine=engine, story=Silent(), title="test"):
            raise AssertionError("it was created in spite of the interrupt")
    finally:
        signal.signal(signal.SIGUSR1, before)
        client.client.real.close()
    assert client.did == ["created", "removed"]


def test_a_program_beside_the_main_one_that_cannot_be_started_is_told_as_that_and_not_as_late() -> None:
    def refuse(key: str) -> bytes:
        raise ConnectionResetError("the engine hung up")

    client = SimpleNamespace(exec_create=lambda *_, **__: {"Id": "1"}, exec_start=refuse)
    engine = Engine(client, Facts(version="28", root="", gpus=False), "run")  # type: ignore[arg-type]
    with pytest.raises(Temporary, match="the engine went away at running `true` in `x`: the engine hung up"):
        Container(engine, "x").execute(["true"])


def test_a_program_beside_the_main_one_that_does_not_end_is_late_and_says_what_to_do() -> None:
    end = threading.Event()
    client = SimpleNamespace(exec_create=lambda *_, **__: {"Id": "1"}, exec_start=lambda _: end.wait(60))
    engine = Engine(client, Facts(version="28", root="", gpus=False), "run")  # type: ignore[arg-type]
    with pytest.raises(Temporary, match="`true` in `x` did not end within 0 s") as late:
        Container(engine, "x").execute(["true"], deadline=0.01)
    end.set()
    assert "try again" in late.value.hint


def test_what_cannot_be_removed_is_named_by_the_next_run_that_connects(stuck: Engine) -> None:
    with pytest.raises(Temporary, match="`left` was killed and does not end"):
        connection._sweep_containers(stuck)


@pytest.mark.parametrize(
    ("gpus", "request_"),
    [
        (
            Gpus(("GPU-1", "MIG-2"), "toolkit"),
            {"Driver": "", "Count": 0, "DeviceIDs": ["GPU-1", "MIG-2"], "Capabilities": [["gpu"]], "Options": {}},
        ),
        (
            Gpus(("GPU-1",), "cdi"),
            {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=GPU-1"], "Capabilities": [], "Options": {}},
        ),
    ],
    ids=["toolkit", "cdi"],
)
def test_gpus_are_asked_for_by_their_ids_alone(stuck: Engine, gpus: Gpus, request_: dict[str, Any]) -> None:
    made = Container(stuck, "x")
    containers._create(Spec(image="x", gpus=gpus), made, {})
    told = stuck.client.created  # type: ignore[attr-defined]
    assert told["host_config"]["DeviceRequests"] == [request_]
    assert [(one["Name"], one["Soft"], one["Hard"]) for one in told["host_config"]["Ulimits"]] == [
        ("memlock", -1, -1),
        ("stack", 2**26, 2**26),
    ]
    assert not any("NVIDIA" in name for name in told["environment"])


def test_a_rootless_engine_is_asked_for_no_limits_that_only_root_may_raise(stuck: Engine) -> None:
    rootless = replace(stuck, facts=replace(stuck.facts, rootless=True))
    containers._create(Spec(image="x", gpus=Gpus(("GPU-1",), "cdi")), Container(rootless, "x"), {})
    assert not stuck.client.created["host_config"].get("Ulimits")  # type: ignore[attr-defined]


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("url", "machine", "more", "expected"),
    [
        ("http+docker://localhost", HERE, {}, (True, True, True, True)),
        ("http+docker://localhost", HERE, {"rootless": True}, (True, True, False, True)),
        ("http+docker://localhost", "the-host-of-this-container", {}, (True, False, False, False)),
        ("http+docker://localhost", "docker-desktop", {"desktop": True}, (False, False, False, True)),
        ("http://far:2375", "far", {}, (False, False, False, False)),
        ("http://localhost:2375", HERE, {}, (False, False, False, True)),
    ],
    ids=["docker", "rootless", "a-socket-given-to-a-container", "desktop", "network", "network-on-this-machine"],
)
def test_what_an_engine_shares_with_this_machine(
    monkeypatch: pytest.MonkeyPatch, url: str, machine: str, more: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    facts = Facts(version="29.1.0", root="/", gpus=False, name=machine, **more)
    found = Engine(SimpleNamespace(base_url=url), facts, "1")  # type: ignore[arg-type]
    assert (found.native, found.here, found.shares_loopback, found.publishes_here) == expected
    assert (found.free() is None) is not found.here


def test_a_machine_in_a_virtual_one_forwards_ports_and_shares_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    facts = Facts(version="28.0.0", root="/", gpus=False, name="colima")
    found = Engine(SimpleNamespace(base_url="http+docker://localhost"), facts, "1")  # type: ignore[arg-type]
    assert (found.native, found.here, found.shares_loopback, found.publishes_here) == (False, False, False, True)


def test_a_machine_may_be_named_where_its_own_name_is_a_pods() -> None:
    told = tell({"Name": "gpu-h100-x7k2p-runner", "ServerVersion": "29.1.0"}, "node-7")
    assert (told.name, told.machine["host"]) == ("gpu-h100-x7k2p-runner", "node-7")
    assert tell({"Name": "box"}).machine["host"] == "box"


def test_a_registry_without_tls_that_the_engine_does_not_take_is_named_in_its_configuration() -> None:
    text = 'Get "https://localhost:5601/v2/": http: server gave HTTP response to HTTPS client'
    with pytest.raises(ToolUnfit, match="failed at pulling") as caught:
        refuse("pulling", text)
    assert "insecure-registries" in caught.value.hint


def test_no_ids_are_never_read_as_all_gpus(stuck: Engine) -> None:
    with pytest.raises(ValueError, match="needs their ids"):
        containers._create(Spec(image="x", gpus=Gpus((), "toolkit")), Container(stuck, "x"), {})


@pytest.mark.parametrize(
    ("info", "gpus", "way"),
    [
        ({}, False, "toolkit"),
        ({"Runtimes": {"nvidia": {}, "runc": {}}}, True, "toolkit"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=GPU-1"}]}, True, "cdi"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "vendor.com/net=eth0"}]}, False, "toolkit"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "management.nvidia.com/gpu=all"}]}, False, "toolkit"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu-extra=1"}]}, False, "toolkit"),
    ],
)
def test_an_engine_that_discovered_gpus_is_asked_by_cdi(info: dict[str, Any], gpus: bool, way: str) -> None:
    facts = tell(info)
    assert (facts.gpus, facts.way) == (gpus, way)
