"""What `nvidia-smi`, the kernel's log and CDI's files say, as the host that it is: each GPU is there, or named by a trouble."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline import nvidia
from pipeline.command import Completed
from pipeline.errors import Interrupted, PipelineError, Temporary, ToolUnfit
from pipeline.gpus import Gpu, Host, Trouble
from pipeline.nvidia.smi import FIELDS
from tests.machines import DATA, Machine, Smi, Tools, done, recorded

T4 = "GPU-7f4e9d1a-3c52-48f1-a2ab-5d0f6e1b9c33"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n"
GIB, MIB = 2**30, 2**20


def look(smi: Smi, driver: str = "535.183.01") -> Host:
    return nvidia.examine(ask=smi, driver=driver, host="node7", toolkit="1.17.4")


def with_value(name: str, field: str, value: str, gpu: int = 0) -> Completed:
    rows = [line.split(", ") for line in recorded(f"{name}.query.csv").splitlines()]
    rows[gpu][FIELDS.index(field)] = value
    return done("\n".join(", ".join(row) for row in rows) + "\n")


def test_a_t4_is_read_and_nothing_is_wrong_with_it() -> None:
    smi = Smi("t4")
    gpu = Gpu(index=0, uuid=T4, name="Tesla T4", capability=(7, 5), memory=15360 * MIB, used=2 * MIB, clock=1590)
    assert look(smi) == Host(name="node7", driver="535.183.01", toolkit="1.17.4", gpus=(gpu,))
    assert [asked.partition("=")[0] for asked in smi.asked] == ["--query-gpu", "-q", "--query-compute-apps"]


def test_a_driver_that_nobody_could_read_from_proc_is_asked_for() -> None:
    assert look(Smi("t4"), driver="").driver == "535.183.01"


def test_other_peoples_processes_are_counted_and_are_no_trouble() -> None:
    host = look(Smi("rtx4090"))
    assert [(gpu.name, gpu.processes, gpu.capability) for gpu in host.gpus] == [
        ("NVIDIA GeForce RTX 4090", 2, (8, 9)),
        ("NVIDIA GeForce RTX 4090", 0, (8, 9)),
    ]
    assert (host.troubles, host.events) == ((), ())


def test_what_the_windows_of_a_screen_hold_is_nobodys_left_over_memory() -> None:
    before, more = recorded("rtx4090.q.txt"), "Used GPU Memory                            : 404 MiB"
    after = before.replace("Used GPU Memory                            : 4 MiB", more)
    now = look(Smi("rtx4090", q=done(after), query=with_value("rtx4090", "memory.used", "2293")))
    assert [gpu.used // MIB for gpu in look(Smi("rtx4090")).gpus] == [gpu.used // MIB for gpu in now.gpus] == [1889, 4]


def test_slices_replace_their_gpu_and_have_its_troubles() -> None:
    host = look(Smi("a100-mig"))
    told = [(gpu.index, gpu.uuid[:8], gpu.name, gpu.memory, gpu.used, gpu.processes) for gpu in host.gpus]
    assert told == [
        (0, "MIG-ce86", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40192 * MIB, 9826 * MIB, 1),
        (0, "MIG-a458", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728 * MIB, 12 * MIB, 0),
        (0, "MIG-f00d", "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb", 40 * GIB, 0, 0),
        (1, "GPU-d859", "NVIDIA A100-SXM4-80GB", 81920 * MIB, 4 * MIB, 0),
    ]
    assert {gpu.capability for gpu in host.gpus} == {(8, 0)}
    assert [trouble.gpu for trouble in host.troubles] == [gpu.uuid for gpu in host.gpus if gpu.slice]
    assert "memory rows wait for their remapping" in host.troubles[0].text
    assert "nvidia-smi --gpu-reset -i GPU-513536b6" in host.troubles[0].remedy


def test_mig_mode_without_slices_is_a_trouble_and_no_gpu() -> None:
    host = look(Smi("a100-mig", L=done("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-513536b6-7d19-9063-b049-1e69664bb298)\n")))
    assert [gpu.index for gpu in host.gpus] == [1]
    assert "is in MIG mode and has no slices" in host.troubles[0].text
    assert "-mig 0" in host.troubles[0].remedy


def test_fabric_memory_and_the_drivers_own_wish_are_troubles_of_their_gpu() -> None:
    host = look(Smi("h100"))
    good, joining, broken = host.gpus
    assert [trouble for trouble in host.troubles if trouble.gpu == good.uuid] == []
    (fabric,) = (trouble for trouble in host.troubles if trouble.gpu == joining.uuid)
    assert "NVLink fabric is `In Progress`" in fabric.text
    assert "nvidia-fabricmanager" in fabric.remedy
    assert [trouble.text.partition(": ")[2] for trouble in host.troubles if trouble.gpu == broken.uuid] == [
        "2 uncorrected memory errors since the driver was loaded",
        "memory rows could not be remapped",
        "the driver wants `Reset`",
    ]
    assert host.events == (f"GPU {broken.uuid}: 2 uncorrected memory errors",)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Pending Page Blacklist            : No", "Pending Page Blacklist            : Yes", "wait for their retirement"),
        ("State                             : N/A", "State                             : Not Started", "`Not Started`"),
        ("Status                            : N/A", "Status                            : Invalid State", "`Invalid State`"),
    ],
)
def test_each_condition_is_found(old: str, new: str, says: str) -> None:
    (trouble,) = look(Smi("t4", q=done(recorded("t4.q.txt").replace(old, new, 1)))).troubles
    assert says in trouble.text
    assert trouble.gpu == T4


@pytest.mark.parametrize("section", ["Clocks Event Reasons", "Clocks Throttle Reasons"])
@pytest.mark.parametrize(("what", "says"), [("Thermal", "too hot"), ("Power Brake", "power supply")])
def test_a_gpu_that_its_hardware_slows_down_is_unfit_to_judge_speeds_on(section: str, what: str, says: str) -> None:
    before, mark, after = recorded("t4.q.txt").partition("    Retired Pages\n")

    def troubles(state: str) -> tuple[Trouble, ...]:
        lines = ("        SW Power Cap : Active", "        HW Slowdown : Not Active", f"            HW {what} Slowdown : {state}")
        told = "\n".join((f"{before}    {section}", *lines, f"{mark}{after}"))
        return look(Smi("t4", q=done(told))).troubles

    assert troubles("Not Active") == troubles("N/A") == ()
    assert says in troubles("Active")[0].text


@pytest.mark.parametrize("mode", ["Exclusive_Process", "Prohibited"])
def test_a_gpu_that_only_one_process_may_use_is_no_good_for_checks_of_several(mode: str) -> None:
    told = recorded("t4.q.txt")
    before, mark, after = told.partition("    Retired Pages\n")
    (trouble,) = look(Smi("t4", q=done(f"{before}    Compute Mode                      : {mode}\n{mark}{after}"))).troubles
    assert f"its compute mode is `{mode}`" in trouble.text
    assert "-c DEFAULT" in trouble.remedy
    assert look(Smi("t4", q=done(f"{before}    Compute Mode                      : Default\n{mark}{after}"))).troubles == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory.total", "[Unknown Error]"),
        ("memory.total", "[N/A]"),
        ("memory.used", "ERR!"),
        ("index", "[GPU is lost]"),
        ("compute_cap", "[Not Supported]"),
        ("clocks.max.sm", "[Unknown Error]"),
        ("mig.mode.current", "[Unknown Error]"),
        ("ecc.errors.uncorrected.volatile.total", "[GPU requires reset]"),
    ],
)
def test_a_gpu_that_cannot_be_read_is_named_and_not_used_and_the_others_are(field: str, value: str) -> None:
    host = look(Smi("rtx4090", query=with_value("rtx4090", field, value)))
    assert [gpu.index for gpu in host.gpus] == [1]
    (trouble,) = host.troubles
    assert f"{field} is `{value}`" in trouble.text
    assert trouble.gpu == "GPU-0d7ed9c5-4f0c-6ae3-b0a4-20b1f4c7d0aa"


def test_a_gpu_without_a_readable_name_for_itself_is_everybodys_trouble() -> None:
    host = look(Smi("rtx4090", query=with_value("rtx4090", "uuid", "[Unknown Error]")))
    assert [trouble.gpu for trouble in host.troubles] == [""]


@pytest.mark.parametrize(("field", "value"), [("clocks.max.sm", "[N/A]"), ("mig.mode.current", "[Not Supported]")])
def test_what_a_gpu_simply_does_not_have_is_no_trouble(field: str, value: str) -> None:
    host = look(Smi("rtx4090", query=with_value("rtx4090", field, value)))
    assert (len(host.gpus), host.troubles) == (2, ())


def test_fields_that_an_old_driver_does_not_know_are_left_out() -> None:
    unknown = ["ecc.errors.uncorrected.volatile.total", "mig.mode.current", "clocks.max.sm"]

    class Old(Smi):
        def __call__(self, argv: Sequence[str]) -> Completed:
            known = argv[1].removeprefix("--query-gpu=").split(",")
            for field in unknown:
                if argv[1].startswith("--query-gpu") and field in known:
                    return done(f'Field "{field}" is not a valid field to query.\n\n', code=2)
            if argv[1].startswith("--query-gpu"):
                return done("0, GPU-1, Tesla P100-PCIE-16GB, 16280, 0, 6.0\n")
            return super().__call__(argv)

    host = look(Old("none"))
    assert [(gpu.name, gpu.capability, gpu.clock) for gpu in host.gpus] == [("Tesla P100-PCIE-16GB", (6, 0), 0)]
    unknown.append("uuid")
    assert 'Field "uuid" is not a valid field' in look(Old("none")).troubles[0].text


def test_a_driver_that_tells_no_compute_capability_is_too_old() -> None:
    row = "0, GPU-1, Tesla V100-SXM2-16GB, 16160, 0, 1530, [N/A], 0\n"

    class Old(Smi):
        def __call__(self, argv: Sequence[str]) -> Completed:
            if "compute_cap" in argv[1]:
                return done('Field "compute_cap" is not a valid field to query.\n\n', code=2)
            return done(row) if "query-gpu" in argv[1] else super().__call__(argv)

    (trouble,) = look(Old("none")).troubles
    assert "tells no compute capability: install a newer one" in trouble.text


@pytest.mark.parametrize(
    ("answer", "says", "remedy"),
    [
        (done(MISMATCH, 18), "Driver/library version mismatch NVML library version: 550.144", "reboot: the driver was replaced"),
        (done("Failed to initialize NVML: Unknown Error\n", 255), "Unknown Error", "/dev/nvidia* was taken away"),
        (done("No devices were found\n", 6), "No devices were found", "lspci -d 10de:"),
        (done("No devices were found\n"), "No devices were found", "lspci -d 10de:"),
        (done("Failed to initialize NVML: Insufficient Permissions\n", 4), "Insufficient Permissions", "`video`"),
        (
            done(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
                "NVIDIA driver is installed and running.\n\n",
                9,
            ),
            "couldn't communicate",
            "modprobe nvidia",
        ),
        (
            done("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that …\n", 12),
            "couldn't find libnvidia-ml.so",
            "install the driver's libraries",
        ),
        (
            done("Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error\n", 255),
            "GPU0000:0B:00.0",
            "the driver has lost the GPU",
        ),
        (done("", 0), "no GPU, exit status 0", "run it by hand"),
        (done("", -9, "Killed"), "Killed", "run it by hand"),
        (ToolUnfit("`nvidia-smi` cannot be started: No such file or directory"), "cannot be started", "nvidia-utils"),
        (Temporary("`nvidia-smi …` did not end within 60 s"), "did not end within 60 s", "run it by hand"),
    ],
)
def test_a_machine_whose_driver_does_not_answer_is_a_host_without_gpus(
    answer: Completed | PipelineError, says: str, remedy: str
) -> None:
    host = look(Smi("t4", query=answer))
    assert host.gpus == ()
    (trouble,) = host.troubles
    assert says in trouble.text
    assert remedy in trouble.remedy
    assert trouble.gpu == ""


def test_a_lost_gpu_among_others_is_everybodys_trouble() -> None:
    lost = "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n"
    host = look(Smi("rtx4090", query=done(recorded("rtx4090.query.csv") + lost, 255)))
    assert len(host.gpus) == 2
    (trouble,) = host.troubles
    assert "0000:0B:00.0" in trouble.text
    assert trouble.gpu == ""


@pytest.mark.parametrize("kind", ["q", "apps"])
@pytest.mark.parametrize(
    "answer", [done("Failed to initialize NVML: Unknown Error\n", 255), Temporary("did not end within 60 s")]
)
def test_a_question_that_is_not_answered_is_a_trouble_for_all(kind: str, answer: Completed | PipelineError) -> None:
    host = look(Smi("t4", **{kind: answer}))
    assert len(host.gpus) == 1
    assert [trouble.gpu for trouble in host.troubles] == [""]


def test_an_interrupt_is_not_taken_for_a_sick_machine() -> None:
    with pytest.raises(Interrupted):
        look(Smi("t4", query=Interrupted("interrupted")))


@pytest.mark.parametrize(("name", "version"), [("version-closed.txt", "535.183.01"), ("version-open.txt", "565.57.01")])
def test_the_kernel_module_tells_its_version(name: str, version: str) -> None:
    assert nvidia.driver_version(DATA / name) == version


def test_without_a_driver_there_is_no_version(tmp_path: Path) -> None:
    assert nvidia.driver_version(tmp_path / "none" / "version") == ""


def test_errors_of_the_hardware_are_told_with_their_time_and_a_programs_faults_are_not() -> None:
    seen, unread = nvidia.events(Tools({"dmesg": done(recorded("dmesg.txt"))}))
    assert [event.rpartition(" (")[2] for event in seen] == [
        "1843.308145 s after the boot)",
        "5120.774010 s after the boot)",
        "5120.774025 s after the boot)",
        "5291.100001 s after the boot)",
    ]
    assert "fallen off the bus" in seen[0]
    assert "Xid (PCI:0000:3b:00): 79" in seen[1]
    assert "SXid (PCI:0000:c1:00.0): 20034, Fatal" in seen[3]
    assert unread == ()


def test_a_log_that_is_refused_is_read_from_the_journal_or_said_to_be_unread() -> None:
    refused = done("", 1, "dmesg: read kernel buffer failed: Operation not permitted")
    seen, unread = nvidia.events(Tools({"dmesg": refused, "journalctl": done(recorded("journal.txt"))}))
    assert seen[0].endswith("(77.120000 s after the boot)")
    assert unread == ()
    nothing = done("-- No entries --\n", 1, "No journal files were opened due to insufficient permissions.")
    seen, unread = nvidia.events(Tools({"dmesg": refused, "journalctl": nothing}))
    assert seen == ()
    assert "Operation not permitted" in unread[0]
    assert "insufficient permissions" in unread[0]
    assert "cannot be started" in nvidia.events(Tools({}))[1][0]


@pytest.mark.parametrize(
    ("answers", "version"),
    [
        ({"nvidia-ctk": done("NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590c7428470a\n")}, "1.17.4"),
        ({"nvidia-container-cli": done("cli-version: 1.16.2\nlib-version: 1.16.2\nbuild date: 2024-09-24\n")}, "1.16.2"),
        ({"nvidia-container-cli": done("version: 1.3.0\nbuild date: 2020-09-16T12:32+00:00\n")}, "1.3.0"),
        ({"nvidia-ctk": Temporary("did not end")}, ""),
        ({}, ""),
    ],
)
def test_the_toolkit_tells_its_version(answers: dict[str, Completed | PipelineError], version: str) -> None:
    assert nvidia.toolkit_version(Tools(answers)) == version


def test_a_specification_of_another_driver_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(recorded("cdi.yaml"), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"kind": "k8s.example.com/nvidia.com/gpu", "x": "libcuda.so.1.2"}', encoding="utf-8")
    assert nvidia.stale_specs("535.161.08", [tmp_path]) == ((), ())
    ((trouble,), _) = nvidia.stale_specs("550.54.15", [tmp_path])
    assert "names the libraries of driver 535.161.08, and 550.54.15 is loaded" in trouble.text
    assert f"nvidia-ctk cdi generate --output={path}" in trouble.remedy
    assert nvidia.stale_specs("550.54.15", [tmp_path / "none"]) == ((), ())


def test_a_specification_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").mkdir()
    assert nvidia.stale_specs("1.2", [tmp_path]) == ((), (f"`{tmp_path}/nvidia.yaml`: Is a directory",))


def test_this_machine_is_all_of_it_together(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(recorded("cdi.yaml"), encoding="utf-8")
    smi = Smi("t4")

    run = Machine(
        smi, {"dmesg": done(recorded("dmesg.txt")), "nvidia-ctk": done("NVIDIA Container Toolkit CLI version 1.17.4\n")}
    )
    host = nvidia.look(run, driver="535.183.01", host="node7", way="cdi", specs=[tmp_path])
    assert (host.driver, host.toolkit, len(host.gpus), len(host.events)) == ("535.183.01", "1.17.4", 1, 4)
    assert [type(trouble) for trouble in host.troubles] == [Trouble]
    assert nvidia.look(run, driver="535.183.01", host="node7").troubles == ()
