"""What the real image says without a working driver, GPU or enough shared memory is known by its row of `failures.yaml`."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import context, statements
from pipeline.catalog import Checks
from pipeline.check import Bench, Given, Hardware, Options, Subject, check
from pipeline.command import Runner
from pipeline.engine import Engine, Spec, connect, container, ensure
from pipeline.failures import Failures
from pipeline.gpus import Gpu, Host
from pipeline.oci import Pinned
from pipeline.quarantine import Quarantine
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Outcome
from pipeline.story import Silent
from tests.integration.conftest import Stack
from tests.integration.cuda_driver import VERSION, libcuda
from tests.integration.families import PROJECT

RECORDED = PROJECT / "tests" / "data" / "failures" / "recorded.yaml"
IMAGE = "pytorch"
BUILDS_WITHIN, SPEAKS_WITHIN = 3600.0, 600.0
"""Seconds, where the candidate is not there yet, and for all that is said in one container."""
OLD_DRIVER = 11040
GPU = Gpu(index=0, uuid="GPU-0", name="a GPU", capability=(8, 0), memory=80 * 2**30, used=0)

CODES = {
    2: "gpu-occupied",
    3: "driver-start",
    34: "stub-library",
    35: "driver-too-old",
    46: "gpu-busy",
    100: "no-gpu",
    101: "device-ordinal",
    209: "no-kernel-image",
    214: "memory-error",
    218: "ptx-toolchain",
    220: "hardware-error",
    222: "ptx-toolchain",
    304: "driver-unknown",
    714: "hardware-error",
    800: "not-permitted",
    801: "not-permitted",
    802: "fabric",
    803: "driver-pair",
    804: "forward-compatibility",
    805: "mps",
    807: "mps",
    999: "driver-unknown",
}
"""What `cuInit` returns → the row; numbers of `CUresult`."""
UNDER_CONDITIONS = [
    (35, "driver-below-claim", "driver-too-old-known"),
    (803, "driver-in-image", "driver-pair-in-image"),
    (804, "driver-in-image", "forward-compatibility-in-image"),
]
OTHERS = {
    "no library": "no-driver-library",
    "no library for ctypes": "no-driver-library",
    "nccl without a GPU": "no-gpu",
    "little shared memory": "shared-memory",
    "an interface that is not there": "nccl-interface",
    "no compiler": "no-compiler",
    "other tensors": "wrong-numbers",
    "tensors far away": "wrong-numbers",
    "other numbers": "wrong-numbers",
    "no number": "wrong-numbers",
}

USES_CUDA = "import torch; torch.cuda.init(); torch.zeros(1, device='cuda')"
USES_NCCL = "import torch.distributed as d; d.init_process_group('nccl', init_method='file:///tmp/x', rank=0, world_size=1)"
USES_AN_INTERFACE = """
import ctypes, os, nvidia.nccl
os.environ.update(NCCL_DEBUG="WARN", NCCL_SOCKET_IFNAME="eth7")
nccl = ctypes.CDLL(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")
assert nccl.ncclGetUniqueId(ctypes.create_string_buffer(128)) == 0, "NCCL does not start"
"""
COMPARES = "import torch; torch.testing.assert_close({})"
PROGRAMS = {
    "no library": USES_CUDA,
    "no library for ctypes": "import ctypes; ctypes.CDLL('libcuda.so.1')",
    "nccl without a GPU": USES_NCCL,
    "an interface that is not there": USES_AN_INTERFACE,
    "no compiler": "from triton.runtime.build import _build; _build('x', '/tmp/x.c', '/tmp', [], [], [])",
    "other tensors": COMPARES.format("torch.ones(3), torch.zeros(3), rtol=0, atol=0"),
    "tensors far away": COMPARES.format("torch.ones(3), torch.zeros(3)"),
    "other numbers": COMPARES.format("3, 4"),
    "no number": COMPARES.format("float('nan'), 1.0"),
    "little shared memory": """
import torch

class Large(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.ones(64 * 2**20)

print(sum(batch.numel() for batch in torch.utils.data.DataLoader(Large(), batch_size=1, num_workers=1)))
""",
}
SPEAKER = """
import ctypes, json, os, sys, traceback
import torch

def speak(program, library):
    out = os.open("/tmp/said", os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        if library:
            ctypes.CDLL(library)
        exec(program, {})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)

said = []
for name, program, library in json.load(open("/drivers/programs.json")):
    pid = os.fork()
    if not pid:
        speak(program, library)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said.append((name, status, open("/tmp/said").read()))
json.dump(said, open("/tmp/said.json", "w"))
"""
"""Each program in a process of its own, which has torch already; a library that is loaded answers to its name, `libcuda.so.1`."""


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Engine]:
    engine = connect(stack.environment, run="integration-failures")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def candidate(stack: Stack) -> Pinned:
    """The real candidate, built if it is not there."""
    argv = [sys.executable, "-m", "pipeline", "build", IMAGE, "--json"]
    environment = dict(stack.environment)
    done = subprocess.run(argv, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=BUILDS_WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    (pinned,) = (Pinned.parse(built["pinned"]) for built in json.loads(done.stdout) if built["image"] == IMAGE)
    return pinned


@pytest.fixture(scope="module")
def image(candidate: Pinned, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The engine's id of it."""
    registry, scratch = Registry(), tmp_path_factory.mktemp("loading")
    return ensure(candidate, registry.manifest(candidate), engine=engine, registry=registry, story=Silent(), scratch=scratch)


@pytest.fixture(scope="module")
def said(engine: Engine, image: str) -> Mapping[str, str]:
    """What each program said when it failed, all in one container with little shared memory: by code, or by name."""
    programs = [(str(code), USES_CUDA, f"/drivers/{code}/libcuda.so.1") for code in CODES]
    programs += [(name, program, "") for name, program in PROGRAMS.items()]
    files = {f"drivers/{code}/libcuda.so.1": libcuda(code, OLD_DRIVER if code == 35 else VERSION) for code in CODES}
    files["drivers/programs.json"] = json.dumps(programs).encode()
    spec = Spec(image=image, command=("python", "-c", SPEAKER), shm_size="64m")
    with container(spec, engine=engine, story=Silent(), title="failures") as made:
        made.put("/", packed(files))
        made.start()
        assert made.wait(SPEAKS_WITHIN).code == 0, made.log()
        content = made.get("/tmp/said.json", 2**20)
    assert content
    results: list[tuple[str, int, str]] = json.loads(content)
    assert {name for name, code, _ in results if code == 0} == set()
    return {name: text for name, _, text in results}


@pytest.fixture(scope="module")
def known() -> Failures:
    return context.failures(Settings(root=PROJECT, cache=PROJECT / "no-cache"))


def packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def row(known: Failures, text: str, *facts: str) -> str:
    found = known.find(text, code=1, facts=facts)
    return found.name if found else ""


def test_what_torch_says_of_each_answer_of_the_driver_is_known_by_its_row(said: Mapping[str, str], known: Failures) -> None:
    assert {code: row(known, said[str(code)]) for code in CODES} == CODES


@pytest.mark.parametrize(("code", "fact", "name"), UNDER_CONDITIONS)
def test_what_is_known_beside_the_text_decides(code: int, fact: str, name: str, said: Mapping[str, str], known: Failures) -> None:
    assert row(known, said[str(code)], fact) == name


def test_what_else_is_said_in_the_image_is_known_by_its_row(said: Mapping[str, str], known: Failures) -> None:
    assert {name: row(known, said[name]) for name in OTHERS} == OTHERS


def test_the_recorded_texts_are_what_is_really_said(said: Mapping[str, str]) -> None:
    recorded: list[dict[str, Any]] = yaml.safe_load(RECORDED.read_bytes())
    texts = {one["text"] for one in recorded}
    really = {said[name].strip().splitlines()[-1] for name in [*map(str, CODES), "no library", "nccl without a GPU"]}
    assert really - texts == set()


def lane(library: bytes, candidate: Pinned, stack: Stack, engine: Engine, root: Path) -> statements.Tested:
    """The lane `gpu` of the check `driver` alone, on a machine with one GPU and this driver."""
    settings = Settings(root=PROJECT, cache=root / "cache")
    catalog = context.load(settings)
    alone = {name: image.model_copy(update={"checks": Checks()}) for name, image in catalog.images.items()}
    alone[IMAGE] = alone[IMAGE].model_copy(update={"checks": Checks(gpu=("driver",))})
    (root / "libcuda.so.1").write_bytes(library)
    (root / "libcuda.so.1").chmod(0o755)
    (root / "images").symlink_to(PROJECT / "images")
    given = Given(gpus=(GPU,), binds=(f"{root / 'libcuda.so.1'}:/usr/lib/x86_64-linux-gnu/libcuda.so.1:ro",))
    bench = Bench(
        catalog=catalog.model_copy(update={"images": alone}),
        settings=Settings(root=root, cache=root / "cache"),
        engine=engine,
        registry=Registry(),
        run=Runner(stack.environment),
        run_id="integration-failures",
        story=Silent(),
        now=lambda: datetime.now(UTC),
        hardware=Hardware(
            examine=lambda _: Host(name="node-1", driver="550.54.15", gpus=(GPU,)),
            give=lambda _: given,
            quarantine=Quarantine(root / "quarantine", "node-1"),
            turns=root / "turns",
        ),
        failures=context.failures(settings),
    )
    (tested,) = check([Subject(image=IMAGE, pinned=candidate, tag="")], Options(lanes=("gpu",)), bench)
    return tested


@pytest.mark.parametrize(
    ("library", "outcome", "cause", "says"),
    [
        (libcuda(0, count=1), Outcome.PASSED, "", ""),
        (libcuda(803), Outcome.INFRASTRUCTURE, "driver-pair", "cuInit answers 803; torch says: RuntimeError: Unexpected error"),
        (libcuda(34), Outcome.FAILED, "stub-library", "Error 34: CUDA driver is a stub library"),
        (libcuda(0, count=2), Outcome.FAILED, "", "assert 2 == 1"),
        (libcuda(0, OLD_DRIVER, count=1), Outcome.FAILED, "", "the driver's CUDA is 11040, torch's 12.4"),
        (b"", Outcome.INFRASTRUCTURE, "driver-library-empty", "libcuda.so.1: file too short"),
    ],
    ids=["works", "halves-differ", "stub", "another-gpu", "old", "broken"],
)
def test_the_check_of_the_driver_tells_whose_fault_it_is(
    library: bytes, outcome: Outcome, cause: str, says: str, candidate: Pinned, stack: Stack, engine: Engine, tmp_path: Path
) -> None:
    tested = lane(library, candidate, stack, engine, tmp_path)
    told = "\n".join(one.reason for one in tested.checks)
    assert (tested.outcome, tested.cause, says in told) == (outcome, cause, True), told
