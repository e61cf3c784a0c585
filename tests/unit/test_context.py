"""What is hashed is what is on disk, and what a build is sent."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import context
from pipeline.catalog import Catalog
from pipeline.errors import CatalogError, InputError, Temporary
from pipeline.failures import NONE
from pipeline.inputs import InputHash
from pipeline.locks import Package, PackagesLock, format_packages, overlay_name, packages_digest
from pipeline.settings import Settings

SHARED = """\
line: "2.6"
repository: family
candidates: localhost:5601/candidates
releases: localhost:5601/releases
platform: linux/amd64
epoch: 2025-01-29T00:00:00Z
compression-level: 7
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A root file system `os`, `main` on it, and `child` on `main`."""
    root = tmp_path / "root"
    write(root / "images/catalog.yaml", SHARED)
    write(root / "images/os/image.yaml", "description: OS\nrelease: false\nrootfs: {suite: bookworm, packages: [apt]}\n")
    lock = PackagesLock(packages_digest("bookworm", ["apt"]), "bookworm", ())
    write(root / "images/os/packages.lock", format_packages(lock))
    write(root / "images/os/rootfs/etc/motd", "hello\n")
    write(root / "images/main/image.yaml", "description: Main\nparent: os\nchecks: {cpu: [imports]}\n")
    write(root / "images/main/Dockerfile", "FROM base\n")
    write(root / "images/main/a/b.txt", "b\n")
    write(root / "images/main/checks/test_imports.py", "")
    write(root / "images/child/image.yaml", "description: Child\nparent: main\nvariant: child\n")
    write(root / "images/child/Dockerfile", "FROM base\n")
    return Settings(root=root, cache=tmp_path / "cache")


def linked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def hashes(settings: Settings) -> dict[str, InputHash]:
    return dict(context.hashes(settings, context.load(settings)))


def differing(before: InputHash, after: InputHash) -> set[str]:
    names = before.parts.keys() | after.parts.keys()
    return {name for name in names if before.parts.get(name) != after.parts.get(name)}


def names(settings: Settings, image: str = "main") -> list[str]:
    catalog = context.load(settings)
    return [file.path for file in context.read(settings, catalog, catalog.images[image])]


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "one byte": (lambda main: write(main / "a/b.txt", "c\n"), {"file:a/b.txt"}),
    "the executable bit": (lambda main: (main / "a/b.txt").chmod(0o744), {"file:a/b.txt"}),
    "another name": (lambda main: (main / "a/b.txt").rename(main / "a/c.txt"), {"file:a/b.txt", "file:a/c.txt"}),
    "a new file": (lambda main: write(main / "a/new", ""), {"file:a/new"}),
    "a link in place of a file": (
        lambda main: linked(main / "a/b.txt", "../Dockerfile"),
        {"file:a/b.txt"},
    ),
    "a name with a newline": (lambda main: write(main / "x\ny", ""), {r"file:x\ny"}),
    "a name that is no text": (lambda main: Path(os.fsdecode(os.fsencode(main) + b"/\xff")).touch(), {r"file:\udcff"}),
    "a claim": (
        lambda main: write(main / "image.yaml", 'description: M\nparent: os\nchecks: {cpu: [imports]}\nclaims: {a: "1"}\n'),
        {"claim:a"},
    ),
    "a patterns' effect": (lambda main: write(main / ".dockerignore", "a\n"), {"file:a/b.txt"}),
}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_of_what_is_built_changes_the_image_and_its_children_alone(settings: Settings, change: str) -> None:
    before = hashes(settings)
    act, parts = CHANGES[change]
    act(settings.images / "main")
    after = hashes(settings)
    assert differing(before["main"], after["main"]) == parts
    assert differing(before["child"], after["child"]) == {"parent:main"}
    assert after["os"] == before["os"]


UNCHANGING: dict[str, Callable[[Path], object]] = {
    "checks": lambda main: write(main / "checks/test_imports.py", "def test_imports(): pass\n"),
    "the description": lambda main: write(main / "image.yaml", "description: B\nparent: os\nchecks: {cpu: [imports]}\n"),
    "times": lambda main: os.utime(main / "Dockerfile", (1, 1)),
    "other bits of the mode": lambda main: (main / "Dockerfile").chmod(0o600),
    "an empty folder": lambda main: (main / "empty").mkdir(),
    "a comment in the patterns": lambda main: write(main / ".dockerignore", "# nothing\n"),
    "patterns that beat others": lambda main: (
        write(main / ".dockerignore", "a\n"),
        write(main / "Dockerfile.dockerignore", "nothing\n"),
    ),
}


@pytest.mark.parametrize("change", UNCHANGING, ids=str)
def test_a_change_of_anything_else_changes_no_hash(settings: Settings, change: str) -> None:
    before = hashes(settings)
    UNCHANGING[change](settings.images / "main")
    assert hashes(settings) == before


def test_the_dockerfile_counts_whatever_the_patterns_say(settings: Settings) -> None:
    write(settings.images / "main/.dockerignore", "*\n")
    assert names(settings) == ["Dockerfile"]


def test_a_link_is_hashed_as_it_was_written_and_never_followed(settings: Settings) -> None:
    link = settings.images / "main/link"
    link.symlink_to("a")
    before = hashes(settings)["main"]
    assert names(settings) == ["Dockerfile", "a/b.txt", "link"]
    link.unlink()
    link.symlink_to("./a")
    assert differing(before, hashes(settings)["main"]) == {"file:link"}


@pytest.mark.parametrize("target", ["../../catalog.yaml", "/etc/hostname", "../loop/../x", "out/x"])
def test_a_link_that_leaves_the_folder_is_an_error(settings: Settings, target: str) -> None:
    main = settings.images / "main"
    (main / "loop").symlink_to(".")
    (main / "a" / "link").symlink_to(target)
    if target == "out/x":
        (main / "a" / "out").symlink_to("../..")
    with pytest.raises(InputError, match=r"leads out of its image's folder"):
        hashes(settings)


def test_a_link_of_a_root_file_system_may_point_into_it_by_an_absolute_path(settings: Settings) -> None:
    (settings.images / "os/rootfs/etc/localtime").symlink_to("/usr/share/zoneinfo/UTC")
    assert "rootfs/etc/localtime" in names(settings, "os")


@pytest.mark.parametrize("path", ["main/rootfs/etc/localtime", "os/localtime"])
def test_any_other_link_by_an_absolute_path_is_an_error_even_into_its_own_folder(settings: Settings, path: str) -> None:
    link = settings.images / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(settings.images / path.partition("/")[0] / "image.yaml")
    with pytest.raises(InputError, match=r"leads out of its image's folder"):
        hashes(settings)


def test_a_link_of_a_root_file_system_leaves_its_folder_by_no_relative_path(settings: Settings) -> None:
    (settings.images / "os/rootfs/etc/link").symlink_to("../../../main/Dockerfile")
    with pytest.raises(InputError, match=r"leads out of its image's folder"):
        hashes(settings)


def test_a_family_without_known_failures_has_none(settings: Settings) -> None:
    assert context.failures(settings) == NONE
    write(settings.images / "failures.yaml", "- nothing\n")
    with pytest.raises(CatalogError):
        context.failures(settings)


def test_the_hash_of_a_folder_is_the_same_on_every_machine_and_in_every_version(settings: Settings) -> None:
    """When this fails, every user builds every image again: raise `RECIPE` and say so, or leave the hash as it was."""
    main = settings.images / "main"
    (main / "a/b.txt").chmod(0o755)
    (main / "link").symlink_to("a")
    write(main / "ünï", "x")
    write(settings.images / "os/rootfs/etc/run", "x").chmod(0o700)
    found = hashes(settings)["child"]
    assert found.value == "dc706b0951a4d40a265ae350243b8db54a237040b1cae997420ab20684651351", "it has the others in it"


def test_what_is_no_file_is_an_error_unless_it_is_left_out(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(settings.images / "main")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(InputError, match=r"main/socket` is neither a file, a folder nor a link"):
            hashes(settings)
        write(settings.images / "main/.dockerignore", "socket\n")
        assert "socket" not in names(settings)


@pytest.fixture
def _narrow() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_narrow")
def test_what_is_staged_is_what_was_hashed_with_plain_modes_and_the_catalogs_epoch(settings: Settings, tmp_path: Path) -> None:
    main = settings.images / "main"
    (main / "a/b.txt").chmod(0o700)
    (main / "Dockerfile").chmod(0o600)
    (main / "link").symlink_to("a/b.txt")
    write(main / ".dockerignore", "ignored\n")
    write(main / "ignored/x", "")
    target = stage(settings, tmp_path)
    found = {str(path.relative_to(target)): path.lstat() for path in target.rglob("*")}
    assert sorted(found) == ["Dockerfile", "a", "a/b.txt", "link"]
    assert {oct(found[path].st_mode & 0o777) for path in ("a", "a/b.txt")} == {"0o755"}
    assert oct(found["Dockerfile"].st_mode & 0o777) == "0o644"
    assert (target / "link").readlink() == Path("a/b.txt")
    assert {int(status.st_mtime) for status in found.values()} == {1738108800}


def stage(settings: Settings, tmp_path: Path, *, edit: Path | None = None) -> Path:
    catalog: Catalog = context.load(settings)
    expected = context.hashes(settings, catalog)["main"]
    if edit:
        write(edit, "changed meanwhile\n")
    target = tmp_path / "staged"
    target.mkdir()
    context.stage(settings, catalog, catalog.images["main"], target, expected)
    return target


@pytest.mark.parametrize("path", ["a/b.txt", "new", "Dockerfile"])
def test_a_folder_that_changes_between_hash_and_build_is_not_built(settings: Settings, tmp_path: Path, path: str) -> None:
    with pytest.raises(Temporary, match="was changed since it was hashed"):
        stage(settings, tmp_path, edit=settings.images / "main" / path)


def test_a_change_of_checks_between_hash_and_build_does_no_harm(settings: Settings, tmp_path: Path) -> None:
    stage(settings, tmp_path, edit=settings.images / "main/checks/test_imports.py")


def test_a_lock_in_the_cache_counts_in_place_of_the_committed_one_on_loopback_only(settings: Settings, tmp_path: Path) -> None:
    before = hashes(settings)["os"]
    committed = settings.images / "os/packages.lock"
    assert context.overlay(settings, context.load(settings), context.load(settings).images["os"]) is None
    stand_in = write(settings.cache / "overlays" / overlay_name("os", committed.read_bytes()), "another lock\n")
    catalog = context.load(settings)
    assert context.overlay(settings, catalog, catalog.images["os"]) == stand_in
    after = hashes(settings)["os"]
    assert differing(before, after) == {"file:packages.lock"}
    plain = catalog.images["main"].model_copy(update={"name": "os"})
    assert context.overlay(settings, catalog, plain) is None, "it has no packages"
    elsewhere = catalog.model_copy(update={"candidates": "harbor.example.com/ml"})
    assert context.overlay(settings, elsewhere, elsewhere.images["os"]) is None
    assert context.hashes(settings, elsewhere)["os"] == before
    target = tmp_path / "staged"
    target.mkdir()
    context.stage(settings, catalog, catalog.images["os"], target, after)
    assert (target / "packages.lock").read_text(encoding="utf-8") == "another lock\n"


def test_only_what_is_named_and_what_it_is_built_from_is_hashed(settings: Settings) -> None:
    catalog = context.load(settings)
    assert list(context.hashes(settings, catalog, ["main"])) == ["os", "main"]


def test_the_lock_of_packages_counts_whatever_the_patterns_say(settings: Settings) -> None:
    write(settings.images / "os/.dockerignore", "*\n")
    assert names(settings, "os") == ["packages.lock"]


def test_an_image_whose_lock_is_not_written_yet_has_no_stand_in(settings: Settings) -> None:
    (settings.images / "os/packages.lock").unlink()
    catalog = context.load(settings, with_locks=False)
    assert context.overlay(settings, catalog, catalog.images["os"]) is None


def test_packages_below_are_those_of_the_locks_that_builds_use(settings: Settings) -> None:
    os_lock, main_lock = settings.images / "os/packages.lock", settings.images / "main/packages.lock"
    write(os_lock, format_packages(PackagesLock(packages_digest("bookworm", ["apt"]), "bookworm", (package("apt", "1"),))))
    plain = context.load(settings)
    assert context.packages_below(settings, plain, plain.images["child"]) == {"apt": "1"}
    write(settings.images / "main/image.yaml", "description: Main\nparent: os\npackages: [git]\n")
    digest = packages_digest("bookworm", ["git"], {"apt": "1"})
    write(main_lock, format_packages(PackagesLock(digest, "bookworm", (package("git", "2"),))))
    (settings.images / "main/checks/test_imports.py").unlink()
    catalog = context.load(settings)
    assert context.packages_below(settings, catalog, catalog.images["os"]) == {}
    assert context.packages_below(settings, catalog, catalog.images["child"]) == {"apt": "1", "git": "2"}
    before = hashes(settings)
    stand_in = format_packages(PackagesLock(digest, "bookworm", (package("git", "3"),)))
    write(settings.cache / "overlays" / overlay_name("main", main_lock.read_bytes()), stand_in)
    assert context.packages_below(settings, catalog, catalog.images["child"]) == {"apt": "1", "git": "3"}
    assert differing(before["main"], hashes(settings)["main"]) == {"file:packages.lock"}


def test_the_repositories_that_the_user_chose_take_the_place_of_the_catalogs(settings: Settings) -> None:
    catalog = context.load(replace(settings, candidates="a.example.com/c", releases="b.example.com/r"))
    assert (catalog.candidates, catalog.releases) == ("a.example.com/c", "b.example.com/r")
    with pytest.raises(InputError, match=r"^`--candidates` or `PIPELINE_CANDIDATES` names no registry and project: "):
        context.load(replace(settings, candidates="No Registry"))
    with pytest.raises(InputError, match=r"^`--releases` or `PIPELINE_RELEASES` names"):
        context.load(replace(settings, releases=""))


def test_a_folder_without_a_catalog_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no `.*/images/catalog.yaml`"):
        context.load(Settings(root=tmp_path, cache=tmp_path))


def test_hidden_folders_and_files_beside_the_catalog_are_no_images(settings: Settings) -> None:
    for name in (".template", "__pycache__"):
        (settings.images / name).mkdir()
    write(settings.images / "README.md", "")
    assert list(context.read_folders(settings)[1]) == ["child", "main", "os"]


def test_of_a_folder_all_paths_are_told_and_the_texts_of_locks_and_their_sources(settings: Settings) -> None:
    main = settings.images / "main"
    (main / "requirements/more").mkdir(parents=True)
    for path in (
        "b.lock",
        "a/1.lock",
        "requirements/1.lock",
        "requirements/1.in",
        "requirements/notes",
        "requirements/more/2.lock",
    ):
        (main / path).write_bytes(b"\xff")
    os.mkfifo(main / "requirements/pipe")
    folder = context.read_folders(settings)[1]["main"]
    assert folder.locks == {"requirements/1.lock": "\ufffd"}
    assert folder.inputs == {"requirements/1.in": b"\xff"}
    assert folder.paths == tuple(sorted(folder.paths))
    assert "requirements/pipe" not in folder.paths
    assert list(context.read_folders(settings)[1]["os"].locks) == ["packages.lock"]


def test_patterns_that_are_no_text_count_as_far_as_they_are(settings: Settings) -> None:
    (settings.images / "main/.dockerignore").write_bytes(b"# caf\xe9\na\n")
    assert names(settings) == ["Dockerfile"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, Temporary), (errno.EDQUOT, Temporary), (errno.EROFS, InputError), (errno.EACCES, InputError)],
)
def test_what_cannot_be_written_is_told_by_name_and_passes_only_where_a_disk_is_full(
    tmp_path: Path, number: int, kind: type[Exception]
) -> None:
    for name, told in ((None, str(tmp_path)), ("/some/file", "/some/file")):
        with pytest.raises(kind, match=rf"^`{told}` cannot be copied or written: "), context.writing(tmp_path):
            raise OSError(number, os.strerror(number), name)


def test_texts_are_those_of_files_alone(settings: Settings) -> None:
    main = settings.images / "main"
    (main / "link").symlink_to("Dockerfile")
    assert sorted(context.texts(main)) == ["Dockerfile", "a/b.txt", "checks/test_imports.py", "image.yaml"]


def test_what_cannot_be_read_is_named(settings: Settings) -> None:
    with pytest.raises(InputError, match=r"^`.*/nowhere` cannot be read: No such file"):
        context.texts(settings.images / "nowhere")


def package(name: str, version: str) -> Package:
    return Package(name, version, "amd64", 1, "0" * 64, f"debian/pool/{name}.deb")
