"""The input hash covers everything that can change an image, and nothing else."""

import hashlib
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import pytest

from pipeline.catalog import Catalog, Checks, Image, Rootfs, Shared, User
from pipeline.inputs import RECIPE, ContextFile, InputHash, compute, shown
from pipeline.rootfs import DOCKERFILE

ROOTFS = Rootfs(suite="bookworm", packages=("apt", "bash"), users=(User(name="user", uid=1000, home="/home/user"),))
IMAGE = Image(
    name="nlp", description="A", parent="pytorch", uses=("build-env",), variant="nlp", claims={"torch": "2.6.0"}, rootfs=ROOTFS
)
CATALOG = Catalog(
    line="2.6",
    repository="family",
    candidates="localhost:1/c",
    releases="localhost:1/r",
    platform="linux/amd64",
    epoch=datetime(2025, 1, 29, tzinfo=UTC),
    compression_level=7,
    images={"nlp": IMAGE},
)
FILE = ContextFile(path="Dockerfile", kind="file", executable=False, digest="0" * 64)
OTHER = ContextFile(path="b", kind="file", executable=False, digest="1" * 64)
NEEDS = {"pytorch": "2" * 64, "build-env": "3" * 64}


def hashed(
    *,
    image: dict[str, Any] | None = None,
    catalog: dict[str, Any] | None = None,
    files: tuple[ContextFile, ...] = (FILE, OTHER),
    needs: dict[str, str] | None = None,
    recipe: int = 1,
    installer: str = "5" * 64,
) -> InputHash:
    changed = IMAGE.model_copy(update=image or {})
    return compute(
        CATALOG.model_copy(update=catalog or {}), changed, files, NEEDS | (needs or {}), recipe=recipe, installer=installer
    )


def test_the_value_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert hashed().value == "e4928d5aa7473a8e1866e8800f896788e19eed6d021cd84be9d1aabc00979057"


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"image": {"claims": {"torch": "2.6.1"}}}, {"claim:torch"}),
        ({"image": {"claims": {}}}, {"claim:torch"}),
        ({"image": {"revision": 2}}, {"revision"}),
        ({"image": {"name": "other"}}, {"name"}),
        ({"image": {"variant": "other"}}, {"variant"}),
        ({"image": {"release": False}}, {"release"}),
        ({"image": {"rootfs": ROOTFS.model_copy(update={"suite": "trixie"})}}, {"rootfs:suite"}),
        ({"image": {"rootfs": ROOTFS.model_copy(update={"packages": ("apt",)})}}, {"rootfs:packages"}),
        ({"image": {"rootfs": ROOTFS.model_copy(update={"users": ()})}}, {"rootfs:users"}),
        ({"image": {"rootfs": ROOTFS.model_copy(update={"directories": ("/srv",)})}}, {"rootfs:directories"}),
        ({"image": {"rootfs": ROOTFS.model_copy(update={"workdir": "/srv"})}}, {"rootfs:workdir"}),
        ({"catalog": {"line": "2.7"}}, {"line"}),
        ({"catalog": {"platform": "linux/arm64"}}, {"platform"}),
        ({"catalog": {"epoch": datetime(2025, 1, 30, tzinfo=UTC)}}, {"epoch"}),
        ({"catalog": {"compression_level": 11}}, {"compression-level"}),
        ({"needs": {"pytorch": "4" * 64}}, {"parent:pytorch"}),
        ({"needs": {"build-env": "4" * 64}}, {"uses:build-env"}),
        ({"recipe": 2}, {"recipe"}),
        ({"files": (FILE,)}, {"file:b"}),
    ],
)
def test_each_input_changes_the_hash_and_its_own_part_alone(change: dict[str, Any], parts: set[str]) -> None:
    before, after = hashed(), hashed(**change)
    names = before.parts.keys() | after.parts.keys()
    assert after.value != before.value
    assert {name for name in names if before.parts.get(name) != after.parts.get(name)} == parts


@pytest.mark.parametrize(
    "change",
    [
        {"image": {"description": "B"}},
        {"image": {"checks": Checks(cpu=("imports",))}},
        {"image": {"size_limit": 1}},
        {"image": {"rootfs": ROOTFS.model_copy(update={"packages": ("bash", "apt")})}},
        {"catalog": {"candidates": "elsewhere.example.com/c", "releases": "elsewhere.example.com/r"}},
        {"files": (OTHER, FILE)},
    ],
)
def test_what_cannot_change_an_image_does_not_change_its_hash(change: dict[str, Any]) -> None:
    assert hashed(**change) == hashed()


def test_the_order_of_directories_does_not_count() -> None:
    one, other = (hashed(image={"rootfs": ROOTFS.model_copy(update={"directories": x})}) for x in (("/a", "/b"), ("/b", "/a")))
    assert one == other


IMAGE_FIELDS = {
    True: {"name", "parent", "uses", "variant", "release", "claims", "revision", "rootfs", "packages"},
    False: {"description", "checks", "size_limit", "runners", "python"},
}
SHARED_FIELDS = {
    True: {"line", "platform", "epoch", "compression_level"},
    False: {"repository", "candidates", "releases", "reference", "canary", "runners", "unassessed"},
}


def test_of_each_value_of_the_catalog_it_is_decided_whether_it_changes_images() -> None:
    assert set(Image.model_fields) == IMAGE_FIELDS[True] | IMAGE_FIELDS[False]
    assert set(Shared.model_fields) == SHARED_FIELDS[True] | SHARED_FIELDS[False]
    assert set(Rootfs.model_fields) == {"suite", "packages", "users", "directories", "workdir"}, "all of them do"


def test_a_root_file_system_is_made_in_another_way_only_under_another_recipe() -> None:
    """Whoever changes the script or this Dockerfile raises `RECIPE`, or images of before stand for those of now."""
    script = (resources.files("pipeline") / "data" / "second-stage.sh").read_bytes()
    assert (RECIPE, hashlib.sha256(script + DOCKERFILE.encode()).hexdigest()) == (
        1,
        "6d4505a357dd3c06ba6375cb7985eb71e305472db065ffc68a9324fb508a534d",
    )


def test_parts_are_short_and_the_value_is_made_of_whole_digests() -> None:
    found = hashed()
    assert {len(part) for part in found.parts.values()} == {16}
    assert len(found.value) == 64
    assert list(found.parts) == sorted(found.parts)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a b/café.txt", "a b/café.txt"),
        ("a\nb", r"a\nb"),
        ("a\\nb", r"a\\nb"),
        ("\udcff", r"\udcff"),
        ("a\u202eb", r"a\u202eb"),
        ("日本", "日本"),
        ("😀", r"\U0001f600"),
    ],
)
def test_every_path_has_a_printable_name_of_its_own(path: str, text: str) -> None:
    assert shown(path) == text


def test_what_installs_packages_counts_for_images_that_add_some() -> None:
    adding: dict[str, Any] = {"image": {"packages": ("git", "tmux")}}
    before = hashed(**adding)
    assert before.parts.keys() - hashed().parts.keys() == {"packages:names", "packages:installer"}
    assert hashed(image={"packages": ("tmux", "git")}) == before
    assert hashed(**adding, installer="6" * 64).value != before.value
    assert hashed(installer="6" * 64) == hashed()
