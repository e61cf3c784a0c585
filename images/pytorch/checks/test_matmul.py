"""Matrix products that are known: exact ones to the bit, others against float64 on the CPU.

Limits are for N(0, 1) inputs, K = 4096: about three times the error that rounding alone makes in each type, and far below
what a type too small for what was asked would make (TF32 for float32: 3e-4).
"""

import pytest
import torch

LIMITS = {torch.float32: 1e-5, torch.float16: 5e-4, torch.bfloat16: 4e-3}
DTYPES = list(LIMITS)


@pytest.fixture(autouse=True)
def device(lane):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return torch.device("cuda" if lane == "gpu" else "cpu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_product_of_ones_and_minus_ones_is_exact(dtype, device):
    # Every partial sum is an integer below 256, which bfloat16 holds.
    left, right = (torch.randint(0, 2, (1024, 1024), dtype=torch.int32) * 2 - 1 for _ in range(2))
    expected = (left.double() @ right.double()).to(torch.int32)
    assert expected.abs().max() <= 256
    found = left.to(device, dtype) @ right.to(device, dtype)
    assert torch.equal(found.cpu().to(torch.int32), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_product_is_as_near_as_its_type_allows(dtype, device, measure):
    left, right = (torch.randn(256, 4096).to(dtype) for _ in range(2))
    expected = left.double() @ right.double().T
    found = (left.to(device) @ right.to(device).T).cpu().double()
    assert torch.isfinite(found).all()
    measure("relative error", float((found - expected).norm() / expected.norm()), limit=LIMITS[dtype])


def test_tf32_is_used_where_it_is_asked_for_and_only_there(lane, device, measure):
    if lane == "gpu" and torch.cuda.get_device_capability() >= (8, 0):
        torch.set_float32_matmul_precision("high")
        bounds = {"floor": 5e-5, "limit": 1e-3}
    else:
        bounds = {"limit": 1e-5}
    left, right = (torch.randn(256, 4096) for _ in range(2))
    expected = left.double() @ right.double().T
    found = (left.to(device) @ right.to(device).T).cpu().double()
    measure("relative error", float((found - expected).norm() / expected.norm()), **bounds)


def test_a_convolution_attention_and_a_decomposition_agree_with_float64(device):
    images, kernels = torch.randn(2, 3, 32, 32), torch.randn(8, 3, 3, 3)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        agree(torch.nn.functional.conv2d, images, kernels, device=device)
    agree(torch.nn.functional.scaled_dot_product_attention, *torch.randn(3, 2, 4, 16, 32), device=device)
    agree(torch.linalg.svdvals, torch.randn(64, 64), device=device)


def agree(function, *inputs, device):
    expected = function(*(one.double() for one in inputs))
    found = function(*(one.to(device) for one in inputs)).cpu().double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
