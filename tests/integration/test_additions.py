"""Debian packages on top of a real root file system: solved from the real archive, built twice, looked at and run."""

import io
import tarfile
from collections.abc import Mapping
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
from tests.integration.test_rootfs import EPOCH, IMAGE, text

INSTALL = 'RUN --mount=type=bind,from=packages,target=/packages --network=none ["/bin/sh", "/packages/install.sh"]\n'
PACKAGES = ["openssh-server", "tmux"]
"""The first makes keys and a user while it is installed, the second changes a group."""


@pytest.fixture
def family(stack: Stack, tmp_path: Path) -> Family:
    """`least`, a root file system that is built, and `more` on it, which adds `PACKAGES`."""
    made = Family(tmp_path, stack)
    made.write("least/image.yaml", IMAGE)
    made.write("least/packages.lock", locks.format_packages(solve(stack, tmp_path, ["usr-is-merged"])))
    assert made.build()["least"].state == "built"
    made.image("more", f"parent: least\npackages: [{', '.join(PACKAGES)}]\n", f"FROM base\nUSER 0\n{INSTALL}USER 1234:0\n")
    made.write("more/packages.lock", locks.format_packages(solve(stack, tmp_path, PACKAGES, versions(tmp_path, "least"))))
    return made


def solve(stack: Stack, root: Path, packages: list[str], below: Mapping[str, str] | None = None) -> PackagesLock:
    return debian.solve(
        "bookworm",
        packages,
        below=below,
        architecture="amd64",
        mirror=Mirror.chosen(stack.environment, surroundings.read(stack.environment).certificates),
        cache=root / "cache",
        now=datetime.now(UTC),
        story=Silent(),
    )


def lock_of(root: Path, image: str) -> PackagesLock:
    return locks.parse_packages((root / "images" / image / "packages.lock").read_text())


def versions(root: Path, image: str) -> dict[str, str]:
    return {package.name: package.version for package in lock_of(root, image).packages}


def test_added_packages_are_one_reproducible_layer_that_leaves_no_key_and_no_date(family: Family, tmp_path: Path) -> None:
    family.image("user", "parent: more\nvariant: user\n", 'FROM base\nRUN ["tmux", "-V"]\nRUN ["/usr/sbin/sshd", "-V"]\n')
    results = family.build(twice=True)
    assert {name: result.state for name, result in results.items()} == {"least": "reused", "more": "built", "user": "built"}
    pinned = results["more"].pinned
    assert pinned is not None
    with tarfile.open(fileobj=io.BytesIO(last_layer(pinned))) as tar:
        look_at(tar, versions(tmp_path, "least"), versions(tmp_path, "more"))


def look_at(tar: tarfile.TarFile, below: Mapping[str, str], added: Mapping[str, str]) -> None:
    members = {member.name: member for member in tar}
    assert {"tmux", "openssh-server", "libevent-core-2.1-7"} <= added.keys()
    assert not below.keys() & added.keys()
    assert [name for name, member in members.items() if member.mtime > EPOCH] == []
    left_behind = ("packages", "tmp/", "dev/", "proc/", "sys/", "etc/ssh/ssh_host_", "usr/sbin/policy-rc.d", "var/lib/apt/")
    assert [name for name in members if name.startswith(left_behind) or name.endswith((".log", "-old", ".lock", "~"))] == []
    assert [name for name in members if ".wh." in name] == []
    assert "sshd:" in text(tar, "etc/passwd")
    assert {line.split(":")[2] for line in text(tar, "etc/shadow").splitlines()} <= {"", str(int(EPOCH // 86400))}
    status = text(tar, "var/lib/dpkg/status")
    installed = len(below) + len(added)
    assert status.count("Status: install ok installed\n") == installed == status.count("Package: ")


def last_layer(pinned: Pinned) -> bytes:
    registry = Registry()
    compressed = b"".join(registry.stream(pinned.repository, registry.manifest(pinned).layers[-1]))
    return zstandard.ZstdDecompressor().decompressobj().decompress(compressed)


def test_a_package_that_is_not_the_locked_one_is_refused_before_anything_is_built(family: Family, tmp_path: Path) -> None:
    lock = lock_of(tmp_path, "more")
    other = replace(lock.packages[0], sha256="0" * 64)
    family.write("more/packages.lock", locks.format_packages(replace(lock, packages=(other, *lock.packages[1:]))))
    result = family.build()["more"]
    assert (result.state, result.exit_code) == ("failed", 5)
    assert "is not the wanted file" in result.reason


def test_a_package_that_does_not_fit_what_is_below_fails_its_step(family: Family, tmp_path: Path) -> None:
    lock = lock_of(tmp_path, "more")
    lacking = tuple(package for package in lock.packages if package.name != "libevent-core-2.1-7")
    family.write("more/packages.lock", locks.format_packages(replace(lock, packages=lacking)))
    result = family.build()["more"]
    assert (result.state, result.exit_code) == ("failed", 5)
    assert result.reason.endswith("Errors were encountered while processing:\n   tmux")
