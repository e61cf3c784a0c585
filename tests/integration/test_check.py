"""Real suites in real containers: what they find is what is reported, and a fault never reads like a pass."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import names, statements
from pipeline.catalog import Catalog, Checks, Image
from pipeline.check import Bench, Limits, Options, Subject, check, exit_code, lane
from pipeline.command import Runner
from pipeline.engine import Container, Engine, connect, containers
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Checked, Outcome
from pipeline.story import Silent
from tests.fakes import FakeRegistry
from tests.integration.images import forget, layer, push, python_image

RUN = f"integration-check-{os.getpid()}"
"""Of this process alone: others may run the same tests on this machine."""
SHARED = {
    "line": "1.0",
    "repository": "images",
    "candidates": "localhost:5601/candidates",
    "releases": "localhost:5601/releases",
    "platform": "linux/amd64",
    "epoch": datetime(2025, 1, 29, tzinfo=UTC),
    "compression_level": 3,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = connect(os.environ, run=RUN)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def python(registry: FakeRegistry, engine: Engine) -> Iterator[Pinned]:
    """An image with Python and packages of its own that pytest's copies must not hide."""
    pinned = python_image(
        registry, {"own/packaging.py": b"HERE = 'the image'", "own/pluggy.py": b"raise ImportError('not this one')"}
    )
    yield pinned
    forget(engine, pinned)


@pytest.fixture
def bench(tmp_path: Path, engine: Engine) -> Bench:
    return Bench(
        catalog=catalog(cpu=()),
        settings=Settings(root=tmp_path, cache=tmp_path / "cache"),
        engine=engine,
        registry=Registry(),
        run=Runner(os.environ),
        run_id=RUN,
        story=Silent(),
        now=lambda: datetime.now(UTC),
    )


@pytest.fixture
def over_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the time of a lane be over once a test runs in it, however long its start took."""
    passed = [0.0]

    def over(test: str) -> None:
        def tell(made: Container, _: object) -> None:
            if json.loads(lane._result(made) or b"{}").get("running", "").endswith(test):
                passed[0] = 1e6

        monkeypatch.setattr(lane, "_tell", tell)

    monkeypatch.setattr(containers, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep))
    return over


def catalog(*, cpu: tuple[str, ...], gpu: tuple[str, ...] = (), parent: tuple[str, ...] = ()) -> Catalog:
    ground = Image(
        name="ground", description="ground", variant="ground", checks=Checks(cpu=parent), claims={"thing": "1.0", "other": "2"}
    )
    child = Image(
        name="child",
        description="child",
        parent="ground",
        variant="child",
        checks=Checks(cpu=cpu, gpu=gpu),
        claims={"thing": "1.1"},
    )
    return Catalog(**SHARED, images={"ground": ground, "child": child})  # type: ignore[arg-type]


def run(bench: Bench, pinned: Pinned, files: dict[str, str], **wanted: object) -> statements.Tested:
    """Write the check files (`child/test_x.py` → text) and run the lane `cpu` of `child`."""
    for name, text in files.items():
        path = bench.settings.images / name.replace("/", "/checks/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    listed = {
        image: tuple(stem(name) for name in files if name.startswith(f"{image}/") and "_" in name)
        for image in ("ground", "child")
    }
    bench = Bench(**{**vars(bench), "catalog": catalog(cpu=listed["child"], parent=listed["ground"])})
    options = Options(lanes=("cpu",), **wanted)  # type: ignore[arg-type]
    (tested,) = check([Subject(image="child", pinned=pinned, tag="")], options, bench)
    assert bench.engine.client.containers(all=True, filters={"label": f"{names.LABEL_RUN}={RUN}"}) == []
    return tested


def stem(name: str) -> str:
    return Path(name).stem.partition("_")[2].replace("_", "-")


def found(tested: statements.Tested, name: str) -> Checked:
    return next(check for check in tested.checks if check.name == name)


def test_a_passing_suite_runs_inside_with_the_parents_checks_first(bench: Bench, python: Pinned) -> None:
    tested = run(
        bench,
        python,
        {
            "child/test_own.py": "import helper\ndef test_it(lane, claims, measure):\n"
            "    assert (lane, claims) == ('cpu', {'thing': '1.1', 'other': '2'})\n"
            "    measure('speed', 12.5, floor=helper.FLOOR)",
            "child/helper.py": "FLOOR = 10",
            "ground/test_parent.py": "import os\ndef test_user(rung):\n    rung('one of two')\n    assert os.getuid() == 1000",
        },
    )
    assert tested.outcome is Outcome.PASSED, tested
    assert [check.name for check in tested.checks] == ["parent", "parent::test_user", "own", "own::test_it"]
    assert found(tested, "own::test_it").measured == {"speed": 12.5, "speed.floor": 10}
    assert found(tested, "parent").rung == "one of two"
    assert exit_code([tested]) == 0
    statement = bench.settings.work / "statements" / python.digest.hex / "tested-cpu.json"
    assert json.loads(statement.read_text())["predicate"]["result"] == "PASSED"


def test_the_image_is_unmodified_its_home_writable_its_packages_its_own(bench: Bench, python: Pinned) -> None:
    code = """
import getpass, os, sys
import pytest

def test_root_is_read_only():
    with pytest.raises(OSError):
        open("/etc/x", "w")

def test_home_is_the_users():
    open(os.path.expanduser("~/x"), "w")
    assert getpass.getuser() == "user"

def test_no_network():
    assert os.listdir("/sys/class/net") == ["lo"]

def test_packages_of_the_image_come_first():
    sys.path.insert(0, "/own")
    import packaging
    assert packaging.HERE == "the image"
"""
    tested = run(bench, python, {"child/test_image.py": code})
    assert tested.outcome is Outcome.PASSED, tested


def test_a_failure_is_told_with_its_place_and_recorded(bench: Bench, python: Pinned) -> None:
    tested = run(bench, python, {"child/test_bad.py": "def test_three():\n    assert 3 == 4, 'three is not four'"})
    assert tested.outcome is Outcome.FAILED
    assert tested.reason == "bad: test_three: test_bad.py:2: AssertionError: three is not four"
    assert exit_code([tested]) == 6
    statement = bench.settings.work / "statements" / python.digest.hex / "tested-cpu.json"
    assert json.loads(statement.read_text())["predicate"]["failedTests"] == ["bad", "bad::test_three"]
    assert "three is not four" in (bench.settings.work / "logs" / "child-cpu.log").read_text()


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        ("import time\ndef test_it(): time.sleep(3600)", Outcome.ERROR, "timed out: did not end within 1 s"),
        (
            "import signal, time\ndef test_it():\n    signal.pthread_sigmask(signal.SIG_BLOCK, [14]); time.sleep(3600)",
            Outcome.ERROR,
            "timed out: ",
        ),
        ("import os\ndef test_it(): os.abort()", Outcome.FAILED, "crashed: aborted (exit status 134)"),
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGSEGV)", Outcome.FAILED, "crashed: segmentation fault"),
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)", Outcome.ERROR, "was killed from outside"),
        ("import os\ndef test_it(): os._exit(0)", Outcome.ERROR, "its run ended in the middle of it"),
        ("def test_it(): bytearray(2**30)", Outcome.INFRASTRUCTURE, "out of memory"),
        (
            "import atexit, os\natexit.register(os.abort)\ndef test_it(): pass",
            Outcome.FAILED,
            "after its last test the run crashed",
        ),
        ("import pytest\ndef test_it(): pytest.skip('no such thing here')", Outcome.NOT_RUN, "no such thing here"),
        ("import pytest\n@pytest.mark.gpus(2)\ndef test_it(): pass", Outcome.NOT_RUN, "needs 2 GPUs, this lane has 0"),
        (
            "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert 0",
            Outcome.NOT_RUN,
            "expected to fail: known",
        ),
        ("import nothing\ndef test_it(): pass", Outcome.ERROR, "ModuleNotFoundError: No module named 'nothing'"),
        ("def helper(): pass", Outcome.ERROR, "the file holds no test"),
        ("import pytest\ndef test_it(): pytest.exit('enough', returncode=0)\ndef test_b(): pass", Outcome.ERROR, "never ran"),
        ("import pytest\n@pytest.fixture\ndef x(): 1 / 0\ndef test_it(x): pass", Outcome.ERROR, "setup failed: "),
        ("import os\ndef test_it(): os.remove(os.environ['PIPELINE_RESULT'])\ndef test_b(): os._exit(0)", Outcome.ERROR, ""),
        (
            "import atexit, os\natexit.register(lambda: os.truncate(os.environ['PIPELINE_RESULT'], 20))\ndef test_it(): pass",
            Outcome.ERROR,
            "its result file cannot be read",
        ),
        (
            "import atexit, os, pathlib\ndef swap():\n    p = pathlib.Path(os.environ['PIPELINE_RESULT'])\n"
            "    p.write_text(p.read_text().replace(os.environ['PIPELINE_NONCE'], '0' * 32))\n"
            "atexit.register(swap)\ndef test_it(): pass",
            Outcome.ERROR,
            "its result file is of another run",
        ),
        (
            "import atexit, os\natexit.register(lambda: os.remove(os.environ['PIPELINE_RESULT']))\ndef test_it(): pass",
            Outcome.ERROR,
            "no result file",
        ),
    ],
)
def test_every_other_end_is_told_as_what_it_is(bench: Bench, python: Pinned, code: str, outcome: Outcome, says: str) -> None:
    tested = run(bench, python, {"child/test_odd.py": code}, limits=Limits(test=1 if "sleep" in code else 900, memory="256m"))
    assert tested.outcome is outcome, tested
    assert says in tested.reason
    assert exit_code([tested]) != 0


def test_a_lane_that_does_not_end_is_killed_and_says_which_test_ran(
    bench: Bench, python: Pinned, over_at: Callable[[str], None]
) -> None:
    code = "import time\ndef test_fine(): pass\ndef test_slow(): time.sleep(3600)\ndef test_after(): pass"
    over_at("::test_slow")
    tested = run(bench, python, {"child/test_slow.py": code}, limits=Limits(lane=2000, test=3000))
    assert tested.outcome is Outcome.ERROR
    assert found(tested, "slow::test_fine").outcome is Outcome.PASSED
    assert found(tested, "slow::test_slow").reason == "timed out: the lane did not end within 2000 s"
    assert found(tested, "slow::test_after").reason == "not reached: the run timed out: the lane did not end within 2000 s"


TAKES_OUT = "def pytest_collection_modifyitems(items):\n    items[:] = [item for item in items if item.name != 'test_b']"
FORGES = """
import pytest

@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport():
    report = yield
    report.outcome = "passed"
    return report
"""


@pytest.mark.parametrize("conftest", [TAKES_OUT, FORGES], ids=["takes-out", "forges"])
def test_a_conftest_decides_nothing(bench: Bench, python: Pinned, conftest: str) -> None:
    code = "def test_a(): pass\ndef test_b(): assert 0"
    tested = run(bench, python, {"child/test_two.py": code, "child/conftest.py": conftest})
    assert found(tested, "two::test_a").outcome is Outcome.PASSED
    assert found(tested, "two::test_b").outcome is Outcome.FAILED


def test_a_selection_runs_a_part_and_records_nothing(bench: Bench, python: Pinned) -> None:
    files = {"child/test_number_one.py": "def test_a(): pass", "child/test_two.py": "def test_b(): assert 0"}
    tested = run(bench, python, files, select="number-one")
    assert tested.outcome is Outcome.PASSED
    assert found(tested, "two").reason == "not selected"
    assert not (bench.settings.work / "statements").exists()


def test_an_image_without_python_says_what_to_write_instead(bench: Bench, registry: FakeRegistry, engine: Engine) -> None:
    pinned = push(registry, (layer({"file": b"1"}),), {"Cmd": ["/file"], "Env": ["PATH=/bin"]})
    tested = run(bench, pinned, {"child/test_it.py": "def test_it(): pass"})
    forget(engine, pinned)
    assert tested.outcome is Outcome.ERROR
    assert "the image has no `python3`" in tested.reason
    assert "service_*.py" in tested.remedy


def test_a_service_check_starts_the_image_as_users_do(bench: Bench, python: Pinned) -> None:
    code = """
import time, urllib.request

def test_it_serves(start):
    service = start("python3", "-m", "http.server", "8000", ports=[8000], environment={"X": "1"}, read_only=True)
    host, port = service.address(8000)
    late = time.monotonic() + 300
    while True:
        try:
            assert urllib.request.urlopen(f"http://{host}:{port}/etc/passwd", timeout=60).read().startswith(b"root")
            return
        except OSError:
            assert time.monotonic() < late, service.log()
            time.sleep(0.1)

def test_it_ends(start, lane):
    assert start("python3", "-c", "raise SystemExit(3)").wait(300).code == 3
"""
    files = {"child/service_web.py": f"import beside\nassert beside.HERE\n{code}", "child/beside.py": "HERE = True"}
    tested = run(bench, python, files)
    assert tested.outcome is Outcome.PASSED, tested
    assert [check.name for check in tested.checks] == ["web", "web::test_it_serves", "web::test_it_ends"]


def test_lanes_that_cannot_run_say_why(bench: Bench, python: Pinned) -> None:
    (bench.settings.images / "child" / "checks").mkdir(parents=True)
    (bench.settings.images / "child" / "checks" / "test_fast.py").write_text("def test_it(): pass")
    bench = Bench(**{**vars(bench), "catalog": catalog(cpu=(), gpu=("fast",))})
    tested = check([Subject(image="child", pinned=python, tag="")], Options(), bench)
    assert [(one.lane, one.outcome, one.reason) for one in tested] == [
        ("cpu", Outcome.NOT_RUN, "the catalog lists no check"),
        ("gpu", Outcome.NOT_RUN, "no NVIDIA driver on this machine"),
    ]
    assert exit_code(tested) == 0
    assert exit_code(tested, require_gpu=True) == 75


def test_a_module_of_the_image_that_breaks_at_its_import_is_the_images_fault(
    bench: Bench, registry: FakeRegistry, engine: Engine
) -> None:
    broken = python_image(registry, {"own/torn.py": b"import ctypes\nctypes.CDLL('libtorn.so.1')\n"})
    code = "import sys\nsys.path.append('/own')\nimport torn\n\ndef test_it(): pass\n"
    try:
        tested = run(bench, broken, {"child/test_own.py": code, "child/test_typo.py": "import nothing\n\ndef test_it(): pass\n"})
    finally:
        forget(engine, broken)
    torn, typo = (found(tested, name) for name in ("own", "typo"))
    assert (torn.outcome, typo.outcome) == (Outcome.FAILED, Outcome.ERROR)
    assert "libtorn.so.1: cannot open shared object file" in torn.reason
