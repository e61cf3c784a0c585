"""The GPU lane in real containers, on machines that are told about: gates, witnesses, verdicts, records, nothing left behind."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import names, statements
from pipeline.catalog import Catalog, Checks, Image
from pipeline.check import Bench, Given, Hardware, Limits, Options, Subject, check, exit_code
from pipeline.command import Runner
from pipeline.engine import Engine, Gpus, connect
from pipeline.errors import Temporary
from pipeline.failures import Failures, Row
from pipeline.gpus import Gpu, Host, Trouble
from pipeline.oci import Pinned
from pipeline.quarantine import LIMIT, Quarantine
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Outcome
from pipeline.story import Silent
from tests.fakes import FakeRegistry
from tests.integration.images import forget, python_image

RUN = f"integration-gpu-lane-{os.getpid()}"
"""Of this process alone: others may run the same tests on this machine."""
GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA A100", capability=(8, 0), memory=80 * 10**9, used=0)
HOST = Host(name="node-1", driver="550.54.15", toolkit="1.17.0", gpus=(GPU,))
CLAIMS = {"architectures": "sm_80", "driver": "525.60.13"}
ROWS = Failures(
    failures=(
        Row(name="lost", texts=("the GPU is lost",), owner="machine", remedy="reboot"),
        Row(name="init", texts=("cannot initialise",), owner="reference", remedy="look at the driver"),
        Row(name="no-way", texts=("could not select device driver",), owner="machine", remedy="install the toolkit"),
        Row(name="baked", texts=("driver is odd",), owner="image", when=("driver-in-image",), remedy="remove it"),
    )
)
PASSES = "def test_it(lane, gpus):\n    assert (lane, gpus[0]['uuid']) == ('gpu', 'GPU-0')\n"
ONLY_HERE = "from pathlib import Path\nhere = Path('/own/here').exists()\n"
"""The candidate has that file, the reference image does not."""
Look = Callable[[], Host | None]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = connect(os.environ, run=RUN)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def candidate(registry: FakeRegistry, engine: Engine) -> Iterator[Pinned]:
    pinned = python_image(registry, {"own/here": b""})
    yield pinned
    forget(engine, pinned)


@pytest.fixture(scope="module")
def reference(registry: FakeRegistry, engine: Engine) -> Iterator[Pinned]:
    pinned = python_image(registry)
    yield pinned
    forget(engine, pinned)


class Machine:
    """A lane of two checks, `canary` and `own`, on a machine that is told about; `looks` come one after another."""

    def __init__(self, root: Path, engine: Engine, registry: FakeRegistry) -> None:
        self.root, self.engine, self.registry = root, engine, registry
        self.looks: list[Host | None] = [HOST]
        self.given: list[tuple[Gpu, ...]] = []
        self.quarantine = Quarantine(root / "quarantine", "node-1")
        self.binds: tuple[str, ...] = ()

    def look(self, _: Callable[[], str]) -> Host | None:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def give(self, gpus: object) -> Given:
        chosen: tuple[Gpu, ...] = tuple(gpus)  # type: ignore[arg-type]
        self.given.append(chosen)
        return Given(gpus=chosen, binds=self.binds)

    def bench(self, reference: Pinned | None) -> Bench:
        hardware = Hardware(examine=self.look, give=self.give, quarantine=self.quarantine, turns=self.root / "turns")
        return Bench(
            catalog=self.catalog(reference),
            settings=Settings(root=self.root, cache=self.root / "cache"),
            engine=self.engine,
            registry=Registry(),
            hardware=hardware,
            failures=ROWS,
            run=Runner(os.environ),
            run_id=RUN,
            story=Silent(),
            now=lambda: datetime.now(UTC),
        )

    def catalog(self, reference: Pinned | None) -> Catalog:
        image = Image(
            name="child", description="x", variant="child", claims=CLAIMS, checks=Checks(cpu=("cheap",), gpu=("canary", "own"))
        )
        return Catalog(
            line="1.0",
            repository="images",
            candidates=f"{self.registry.host}/candidates",
            releases=f"{self.registry.host}/releases",
            platform="linux/amd64",
            epoch=datetime(2025, 1, 29, tzinfo=UTC),
            compression_level=3,
            reference=str(reference) if reference else None,
            canary="canary",
            images={"child": image},
        )

    def write(self, **checks: str) -> None:
        folder = self.root / "images" / "child" / "checks"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"cheap": "def test_it(): pass\n", "canary": PASSES, "own": PASSES, **checks}.items():
            (folder / f"test_{name}.py").write_text(text)

    def run(
        self, candidate: Pinned, own: str, *, canary: str = PASSES, reference: Pinned | None = None, **options: object
    ) -> statements.Tested:
        self.write(canary=canary, own=own)
        wanted = Options(**{"lanes": ("gpu",), **options})  # type: ignore[arg-type]
        found = check([Subject(image="child", pinned=candidate, tag="")], wanted, self.bench(reference))
        assert self.engine.client.containers(all=True, filters={"label": f"{names.LABEL_RUN}={RUN}"}) == []
        return found[-1]


@pytest.fixture
def machine(tmp_path: Path, engine: Engine, registry: FakeRegistry) -> Machine:
    return Machine(tmp_path, engine, registry)


def fails(text: str) -> str:
    """A check that fails with `text` in the candidate alone."""
    return f"{ONLY_HERE}def test_it():\n    if here:\n        raise RuntimeError({text!r})\n"


def test_a_lane_passes_on_the_gpus_that_it_was_given_and_the_record_names_them(
    machine: Machine, candidate: Pinned, reference: Pinned
) -> None:
    found = machine.run(candidate, PASSES, reference=reference)
    assert (found.outcome, found.reason) == (Outcome.PASSED, "")
    assert found.gpus == (GPU,)
    assert found.reference is not None
    assert (found.reference.subject, found.reference.before, found.reference.after) == (str(reference), Outcome.PASSED, None)
    assert {found.machine[name] for name in ("host", "driver", "toolkit")} == {"node-1", "550.54.15", "1.17.0"}
    assert found.machine["kernel"]
    assert found.memory > 2**20
    assert found.claims == CLAIMS
    assert machine.given == [(GPU,), (GPU,)]


def test_the_record_says_when_there_is_no_reference_image(machine: Machine, candidate: Pinned) -> None:
    found = machine.run(candidate, PASSES)
    assert found.outcome is Outcome.PASSED
    assert found.reference is not None
    assert found.reference.origin == "nothing is released yet, and the catalog names no `reference:`"


def test_the_last_release_is_the_reference_image(
    machine: Machine, candidate: Pinned, reference: Pinned, registry: FakeRegistry
) -> None:
    body = registry.manifests["team/images", str(reference.digest)]
    for tag in ("v1.0.2-child", "v1.0.10-child", str(reference.digest)):
        registry.manifests["releases/images", tag] = body
    try:
        found = machine.run(candidate, PASSES)
    finally:
        for tag in ("v1.0.2-child", "v1.0.10-child", str(reference.digest)):
            del registry.manifests["releases/images", tag]
    assert found.reference is not None
    assert (found.reference.origin, found.reference.before) == ("the release `v1.0.10-child`", Outcome.PASSED)


def test_a_failure_is_the_images_when_the_reference_image_still_passes(
    machine: Machine, candidate: Pinned, reference: Pinned
) -> None:
    found = machine.run(candidate, fails("3 is not 4"), reference=reference)
    assert (found.outcome, exit_code([found])) == (Outcome.FAILED, 6)
    assert "RuntimeError: 3 is not 4" in found.reason
    assert found.reference is not None
    assert found.reference.after is Outcome.PASSED


def test_a_reference_image_that_fails_first_spares_the_candidate(machine: Machine, candidate: Pinned, reference: Pinned) -> None:
    found = machine.run(
        candidate, PASSES, canary="def test_it():\n    raise RuntimeError('the GPU is lost')\n", reference=reference
    )
    assert (found.outcome, exit_code([found])) == (Outcome.INFRASTRUCTURE, 75)
    assert (found.cause, found.checks) == ("lost", ())


def test_a_machine_that_reports_an_error_meanwhile_is_to_blame(machine: Machine, candidate: Pinned, reference: Pinned) -> None:
    machine.looks = [HOST, HOST, HOST.model_copy(update={"events": ("Xid 79: the GPU has fallen off the bus",)})]
    found = machine.run(candidate, fails("3 is not 4"), reference=reference)
    assert found.outcome is Outcome.INFRASTRUCTURE
    assert found.events == ("Xid 79: the GPU has fallen off the bus",)


@pytest.mark.parametrize(
    ("text", "known_good", "outcome", "cause"),
    [
        ("the GPU is lost", True, Outcome.INFRASTRUCTURE, "lost"),
        ("cannot initialise", True, Outcome.FAILED, "init"),
        ("cannot initialise", False, Outcome.INFRASTRUCTURE, "init"),
        ("driver is odd", True, Outcome.FAILED, ""),
    ],
)
def test_what_a_failure_says_tells_whose_it_is(
    text: str, known_good: bool, outcome: Outcome, cause: str, machine: Machine, candidate: Pinned, reference: Pinned
) -> None:
    found = machine.run(candidate, fails(text), reference=reference if known_good else None)
    assert (found.outcome, found.cause) == (outcome, cause)
    assert machine.quarantine.refusal() == ""


def test_a_part_of_a_driver_in_the_image_is_seen(machine: Machine, registry: FakeRegistry, engine: Engine) -> None:
    baked = python_image(registry, {"usr/lib/libcuda.so.1": b"", "own/here": b""})
    try:
        found = machine.run(baked, fails("driver is odd"))
    finally:
        forget(engine, baked)
    assert (found.outcome, found.cause, found.remedy) == (Outcome.FAILED, "baked", "remove it")


def test_a_gpu_that_the_image_does_not_claim_is_not_run_before_anything_starts(
    machine: Machine, candidate: Pinned, reference: Pinned
) -> None:
    newer = GPU.model_copy(update={"name": "RTX 5090", "capability": (12, 0)})
    machine.looks = [HOST.model_copy(update={"gpus": (newer,)})]
    found = machine.run(candidate, fails("x"), reference=reference)
    assert (found.outcome, found.reason) == (Outcome.NOT_RUN, "RTX 5090: this GPU is sm_120, the image supports sm_80")
    assert machine.given == []
    assert (exit_code([found]), exit_code([found], require_gpu=True)) == (0, 75)


def test_a_gpu_that_is_claimed_and_has_no_code_is_the_images_fault(
    machine: Machine, candidate: Pinned, reference: Pinned
) -> None:
    found = machine.run(candidate, fails("no kernel image is available for execution on the device"), reference=reference)
    assert (found.outcome, exit_code([found])) == (Outcome.FAILED, 6)


def test_three_proved_faults_of_a_machine_in_a_row_end_its_work(machine: Machine, candidate: Pinned) -> None:
    machine.looks = [HOST.model_copy(update={"gpus": (), "troubles": (Trouble(text="version mismatch", remedy="reboot"),)})]
    for _ in range(LIMIT):
        found = machine.run(candidate, PASSES)
        assert (found.outcome, found.reason, found.remedy) == (Outcome.INFRASTRUCTURE, "version mismatch", "reboot")
    machine.looks = [HOST]
    found = machine.run(candidate, PASSES)
    assert found.outcome is Outcome.INFRASTRUCTURE
    assert "`node-1` is quarantined" in found.reason
    assert exit_code([found]) == 75
    assert machine.quarantine.clear()
    assert machine.run(candidate, PASSES).outcome is Outcome.PASSED


def test_a_machine_is_looked_at_again_when_its_turn_has_come(machine: Machine, candidate: Pinned) -> None:
    machine.looks = [HOST, HOST.model_copy(update={"troubles": (Trouble(text="ECC", remedy="replace it", gpu="GPU-0"),)})]
    assert machine.run(candidate, PASSES).reason == "ECC"


def test_a_machine_that_cannot_be_looked_at_is_a_result_and_no_exception(
    machine: Machine, candidate: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_to_look(_: Callable[[], str]) -> Host | None:
        raise Temporary("the engine went away")

    monkeypatch.setattr(machine, "look", fails_to_look)
    found = machine.run(candidate, PASSES)
    assert (found.outcome, found.reason, exit_code([found])) == (Outcome.INFRASTRUCTURE, "the engine went away", 75)
    assert machine.quarantine.refusal() == ""


def test_cheap_checks_that_fail_spare_the_gpus(machine: Machine, candidate: Pinned) -> None:
    machine.write(cheap="def test_it():\n    assert False\n")
    found = check([Subject(image="child", pinned=candidate, tag="")], Options(), machine.bench(None))
    assert [(one.lane, one.outcome) for one in found] == [("cpu", Outcome.FAILED), ("gpu", Outcome.NOT_RUN)]
    assert found[1].reason == "not attempted: the lane `cpu` did not pass"
    assert machine.given == []


def test_an_engine_that_has_no_gpus_to_give_is_the_machines_fault(machine: Machine, candidate: Pinned) -> None:
    machine.write()
    bench = machine.bench(None)
    assert bench.hardware is not None
    given = Given(gpus=(GPU,), handed=Gpus((GPU.uuid,), "toolkit"))
    bench = replace(bench, hardware=replace(bench.hardware, give=lambda _: given))
    (found,) = check([Subject(image="child", pinned=candidate, tag="")], Options(lanes=("gpu",)), bench)
    assert (found.outcome, found.cause, found.remedy) == (Outcome.INFRASTRUCTURE, "no-way", "install the toolkit")


def test_a_check_that_hangs_is_no_verdict_on_the_image(machine: Machine, candidate: Pinned, reference: Pinned) -> None:
    hangs = f"{ONLY_HERE}def test_it():\n    while here:\n        pass\n"
    found = machine.run(candidate, hangs, reference=reference, limits=Limits(test=2))
    assert (found.outcome, exit_code([found])) == (Outcome.ERROR, 5)
    assert "timed out" in found.reason


def test_markers_say_what_a_check_needs(machine: Machine, candidate: Pinned) -> None:
    code = "import pytest\n"
    for name, needs in (
        ("two", "2"),
        ("memory", "memory=100"),
        ("newer", "capability='9.0'"),
        ("fits", "memory=70, capability='8.0'"),
    ):
        code += f"@pytest.mark.gpus({needs})\ndef test_{name}(): pass\n"
    found = {one.name: one for one in machine.run(candidate, code).checks}
    assert found["own::test_fits"].outcome is Outcome.PASSED
    reasons = {name: one.reason for name, one in found.items() if one.outcome is Outcome.NOT_RUN}
    assert reasons == {
        "own::test_two": "needs 2 GPUs, this lane has 1",
        "own::test_memory": "needs 1 GPU of 100 GB, this lane has 0",
        "own::test_newer": "needs 1 GPU of compute capability 9.0, this lane has 0",
    }
