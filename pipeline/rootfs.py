"""The build context of a Debian root file system: no root, no chroot, the same bytes for the same lock.

The essential packages are unpacked here, which needs no privileges, into one tar. In the build, on that tar, Debian's own
tools install everything (`data/second-stage.sh`).
"""

import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pipeline.catalog import Image, Rootfs
from pipeline.depends import Universe, close
from pipeline.errors import InputError, ToolFailed
from pipeline.locks import PackagesLock

if TYPE_CHECKING:
    from debian.debfile import DebFile

DOCKERFILE = """\
FROM scratch AS seed
ADD seed.tar /
ARG SOURCE_DATE_EPOCH
RUN --network=none --mount=type=bind,target=/dev/context ["/bin/sh", "/dev/context/second-stage.sh"]

FROM scratch
COPY --link --from=seed / /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["bash"]
"""
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Top folders that are links into `/usr`."""
UNPACKED_LATER = ("usr/share/doc/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/")
"""What the second stage leaves out, or brings itself."""


def prepare(image: Image, lock: PackagesLock, debs: Mapping[str, Path], *, overlay: Path, epoch: int, folder: Path) -> None:
    """Write Dockerfile, seed and packages into the empty `folder`.

    `overlay` is the folder of files that are laid on top (it need not exist), `epoch` the seconds of SOURCE_DATE_EPOCH.
    Packages are hard links where the file system allows. Raises `ToolFailed` when a package cannot be read.
    """
    if image.rootfs is None:
        raise InputError(f"`{image.name}` has no `rootfs:`")
    required = _required(lock, debs)
    _write_seed(folder / "seed.tar", [debs[name] for name in required], epoch)
    _write_overlay(folder / "overlay.tar", overlay, epoch)
    _write_texts(folder, image.rootfs, required)
    lay_out(lock, debs, folder / "debs")


def lay_out(lock: PackagesLock, debs: Mapping[str, Path], folder: Path) -> None:
    """Put the files of the lock's packages into the new `folder` as `NAME.deb`, as hard links where that is possible."""
    folder.mkdir()
    for package in lock.packages:
        _link(debs[package.name], folder / f"{package.name}.deb")


def _write_texts(folder: Path, rootfs: Rootfs, required: tuple[str, ...]) -> None:
    script = resources.files("pipeline") / "data" / "second-stage.sh"
    users = [f"{user.name}:x:{user.uid}:{user.gid}::{user.home}:{user.shell}\n" for user in rootfs.users]
    (folder / "Dockerfile").write_text(DOCKERFILE + (f"WORKDIR {rootfs.workdir}\n" if rootfs.workdir else ""))
    (folder / "second-stage.sh").write_bytes(script.read_bytes())
    (folder / "required").write_text("".join(f"{name}\n" for name in required))
    (folder / "users").write_text("".join(users))
    (folder / "directories").write_text("".join(f"{directory}\n" for directory in rootfs.directories))


def _required(lock: PackagesLock, debs: Mapping[str, Path]) -> tuple[str, ...]:
    from debian.debfile import DebError, DebFile

    controls = []
    for package in lock.packages:
        try:
            with DebFile(debs[package.name]) as deb:
                controls.append((package.name, deb.control.get_content("control") or b""))
        except (DebError, tarfile.TarError, OSError, EOFError) as error:
            raise ToolFailed(f"the package `{package.name}` cannot be read: {error}") from error
    return tuple(candidate.name for candidate in close(Universe(controls), ()))


class _Seed:
    """The tar of unpacked packages while it is written; of folders, the first one counts."""

    def __init__(self, tar: tarfile.TarFile, epoch: int) -> None:
        self._tar = tar
        self._epoch = epoch
        self._folders: set[str] = set()

    def folder(self, name: str) -> None:
        self.add(_member(name, tarfile.DIRTYPE, self._epoch))

    def unpack(self, deb: "DebFile") -> None:
        packed = deb.data.tgz()
        for member in packed:
            name = _path(member.name)
            if name and not name.startswith(UNPACKED_LATER):
                self._merge(name)
                content = packed.extractfile(member) if member.isreg() else None
                self.add(self._renamed(member, name), content)

    def add(self, member: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        if member.isdir() and member.name in self._folders:
            return
        if member.isdir():
            self._folders.add(member.name)
        self._tar.addfile(member, content)

    def _merge(self, name: str) -> None:
        parts = name.split("/")
        top = parts[1] if parts[0] == "usr" and len(parts) > 1 else ""
        if top in MERGED and f"usr/{top}" not in self._folders:
            self.folder(f"usr/{top}")
            self.add(_member(top, tarfile.SYMTYPE, self._epoch, linkname=f"usr/{top}"))

    def _renamed(self, member: tarfile.TarInfo, name: str) -> tarfile.TarInfo:
        linkname = _path(member.linkname) if member.islnk() else member.linkname
        renamed = _member(name, member.type, self._epoch, linkname=linkname)
        renamed.mode, renamed.uid, renamed.gid, renamed.size = member.mode, member.uid, member.gid, member.size
        return renamed


def _write_seed(path: Path, debs: Sequence[Path], epoch: int) -> None:
    from debian.debfile import DebFile

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        seed = _Seed(tar, epoch)
        seed.folder("usr")
        for package in debs:
            with DebFile(package) as deb:
                seed.unpack(deb)
        for name in ("status", "available"):
            seed.add(_member(f"var/lib/dpkg/{name}", tarfile.REGTYPE, epoch))


def _write_overlay(path: Path, folder: Path, epoch: int) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for file in sorted(file for file in folder.rglob("*") if file.is_symlink() or not file.is_dir()):
            name = file.relative_to(folder).as_posix()
            if file.is_symlink():
                tar.addfile(_member(name, tarfile.SYMTYPE, epoch, linkname=str(file.readlink())))
                continue
            content = file.read_bytes()
            member = _member(name, tarfile.REGTYPE, epoch)
            member.mode, member.size = 0o755 if file.stat().st_mode & 0o100 else 0o644, len(content)
            tar.addfile(member, io.BytesIO(content))


def _member(name: str, kind: bytes, epoch: int, *, linkname: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mtime = kind, linkname, epoch
    member.mode = {tarfile.DIRTYPE: 0o755, tarfile.SYMTYPE: 0o777}.get(kind, 0o644)
    return member


def _path(name: str) -> str:
    """A path of a package as it is once `/bin`, `/sbin` and `/lib*` are links into `/usr`; empty for the root."""
    name = name.removeprefix("./").strip("/")
    if name == ".":
        return ""
    return f"usr/{name}" if name.partition("/")[0] in MERGED else name


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
