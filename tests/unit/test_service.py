"""Checks that run outside of the image: how their suite is laid out on the host."""

import io
import tarfile
from pathlib import Path

import pytest

from pipeline.check import service


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
