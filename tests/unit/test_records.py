"""Statements as files."""

import json
from pathlib import Path

import pytest

from pipeline import records
from pipeline.errors import InputError
from pipeline.oci import Digest
from pipeline.settings import Settings

DIGEST = Digest(f"sha256:{'a' * 64}")


def test_a_statement_is_one_file_a_digest_and_kind(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path)
    path = records.write(settings, DIGEST, "tested-cpu", {"x": "ü"})
    assert path == tmp_path / ".pipeline" / "statements" / DIGEST.hex / "tested-cpu.json"
    assert json.loads(path.read_text()) == {"x": "ü"}
    assert path.stat().st_mode & 0o777 == 0o644


def test_statements_go_where_the_user_says(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path, statements=tmp_path / "out")
    assert records.write(settings, DIGEST, "built", {}).is_relative_to(tmp_path / "out")


def test_a_statement_that_cannot_be_written_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path)
    path = records.write(settings, DIGEST, "built", {"old": True})
    with pytest.raises(TypeError):
        records.write(settings, DIGEST, "built", {"new": object()})
    assert json.loads(path.read_text()) == {"old": True}
    assert [file.name for file in path.parent.iterdir()] == ["built.json"]


def test_a_folder_that_takes_no_statement_is_known_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path)
    records.may_write(settings)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match=r"\.pipeline/statements` cannot be written") as caught:
        records.may_write(settings)
    assert "`--statements`" in caught.value.hint
