"""Faulty catalogs are refused with all their faults; good ones mean what they say."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import catalog_text, context, locks
from pipeline.catalog import Catalog, Image
from pipeline.errors import CatalogError, InputError
from pipeline.settings import Settings
from pipeline.sources import Folder

CATALOGS = Path(__file__).parent.parent / "data" / "catalogs"
SHARED = b"""\
line: "2.6"
repository: family
candidates: localhost:5601/candidates
releases: localhost:5601/releases
platform: linux/amd64
epoch: 2025-01-29T00:00:00Z
compression-level: 7
"""


def lock(versions: Mapping[str, str], source: bytes) -> str:
    found = {name: locks.Requirement(name, version, ("0" * 64,)) for name, version in versions.items()}
    return locks.format_requirements(locks.RequirementsLock(locks.source_digest(source), found))


def folder(text: str, versions: Mapping[str, str] | None = None, *, source: bytes = b"x", solved: bytes = b"x") -> Folder:
    paths = ("Dockerfile", "image.yaml")
    if versions is None:
        return Folder(text=text.encode(), paths=paths)
    return Folder(
        text=text.encode(),
        paths=paths,
        locks={"requirements/all.lock": lock(versions, solved)},
        inputs={"requirements/all.in": source},
    )


def faults(folders: Mapping[str, Folder], shared: bytes = SHARED) -> tuple[str, ...]:
    with pytest.raises(CatalogError) as caught:
        catalog_text.parse(shared, folders)
    assert caught.value.exit_code == 2
    return caught.value.problems


@pytest.mark.parametrize("root", sorted(CATALOGS.iterdir()), ids=lambda root: root.name)
def test_all_faults_are_reported_at_once_with_file_and_line(root: Path) -> None:
    expected = (root / "expected.txt").read_text(encoding="utf-8").splitlines()
    try:
        context.load(Settings(root=root, cache=root / "no-cache"))
        found: tuple[str, ...] = ()
    except CatalogError as error:
        found = error.problems
    assert list(found) == expected


def test_the_design_example_means_what_it_says() -> None:
    text = """\
description: Transformers, Datasets and Accelerate on PyTorch 2.6
parent: main
uses: [build-env]
variant: nlp
claims: {transformers: 4.35.2, datasets: 2.14.7, accelerate: 0.24.1}
size-limit: 3.0 GB
revision: 2
"""
    tools = "description: Tools\nrelease: false\n"
    catalog = catalog_text.parse(SHARED, {"nlp": folder(text), "main": folder("description: Main\n"), "build-env": folder(tools)})
    nlp = catalog.images["nlp"]
    assert list(catalog.images) == ["build-env", "main", "nlp"]
    assert (nlp.size_limit, nlp.revision, nlp.needs) == (3_000_000_000, 2, ("main", "build-env"))
    assert catalog.epoch == datetime(2025, 1, 29, tzinfo=UTC)
    assert str(catalog.candidate_repository) == "localhost:5601/candidates/family"
    tags = [catalog.candidate_tag(image, "0123456789abcdef") for image in catalog.images.values()]
    assert tags == ["v2.6-build-env-0123456789ab", "v2.6-0123456789ab", "v2.6-nlp-0123456789ab"]


def test_values_can_be_made_by_field_name_in_code() -> None:
    assert Image(name="a", description="A", size_limit=3).size_limit == 3


@pytest.mark.parametrize(
    ("text", "size"), [("3.0 GB", 3_000_000_000), ("80 MB", 80_000_000), ("1.5kB", 1500), ("7 B", 7), ("1 TB", 10**12)]
)
def test_sizes_are_decimal(text: str, size: int) -> None:
    catalog = catalog_text.parse(SHARED, {"a": folder(f"description: A\nsize-limit: {text}\n")})
    assert catalog.images["a"].size_limit == size


@pytest.mark.parametrize("text", ["3", "3.0", "0 GB", "1.0000000001 kB", "0.5 B", "-1 GB", "3 GiB", "3 gb", "[3 GB]"])
def test_other_sizes_are_refused(text: str) -> None:
    assert faults({"a": folder(f"description: A\nsize-limit: {text}\n")}) == (
        "images/a/image.yaml:2: `size-limit` must be a size of B, kB, MB, GB or TB, like `3.0 GB`",
    )


@pytest.mark.parametrize("epoch", ["2025-01-29", "2025-01-29T00:00:00", "2025-01-29T00:00:00+01:00", "2025-02-30T00:00:00Z", "1"])
def test_an_epoch_that_is_no_moment_of_utc_is_refused(epoch: str) -> None:
    shared = SHARED.replace(b"2025-01-29T00:00:00Z", epoch.encode())
    (fault,) = faults({"a": folder("description: A\n")}, shared)
    assert fault.startswith("images/catalog.yaml:6: `epoch` must be a moment of UTC")


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        (b"2.6", b"2." + b"6" * 200, "images/catalog.yaml:1: `line` is not a release line like `2.6`"),
        (b"linux/amd64", b"windows/amd64", "images/catalog.yaml:5: `platform` is not a platform of Linux, like `linux/amd64`"),
    ],
)
def test_a_line_that_fits_no_tag_and_a_platform_without_images_are_refused(good: bytes, bad: bytes, fault: str) -> None:
    (found,) = faults({"a": folder("description: A\n")}, SHARED.replace(good, bad))
    assert found.startswith(fault)


def test_a_variant_that_reads_as_the_newest_release_is_refused() -> None:
    (found,) = faults({"a": folder("description: A\nvariant: latest\n")})
    assert found.startswith("images/a/image.yaml:2: `variant` may not be `latest`")


def test_packages_that_no_machine_of_the_platform_runs_are_refused() -> None:
    images = Path(__file__).parents[2] / "images" / "os"
    locked = {"packages.lock": (images / "packages.lock").read_text()}
    root = Folder(text=(images / "image.yaml").read_bytes(), paths=("image.yaml", "packages.lock"), locks=locked)
    assert list(catalog_text.parse(SHARED, {"os": root}).images) == ["os"]
    (found,) = faults({"os": root}, SHARED.replace(b"linux/amd64", b"linux/arm64"))
    text = "holds packages for `amd64`, and `platform` is `linux/arm64`: `nox -s update -- os`"
    assert found == f"images/os/packages.lock:1: {text}"


def test_a_family_without_an_image_is_refused() -> None:
    (found,) = faults({})
    assert found == "images/catalog.yaml:1: no folder beside it describes an image: one is `images/NAME/image.yaml`"


@pytest.mark.parametrize("line", ["2.6", "2.10", "3.0"])
def test_a_line_that_yaml_takes_for_a_number_is_to_be_quoted(line: str) -> None:
    shared = SHARED.replace(b'"2.6"', line.encode())
    assert faults({"a": folder("description: A\n")}, shared) == (
        f'images/catalog.yaml:1: `line` must be text: quote it, `"{line}"`',
    )


def test_two_point_ten_stays_two_point_ten() -> None:
    catalog = catalog_text.parse(SHARED.replace(b"2.6", b"2.10"), {"a": folder("description: A\n")})
    assert catalog.floating_tag(catalog.images["a"]) == "v2.10"


@pytest.mark.parametrize("line", ["v2.6", "2.6.0", "2.6+cu124", "2.06", "2.6\\n", " 2.6"])
def test_what_cannot_be_a_release_line_is_refused(line: str) -> None:
    (fault,) = faults({"a": folder("description: A\n")}, SHARED.replace(b'"2.6"', f'"{line}"'.encode()))
    assert fault.startswith("images/catalog.yaml:1: `line` is not a release line like `2.6`")


@pytest.mark.parametrize("pattern", ["*", "**", "a*", "-*-", "Vendor-*", "vendor *"])
def test_a_pattern_that_takes_in_more_than_one_vendors_packages_is_refused(pattern: str) -> None:
    (fault,) = faults({"a": folder("description: A\n")}, SHARED + f'unassessed: ["{pattern}"]\n'.encode())
    assert fault.startswith("images/catalog.yaml:8: `unassessed[0]` is not a package's name, in which `*` may stand for any text")


def test_packages_that_no_advisory_is_about_are_named_by_pattern() -> None:
    catalog = catalog_text.parse(SHARED + b'unassessed: ["vendor-*"]\n', {"a": folder("description: A\n")})
    assert catalog.unassessed == ("vendor-*",)


def test_a_claim_that_contradicts_a_lock_is_found_in_the_image_and_in_its_children() -> None:
    parent = folder('description: A\nclaims:\n  torch: 2.6.1\n  local: 2.6.0\n  Some_Name: "1.0"\n', {
        "torch": "2.6.0", "local": "2.6.0+cu124", "some-name": "1.0",
    })  # fmt: skip
    child = folder("description: B\nparent: a\nvariant: b\nclaims: {torch: 2.7.0}\n")
    assert faults({"a": parent, "b": child}) == (
        "images/a/image.yaml:3: claims `torch` 2.6.1, but images/a/requirements/all.lock:6 locks 2.6.0",
        "images/b/image.yaml:4: claims `torch` 2.7.0, but images/a/requirements/all.lock:6 locks 2.6.0",
    )


def test_a_lock_older_than_its_source_is_found() -> None:
    assert faults({"a": folder("description: A\n", {"torch": "2.6.0"}, source=b"new", solved=b"old")}) == (
        "images/a/requirements/all.lock:1: is not solved from `all.in` as it is now: `nox -s update -- a`",
    )


def test_a_child_that_replaces_what_its_ancestors_lock_is_found() -> None:
    child = folder("description: C\nparent: b\nvariant: c\n", {"torch": "2.7.0", "numpy": "1.26.4", "own": "1"})
    grandparent = folder("description: A\n", {"torch": "2.6.0", "numpy": "1.26.4"})
    parent = folder("description: B\nparent: a\nvariant: b\n")
    assert faults({"a": grandparent, "b": parent, "c": child}) == (
        "images/c/requirements/all.lock:6: `torch` is 2.7.0, where `b` brings 2.6.0 (images/a/requirements/all.lock)",
    )


def test_locks_and_sources_come_in_pairs() -> None:
    alone = Folder(
        text=b"description: A\n",
        paths=("Dockerfile", "image.yaml"),
        locks={"requirements/old.lock": lock({}, b"x"), "packages.lock": "nonsense\n"},
        inputs={"requirements/new.in": b"x"},
    )
    assert faults({"a": alone}) == (
        "images/a/packages.lock:1: `nonsense` is not `name version architecture size sha256 path`",
        "images/a/packages.lock:1: belongs to no `rootfs` and no `packages`",
        "images/a/packages.lock:1: line 1 must be `# locked from: sha256:…`",
        "images/a/packages.lock:2: line 2 must be `# suite: …`",
        "images/a/requirements/new.in:1: has no lock: `nox -s update -- a`",
        "images/a/requirements/old.lock:1: has no source `requirements/old.in`",
    )


def test_a_root_file_system_and_its_lock_belong_together() -> None:
    package = locks.Package("python3.11", "3.11.2-6+deb12u5", "amd64", 1, "0" * 64, "debian/pool/p.deb")
    stale = locks.PackagesLock(locks.packages_digest("bookworm", ["apt"]), "bookworm", (package,))
    text = 'description: A\nclaims: {python3.11: "3.12"}\nrootfs:\n  suite: bookworm\n  packages: [python3.11]\n'
    image = Folder(text=text.encode(), paths=("image.yaml",), locks={"packages.lock": locks.format_packages(stale)})
    assert faults({"a": image}) == (
        'images/a/image.yaml:2: claims `python3.11` 3.12, but images/a/packages.lock locks 3.11.2-6+deb12u5',
        "images/a/packages.lock:1: is not solved from the `rootfs` of `image.yaml` as it is now: `nox -s update -- a`",
    )  # fmt: skip


def test_those_who_write_locks_can_read_a_catalog_whose_locks_are_wrong() -> None:
    stale = {"a": folder("description: A\n", {"torch": "2.6.0"}, source=b"new", solved=b"old")}
    assert list(catalog_text.parse(SHARED, stale, with_locks=False).images) == ["a"]


def test_the_users_choice_of_repositories_replaces_the_catalogs(tmp_path: Path) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "catalog.yaml").write_bytes(SHARED)
    (tmp_path / "images" / "a" / "image.yaml").write_text("description: A\n")
    (tmp_path / "images" / "a" / "Dockerfile").write_text("FROM scratch\n")
    chosen = Settings(root=tmp_path, cache=tmp_path, candidates="harbor.example.com/ml", releases="localhost:1/r")
    catalog = context.load(chosen)
    assert str(catalog.candidate_repository) == "harbor.example.com/ml/family"
    assert str(catalog.release_repository) == "localhost:1/r/family"
    with pytest.raises(InputError, match="is not a repository"):
        context.load(Settings(root=tmp_path, cache=tmp_path, candidates="https://harbor.example.com"))


def test_a_missing_catalog_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"catalog\.yaml.*\n\n?.*--root"):
        context.load(Settings(root=tmp_path, cache=tmp_path))


def test_a_thousand_images_in_one_line_are_sorted_and_a_circle_of_them_is_found() -> None:
    def chain(first: str) -> dict[str, Folder]:
        texts = [f"description: D\nparent: i{number - 1}\nvariant: v{number}\n" for number in range(1, 1000)]
        return {"i0": folder(first), **{f"i{number}": folder(text) for number, text in enumerate(texts, 1)}}

    catalog: Catalog = catalog_text.parse(SHARED, chain("description: D\n"))
    assert list(catalog.images) == [f"i{number}" for number in range(1000)]
    (fault,) = faults(chain("description: D\nparent: i999\n"))
    assert fault.startswith("images/i0/image.yaml:2: goes in a circle: `i0` → `i999` → `i998`")


def packaged(text: str, wanted: str, versions: Mapping[str, str]) -> Folder:
    """A folder with a `packages.lock` that is solved from what has this digest."""
    found = (locks.Package(name, version, "amd64", 1, "0" * 64, "debian/pool/p.deb") for name, version in versions.items())
    lock = locks.format_packages(locks.PackagesLock(wanted, "bookworm", tuple(found)))
    return Folder(text=text.encode(), paths=("Dockerfile",), locks={"packages.lock": lock})


ROOT = packaged(
    "description: R\nrelease: false\nrootfs: {suite: bookworm, packages: [bash]}\n",
    locks.packages_digest("bookworm", ["bash"]),
    {"bash": "5"},
)
ROOT = replace(ROOT, paths=())
ADDING = "description: A\nparent: root\npackages: [tmux]\nclaims: {tmux: '3.3'}\n"
ADDED = packaged(ADDING, locks.packages_digest("bookworm", ["tmux"], {"bash": "5"}), {"tmux": "3.3-1"})
ON_TOP = "description: B\nparent: a\nvariant: b\npackages: [git]\n"
ON_ALL = packaged(ON_TOP, locks.packages_digest("bookworm", ["git"], {"bash": "5", "tmux": "3.3-1"}), {"git": "2"})


def test_packages_are_added_to_those_of_all_images_below() -> None:
    catalog = catalog_text.parse(SHARED, {"root": ROOT, "a": ADDED, "b": ON_ALL})
    image = catalog.images["b"]
    assert (image.packages, catalog.suite(image)) == (("git",), "bookworm")
    assert [ancestor.name for ancestor in catalog.ancestors(image)] == ["a", "root"]


def test_added_packages_are_locked_under_the_locks_below_as_they_are() -> None:
    moved = replace(ROOT, locks={"packages.lock": ROOT.locks["packages.lock"].replace("bash 5", "bash 6")})
    text = ADDING.replace("[tmux]", "[tmux, less]").replace("3.3'", "3.4'")
    assert faults({"root": moved, "a": replace(ADDED, text=text.encode()), "b": ON_ALL}) == (
        "images/a/image.yaml:4: claims `tmux` 3.4, but images/a/packages.lock locks 3.3-1",
        "images/a/packages.lock:1: is not solved from the `packages` of `image.yaml` and what `root` has as it is now: "
        "`nox -s update -- a`",
        "images/b/packages.lock:1: is not solved from the `packages` of `image.yaml` and what `a` has as it is now: "
        "`nox -s update -- b`",
    )


def test_packages_without_a_lock_and_a_lock_without_packages_are_found() -> None:
    assert faults({"root": ROOT, "a": replace(ADDED, locks={}), "b": replace(ON_ALL, text=ON_TOP[:35].encode())}) == (
        "images/a/image.yaml:3: has no `packages.lock`: `nox -s update -- a`",
        "images/b/packages.lock:1: belongs to no `rootfs` and no `packages`",
    )


def test_packages_are_added_to_those_of_a_root_file_system_alone() -> None:
    both = "description: A\nrootfs: {suite: bookworm, packages: [bash]}\npackages: [git]\n"
    digest = locks.packages_digest("bookworm", ["bash"])
    alone = packaged("description: B\nparent: x\nvariant: b\npackages: [git]\n", digest, {})
    found = faults({
        "a": replace(packaged(both, digest, {}), paths=()),
        "b": alone,
        "x": folder("description: X\nrelease: false\n"),
    })  # fmt: skip
    assert found == (
        "images/a/image.yaml:3: a `rootfs` has its own `packages`: name them there",
        "images/b/image.yaml:4: are added to those of a `rootfs`: no image that it stands on has one",
    )


@pytest.mark.parametrize("packages", ["[Git]", "[git, git]", "git"])
def test_names_of_packages_are_debians(packages: str) -> None:
    (fault,) = faults({"root": ROOT, "a": replace(ADDED, text=f"description: A\nparent: root\npackages: {packages}\n".encode())})
    assert fault.startswith("images/a/image.yaml:3: `packages")


@pytest.mark.parametrize("name", ["base", "packages", "scratch"])
def test_what_dockerfiles_know_as_something_else_is_no_images_name(name: str) -> None:
    (fault,) = faults({name: folder("description: A\n")})
    assert fault.startswith(f"images/{name}/image.yaml:1: the folder's name is not an image's name")
