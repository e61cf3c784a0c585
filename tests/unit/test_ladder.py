"""The all-reduce check's own logic: which step of the ladder, which transport, how fast, and what is broken when it is red."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from images.pytorch.checks import ladder, launcher
from images.pytorch.checks.launcher import Ended

OLD, NEW = (2, 21, 5), (2, 30, 7)
FULL = [{"uuid": "GPU-1"}, {"uuid": "GPU-2"}]
SLICES = [{"uuid": "MIG-1"}, {"uuid": "MIG-2"}]
WARNED = "host:7:7 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n"
P2P = "host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
SHM = "host:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
SOCKET = "host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"
NVLINK = "host:7:9 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 16, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1\n"
PCIE = NVLINK.replace("NVL", "PHB")
JOB = ladder.Job(backend="nccl", device="cuda")


def ended(code: int | None = 1, log: str = "", err: str = "") -> Any:
    return Ended(code=code, deadline=60, out="", err=err, log=log)


def jobs(lane: str, gpus: Sequence[Mapping[str, str]], nccl: tuple[int, ...]) -> list[str]:
    return [str(job) for job in ladder.climb(lane, gpus, nccl)[1]]


def test_two_gpus_are_the_highest_step() -> None:
    assert ladder.climb("gpu", FULL, OLD) == ("", (JOB,))
    assert JOB.sizes == (1, 1023, 2**20, 2**26)


def test_one_gpu_is_proved_in_three_parts() -> None:
    assert jobs("gpu", FULL[:1], OLD) == ["1 x nccl on cuda", "2 x nccl on cuda, refused", "2 x gloo on cuda"]
    assert jobs("gpu", SLICES, OLD) == jobs("gpu", FULL[:1], OLD)


def test_a_newer_nccl_shares_one_gpu() -> None:
    (job,) = ladder.climb("gpu", FULL[:1], NEW)[1]
    assert job.environment == {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    (job,) = ladder.climb("gpu", SLICES, NEW)[1]
    assert job.environment == {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "RANK_DEVICES": "MIG-1,MIG-2"}
    (job,) = ladder.climb("gpu", SLICES[:1], NEW)[1]
    assert job.environment["RANK_DEVICES"] == "MIG-1,MIG-1"


def test_every_step_but_the_highest_has_words_of_its_own() -> None:
    cases = [("cpu", [], OLD), ("gpu", FULL[:1], OLD), ("gpu", SLICES, OLD), ("gpu", FULL[:1], NEW), ("gpu", SLICES, NEW)]
    said = [ladder.climb(*case)[0] for case in cases]
    assert all(said)
    assert len(set(said)) == len(cases)


@pytest.mark.parametrize(
    ("log", "way"),
    [
        (P2P + NVLINK, "NVLink"),
        (P2P + PCIE, "P2P"),
        (P2P + SHM + NVLINK, "SHM"),
        (P2P + SHM + SOCKET, "NET/Socket"),
        (SOCKET.replace("Socket", "IB"), "NET/IB"),
        (NVLINK, ""),
        ("", ""),
    ],
)
def test_the_slowest_way_is_read_from_the_log(log: str, way: str) -> None:
    assert ladder.transport(log) == way


def test_the_floor_is_that_of_the_way() -> None:
    assert ladder.bus_floor("NVLink", nvlink=450, generation=5) == pytest.approx(157.5)
    assert ladder.bus_floor("NVLink", nvlink=None, generation=4) == 10
    assert [ladder.bus_floor("P2P", nvlink=450, generation=one) for one in (None, 1, 3, 4, 5, 6)] == [5, 5, 5, 10, 20, 20]
    assert [ladder.bus_floor("P2P", nvlink=None, generation=4, lanes=one) for one in (None, 8, 16, 32)] == [10, 5, 10, 10]
    assert ladder.bus_floor("SHM", nvlink=450, generation=5) == 2.5
    assert ladder.bus_floor("NET/IB", nvlink=450, generation=5) is None


def test_the_generation_is_that_of_the_slowest_link_on_the_way(tmp_path: Path) -> None:
    slot, devices = tmp_path / "pci0000:3a/0000:3a:00.0", tmp_path / "devices"
    (slot / "0000:3b:00.0").mkdir(parents=True)
    devices.mkdir()
    (devices / "0000:3b:00.0").symlink_to(slot / "0000:3b:00.0")
    (slot / "0000:3b:00.0/max_link_speed").write_text("32.0 GT/s PCIe\n")
    log = "NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0x7 - Init COMPLETE\n"
    assert ladder.generation(log, devices) == 5
    (slot / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    assert ladder.generation(log, devices) == 4
    (slot / "max_link_speed").write_text("Unknown\n")
    assert ladder.generation(log, devices) == 5
    assert ladder.generation(log.replace("3b000", "4c000"), devices) is None
    assert ladder.lanes(log, devices) is None
    (slot / "0000:3b:00.0/max_link_width").write_text("16\n")
    (slot / "max_link_width").write_text("8\n")
    assert ladder.lanes(log, devices) == 8
    (slot / "max_link_width").write_text("255\n")
    assert ladder.lanes(log, devices) == 16


@pytest.mark.parametrize(
    ("works_without", "verdict"),
    [
        ({"NCCL_P2P_DISABLE"}, ladder.NO_PEERS),
        ({"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}, ladder.NO_SHARED_MEMORY),
        (None, ladder.NO_TRANSPORT),
    ],
)
def test_what_is_broken_is_found_by_leaving_it_out(works_without: set[str] | None, verdict: str) -> None:
    asked: list[Mapping[str, str]] = []

    def goes_well(environment: Mapping[str, str]) -> bool:
        asked.append(environment)
        return works_without is not None and environment.keys() >= works_without

    text = ladder.explained(JOB, ended(log=WARNED), goes_well)
    said = [one for one in (ladder.NO_PEERS, ladder.NO_SHARED_MEMORY, ladder.NO_TRANSPORT) if one in text]
    assert said == [verdict]
    assert len(asked) <= 2
    assert "NCCL warned: Duplicate GPU detected : rank 1 and rank 0" in text
    assert "\n" not in text


def test_a_timeout_reads_like_one() -> None:
    assert ladder.explained(JOB, ended(None), lambda more: True).startswith(
        "2 x nccl on cuda: timed out: did not end within 60 s; "
    )


def test_the_first_error_of_a_process_is_told_and_gloo_is_not_diagnosed() -> None:
    err = (
        "[rank1]: AssertionError: wrong sums: torch.int64\n[rank0]: RuntimeError: lost\ntorch.multiprocessing.ChildFailedError:\n"
    )
    text = ladder.explained(ladder.Job(backend="gloo", device="cpu"), ended(err=err), None)
    assert text == "2 x gloo on cpu: exit status 1; AssertionError: wrong sums: torch.int64"


def test_one_process_alone_has_no_transport_to_diagnose() -> None:
    alone = ladder.Job(backend="nccl", device="cuda", processes=1)
    text = ladder.explained(alone, ended(err="RuntimeError: CUDA error: out of memory\n"), lambda more: True)
    assert text == "1 x nccl on cuda: exit status 1; RuntimeError: CUDA error: out of memory"


def test_only_nccls_own_words_are_a_refusal() -> None:
    assert ladder.is_refusal(ended(log=WARNED))
    assert ladder.is_refusal(ended(err="Last error:\nMultiple Ranks are using the same GPU/Partition\n"))
    assert not ladder.is_refusal(ended(0, WARNED))
    assert not ladder.is_refusal(ended(None, WARNED))
    assert not ladder.is_refusal(ended(err="RuntimeError: out of memory\n"))


def test_the_deadline_ends_what_was_started(tmp_path: Path) -> None:
    assert launcher.run(["sleep", "3600"], {}, tmp_path, 0.05) is None
    assert launcher.run(["sh", "-c", "echo said; exit 3"], {"PATH": "/usr/bin:/bin"}, tmp_path, 300) == 3
    assert (tmp_path / "out").read_text() == "said\n"


def test_processes_in_sessions_of_their_own_are_found_and_killed() -> None:
    process = subprocess.Popen(["sh", "-c", "setsid sleep 3600 & wait"])
    while not (found := launcher.descendants(process.pid)):
        time.sleep(0.01)
    launcher.kill([process.pid, *found])
    process.wait(300)
    assert not launcher.descendants(process.pid)
