"""Checks that run outside of the image: how their suite is laid out on the host."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.check import service
from pipeline.data import lane_plugin, service_plugin
from pipeline.errors import Temporary, ToolFailed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_suite_is_laid_out_by_the_python_of_debian_12_which_has_no_extraction_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("suite/x.py")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"1"))
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    service._unpack(content.getvalue(), tmp_path)
    assert (tmp_path / "suite/x.py").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("error", "machine"),
    [(Temporary("the engine went away"), True), (ToolFailed("it publishes no port"), False), (AssertionError("x"), False)],
)
def test_an_engine_that_fails_within_a_check_is_not_the_images_fault(error: Exception, machine: bool) -> None:
    def check() -> None:
        raise error

    assert lane_plugin.of_the_machine(pytest.CallInfo.from_call(check, "call")) is machine


def test_a_service_that_cannot_be_reached_from_here_is_not_the_images_fault() -> None:
    def engine(here: bool) -> Any:
        return SimpleNamespace(publishes_here=here, facts=SimpleNamespace(machine={"host": "far"}))

    service_plugin.refuse_out_of_reach(engine(True))
    with pytest.raises(Temporary, match="on the loopback of `far`"):
        service_plugin.refuse_out_of_reach(engine(False))
