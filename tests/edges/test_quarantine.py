"""Three proved faults of a machine in a row refuse more GPU work, until a person lifts it."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.errors import ToolUnfit
from pipeline.quarantine import KEPT, LIMIT, Quarantine, Strikes, recorded

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def machine(tmp_path: Path) -> Quarantine:
    return Quarantine(tmp_path / "quarantine", "node7")


def strikes(machine: Quarantine, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        machine.strike(f"fault {number}", run=f"run-{number}", at=START + timedelta(minutes=number))


def test_two_strikes_refuse_nothing_and_the_third_does_with_since_when_why_and_the_remedy(machine: Quarantine) -> None:
    assert machine.refusal() == ""
    strikes(machine, 2)
    assert machine.refusal() == ""
    strikes(machine, 1, first=2)
    assert machine.refusal() == (
        "`node7` is quarantined since 2026-03-01T12:02:00+00:00, after 3 faults of its own in a row, "
        "the last in run run-2: fault 2; mend it, then `nox -s doctor -- --clear`"
    )


def test_a_pass_begins_the_count_anew(machine: Quarantine) -> None:
    strikes(machine, 2)
    machine.passed()
    strikes(machine, 2)
    assert machine.refusal() == ""


def test_a_lane_that_passes_beside_others_lifts_no_quarantine(machine: Quarantine) -> None:
    strikes(machine, LIMIT)
    machine.passed()
    assert machine.refusal() != ""


def test_only_a_person_lifts_it(machine: Quarantine) -> None:
    assert machine.clear() is False
    strikes(machine, LIMIT)
    assert Quarantine(machine.folder, "node7").refusal() != ""
    assert machine.clear() is True
    assert machine.refusal() == ""
    assert machine.clear() is False


def test_each_machine_has_its_own_whatever_its_name(tmp_path: Path) -> None:
    for name in ("node7", "tcp://10.0.0.7:2376", "../../node7"):
        strikes(Quarantine(tmp_path, name), LIMIT)
    assert Quarantine(tmp_path, "node8").refusal() == ""
    assert {each.host for each in recorded(tmp_path)} == {"node7", "tcp://10.0.0.7:2376", "../../node7"}
    assert recorded(tmp_path / "none") == ()
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"strikes": 3}', b'{"strikes": [], "more": 1}', b"\xff\xfe", b"null"])
def test_a_file_that_cannot_be_read_refuses_until_it_is_cleared(machine: Quarantine, content: bytes) -> None:
    machine.folder.mkdir()
    machine.path.write_bytes(content)
    assert "holds no strikes that can be read, so GPU work is refused; `nox -s doctor -- --clear` removes it" in machine.refusal()
    with pytest.raises(ToolUnfit):
        machine.strike("x", run="r", at=START)
    with pytest.raises(ToolUnfit):
        machine.passed()
    assert machine.path.read_bytes() == content
    assert machine.clear() is True
    assert machine.refusal() == ""


def test_a_folder_that_cannot_be_used_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    machine = Quarantine(tmp_path / "file" / "below", "node7")
    assert "cannot be kept in" in machine.refusal()
    assert "PIPELINE_CACHE" in machine.refusal()
    with pytest.raises(ToolUnfit, match="cannot be kept"):
        machine.strike("x", run="r", at=START)


def test_a_state_in_place_of_which_there_is_a_folder_refuses(machine: Quarantine) -> None:
    machine.path.mkdir(parents=True)
    assert "cannot be kept in" in machine.refusal()


def test_strikes_at_once_are_all_counted_and_what_is_remembered_is_bounded(machine: Quarantine) -> None:
    threads = [threading.Thread(target=strikes, args=(machine, 3, 3 * each)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Strikes.model_validate_json(machine.path.read_bytes()).strikes) == KEPT
    assert machine.refusal().startswith("`node7` is quarantined")
    assert [path.suffix for path in machine.folder.iterdir() if path.suffix != ".lock"] == [".json"]
