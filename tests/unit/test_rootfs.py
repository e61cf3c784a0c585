"""The build context of a Debian root file system."""

import errno
import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from pipeline import rootfs
from pipeline.catalog import Image, Rootfs, User
from pipeline.errors import InputError, ToolFailed
from pipeline.locks import Package, PackagesLock
from tests.archive import deb

EPOCH = 1738108800
BASE = deb(
    "Package: base\nVersion: 1\nEssential: yes\nDepends: lib\n",
    {
        "./": (tarfile.DIRTYPE, 0o755, ""),
        "./bin/": (tarfile.DIRTYPE, 0o755, ""),
        "./bin/sh": "a shell",
        "./bin/dash": (tarfile.LNKTYPE, 0o755, "./bin/sh"),
        "./tmp/": (tarfile.DIRTYPE, 0o1777, ""),
        "./etc/alternative": (tarfile.SYMTYPE, 0o777, "/bin/sh"),
        "./usr/share/doc/base/README": "not unpacked",
        "./.hidden": "kept",
    },
)
LIB = deb(
    "Package: lib\nVersion: 1\n",
    {
        "./lib/": (tarfile.DIRTYPE, 0o755, ""),
        "./lib/a.so": "a library",
        "./lib64/ld.so": (tarfile.SYMTYPE, 0o777, "/lib/a.so"),
        "./usr/lib/b.so": "another",
    },
)
EXTRA = deb("Package: extra\nVersion: 1\n", {"./usr/bin/extra": "installed later"})
IMAGE = Image(
    name="os",
    description="Debian",
    release=False,
    rootfs=Rootfs(
        suite="stable",
        packages=("extra",),
        users=(User(name="user", uid=1000, home="/home/user"),),
        directories=("/workspace",),
        workdir="/workspace",
    ),
)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    overlay = tmp_path / "overlay"
    (overlay / "etc").mkdir(parents=True)
    (overlay / "etc" / "motd").write_text("hello")
    (overlay / "etc" / "run").write_text("#!/bin/sh")
    (overlay / "etc" / "run").chmod(0o700)
    (overlay / "etc" / "link").symlink_to("/etc/motd")
    return prepared(tmp_path, tmp_path / "context", overlay)


def prepared(cache: Path, folder: Path, overlay: Path) -> Path:
    packages, debs = [], {}
    for name, content in (("base", BASE), ("lib", LIB), ("extra", EXTRA)):
        debs[name] = cache / f"{name}-cached.deb"
        debs[name].write_bytes(content)
        packages.append(Package(name, "1", "amd64", len(content), hashlib.sha256(content).hexdigest(), f"debian/{name}.deb"))
    folder.mkdir()
    rootfs.prepare(IMAGE, PackagesLock("", "stable", tuple(packages)), debs, overlay=overlay, epoch=EPOCH, folder=folder)
    return folder


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        found = {member.name: member for member in tar}
        assert len(found) == len(tar.getmembers()), "each once"
        return found


def test_essential_packages_are_unpacked_as_one_tree_with_top_folders_merged_into_usr(context: Path) -> None:
    seed = members(context / "seed.tar")
    assert list(seed) == [
        *("usr", "usr/bin", "bin", "usr/bin/sh", "usr/bin/dash", "tmp", "etc/alternative", ".hidden"),
        *("usr/lib", "lib", "usr/lib/a.so", "usr/lib64", "lib64", "usr/lib64/ld.so", "usr/lib/b.so"),
        *("var/lib/dpkg/status", "var/lib/dpkg/available"),
    ]
    assert [seed[name].linkname for name in ("bin", "lib", "lib64")] == ["usr/bin", "usr/lib", "usr/lib64"]
    assert seed["usr/bin/dash"].linkname == "usr/bin/sh"
    assert seed["etc/alternative"].linkname == "/bin/sh"
    assert (seed["tmp"].mode, seed["usr"].mode, seed["usr/lib64"].mode) == (0o1777, 0o755, 0o755)
    assert {member.mtime for member in seed.values()} == {EPOCH}


def test_all_packages_are_there_to_be_installed_without_a_copy(context: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in (context / "debs").iterdir()) == ["base.deb", "extra.deb", "lib.deb"]
    assert (context / "debs" / "extra.deb").samefile(tmp_path / "extra-cached.deb")
    assert (context / "required").read_text() == "base\nlib\n"


def test_where_no_hard_link_is_possible_packages_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    made = prepared(tmp_path, tmp_path / "made", tmp_path / "nothing")
    assert (made / "debs/extra.deb").read_bytes() == EXTRA


def test_files_of_the_image_get_plain_modes_whatever_the_umask_was(context: Path) -> None:
    overlay = members(context / "overlay.tar")
    assert {name: oct(member.mode) for name, member in overlay.items()} == {
        "etc/link": "0o777",
        "etc/motd": "0o644",
        "etc/run": "0o755",
    }
    assert overlay["etc/link"].linkname == "/etc/motd"
    assert {(member.uid, member.gid, member.mtime) for member in overlay.values()} == {(0, 0, EPOCH)}


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    overlay = tmp_path / "linked"
    (overlay / "etc/real").mkdir(parents=True)
    (overlay / "etc/real/file").touch()
    (overlay / "etc/folder").symlink_to("real")
    found = members(prepared(tmp_path, tmp_path / "made", overlay) / "overlay.tar")
    assert {name: member.linkname for name, member in found.items()} == {"etc/folder": "real", "etc/real/file": ""}


def test_users_and_directories_are_handed_to_the_second_stage(context: Path) -> None:
    assert (context / "users").read_text() == "user:x:1000:0::/home/user:/bin/bash\n"
    assert (context / "directories").read_text() == "/workspace\n"
    assert (context / "second-stage.sh").read_text().startswith("#!/bin/sh\n")


def test_containers_start_in_the_workdir(context: Path) -> None:
    assert (context / "Dockerfile").read_text().endswith('CMD ["bash"]\nWORKDIR /workspace\n')


def test_the_image_is_links_only(context: Path) -> None:
    final = (context / "Dockerfile").read_text().rpartition("FROM scratch\n")[2]
    assert final.splitlines()[0] == "COPY --link --from=seed / /"
    assert "COPY" not in final.partition("\n")[2]
    assert "--network=none" in (context / "Dockerfile").read_text()


def test_the_same_inputs_give_the_same_bytes(context: Path, tmp_path: Path) -> None:
    again = prepared(tmp_path, tmp_path / "again", tmp_path / "overlay")
    names = sorted(path.relative_to(context) for path in context.rglob("*") if path.is_file())
    assert [(context / name).read_bytes() for name in names] == [(again / name).read_bytes() for name in names]


def test_an_image_need_not_have_files_of_its_own(tmp_path: Path) -> None:
    assert members(prepared(tmp_path, tmp_path / "context", tmp_path / "absent") / "overlay.tar") == {}


def test_a_package_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.deb"
    broken.write_bytes(b"!<arch>\nnothing")
    lock = PackagesLock("", "stable", (Package("broken", "1", "amd64", 1, "", ""),))
    with pytest.raises(ToolFailed, match="`broken` cannot be read"):
        rootfs.prepare(IMAGE, lock, {"broken": broken}, overlay=tmp_path, epoch=EPOCH, folder=tmp_path)


def test_an_image_without_a_root_file_system_has_no_such_context(tmp_path: Path) -> None:
    image = Image(name="nlp", description="x", parent="os")
    with pytest.raises(InputError):
        rootfs.prepare(image, PackagesLock("", "", ()), {}, overlay=tmp_path, epoch=EPOCH, folder=tmp_path)
