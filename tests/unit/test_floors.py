"""Floors of the GPU checks: peaks as datasheets have them, models by their real names, nothing judged that nobody knows."""

from collections.abc import Mapping
from typing import Any

import pytest

from images.pytorch.checks import floors, ladder

DATASHEETS = [
    ("Tesla T4", (7, 5), 40, 1590, 65),
    ("Tesla V100-SXM2-16GB", (7, 0), 80, 1530, 125),
    ("Tesla V100-PCIE-32GB", (7, 0), 80, 1380, 112),
    ("NVIDIA A10", (8, 6), 72, 1695, 125),
    ("NVIDIA A40", (8, 6), 84, 1740, 149.7),
    ("NVIDIA A100-SXM4-40GB", (8, 0), 108, 1410, 312),
    ("NVIDIA L4", (8, 9), 58, 2040, 121),
    ("NVIDIA L40", (8, 9), 142, 2490, 362),
    ("NVIDIA GeForce RTX 3090", (8, 6), 82, 1695, 71),
    ("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520, 165),
    ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1830, 989),
    ("NVIDIA H100 PCIe", (9, 0), 114, 1620, 756),
    ("NVIDIA H200", (9, 0), 132, 1830, 989),
    ("NVIDIA B200", (10, 0), 148, 1850, 2250),
]
"""Name, compute capability, multiprocessors, boost clock in MHz, dense float16 TFLOP/s with float32 sums."""


def gpu(
    name: str, capability: tuple[int, int] = (9, 0), clock: int = 1000, uuid: str = "GPU-1", processes: int = 0
) -> Mapping[str, Any]:
    return {"name": name, "capability": list(capability), "clock": clock, "uuid": uuid, "processes": processes}


@pytest.mark.parametrize(("name", "capability", "multiprocessors", "clock", "teraflops"), DATASHEETS, ids=str)
def test_the_peak_is_that_of_the_datasheet(
    name: str, capability: tuple[int, int], multiprocessors: int, clock: int, teraflops: float
) -> None:
    assert floors.peak(gpu(name, capability, clock), multiprocessors) == pytest.approx(teraflops, rel=0.012)


@pytest.mark.parametrize("name", [row[0] for row in DATASHEETS])
def test_every_model_of_the_datasheets_is_known(name: str) -> None:
    assert floors.model(gpu(name)).memory > 0


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("Tesla V100S-PCIE-32GB", 1134),
        ("NVIDIA A10G", 600),
        ("NVIDIA A100-PCIE-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA L40S", 864),
        ("NVIDIA L4", 300),
        ("NVIDIA H200 NVL", 4800),
    ],
)
def test_names_that_are_alike_are_told_apart(name: str, bandwidth: float) -> None:
    assert floors.model(gpu(name)).memory == bandwidth
    assert floors.copy_floor(gpu(name)) == pytest.approx(0.6 * bandwidth)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A30",
        "NVIDIA GH200 480GB",
        "NVIDIA A1000",
        "NVIDIA T400",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A40-48Q",
        "GRID T4-16Q",
    ],
)
def test_of_other_models_nothing_is_known(name: str) -> None:
    assert floors.model(gpu(name)) is None
    assert floors.copy_floor(gpu(name)) is None


def test_a_slice_has_the_peak_of_its_multiprocessors_and_no_bandwidth() -> None:
    part = gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", (8, 0), 1410, uuid="MIG-1")
    assert floors.peak(part, 42) == pytest.approx(312 * 42 / 108, rel=0.012)
    assert floors.shares(part) == (0.35, 0.65)
    assert floors.copy_floor(part) is None


def test_an_unknown_family_or_clock_is_not_judged() -> None:
    assert floors.peak(gpu("NVIDIA X", (99, 0)), 100) is None
    assert floors.peak(gpu("NVIDIA H200", clock=0), 132) is None
    assert (floors.shares(gpu("NVIDIA X", (99, 0))), floors.ratio(gpu("NVIDIA X", (99, 0)))) == (None, None)


def test_every_family_with_a_peak_has_parts_of_it_to_reach_and_fails_below_where_it_warns() -> None:
    assert floors.SHARES.keys() == floors.FLOPS.keys()
    assert all(fails < warns for fails, warns in (*floors.SHARES.values(), floors.GEFORCE, floors.UNCAPPED))
    assert floors.shares(gpu("NVIDIA GeForce RTX 4090", (8, 9))) == (0.40, 0.75)
    assert floors.shares(gpu("NVIDIA L40S", (8, 9))) == (0.25, 0.45)
    assert floors.shares(gpu("NVIDIA L4", (8, 9))) == (0.15, 0.35)


@pytest.mark.parametrize("name", ["NVIDIA GeForce GTX 1660 Ti", "NVIDIA T1000", "NVIDIA T400 4GB", "NVIDIA GeForce MX450"])
def test_small_gpus_without_tensor_cores_are_not_judged_by_them(name: str) -> None:
    small = gpu(name, (7, 5))
    assert (floors.shares(small), floors.ratio(small)) == (None, None)
    assert floors.ratio(gpu("Tesla T4", (7, 5))) == floors.ratio(gpu("NVIDIA GeForce RTX 2080 Ti", (7, 5))) == 3


def test_h20_is_no_h200_and_has_a_quarter_of_its_family_s_tensor_operations() -> None:
    assert (floors.shares(gpu("NVIDIA H20")), floors.ratio(gpu("NVIDIA H20")), floors.model(gpu("NVIDIA H20"))) == (None,) * 3
    assert floors.shares(gpu("NVIDIA H200")) == (0.30, 0.60)


def test_where_others_chose_the_power_or_share_the_time_the_peak_says_nothing() -> None:
    assert floors.shares(gpu("NVIDIA GeForce RTX 4090 Laptop GPU", (8, 9))) is None
    assert floors.shares(gpu("NVIDIA A40-48Q", (8, 6))) is None


@pytest.mark.parametrize(
    ("name", "pair"),
    [("NVIDIA A100-SXM4-40GB", 4 * 25), ("NVIDIA H100 80GB HBM3", 6 * 25), ("NVIDIA H200", 6 * 25), ("NVIDIA H200 NVL", 6 * 25)],
)
def test_two_gpus_of_a_board_of_four_have_a_third_of_their_links_between_them(name: str, pair: float) -> None:
    least = ladder.bus_floor("NVLink", nvlink=floors.model(gpu(name)).nvlink, generation=5)
    assert max(ladder.PCIE.values()) < least < 0.5 * pair


def test_pairs_of_v100_are_known_by_their_nvlink() -> None:
    assert floors.model(gpu("Tesla V100-SXM2-16GB")).nvlink == floors.model(gpu("Tesla V100-SXM3-32GB")).nvlink == 25
    assert floors.model(gpu("Tesla V100-PCIE-16GB")).nvlink is None


def test_a_gpu_is_shared_when_others_compute_on_it() -> None:
    assert floors.shared([gpu("NVIDIA L4")]) == ""
    assert floors.shared([]) == ""
    assert floors.shared([gpu("NVIDIA L4"), gpu("NVIDIA L4", uuid="GPU-2", processes=2)]) == "shared: 2 other processes on GPU-2"


def test_a_gpu_is_found_by_what_cuda_calls_it() -> None:
    first, second = gpu("NVIDIA L4", uuid="GPU-aaaa"), gpu("NVIDIA L4", uuid="GPU-bbbb")
    assert floors.of_device([first, second], "bbbb") is second
    assert floors.of_device([gpu("NVIDIA A100", uuid="MIG-cccc")], "aaaa")["uuid"] == "MIG-cccc"
