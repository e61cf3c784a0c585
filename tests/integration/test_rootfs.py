"""A real Debian root file system: solved from the real archive, fetched, built twice, and looked at."""

import io
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from pipeline import debian, locks, surroundings
from pipeline.debian import Mirror
from pipeline.locks import PackagesLock
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.story import Silent
from tests.integration.conftest import Stack
from tests.integration.test_build import Family

EPOCH = datetime(2025, 1, 29, tzinfo=UTC).timestamp()
IMAGE = """\
description: the least of Debian
release: false
rootfs:
  suite: bookworm
  packages: [usr-is-merged]
  users:
    - {name: someone, uid: 1234, home: /home/someone}
  directories: [/work]
"""


@pytest.fixture
def lock(stack: Stack, tmp_path: Path) -> PackagesLock:
    return debian.solve(
        "bookworm",
        ["usr-is-merged"],
        architecture="amd64",
        mirror=Mirror.chosen(stack.environment, surroundings.read(stack.environment).certificates),
        cache=tmp_path / "cache",
        now=datetime.now(UTC),
        story=Silent(),
    )


def test_a_root_file_system_whose_locked_packages_are_gone_is_built_reproducibly_from_newer_ones(
    stack: Stack, lock: PackagesLock, tmp_path: Path
) -> None:
    gone = replace(lock.packages[-1], version="0", sha256="0" * 64, path="debian/pool/main/g/gone/gone_0_amd64.deb")
    committed = locks.format_packages(replace(lock, packages=(*lock.packages[:-1], gone)))
    family = Family(tmp_path, stack)
    family.write("least/image.yaml", IMAGE)
    family.write("least/packages.lock", committed)
    family.write("least/rootfs/etc/motd", "hello\n")

    result = family.build(twice=True)["least"]

    assert result.state == "built", result
    assert (tmp_path / "images" / "least" / "packages.lock").read_text() == committed
    (overlay,) = (tmp_path / "cache" / "overlays").iterdir()
    assert locks.parse_packages(overlay.read_text()) == lock
    assert result.pinned is not None
    with tarfile.open(fileobj=io.BytesIO(unpacked(result.pinned))) as tar:
        look_at(tar, lock)


def look_at(tar: tarfile.TarFile, lock: PackagesLock) -> None:
    members = {member.name: member for member in tar}
    assert [name for name, member in members.items() if member.mtime > EPOCH] == []
    assert {members[top].linkname for top in ("bin", "sbin", "lib")} == {"usr/bin", "usr/sbin", "usr/lib"}
    left_behind = ("dev/", "proc/", "sys/", "var/lib/apt/lists/", "var/lib/dpkg/updates/")
    assert [name for name in members if name.startswith(left_behind) or name.endswith(".log")] == []
    assert members["home/someone"].uid == 1234
    assert (members["home/someone"].gid, members["home/someone"].mode & 0o070) == (0, 0o070)
    assert (members["work"].gid, members["work"].mode & 0o070) == (0, 0o070)
    assert text(tar, "etc/motd") == "hello\n"
    assert {line.split(":")[2] for line in text(tar, "etc/shadow").splitlines()} <= {"", str(int(EPOCH // 86400))}
    status = text(tar, "var/lib/dpkg/status")
    assert status.count("Status: install ok installed\n") == len(lock.packages) == status.count("Package: ")


def text(tar: tarfile.TarFile, name: str) -> str:
    content = tar.extractfile(name)
    assert content is not None
    return content.read().decode()


def unpacked(pinned: Pinned) -> bytes:
    registry = Registry()
    (layer,) = registry.manifest(pinned).layers
    compressed = b"".join(registry.stream(pinned.repository, layer))
    return zstandard.ZstdDecompressor().decompressobj().decompress(compressed)
