"""What the doctor says of GPUs and of quarantines."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import doctor
from pipeline.diagnosis import Finding, State
from pipeline.dockerhost import EngineFound
from pipeline.errors import ToolUnfit
from pipeline.quarantine import LIMIT, Quarantine
from pipeline.settings import Settings
from pipeline.toolchain import Host
from pipeline.verbs import machine
from tests.machines import DATA, Machine, Smi, Tools, done, recorded

CTK = done("NVIDIA Container Toolkit CLI version 1.17.4\n")
LOG = done("[    0.000000] Linux version 5.15.0\n")


def nvidia(run: Tools, driver: str = "version-closed.txt") -> Sequence[Finding]:
    return tuple(doctor._nvidia(run, DATA / driver))


def test_without_a_driver_one_line_says_so_and_nothing_is_run() -> None:
    (finding,) = nvidia(Tools({}), driver="none")
    assert (finding.state, finding.detail) == (
        State.OK,
        "none on this machine: checks of the lane `gpu` will be `not-run`",
    )


def test_the_driver_each_gpu_and_the_toolkit_are_shown() -> None:
    findings = nvidia(Machine(Smi("rtx4090"), {"nvidia-ctk": CTK, "dmesg": LOG}))
    assert [(each.name, each.state, each.detail) for each in findings] == [
        ("nvidia driver", State.OK, "535.183.01"),
        (
            "gpu 0",
            State.OK,
            "NVIDIA GeForce RTX 4090, compute capability 8.9, 24 GiB, 1.8 in use, 2 processes compute on it, "
            "GPU-0d7ed9c5-4f0c-6ae3-b0a4-20b1f4c7d0aa",
        ),
        (
            "gpu 1",
            State.OK,
            "NVIDIA GeForce RTX 4090, compute capability 8.9, 24 GiB, 0.0 in use, no processes compute on it, "
            "GPU-5a1c2f77-97c3-d2f4-8c08-99dd41a70b1e",
        ),
        ("nvidia toolkit", State.OK, "1.17.4"),
    ]


def test_troubles_are_faults_with_their_remedy_and_what_nobody_may_read_is_said() -> None:
    findings = nvidia(Machine(Smi("h100"), {}))
    faults = [each for each in findings if each.state is State.FAULT]
    assert len(faults) == 4
    assert all(each.remedy for each in findings if each.state is not State.OK)
    assert {each.name for each in findings if each.state is State.WARN} == {"nvidia toolkit", "not looked at", "gpu errors"}


def test_errors_since_the_boot_are_counted() -> None:
    findings = nvidia(Machine(Smi("t4"), {"nvidia-ctk": CTK, "dmesg": done(recorded("dmesg.txt"))}))
    (errors,) = (each for each in findings if each.name == "gpu errors")
    assert errors.detail.startswith("4 errors of the hardware since the boot, the last: nvidia-nvswitch3: SXid")


def test_an_engine_that_only_dockers_command_line_reaches_is_a_fault() -> None:
    host = Host(root=False, user="ada", linux=True, suite="", systemd=True, environment={})
    found = doctor._engine(EngineFound(host="ssh://far", version="28.0.0", desktop=False, apart=True), host)
    assert (found.state, "ssh is not spoken" in found.detail) == (State.FAULT, True)
    assert doctor._engine(EngineFound(host="unix:///x", version="28.0.0", desktop=False), host).state is State.OK


def strikes(folder: Path, host: str) -> Quarantine:
    found = Quarantine(folder, host)
    for number in range(LIMIT):
        found.strike("the reference image failed", run=str(number), at=datetime(2026, 3, 1, tzinfo=UTC))
    return found


def test_a_quarantine_is_a_fault_of_this_machine_and_a_warning_of_another(tmp_path: Path) -> None:
    assert list(doctor._quarantines(tmp_path, "node-7")) == []
    strikes(tmp_path, "node-7")
    strikes(tmp_path, "elsewhere.example.com")
    told = {each.detail.split("`")[1]: (each.state, each.remedy) for each in doctor._quarantines(tmp_path, "node-7")}
    assert told == {
        "node-7": (State.FAULT, "`nox -s doctor -- --clear`"),
        "elsewhere.example.com": (State.WARN, "`nox -s doctor -- --clear`"),
    }


@pytest.mark.parametrize("reached", [True, False])
def test_clearing_lifts_this_machines_quarantine_and_the_engines_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    def connect(*_: object, **__: object) -> SimpleNamespace:
        if not reached:
            raise ToolUnfit("no docker engine answers")
        return SimpleNamespace(facts=SimpleNamespace(machine={"host": "elsewhere"}), close=lambda: None)

    monkeypatch.setattr("pipeline.engine.connect", connect)
    settings = Settings(root=tmp_path, cache=tmp_path)
    ours, engines, others = (strikes(settings.quarantine, name) for name in (platform.node(), "elsewhere", "third"))
    said: list[str] = []
    console = SimpleNamespace(say=said.append, warn=said.append)
    machine._clear(SimpleNamespace(settings=settings, environment={}, run_id="r", console=console))  # type: ignore[arg-type]
    assert (ours.refusal() == "", engines.refusal() == "", others.refusal() == "") == (True, reached, False)
    lifted = ": the quarantine is lifted, all strikes are forgotten"
    both = [f"`{platform.node()}`{lifted}", f"`elsewhere`{lifted}"]
    assert said == (both if reached else ["only this machine is cleared: no docker engine answers", both[0]])


def test_a_cache_that_cannot_be_written_is_a_fault_also_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = Finding("engine", State.FAULT, "none answers")
    cache = tmp_path / "not" / "yet"
    assert [one.name for one in doctor._space(cache, nobody)] == ["space for the cache"]
    monkeypatch.setattr("os.access", lambda folder, _: folder != tmp_path)
    (_, fault) = doctor._space(cache, nobody)
    assert (fault.state, fault.detail) == (State.FAULT, f"`{tmp_path}` cannot be written")
    assert "PIPELINE_CACHE" in fault.remedy
