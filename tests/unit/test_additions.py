"""The folder from which a Dockerfile adds packages."""

import hashlib
from pathlib import Path

from pipeline import additions
from pipeline.locks import Package, PackagesLock


def test_the_folder_holds_the_packages_by_name_the_epoch_and_the_script_that_is_hashed(tmp_path: Path) -> None:
    (tmp_path / "cached.deb").write_bytes(b"a package")
    folder = tmp_path / "folder"
    folder.mkdir()
    lock = PackagesLock("", "stable", (Package("tool", "1", "amd64", 9, "0" * 64, "debian/tool_1.deb"),))
    additions.prepare(lock, {"tool": tmp_path / "cached.deb"}, epoch=1738108800, folder=folder)
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "debs/tool.deb",
        "epoch",
        "install.sh",
    }
    assert (folder / "debs" / "tool.deb").read_bytes() == b"a package"
    assert (folder / "epoch").read_text() == "1738108800\n"
    assert hashlib.sha256((folder / "install.sh").read_bytes()).hexdigest() == additions.installer()
