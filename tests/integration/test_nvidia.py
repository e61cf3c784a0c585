"""A program in place of `nvidia-smi`, started as the real one is: what it prints, and how it fails to."""

import os
from pathlib import Path

import pytest

from pipeline import conversation, nvidia
from pipeline.command import Runner
from pipeline.gpus import Host
from pipeline.nvidia import smi
from tests.machines import DATA

FAKE = f"""#!/bin/sh
case "$1" in
  --query-gpu=*) cat {DATA}/a100-mig.query.csv ;;
  --query-compute-apps=*) ;;
  -q) cat {DATA}/a100-mig.q.txt ;;
  -L) cat {DATA}/a100-mig.L.txt ;;
  *) echo "Option $1 is not recognized. Please run 'nvidia-smi -h'." ; exit 2 ;;
esac
"""


def look(folder: Path, script: str = "") -> Host:
    """A machine on which only `nvidia-smi` is there, if at all."""
    if script:
        (folder / "nvidia-smi").write_text(script, encoding="utf-8")
        (folder / "nvidia-smi").chmod(0o755)
    run = Runner({**os.environ, "PATH": f"{folder}:/bin" if script else str(folder)})
    return nvidia.examine(ask=nvidia.asking(run), driver="525.105.17", host="node7")


def test_a_machine_is_read_through_the_real_program_runner(tmp_path: Path) -> None:
    host = look(tmp_path, FAKE)
    assert [gpu.uuid[:7] for gpu in host.gpus] == ["MIG-ce8", "MIG-a45", "MIG-f00", "GPU-d85"]


def test_without_nvidia_smi_the_host_says_so(tmp_path: Path) -> None:
    (trouble,) = look(tmp_path).troubles
    assert trouble.text == "`nvidia-smi` cannot be started: No such file or directory"
    assert "nvidia-utils" in trouble.remedy


def test_an_nvidia_smi_that_hangs_and_ignores_signals_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "SECONDS", 0.5)
    monkeypatch.setattr(conversation, "GRACE", 0.5)
    (trouble,) = look(tmp_path, "#!/bin/sh\ntrap '' INT TERM\nwhile :; do sleep 1; done\n").troubles
    assert "did not end within 0.5 s" in trouble.text


def test_a_mismatch_is_named_with_its_remedy(tmp_path: Path) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144"
    script = f"#!/bin/sh\necho '{said}'\nexit 18\n"
    host = look(tmp_path, script)
    assert host.gpus == ()
    assert "Driver/library version mismatch NVML library version: 550.144" in host.troubles[0].text
    assert host.troubles[0].remedy.startswith("reboot")


def test_the_kernels_log_of_this_machine_is_read_or_said_to_be_unread() -> None:
    seen, unread = nvidia.events(Runner(os.environ))
    assert seen == () or unread == ()
