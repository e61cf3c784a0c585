"""What checks do on which GPU, in the real image, with the CPU behind CUDA's names: the branches that no lane `cpu` reaches."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.catalog import Catalog
from pipeline.check import suite as suites
from pipeline.check.bench import Given
from pipeline.check.lane import run_inside
from pipeline.engine import Engine, ensure
from pipeline.gpus import Gpu
from pipeline.registry import Registry
from pipeline.statements import Checked, Outcome
from pipeline.story import Silent
from tests.integration.conftest import Stack
from tests.integration.examination import catalog, engine, loaded
from tests.integration.families import PROJECT

__all__ = ["catalog", "engine"]

IMAGE = "lab"
STAND_IN = """
import types, torch

torch.cuda.get_device_capability = lambda *of: {capability}
torch.cuda.get_device_properties = lambda *of: types.SimpleNamespace(uuid="1", multi_processor_count=1)
torch.cuda.memory_allocated = torch.cuda.max_memory_allocated = lambda *of: 0
torch.cuda.reset_peak_memory_stats = lambda *of: None
torch.cuda.empty_cache = lambda: print("the cache is emptied")

"""
SMALLER = {
    b'"cuda" if lane == "gpu" else "cpu"': b'"cpu"',
    b'"gpu": (16, 64)': b'"gpu": (2, 8)',
    b'LAYERS = {"cpu": 2, "gpu": 4}': b'LAYERS = {"cpu": 1, "gpu": 1}',
}
"""float16 on a CPU is slow."""
Found = Mapping[str, Checked]


@pytest.fixture(scope="module")
def image(stack: Stack, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    scratch = tmp_path_factory.mktemp("loading")
    pinned, registry = loaded([IMAGE], stack, engine, scratch)[IMAGE], Registry()
    return ensure(pinned, registry.manifest(pinned), engine=engine, registry=registry, story=Silent(), scratch=scratch)


def ran(image: str, capability: tuple[int, int], engine: Engine, catalog: Catalog, folder: Path, *checks: str) -> Found:
    """Checks and their tests by name, on a GPU that others compute on too, so that no speed is judged."""
    suite = suites.read(catalog, IMAGE, "gpu", PROJECT / "images")
    files = dict(suite.files)
    for path in files:
        for old, new in SMALLER.items():
            files[path] = files[path].replace(old, new)
    files["pytorch/floors.py"] = STAND_IN.format(capability=capability).encode() + files["pytorch/floors.py"]
    listed = tuple(check for check in suite.checks if check.name in ("matmul", *checks))
    gpu = Gpu(index=0, uuid="GPU-1", name="a GPU", capability=capability, memory=2**34, used=0, processes=1)
    log = folder / "lane.log"
    found = run_inside(
        image,
        replace(suite, checks=listed, files=files),
        title="branches",
        engine=engine,
        story=Silent(),
        log=log,
        given=Given(gpus=(gpu,)),
    )
    assert log.read_text().count("the cache is emptied")
    return {check.name: check for check in found.checks}


def bad(found: Found) -> list[str]:
    return [f"{name}: {one.reason}" for name, one in found.items() if one.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)]


def measured(found: Found, check: str) -> set[str]:
    return {figure for name, one in found.items() if name.startswith(f"{check}::") for figure in one.measured}


def test_on_7_5_nothing_is_asked_of_tf32_and_bfloat16_is_not_trained_in(
    image: str, engine: Engine, catalog: Catalog, tmp_path: Path
) -> None:
    found = ran(image, (7, 5), engine, catalog, tmp_path, "encoder-step", "bert-amp-step")
    assert bad(found) == []
    (eight,) = (one for name, one in found.items() if "eight_bit" in name)
    assert (eight.outcome, eight.reason) == (Outcome.NOT_RUN, "needs compute capability 8.9 for float8, this GPU has 7.5")
    for check in ("encoder-step", "bert-amp-step"):
        assert "torch.float16 first loss" in measured(found, check)
        assert not [figure for figure in measured(found, check) if "bfloat16" in figure]


def test_on_8_9_tf32_must_err_as_tf32_does_and_everything_else_is_asked(
    image: str, engine: Engine, catalog: Catalog, tmp_path: Path
) -> None:
    found = ran(image, (8, 9), engine, catalog, tmp_path, "encoder-step")
    tests = [line for line in bad(found) if "::" in line]
    assert len(tests) == 1, tests
    assert "allows[tf32]" in tests[0]
    assert "below its floor of 5e-05" in tests[0]
    assert {"torch.float16 first loss", "torch.bfloat16 first loss"} <= measured(found, "encoder-step")
    assert "relative error with that of the inputs" in measured(found, "matmul")


def test_a_gpu_that_triton_does_not_know_is_no_fault_of_the_compiler(
    image: str, engine: Engine, catalog: Catalog, tmp_path: Path
) -> None:
    found = ran(image, (6, 1), engine, catalog, tmp_path, "compile")
    assert bad(found) == []
    assert "needs compute capability 7.0 for Triton, this GPU has 6.1" in found["compile"].reason
