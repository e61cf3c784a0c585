"""A new family is a whole one, or there is none; nothing that was there is touched."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import context
from pipeline.__main__ import main
from pipeline.errors import InputError, Temporary
from pipeline.init import init
from pipeline.settings import Settings

NOW = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)
OWN = Path(__file__).parents[2]
FILES = [
    ".gitignore",
    "images/.gitattributes",
    "images/.template/Dockerfile",
    "images/.template/checks/service_starts.py",
    "images/catalog.yaml",
    "images/os/checks/service_starts.py",
    "images/os/image.yaml",
    "noxfile.py",
    "policies/exceptions.yaml",
    "policies/keys/README.md",
    "policies/local.yaml",
    "policies/release.yaml",
]


def test_a_family_is_a_catalog_at_once(tmp_path: Path) -> None:
    root = tmp_path / "new" / "Web Services"
    assert sorted(str(path.relative_to(root)) for path in init(root, NOW)) == FILES
    catalog = context.load(Settings(root=root, cache=tmp_path / "cache"), with_locks=False)
    assert (catalog.repository, catalog.epoch.isoformat()) == ("web-services", "2026-03-04T00:00:00+00:00")
    assert catalog.images["os"].release
    assert (root / "noxfile.py").read_text().count("\n") == 5
    assert "@" not in (root / "images/catalog.yaml").read_text()


def test_git_leaves_the_bytes_that_input_hashes_are_made_of(tmp_path: Path) -> None:
    init(tmp_path, NOW)
    for attributes in (tmp_path / "images/.gitattributes", OWN / ".gitattributes"):
        assert attributes.read_text().endswith("\n* -text\n")


def test_a_familys_policies_are_those_of_the_project() -> None:
    shipped = OWN / "pipeline/data/family/policies"
    for path in (path for path in shipped.rglob("*") if path.is_file()):
        own = OWN / "policies" / path.relative_to(shipped)
        assert path.read_bytes() == own.read_bytes(), f"cp {own} {path}"


def test_a_folder_with_other_files_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    init(tmp_path, NOW)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_exists_is_kept_and_nothing_is_written(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="exists already, and nothing is overwritten"):
        init(tmp_path, NOW)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        if path.name == "noxfile.py":
            raise OSError(28, "No space left on device", str(path))
        return real(path, mode, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(Temporary, match="No space left on device"):
        init(tmp_path / "a" / "b", NOW)
    assert list(tmp_path.iterdir()) == []


def test_the_next_command_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "it")], {"HOME": str(tmp_path)}) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"next: `cd {tmp_path}/it && nox -s update build test`" in said.err.replace("\n", " ").replace("  ", " ")
    assert main(["init", str(tmp_path / "it")], {"HOME": str(tmp_path)}) == 2
