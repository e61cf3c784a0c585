"""Solving locks again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import locks, update
from pipeline.catalog import Catalog, Image, Rootfs
from pipeline.command import Completed
from pipeline.debian import Mirror
from pipeline.errors import InputError, Temporary, ToolFailed
from pipeline.settings import Settings
from pipeline.story import Silent
from pipeline.surroundings import Surroundings
from pipeline.update import Desk, Moved
from tests.archive import NOW, Archive, served

HASH = f"--hash=sha256:{'0' * 64}"
TORCH = f"numpy==1.26.4 {HASH}\n    # via torch\ntorch==2.6.0 {HASH}\n    # via -r torch.in\n"
NLP = f"numpy==1.26.4 {HASH}\n    # via\n    #   -c parents.txt\n    #   transformers\n"
NLP += f"transformers==4.35.2 {HASH}\n    # via -r nlp.in\n"


@dataclass
class Uv:
    """uv with canned solutions by the first `.in` file; keeps what it was given."""

    solutions: Mapping[str, str | Completed]
    calls: list[tuple[str, ...]] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None, **_: Any) -> Completed:
        words = tuple(str(word) for word in argv)
        self.calls.append(words)
        self.constraints.append(Path(words[words.index("--constraints") + 1]).read_text())
        self.environment = env or {}
        solution = self.solutions[words[3]]
        return solution if isinstance(solution, Completed) else completed(0, stdout=solution)


def completed(code: int, *, stdout: str = "", stderr: str = "") -> Completed:
    return Completed(argv=(), code=code, stdout=stdout, stderr=stderr, seconds=0)


def catalog(*images: Image, platform: str = "linux/amd64") -> Catalog:
    return Catalog(
        line="2.6",
        repository="pytorch-cuda",
        candidates="localhost:1/c",
        releases="localhost:1/r",
        platform=platform,
        epoch=datetime(2025, 1, 29, tzinfo=UTC),
        compression_level=7,
        images={image.name: image for image in images},
    )


BASE = Image(name="os", description="x", python="3.11")
PYTORCH = Image(name="pytorch", description="x", parent="os")
CHILD = Image(name="nlp", description="x", parent="pytorch", variant="nlp")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for image, source in (("pytorch", "torch"), ("nlp", "nlp")):
        folder = tmp_path / "images" / image / "requirements"
        folder.mkdir(parents=True)
        (folder / f"{source}.in").write_text(source)
    (tmp_path / "images" / "os").mkdir()
    return tmp_path


def desk(root: Path, uv: Uv, *images: Image, mirror: Mirror | None = None, platform: str = "linux/amd64") -> Desk:
    return Desk(
        settings=Settings(root=root, cache=root / "cache"),
        catalog=catalog(*(images or (BASE, PYTORCH, CHILD)), platform=platform),
        uv=Path("/uv"),
        mirror=mirror or Mirror(),
        around=Surroundings(certificates=Path("/ca.pem"), index_url="http://index/simple"),
        run=uv,
        now=NOW,
        story=Silent(),
    )


def lock_of(root: Path, image: str, group: str) -> locks.RequirementsLock:
    return locks.parse_requirements((root / "images" / image / "requirements" / f"{group}.lock").read_text())


def test_parents_are_solved_first_and_constrain_their_children(root: Path) -> None:
    uv = Uv({"torch.in": TORCH, "nlp.in": NLP})
    moved = update.update([], desk(root, uv))
    assert uv.constraints == ["", "numpy==1.26.4\ntorch==2.6.0\n"]
    assert list(lock_of(root, "pytorch", "torch").requirements) == ["numpy", "torch"]
    assert list(lock_of(root, "nlp", "nlp").requirements) == ["transformers"]
    assert lock_of(root, "nlp", "nlp").locked_from == locks.source_digest(b"nlp")
    assert [(one.image, one.name, one.before, one.after) for one in moved] == [
        ("pytorch", "numpy", None, "1.26.4"),
        ("pytorch", "torch", None, "2.6.0"),
        ("nlp", "transformers", None, "4.35.2"),
    ]


def test_uv_is_asked_for_the_images_platform_and_python_and_for_wheels_only(root: Path) -> None:
    uv = Uv({"torch.in": TORCH})
    update.update(["pytorch"], desk(root, uv))
    (call,) = uv.calls
    assert call[:4] == ("/uv", "pip", "compile", "torch.in")
    for option, value in {
        "--python-version": "3.11",
        "--python-platform": "x86_64-manylinux_2_28",
        "--only-binary": ":all:",
    }.items():
        assert call[call.index(option) + 1] == value
    assert uv.environment["UV_DEFAULT_INDEX"] == "http://index/simple"
    assert uv.environment["SSL_CERT_FILE"] == "/ca.pem"


def test_what_moved_is_told_with_both_versions(root: Path) -> None:
    update.update([], desk(root, Uv({"torch.in": TORCH, "nlp.in": NLP})))
    newer = TORCH.replace("numpy==1.26.4", "numpy==1.27.0").replace("torch==2.6.0", "torch==2.6.0")
    moved = update.update(["pytorch"], desk(root, Uv({"torch.in": newer})))
    assert moved == (Moved(image="pytorch", name="numpy", before="1.26.4", after="1.27.0", lock="requirements/torch.lock"),)
    assert update.update(["pytorch"], desk(root, Uv({"torch.in": newer}))) == ()


def test_a_package_that_changes_its_group_has_moved(root: Path) -> None:
    update.update(["pytorch"], desk(root, Uv({"torch.in": TORCH})))
    (root / "images" / "pytorch" / "requirements" / "a.in").write_text("numpy")
    solution = TORCH.replace("# via torch", "# via\n    #   -r a.in\n    #   torch")
    (moved,) = update.update(["pytorch"], desk(root, Uv({"a.in": solution})))
    assert (moved.name, moved.before, moved.after, moved.lock) == ("numpy", "1.26.4", "1.26.4", "requirements/a.lock")


def test_nothing_is_written_unless_everything_is_solved(root: Path) -> None:
    broken = completed(1, stderr="No solution found: because you require x and y")
    with pytest.raises(InputError, match="the requirements of `nlp` cannot be solved\n  No solution found") as caught:
        update.update([], desk(root, Uv({"torch.in": TORCH, "nlp.in": broken})))
    assert "what `pytorch` has" in caught.value.hint
    unknown = completed(1, stderr="Because nlpp was not found in the package registry and you require nlpp")
    with pytest.raises(InputError) as caught:
        update.update([], desk(root, Uv({"torch.in": TORCH, "nlp.in": unknown})))
    assert caught.value.hint.startswith("mend its name")
    assert not list(root.rglob("*.lock"))


@pytest.mark.parametrize(("said", "error"), [("error: Request failed after 3 retries", Temporary), ("error: a bug", ToolFailed)])
def test_an_index_that_does_not_answer_is_temporary(said: str, error: type[Exception], root: Path) -> None:
    with pytest.raises(error) as caught:
        update.update(["pytorch"], desk(root, Uv({"torch.in": completed(2, stderr=said)})))
    assert (error is not Temporary) or "`PIP_INDEX_URL`" in str(caught.value)


def test_a_child_cannot_be_solved_before_its_parent_has_locks(root: Path) -> None:
    with pytest.raises(InputError, match=r"`pytorch` has no `torch\.lock` yet") as caught:
        update.update(["nlp"], desk(root, Uv({})))
    assert "nox -s update -- pytorch" in caught.value.hint


def test_an_image_that_says_no_python_cannot_be_solved(root: Path) -> None:
    with pytest.raises(InputError, match="nothing says which Python"):
        update.update(["pytorch"], desk(root, Uv({}), PYTORCH.model_copy(update={"parent": None})))


def test_a_platform_that_uv_does_not_know_is_refused(root: Path) -> None:
    with pytest.raises(InputError, match="linux/riscv64"):
        update.update(["pytorch"], desk(root, Uv({}), platform="linux/riscv64"))


def test_an_unknown_image_is_told_at_once(root: Path) -> None:
    with pytest.raises(InputError, match="no image `npl`"):
        update.update(["npl"], desk(root, Uv({})))


def test_a_lock_that_cannot_be_read_is_replaced(root: Path) -> None:
    path = root / "images" / "pytorch" / "requirements" / "torch.lock"
    path.write_text("<<<<<<< HEAD")
    assert len(update.update(["pytorch"], desk(root, Uv({"torch.in": TORCH})))) == 2
    assert lock_of(root, "pytorch", "torch").requirements


@pytest.fixture
def archive() -> Iterator[Archive]:
    with served(Archive()) as archive:
        archive.add("stable", "bash", "5.1", "Essential: yes")
        archive.publish()
        yield archive


def test_a_root_file_system_is_solved_from_the_mirror(archive: Archive, root: Path) -> None:
    base = BASE.model_copy(update={"rootfs": Rootfs(suite="stable", packages=("bash",))})
    at = desk(root, Uv({}), base, mirror=archive.mirror(root))
    assert update.update([], at) == (Moved(image="os", name="bash", before=None, after="5.1", lock="packages.lock"),)
    archive.add("stable-security", "bash", "5.2")
    archive.publish()
    assert update.update([], at) == (Moved(image="os", name="bash", before="5.1", after="5.2", lock="packages.lock"),)
    assert locks.parse_packages((root / "images" / "os" / "packages.lock").read_text()).suite == "stable"


ROOTFS = BASE.model_copy(update={"rootfs": Rootfs(suite="stable", packages=("bash",))})
MIDDLE = Image(name="middle", description="x", parent="os", packages=("ssh",))
TOP = Image(name="top", description="x", parent="middle", variant="top", packages=("tmux",))


@pytest.fixture
def family(archive: Archive, root: Path) -> Desk:
    archive.add("stable", "ssh", "9", "Depends: bash, libevent")
    archive.add("stable", "libevent", "2")
    archive.add("stable", "tmux", "3", "Depends: libevent, ncurses")
    archive.add("stable", "ncurses", "6")
    archive.publish()
    for name in ("middle", "top"):
        (root / "images" / name).mkdir()
    return desk(root, Uv({}), ROOTFS, MIDDLE, TOP, mirror=archive.mirror(root))


def packages_of(root: Path, image: str) -> list[str]:
    lock = locks.parse_packages((root / "images" / image / "packages.lock").read_text())
    return [f"{package.name}={package.version}" for package in lock.packages]


def test_added_packages_are_locked_on_all_that_is_below_written_or_not(family: Desk, root: Path) -> None:
    moved = update.update([], family)
    assert packages_of(root, "os") == ["bash=5.1"]
    assert packages_of(root, "middle") == ["libevent=2", "ssh=9"]
    assert packages_of(root, "top") == ["ncurses=6", "tmux=3"]
    assert [(one.image, one.name) for one in moved if one.image == "top"] == [("top", "ncurses"), ("top", "tmux")]
    again = locks.parse_packages((root / "images" / "top" / "packages.lock").read_text())
    assert again.locked_from == locks.packages_digest("stable", ["tmux"], {"bash": "5.1", "libevent": "2", "ssh": "9"})
    assert update.update(["top"], family) == ()


def test_added_packages_that_want_newer_ones_below_name_the_images_to_update(family: Desk, archive: Archive, root: Path) -> None:
    update.update([], family)
    archive.add("stable-security", "bash", "5.2")
    archive.add("stable-security", "ssh", "10", "Depends: bash (= 5.2), libevent")
    archive.publish()
    before = packages_of(root, "middle")
    with pytest.raises(InputError, match=r"`ssh` wants `bash \(= 5\.2\)`, but `bash` 5\.1 is there already") as caught:
        update.update(["middle"], family)
    assert "`nox -s update -- os middle`" in caught.value.hint
    assert packages_of(root, "middle") == before
    update.update(["os", "middle"], family)
    assert packages_of(root, "middle") == ["libevent=2", "ssh=10"]


def test_added_packages_that_do_not_exist_are_the_images_own_fault(family: Desk) -> None:
    update.update([], family)
    slip = MIDDLE.model_copy(update={"packages": ("shh",)})
    changed = family.catalog.model_copy(update={"images": {**family.catalog.images, "middle": slip}})
    with pytest.raises(InputError, match=r"no package `shh`; did you mean `ssh`\?") as caught:
        update.update(["middle"], replace(family, catalog=changed))
    assert "correct `packages`" in caught.value.hint


def test_packages_cannot_be_added_to_a_parent_without_a_lock(family: Desk) -> None:
    with pytest.raises(InputError, match=r"`middle` has no `packages\.lock` yet"):
        update.update(["top"], family)
