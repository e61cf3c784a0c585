"""The real engine: images arrive as what they are, containers end and leave nothing behind."""

import gc
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import names
from pipeline.engine import Engine, Gpus, Spec, connect, container, containers, ensure
from pipeline.engine.connection import inspect
from pipeline.engine.containers import NO_GPU, REFUSALS
from pipeline.errors import Interrupted, Temporary, ToolFailed, ToolUnfit
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.story import Silent
from tests.fakes import FakeRegistry
from tests.integration.families import until
from tests.integration.forward import forwarded
from tests.integration.images import layer, push, python_image

RUN = f"integration-{os.getpid()}"
"""Of this process alone: others may run the same tests on this machine."""
LABELLED = {"label": f"{names.LABEL_RUN}={RUN}"}
SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")


class Told(Silent):
    """A story that is kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = connect(os.environ, run=RUN)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def python(registry: FakeRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine's id of an image with Python."""
    engine = connect(os.environ, run=RUN)
    image = bring(engine, python_image(registry), tmp_path_factory.mktemp("scratch"))
    yield image
    engine.client.remove_image(image, force=True)
    engine.close()


def bring(engine: Engine, pinned: Pinned, scratch: Path, *, tag: str = "") -> str:
    registry = Registry()
    return ensure(pinned, registry.manifest(pinned), engine=engine, registry=registry, story=Silent(), scratch=scratch, tag=tag)


def ours(engine: Engine) -> list[str]:
    found = engine.client.containers(all=True, filters=LABELLED)
    return [name for each in found for name in each["Names"]]


def run_code(engine: Engine, image: str, code: str, deadline: float = 900, **wanted: object) -> tuple[int, str]:
    spec = Spec(image=image, command=("python3", "-c", code), **wanted)  # type: ignore[arg-type]
    with container(spec, engine=engine, story=Silent(), title="test") as made:
        made.start()
        return made.wait(deadline).code, made.log()


def test_an_image_in_zstd_arrives_under_its_own_digest(engine: Engine, registry: FakeRegistry, tmp_path: Path) -> None:
    pinned = push(registry, (layer({"a": b"1"}), layer({"b": b"2"}), layer({"c": b"3"})), {"Cmd": ["/a"]})
    manifest = Registry().manifest(pinned)
    image = bring(engine, pinned, tmp_path, tag="arrives")
    try:
        assert image in (str(manifest.config.digest), str(manifest.digest))
        found = inspect(engine, f"{pinned.repository}:arrives")
        assert found is not None
        assert found["Id"] == image
        assert list(tmp_path.iterdir()) == []
    finally:
        engine.client.remove_image(image, force=True)


def test_an_image_that_is_there_is_not_brought_again(engine: Engine, registry: FakeRegistry, tmp_path: Path) -> None:
    pinned = push(registry, (layer({"again": b"1"}),), {"Cmd": ["/again"]})
    image = bring(engine, pinned, tmp_path)
    try:
        before = len(registry.requests)
        assert bring(engine, pinned, tmp_path) == image
        assert [path for _, path, _ in registry.requests[before:]] == [f"/v2/team/images/manifests/{pinned.digest}"]
    finally:
        engine.client.remove_image(image, force=True)


def test_layers_that_the_engine_has_are_not_read_again(engine: Engine, registry: FakeRegistry, tmp_path: Path) -> None:
    shared, own = layer({"shared": b"1"}), layer({"own": b"2"})
    parent, child = push(registry, (shared,), {"Cmd": ["/p"]}), push(registry, (shared, own), {"Cmd": ["/c"]})
    images = [bring(engine, parent, tmp_path)]
    try:
        before = len(registry.requests)
        images.append(bring(engine, child, tmp_path))
        asked = [path for _, path, _ in registry.requests[before:]]
        assert not any(str(Registry().manifest(parent).layers[0].digest) in path for path in asked)
    finally:
        for image in reversed(images):
            engine.client.remove_image(image, force=True)


def test_an_interrupted_load_goes_on_where_it_stopped(engine: Engine, registry: FakeRegistry, tmp_path: Path) -> None:
    if engine.facts.reads_zstd:
        return
    pinned = push(registry, (layer({"one": b"1"}), layer({"two": b"2"})), {"Cmd": ["/one"]})
    first, second = Registry().manifest(pinned).layers
    whole = registry.blobs[str(second.digest)]
    registry.blobs[str(second.digest)] = whole[:-1] + b"?"
    with pytest.raises(ToolFailed, match=r"cannot be unpacked|arrived damaged"):
        bring(engine, pinned, tmp_path)
    registry.blobs[str(second.digest)] = whole
    before = len(registry.requests)
    image = bring(engine, pinned, tmp_path)
    asked = [path for _, path, _ in registry.requests[before:]]
    assert not any(str(first.digest) in path for path in asked)
    engine.client.remove_image(image, force=True)
    for half in engine.client.images(filters={"label": f"{names.LABEL_RUN}={RUN}"}):
        engine.client.remove_image(half["Id"], noprune=True)


def test_a_layer_that_unpacks_to_something_else_is_refused(engine: Engine, registry: FakeRegistry, tmp_path: Path) -> None:
    if engine.facts.reads_zstd:
        return
    pinned = push(registry, (layer({"this": b"1"}),), {}, promised=(layer({"that": b"1"}),))
    with pytest.raises(ToolFailed, match="does not unpack to"):
        bring(engine, pinned, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_read(
    engine: Engine, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "free", lambda self: 10)
    pinned = push(registry, (layer({"full": b"1"}),), {})
    with pytest.raises(Temporary, match=r"needs 0\.0 GB, and its folder `.*` has 0\.0 GB free"):
        bring(engine, pinned, tmp_path)


def test_a_container_runs_as_the_images_user_without_network_and_with_a_read_only_root(engine: Engine, python: str) -> None:
    code = "import os, socket; print(os.getuid(), os.listdir('/sys/class/net'), os.access('/', os.W_OK)); open('/tmp/x', 'w')"
    status, log = run_code(engine, python, code, read_only=True, tmpfs={"/tmp": "size=8m"})
    assert (status, log) == (0, "1000 ['lo'] False\n")
    assert ours(engine) == []


def test_files_go_in_and_come_out_also_with_a_read_only_root(engine: Engine, python: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("out")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o777
        archive.addfile(entry)
    code = "open('/here/out/said', 'w').write('hello')"
    spec = Spec(image=python, command=("python3", "-c", code), read_only=True, volumes=("/here",))
    with container(spec, engine=engine, story=Silent(), title="test") as made:
        made.put("/here", packed.getvalue())
        made.start()
        assert made.wait(900).code == 0
        assert made.get("/here/out/said", 100) == b"hello"
        assert made.get("/here/out/nothing", 100) is None
        with pytest.raises(ToolFailed, match="larger than"):
            made.get("/here/out/said", -10_000)
    assert ours(engine) == []


def test_one_that_hangs_and_ignores_signals_is_killed_at_its_deadline(engine: Engine, python: str) -> None:
    code = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(3600)"
    with container(Spec(image=python, command=("python3", "-c", code)), engine=engine, story=Silent(), title="test") as made:
        made.start()
        ended = made.wait(2)
    assert (ended.timed_out, ended.code) == (True, 137)
    assert ours(engine) == []


def test_one_that_even_sigkill_does_not_end_is_given_up_with_a_remedy(
    engine: Engine, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a process that hangs in the kernel: the engine neither answers to what should end it, nor ends it."""
    monkeypatch.setattr(containers, "DYING", 1.0)
    with forwarded(SOCKET, tmp_path / "docker.sock", lost=(b"/kill", b"DELETE ")):
        deaf = connect({**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}, run=RUN)
        with pytest.raises(Temporary, match="was killed and does not end") as error:
            run_code(deaf, python, "import time; time.sleep(3600)", deadline=1)
        deaf.close()
    assert "reboot" in error.value.hint
    (left,) = ours(engine)
    engine.client.remove_container(left, force=True, v=True)


def test_one_that_floods_its_output_is_read_to_a_bound(engine: Engine, python: str) -> None:
    code = "import sys\nfor _ in range(40): sys.stdout.write('x' * 2**20 + '\\n')\nprint('the end')"
    status, log = run_code(engine, python, code)
    assert status == 0
    assert len(log) <= 8 * 2**20
    assert log.endswith("the end\n")


def test_one_that_takes_too_much_memory_says_so(engine: Engine, python: str) -> None:
    spec = Spec(image=python, command=("python3", "-c", "x = bytearray(2**30)"), memory="64m")
    with container(spec, engine=engine, story=Silent(), title="test") as made:
        made.start()
        ended = made.wait(900)
    assert (ended.code, ended.out_of_memory) == (137, True)


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (Gpus(("GPU-1",), "toolkit"), 'could not select device driver "" with capabilities: [[gpu]]'),
        (Gpus(("GPU-1",), "cdi"), 'could not select device driver "cdi" with capabilities: []'),
    ],
    ids=["toolkit", "cdi"],
)
def test_an_engine_without_gpus_refuses_them_and_it_is_the_machines_fault(
    engine: Engine, python: str, gpus: Gpus, says: str
) -> None:
    with pytest.raises(Temporary) as refused:
        run_code(engine, python, "", gpus=gpus)
    assert any(words in refused.value.message.lower() for words in REFUSALS)
    if engine.facts.version.startswith("20.10.") and not engine.facts.gpus:
        assert says in refused.value.message
        assert NO_GPU in refused.value.message
    assert "nox -s doctor" in refused.value.hint
    assert ours(engine) == []


def test_a_program_that_is_not_there_is_the_images_fault(engine: Engine, python: str) -> None:
    spec = Spec(image=python, entrypoint=("/no/such/program",))
    with container(spec, engine=engine, story=Silent(), title="test") as made:
        made.start()
        assert made.wait(900).code != 0
    with (
        pytest.raises(ToolFailed, match="the engine failed at starting"),
        container(Spec(image=python, user="nobody-here"), engine=engine, story=Silent(), title="test") as made,
    ):
        made.start()
    assert ours(engine) == []


def test_a_service_is_reached_on_loopback_and_can_be_looked_into(engine: Engine, python: str) -> None:
    spec = Spec(image=python, command=("python3", "-m", "http.server", "8000"), ports=(8000,))
    with container(spec, engine=engine, story=Silent(), title="test") as made:
        made.start()
        host, port = made.address(8000)
        assert host == "127.0.0.1"
        assert port > 0
        assert made.execute(["python3", "-c", "print('inside')"]) == (0, "inside\n")
        assert made.running


def test_an_interrupt_leaves_no_container(engine: Engine, python: str) -> None:
    def break_off(*_: object) -> None:
        raise Interrupted("interrupted")

    def interrupt() -> None:
        until(lambda: engine.client.containers(filters=LABELLED), "the container does not run")
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, break_off)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(Interrupted):
            run_code(engine, python, "import time; time.sleep(3600)")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ours(engine) == []


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_a_living_one_runs_is_not(engine: Engine, python: str) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", SLEEPER, python, RUN], stdout=subprocess.PIPE) as process,
        container(
            Spec(image=python, command=("python3", "-c", "import time; time.sleep(3600)")),
            engine=engine,
            story=Silent(),
            title="mine",
        ) as mine,
    ):
        mine.start()
        assert process.stdout is not None
        left = process.stdout.readline().decode().strip()
        connect(os.environ, run="next").close()
        assert f"/{left}" in ours(engine)
        process.kill()
        process.wait()
        connect(os.environ, run="next").close()
        assert ours(engine) == [f"/{mine.name}"]


SLEEPER = """
import os, sys, time
from pipeline.engine import Spec, connect, container
from pipeline.story import Silent
engine = connect(os.environ, run=sys.argv[2])
spec = Spec(image=sys.argv[1], command=("python3", "-c", "import time; time.sleep(3600)"))
with container(spec, engine=engine, story=Silent(), title="left") as made:
    made.start()
    print(made.name, flush=True)
    time.sleep(3600)
"""


def test_a_kept_container_stays_and_the_story_says_how_to_enter_it(engine: Engine, python: str) -> None:
    story = Told()
    with container(
        Spec(image=python, command=("python3", "-c", "")), engine=engine, story=story, title="kept", keep=True
    ) as made:
        made.start()
        made.wait(900)
    try:
        connect(os.environ, run="next").close()
        assert ours(engine) == [f"/{made.name}"]
        assert f"docker rm -f -v {made.name}" in story.lines[0]
        assert f"--volumes-from {made.name}" in story.lines[0]
    finally:
        engine.client.remove_container(made.name, force=True, v=True)


@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_does_not_answer_is_unfit_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ToolUnfit, match="no docker engine answers") as error:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, run=RUN)
    assert "nox -s setup" in error.value.hint
    del error
    gc.collect()  # the SDK forgets the socket that did not connect
