"""The gates of the GPU lane: the first that is shut decides, and each names whose business it is."""

import pytest

from pipeline.check.gates import NO_DRIVER, NO_GPU, passable, worse
from pipeline.errors import InputError
from pipeline.gpus import Gpu, Host, Trouble
from pipeline.statements import Outcome

GB = 10**9
CLAIMS = {"architectures": "sm_80 sm_90", "driver": "525.60.13"}


def gpu(index: int = 0, **changes: object) -> Gpu:
    told = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA A100",
        "capability": (8, 0),
        "memory": 80 * GB,
        "used": 0,
        **changes,
    }
    return Gpu.model_validate(told)


def host(*gpus: Gpu, **changes: object) -> Host:
    return Host.model_validate({"name": "node-1", "driver": "550.54.15", "gpus": gpus, **changes})


def refused(machine: Host | None, wanted: str = "all") -> tuple[Outcome, str, bool]:
    _, shut = passable(machine, CLAIMS, wanted)
    assert shut is not None
    return shut.outcome, shut.reason, shut.proved


def taken(machine: Host, wanted: str = "all") -> list[str]:
    chosen, shut = passable(machine, CLAIMS, wanted)
    assert shut is None
    return [one.uuid for one in chosen]


def test_without_a_driver_the_lane_does_not_run() -> None:
    assert refused(None) == (Outcome.NOT_RUN, NO_DRIVER, False)


def test_what_is_wrong_with_the_whole_machine_comes_first() -> None:
    sick = host(troubles=(Trouble(text="Driver/library version mismatch", remedy="reboot"),), driver="1.0")
    assert refused(sick) == (Outcome.INFRASTRUCTURE, "Driver/library version mismatch", True)


def test_a_driver_that_sees_no_gpu_is_the_machines_fault() -> None:
    assert refused(host()) == (Outcome.INFRASTRUCTURE, NO_GPU, True)
    unread = Trouble(text="GPU-0 cannot be read", remedy="reboot", gpu="GPU-0")
    assert refused(host(troubles=(unread,))) == (Outcome.INFRASTRUCTURE, "GPU-0 cannot be read", True)


def test_an_older_driver_than_the_image_needs_does_not_run_it() -> None:
    outcome, reason, _ = refused(host(gpu(), driver="470.57.02"))
    assert (outcome, reason) == (Outcome.NOT_RUN, "this machine's driver is 470.57.02, the image needs 525.60.13 or newer")


def test_a_gpu_that_the_image_does_not_claim_does_not_run_it() -> None:
    outcome, reason, _ = refused(host(gpu(name="RTX 5090", capability=(12, 0))))
    assert (outcome, reason) == (Outcome.NOT_RUN, "RTX 5090: this GPU is sm_120, the image supports sm_80 to sm_90")


def test_of_several_gpus_those_that_the_image_claims_are_taken() -> None:
    machine = host(gpu(0, capability=(12, 0)), gpu(1), gpu(2))
    assert taken(machine) == ["GPU-1", "GPU-2"]
    assert taken(machine, "1") == ["GPU-1"]
    assert refused(machine, "3")[0] is Outcome.NOT_RUN
    assert refused(machine, "GPU-0")[0] is Outcome.NOT_RUN


def test_the_least_used_gpus_are_taken_for_a_number() -> None:
    assert taken(host(gpu(0, processes=2), gpu(1, used=9 * GB), gpu(2)), "1") == ["GPU-2"]


@pytest.mark.parametrize("wanted", ["GPU-7", "GPU-0,GPU-0", "0", "-1", "some", "2"])
def test_what_names_no_gpus_of_this_machine_is_a_mistake(wanted: str) -> None:
    with pytest.raises(InputError, match="--gpus"):
        passable(host(gpu()), CLAIMS, wanted)


def test_slices_and_whole_gpus_are_never_taken_together() -> None:
    machine = host(gpu(uuid="MIG-1"), gpu(uuid="MIG-2"), gpu(1))
    assert taken(machine) == taken(machine, "1") == ["GPU-1"]
    assert taken(machine, "2") == taken(host(*machine.gpus[:2])) == ["MIG-1", "MIG-2"]
    with pytest.raises(InputError, match="names slices and whole GPUs"):
        taken(machine, "MIG-1,GPU-1")
    with pytest.raises(InputError, match="more GPUs than the 2"):
        taken(machine, "3")


def test_a_trouble_of_a_gpu_counts_only_when_it_is_taken() -> None:
    machine = host(gpu(0), gpu(1), troubles=(Trouble(text="ECC errors", remedy="replace it", gpu="GPU-0"),))
    assert refused(machine) == (Outcome.INFRASTRUCTURE, "ECC errors", True)
    assert taken(machine, "GPU-1") == ["GPU-1"]


def test_memory_that_no_process_owns_makes_a_machine_suspect() -> None:
    assert refused(host(gpu(used=60 * GB)))[0] is Outcome.INFRASTRUCTURE
    assert taken(host(gpu(used=60 * GB, processes=1))) == ["GPU-0"]


def test_what_became_worse_meanwhile_is_told_of_the_gpus_that_were_taken() -> None:
    before = host(gpu(0), gpu(1), events=("Xid 48 at noon",))
    assert worse(before, before, before.gpus) == ()
    assert worse(before, None, before.gpus) == ("the driver is gone",)
    lost = host(gpu(1), events=("Xid 48 at noon", "Xid 79 at one"))
    assert worse(before, lost, before.gpus[:1]) == ("GPU GPU-0 is gone", "Xid 79 at one")
    assert worse(before, lost, before.gpus[1:]) == ("Xid 79 at one",)
    kept = host(gpu(0, used=GB), gpu(1))
    assert worse(before, kept, before.gpus) == ("1000 MB of GPU GPU-0 stayed in use",)
    assert worse(before, host(gpu(0, used=GB, processes=1), gpu(1)), before.gpus) == ()
    sick = host(gpu(0), gpu(1), troubles=(Trouble(text="ECC", remedy="", gpu="GPU-1"),))
    assert worse(before, sick, before.gpus[:1]) == ()
    assert worse(before, sick, before.gpus) == ("ECC",)
