"""Matrix products that are known: exact ones to the bit, others against float64 on the CPU; and how fast they come.

Limits are for N(0, 1) inputs, K = 4096, as the norm of the error over the norm of the product: about three times what rounding
alone makes in each type, and far below what a type too small for what was asked would make (TF32 for float32: 3e-4).
"""

import math
import time
from collections import namedtuple
from contextlib import contextmanager

import floors
import pytest
import torch

Case = namedtuple("Case", "dtype limit floor tf32 reduced", defaults=(None, False, False))
CASES = {
    "float32": Case(torch.float32, limit=1e-5),
    "tf32": Case(torch.float32, limit=1e-3, floor=5e-5, tf32=True),
    "float16": Case(torch.float16, limit=5e-4),
    "float16-reduced": Case(torch.float16, limit=1e-3, reduced=True),
    "bfloat16": Case(torch.bfloat16, limit=4e-3),
    "bfloat16-reduced": Case(torch.bfloat16, limit=8e-3, reduced=True),
}
"""`reduced`: sums may be kept in the type of the inputs. TF32 errs by 2.9e-4: an error below its floor was not made by it."""
EXACT = {name: case for name, case in CASES.items() if not case.reduced}
FP8 = torch.float8_e4m3fn
FP8_LIMIT = 1e-2
FP8_ROUNDING = {"floor": 2e-2, "limit": 6e-2}
"""What rounding the inputs to e4m3 costs (3.8e-2); e5m2 would cost 7.5e-2."""
WINDOW = {"cpu": 0.01, "gpu": 0.3}
"""Seconds that a measurement takes at least."""
BEST_OF = {"cpu": 2, "gpu": 5}
WARM_UPS = {"cpu": 1, "gpu": 10}
ROOMY = 6e9
"""Bytes of free memory for products of 8192."""


@pytest.fixture(autouse=True)
def exact(lane):
    """No shortcut that a test does not ask for; afterwards its memory is there for the processes that other checks start."""
    torch.manual_seed(0)
    with shortcuts(tf32=False, reduced=False):
        yield
    if lane == "gpu":
        torch.cuda.empty_cache()


@pytest.fixture
def device(lane):
    return torch.device("cuda" if lane == "gpu" else "cpu")


@pytest.fixture
def capability(lane):
    return torch.cuda.get_device_capability() if lane == "gpu" else (0, 0)


@pytest.fixture
def unshared(gpus):
    if reason := floors.shared(gpus):
        pytest.skip(reason)


@pytest.fixture
def gpu(gpus, lane):
    """What is known of the GPU that CUDA takes first."""
    return floors.of_device(gpus, torch.cuda.get_device_properties(0).uuid) if lane == "gpu" else None


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT)
def test_a_product_of_ones_and_minus_ones_is_exact(case, device):
    # Every partial sum is an integer below 256, which bfloat16 holds.
    left, right, expected = ones()
    with shortcuts(tf32=case.tf32, reduced=False):
        found = left.to(device, case.dtype) @ right.to(device, case.dtype)
    assert torch.equal(found.cpu().double(), expected.double()), "an element is wrong"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_product_is_as_near_as_its_type_allows(case, capability, device, measure):
    left, right = (torch.randn(256, 4096).to(case.dtype) for _ in range(2))
    expected = left.double() @ right.double().T
    with shortcuts(tf32=case.tf32, reduced=case.reduced):
        found, again = (left.to(device) @ right.to(device).T for _ in range(2))
    assert torch.isfinite(found).all()
    measure("repeats to the bit", torch.equal(found, again))
    floor = case.floor if capability >= (8, 0) else None
    measure("relative error", error(found, expected), floor=floor, limit=case.limit)


def test_a_product_of_eight_bit_inputs_is_exact_and_as_near_as_its_type_allows(lane, capability, device, measure):
    if lane == "gpu" and capability < (8, 9):
        pytest.skip(f"needs compute capability 8.9 for float8, this GPU has {capability[0]}.{capability[1]}")
    left, right, expected = ones()
    found = eight_bit_product(left.to(device, FP8), right.T.to(device, FP8))
    assert torch.equal(found.cpu().double(), expected.double()), "an element is wrong"
    left, right = torch.randn(256, 4096), torch.randn(256, 4096)
    found = eight_bit_product(left.to(device, FP8), right.to(device, FP8))
    measure("relative error", error(found, left.to(FP8).double() @ right.to(FP8).double().T), limit=FP8_LIMIT)
    measure("relative error with that of the inputs", error(found, left.double() @ right.double().T), **FP8_ROUNDING)


def test_a_convolution_agrees_with_float64(device):
    agree(torch.nn.functional.conv2d, torch.randn(2, 3, 32, 32), torch.randn(8, 3, 3, 3), device=device)


def test_attention_agrees_with_float64(device):
    agree(torch.nn.functional.scaled_dot_product_attention, *torch.randn(3, 2, 4, 16, 32), device=device)


def test_linear_algebra_agrees_with_float64(device):
    matrix = torch.randn(64, 64)
    agree(torch.linalg.svdvals, matrix, device=device)
    agree(torch.linalg.solve, matrix + 64 * torch.eye(64), torch.randn(64, 8), device=device)


@pytest.mark.usefixtures("unshared")
def test_products_are_as_fast_as_the_gpu_allows(lane, device, gpu, capability, measure):
    """TFLOP/s against the peak, and float16 against float32; bfloat16 only where it is no emulation."""
    size = (8192 if torch.cuda.mem_get_info()[0] >= ROOMY else 4096) if lane == "gpu" else 256
    speeds = {}
    for dtype in (torch.float32, torch.float16, *((torch.bfloat16,) if capability >= (8, 0) else ())):
        left, right, out = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
        seconds = best_seconds(lambda left=left, right=right, out=out: torch.matmul(left, right, out=out), lane)
        speeds[dtype] = 2 * size**3 / seconds / 1e12
        measure(f"{dtype} TFLOP/s", speeds[dtype])
    if gpu:
        judge(speeds, gpu, torch.cuda.get_device_properties(0).multi_processor_count, measure)


@pytest.mark.usefixtures("unshared")
def test_memory_is_copied_as_fast_as_the_gpu_allows(lane, device, gpu, measure):
    size = min(2**30, torch.cuda.mem_get_info()[0] // 4) if lane == "gpu" else 2**22
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    seconds = best_seconds(lambda: target.copy_(source), lane)
    measure("copied GB/s", 2 * size / seconds / 1e9, floor=floors.copy_floor(gpu) if gpu else None)


@contextmanager
def shortcuts(*, tf32, reduced):
    """Set what may be less exact than asked for, in products and convolutions, and put it back."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    names = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    flags = [(products, name) for name in names] + [(convolutions, "allow_tf32")]
    before = [getattr(place, name) for place, name in flags]
    try:
        for (place, name), value in zip(flags, (tf32, reduced, reduced, tf32), strict=True):
            setattr(place, name, value)
        yield
    finally:
        for (place, name), value in zip(flags, before, strict=True):
            setattr(place, name, value)


def ones():
    """Two matrices of 1 and -1, and their product."""
    left, right = (torch.randint(0, 2, (1024, 1024), dtype=torch.int32) * 2 - 1 for _ in range(2))
    expected = (left.double() @ right.double()).to(torch.int32)
    assert expected.abs().max() <= 256
    return left, right, expected


def error(found, expected):
    return float((found.cpu().double() - expected).norm() / expected.norm())


def eight_bit_product(left, right):
    """`left @ right.T` in bfloat16; the CPU has no such kernel, and multiplies as float32."""
    if left.device.type == "cpu":
        return (left.float() @ right.float().T).bfloat16()
    one = torch.ones((), device=left.device)
    return torch._scaled_mm(left, right.contiguous().T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)


def agree(function, *inputs, device):
    expected = function(*(one.double() for one in inputs))
    found = function(*(one.to(device) for one in inputs)).cpu().double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def judge(speeds, gpu, multiprocessors, measure):
    peak, shares = floors.peak(gpu, multiprocessors), floors.shares(gpu)
    for dtype, speed in speeds.items():
        if peak and shares and dtype != torch.float32:
            fails, warns = shares
            measure(f"{dtype} of the peak.warn", warns)
            measure(f"{dtype} of the peak", speed / peak, floor=fails)
    measure("float16 / float32", speeds[torch.float16] / speeds[torch.float32], floor=floors.ratio(gpu))


def best_seconds(function, lane):
    """The seconds of one call, from the best of some windows of many."""
    for _ in range(WARM_UPS[lane]):
        function()
    calls = max(1, math.ceil(WINDOW[lane] / seconds_of(function, 1, lane)))
    return min(seconds_of(function, calls, lane) for _ in range(BEST_OF[lane])) / calls


def seconds_of(function, calls, lane):
    """By the GPU's own clock, where there is one."""
    if lane == "cpu":
        started = time.perf_counter()
        for _ in range(calls):
            function()
        return time.perf_counter() - started
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        function()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3
