"""Debian's archive: trust, locks and downloads, against a tiny archive on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import debian
from pipeline.debian import KEYRING, Mirror, PackagesGone
from pipeline.errors import InputError, Temporary, ToolFailed
from pipeline.locks import PackagesLock, format_packages, overlay_name, packages_digest, parse_packages
from pipeline.story import Silent
from tests.archive import NOW, Archive, served


@pytest.fixture
def archive() -> Iterator[Archive]:
    with served(Archive()) as archive:
        archive.add("stable", "base", "1", "Essential: yes\nDepends: lib")
        archive.add("stable", "lib", "1:2-3")
        archive.add("stable-security", "lib", "1:2-3+deb1")
        archive.add("stable-updates", "tool", "7")
        archive.publish()
        yield archive


def solve(archive: Archive, folder: Path, *packages: str) -> PackagesLock:
    mirror = archive.mirror(folder)
    return debian.solve("stable", packages, architecture="amd64", mirror=mirror, cache=folder, now=NOW, story=Silent())


def test_a_lock_holds_the_newest_versions_of_suite_updates_and_security(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path, "tool")
    assert [(package.name, package.version) for package in lock.packages] == [("base", "1"), ("lib", "1:2-3+deb1"), ("tool", "7")]
    assert lock.packages[1].path == "debian-security/pool/main/l/lib/lib_2-3+deb1_amd64.deb"
    assert lock.locked_from == packages_digest("stable", ["tool"])
    assert parse_packages(format_packages(lock)) == lock


def test_solving_again_reads_the_same_indices_from_the_cache(archive: Archive, tmp_path: Path) -> None:
    first = solve(archive, tmp_path, "tool")
    archive.requests.clear()
    assert solve(archive, tmp_path, "tool") == first
    assert len(archive.requests) == 3
    assert all(path.endswith("/InRelease") for path in archive.requests)


def test_an_archive_without_addresses_by_hash_is_read_too(archive: Archive, tmp_path: Path) -> None:
    archive.publish(by_hash=False)
    assert len(solve(archive, tmp_path).packages) == 2


def test_an_index_that_another_key_signed_is_refused(archive: Archive, tmp_path: Path) -> None:
    mirror = replace(archive.mirror(tmp_path), keyring=KEYRING)
    with pytest.raises(ToolFailed, match="`stable` is not signed by a key that we trust") as caught:
        debian.solve("stable", [], architecture="amd64", mirror=mirror, cache=tmp_path, now=NOW, story=Silent())
    assert "Stack backtrace" not in caught.value.message


def test_an_index_that_was_changed_is_refused(archive: Archive, tmp_path: Path) -> None:
    path = "debian/dists/stable/InRelease"
    archive.files[path] = archive.files[path].replace(b"Acquire-By-Hash: yes", b"Acquire-By-Hash: no")
    with pytest.raises(ToolFailed, match="not signed"):
        solve(archive, tmp_path)


def test_what_stands_outside_the_signed_text_does_not_count(archive: Archive, tmp_path: Path) -> None:
    path = "debian/dists/stable/InRelease"
    archive.files[path] = b"SHA256:\n 0 0 main/binary-amd64/Packages.xz\n" + archive.files[path]
    assert len(solve(archive, tmp_path).packages) == 2


def test_the_signed_index_of_another_suite_is_refused(archive: Archive, tmp_path: Path) -> None:
    archive.publish(codename="oldstable")
    with pytest.raises(ToolFailed, match="index of `oldstable` where `stable` was asked for"):
        solve(archive, tmp_path)


def test_an_index_past_its_date_is_refused(archive: Archive, tmp_path: Path) -> None:
    archive.publish(valid_until="Mon, 30 Nov 2026 11:00:00 UTC")
    with pytest.raises(ToolFailed, match="was valid until Mon, 30 Nov 2026"):
        solve(archive, tmp_path)
    archive.publish(valid_until="Mon, 30 Nov 2026 13:00:00 UTC")
    assert solve(archive, tmp_path).packages


def test_a_list_of_packages_that_is_not_the_signed_one_is_refused(archive: Archive, tmp_path: Path) -> None:
    path = next(path for path in archive.files if "/by-hash/" in path)
    archive.files[path] = b"x" * len(archive.files[path])
    with pytest.raises(ToolFailed, match="is not the wanted file"):
        solve(archive, tmp_path)


def test_debians_own_keys_are_there() -> None:
    import pysequoia

    users = [str(key.user_ids[0]) for key in pysequoia.Cert.split_bytes(KEYRING.read_bytes())]
    assert len(users) == 6
    assert all("bookworm" in user or "trixie" in user for user in users)


def test_packages_are_fetched_once_and_verified(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    mirror = archive.mirror(tmp_path)
    debs = debian.fetch("os", lock, mirror=mirror, cache=tmp_path, story=Silent())
    assert debs["lib"].read_bytes() == b"the package lib 1:2-3+deb1"
    assert debs["lib"].name == f"{lock.packages[1].sha256}.deb"
    archive.requests.clear()
    assert debian.fetch("os", lock, mirror=mirror, cache=tmp_path, story=Silent()) == debs
    assert archive.requests == []


def test_a_file_in_the_cache_that_is_damaged_is_fetched_again(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    mirror = archive.mirror(tmp_path)
    path = debian.fetch("os", lock, mirror=mirror, cache=tmp_path, story=Silent())["lib"]
    whole = path.read_bytes()
    path.write_bytes(b"X" * len(whole))
    debian.fetch("os", lock, mirror=mirror, cache=tmp_path, story=Silent())
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"the package lib 9:9-9+deb1", b"short", b"too long" * 9])
def test_a_package_that_is_not_the_locked_one_is_refused_and_not_kept(content: bytes, archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    archive.files[lock.packages[1].path] = content
    with pytest.raises(ToolFailed, match="is not the wanted file"):
        debian.fetch("os", lock, mirror=archive.mirror(tmp_path), cache=tmp_path, story=Silent())
    names = {path.name for path in (tmp_path / "downloads" / "debs").glob("*.deb*")}
    assert names <= {f"{lock.packages[0].sha256}.deb"}


def test_what_the_mirror_has_dropped_comes_from_the_snapshot_service(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    archive.move_to_snapshot("lib", "1:2-3+deb1")
    debs = debian.fetch("os", lock, mirror=archive.mirror(tmp_path), cache=tmp_path, story=Silent())
    assert debs["lib"].read_bytes() == b"the package lib 1:2-3+deb1"


def test_what_nobody_has_any_more_is_named_with_the_command_that_helps(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    del archive.files[lock.packages[1].path]
    with pytest.raises(PackagesGone, match="`lib`") as caught:
        debian.fetch("os", lock, mirror=archive.mirror(tmp_path), cache=tmp_path, story=Silent())
    assert caught.value.packages == ("lib",)
    assert caught.value.exit_code == 5
    assert "nox -s update -- os" in caught.value.hint


def test_packages_are_gone_too_when_the_snapshot_service_cannot_be_reached(archive: Archive, tmp_path: Path) -> None:
    lock = solve(archive, tmp_path)
    del archive.files[lock.packages[1].path]
    mirror = replace(archive.mirror(tmp_path), snapshot="http://127.0.0.1:9")
    with pytest.raises(PackagesGone):
        debian.fetch("os", lock, mirror=mirror, cache=tmp_path, story=Silent())


def test_a_mirror_that_cannot_be_reached_is_temporary_and_its_password_is_not_told(tmp_path: Path) -> None:
    mirror = Mirror(root="http://user:secret@127.0.0.1:9")
    with pytest.raises(Temporary, match="cannot be reached") as caught:
        debian.solve("stable", [], architecture="amd64", mirror=mirror, cache=tmp_path, now=NOW, story=Silent())
    assert "secret" not in str(caught.value)
    assert "Max retries" not in str(caught.value)


def test_a_certificate_that_is_not_accepted_is_told_with_the_remedy(archive: Archive, tmp_path: Path) -> None:
    mirror = Mirror(root=archive.root.replace("http:", "https:"))
    with pytest.raises(ToolFailed, match=r"certificate of `https://.*` is not accepted") as caught:
        debian.solve("stable", [], architecture="amd64", mirror=mirror, cache=tmp_path, now=NOW, story=Silent())
    assert "SSL_CERT_FILE" in caught.value.hint


def test_an_overlay_is_solved_from_what_there_is_now_and_named_after_the_committed_lock(archive: Archive, tmp_path: Path) -> None:
    committed = format_packages(solve(archive, tmp_path, "tool")).encode()
    archive.add("stable-security", "tool", "8")
    archive.publish()
    mirror = archive.mirror(tmp_path)
    path = debian.resolve_overlay(
        "os", committed, ["tool"], architecture="amd64", mirror=mirror, cache=tmp_path, now=NOW, story=Silent()
    )
    assert path == tmp_path / "overlays" / overlay_name("os", committed)
    lock = parse_packages(path.read_text())
    assert lock.packages[-1].version == "8"
    assert lock.locked_from == parse_packages(committed.decode()).locked_from


def test_a_mirror_is_chosen_by_the_environment() -> None:
    assert Mirror.chosen({}, None) == Mirror()
    assert Mirror.chosen({"PIPELINE_DEBIAN_MIRROR": "http://mirror/x/"}, None).root == "http://mirror/x"
    with pytest.raises(InputError, match="`PIPELINE_DEBIAN_MIRROR` is no address: `mirror/x`"):
        Mirror.chosen({"PIPELINE_DEBIAN_MIRROR": "mirror/x"}, None)


def test_a_lock_on_top_of_others_holds_what_is_added_alone(archive: Archive, tmp_path: Path) -> None:
    archive.add("stable", "editor", "1", "Depends: base, lib (>= 1:2), tool")
    archive.publish()
    below = {"base": "1", "lib": "1:2-3+deb1"}
    mirror = archive.mirror(tmp_path)
    lock = debian.solve(
        "stable", ["editor"], below=below, architecture="amd64", mirror=mirror, cache=tmp_path, now=NOW, story=Silent()
    )
    assert [package.name for package in lock.packages] == ["editor", "tool"]
    assert lock.locked_from == packages_digest("stable", ["editor"], below)
