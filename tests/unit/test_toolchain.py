"""Tools: the data file, true versions, what is fit, and what it takes to get the rest."""

import json
import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline import toolchain
from pipeline.buildinfo import built_unchanged, module_version
from pipeline.command import Completed
from pipeline.errors import Temporary, ToolUnfit
from pipeline.install import throwaway_module, ways
from pipeline.toolchain import Debian, Go, Host, Spec, Wheel, find, missing, numbers, require_space, specs, true_version


class Mouth:
    """A `Run` that answers every question with one text, and keeps the questions."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *argv: str | Path, **_: Any) -> Completed:
        self.asked.append(tuple(map(str, argv)))
        return Completed(argv=self.asked[-1], code=0, stdout=self.says, stderr="", seconds=0.0)


def host(*folders: Path, root: bool = False, suite: str = "") -> Host:
    path = ":".join(str(each) for each in folders)
    return Host(root=root, user="x", linux=True, suite=suite, systemd=False, environment={"PATH": path, "HOME": "/nowhere"})


def program(folder: Path, name: str, content: bytes = b"#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def go_binary(*lines: str, flags: int = 2) -> bytes:
    def text(content: bytes) -> bytes:
        length, out = len(content), b""
        while length >= 128:
            out, length = out + bytes([length & 127 | 128]), length >> 7
        return out + bytes([length]) + content

    info = b"s" * 16 + "\n".join(lines).encode() + b"e" * 16
    header = b"\xff Go buildinf:" + bytes([8, flags]) + bytes(16)
    return b"\x7fELF" + bytes(44) + header + text(b"go1.26.8") + text(info) + struct.pack("<Q", 0)


BUILDX = ("path\tgithub.com/docker/buildx/cmd/buildx", "mod\tgithub.com/docker/buildx\tv0.38.2\th1:x=")


def test_every_tool_of_the_data_file_has_a_wanted_version_that_is_fit() -> None:
    assert [name for name, spec in specs().items() if spec.unfit(spec.wanted)] == []


def test_every_built_or_downloaded_way_says_what_it_costs() -> None:
    free = [
        name for name, spec in specs().items() for way in spec.ways if not isinstance(way, toolchain.OnPath) and not way.cost.peak
    ]
    assert free == []


def test_uv_is_never_taken_from_path_because_it_runs_inside_images() -> None:
    assert [type(way) for way in specs()["uv"].ways] == [Wheel]


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"ways": [{"by": "wheel", "distribution": "x", "binary": "x", "sha256": ["short"], "cost": {}}]},
        {"ways": [{"by": "magic"}]},
        {"minimum": 1.2},
    ],
)
def test_a_faulty_data_file_is_refused(change: dict[str, Any]) -> None:
    good = {"role": "r", "wanted": "1", "minimum": "1", "version": {"ask": ["-v"], "pattern": "x"}, "ways": [], "remedy": "r"}
    Spec.model_validate(good)
    with pytest.raises(ValidationError):
        Spec.model_validate(good | change)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v0.38.2", (0, 38, 2)),
        ("20.10.24+dfsg1", (20, 10, 24)),
        ("1.27", (1, 27, 0)),
        ("2.39.5.1", (2, 39, 5, 1)),
        ("", (0, 0, 0)),
    ],
)
def test_versions_compare_by_their_numbers(version: str, expected: Sequence[int]) -> None:
    assert numbers(version) == expected


def test_build_info_beats_what_a_binary_says_of_itself(tmp_path: Path) -> None:
    binary, run = program(tmp_path, "buildx", go_binary(*BUILDX)), Mouth("github.com/docker/buildx v0.0.0+unknown")
    assert true_version(binary, specs()["buildx"].version, run) == "0.38.2"
    assert run.asked == []


@pytest.mark.parametrize("said", ["(devel)", "v0.0.0-20260101000000-abcdef123456"])
def test_a_development_build_is_asked_for_its_version(tmp_path: Path, said: str) -> None:
    binary = program(tmp_path, "buildx", go_binary(BUILDX[0], f"mod\tgithub.com/docker/buildx\t{said}\t"))
    assert true_version(binary, specs()["buildx"].version, Mouth("github.com/docker/buildx v0.13.1 7884339")) == "0.13.1"


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\xff Go buildinf:", go_binary(*BUILDX, flags=0), go_binary(*BUILDX)[:90]]
)
def test_what_is_no_go_binary_has_no_build_info(tmp_path: Path, content: bytes) -> None:
    assert module_version(program(tmp_path, "x", content), "github.com/docker/buildx") == ""


def test_a_module_that_only_depends_on_the_tool_is_not_the_tool(tmp_path: Path) -> None:
    binary = program(tmp_path, "x", go_binary("mod\texample.com/x\tv9.9.9\t", "dep\tgithub.com/docker/buildx\tv0.38.2\t"))
    assert module_version(binary, "github.com/docker/buildx") == ""


TRIVY = ("path\tgithub.com/aquasecurity/trivy/cmd/trivy", "mod\tgithub.com/aquasecurity/trivy\tv0.76.0\t")
CLEAN = "build\tvcs.modified=false"


@pytest.mark.parametrize(
    ("lines", "unchanged"),
    [
        ((*TRIVY, CLEAN), True),
        ((*TRIVY, "build\tvcs.modified=true"), False),
        (TRIVY, False),
        (("path\texample.com/trivy/cmd/trivy", TRIVY[1], CLEAN), False),
        ((), False),
    ],
)
def test_a_binary_that_others_packed_must_say_that_it_was_built_from_a_clean_checkout(
    tmp_path: Path, lines: Sequence[str], unchanged: bool
) -> None:
    assert built_unchanged(program(tmp_path, "trivy", go_binary(*lines)), "github.com/aquasecurity/trivy/cmd/trivy") is unchanged


@pytest.mark.parametrize("version", ["0.69.4", "0.69.5", "0.69.6"])
def test_the_stolen_releases_of_trivy_are_never_used(tmp_path: Path, version: str) -> None:
    program(tmp_path / "a", "trivy", go_binary(TRIVY[0], f"mod\tgithub.com/aquasecurity/trivy\tv{version}\t"))
    found = find("trivy", host=host(tmp_path / "a"), cache=tmp_path / "c", run=Mouth(""))
    assert found.tool is None
    assert found.unfit == (f"`{tmp_path / 'a' / 'trivy'}`: {version} is never to be used",)


def test_an_unfit_tool_on_path_is_passed_over_for_a_fit_one_behind_it(tmp_path: Path) -> None:
    old = program(tmp_path / "a", "buildx", go_binary(BUILDX[0], "mod\tgithub.com/docker/buildx\tv0.9.1\t"))
    fit = program(tmp_path / "b", "docker-buildx", go_binary(*BUILDX))
    found = find("buildx", host=host(tmp_path / "a", tmp_path / "b"), cache=tmp_path / "c", run=Mouth(""))
    assert found.tool == toolchain.Tool("buildx", "0.38.2", fit)
    assert found.unfit == (f"`{old}`: 0.9.1 is older than 0.14.0",)


def test_a_folder_of_path_that_cannot_be_looked_into_is_passed_over(tmp_path: Path) -> None:
    fit = program(tmp_path / "b", "docker-buildx", go_binary(*BUILDX))
    found = find("buildx", host=host(tmp_path / ("x" * 300), tmp_path / "b"), cache=tmp_path / "c", run=Mouth(""))
    assert found.tool == toolchain.Tool("buildx", "0.38.2", fit)


def test_a_forbidden_version_is_never_used() -> None:
    spec = specs()["buildx"].model_copy(update={"forbidden": ("0.33.1",)})
    assert spec.unfit("v0.33.1") == "v0.33.1 is never to be used"
    assert spec.unfit("0.33.2") == ""


def test_a_tool_whose_version_cannot_be_told_is_unfit_and_is_asked_again(tmp_path: Path) -> None:
    program(tmp_path / "a", "hadolint")
    run, here = Mouth("segfault"), host(tmp_path / "a")
    for _ in range(2):
        assert find("hadolint", host=here, cache=tmp_path / "c", run=run).tool is None
    assert len(run.asked) == 2


def test_a_version_is_asked_once_until_the_file_changes(tmp_path: Path) -> None:
    path, run, here = program(tmp_path / "a", "hadolint"), Mouth("Haskell Dockerfile Linter 2.12.0"), host(tmp_path / "a")
    for _ in range(3):
        assert find("hadolint", host=here, cache=tmp_path / "c", run=run).tool
    assert len(run.asked) == 1
    path.write_bytes(b"#!/bin/sh\n# newer\n")
    run.says = "Linter 2.1.0"
    assert find("hadolint", host=here, cache=tmp_path / "c", run=run).tool is None


def test_a_damaged_memory_of_versions_is_no_obstacle(tmp_path: Path) -> None:
    program(tmp_path / "a", "hadolint")
    (tmp_path / "c" / "tools").mkdir(parents=True)
    (tmp_path / "c" / "tools" / "versions.json").write_text("{")
    assert find("hadolint", host=host(tmp_path / "a"), cache=tmp_path / "c", run=Mouth("Linter 2.12.0")).tool


def test_what_was_installed_is_found_by_its_stamp_without_running_it(tmp_path: Path) -> None:
    place = tmp_path / "tools" / "uv" / specs()["uv"].wanted
    program(place, "uv")
    (place / "stamp.json").write_text(json.dumps({"binary": "uv", "version": specs()["uv"].wanted, "way": "wheel"}))
    run = Mouth("")
    assert find("uv", host=host(), cache=tmp_path, run=run).tool
    assert run.asked == []


def test_an_install_without_its_stamp_is_not_there(tmp_path: Path) -> None:
    program(tmp_path / "tools" / "uv" / specs()["uv"].wanted, "uv")
    assert find("uv", host=host(), cache=tmp_path, run=Mouth("uv 0.13.9")).tool is None


def test_debian_packages_want_root_unless_only_their_files_are_taken() -> None:
    user, root = host(suite="bookworm"), host(suite="bookworm", root=True)
    assert ways("dockerd", user) == ()
    assert [type(way) for way in ways("dockerd", root)] == [Debian]
    assert [type(way) for way in ways("registry", user)] == [Debian, Go]


def test_debian_packages_are_no_way_on_another_distribution() -> None:
    assert ways("dockerd", host(root=True)) == ()
    assert [type(way) for way in ways("registry", host(root=True))] == [Go]


def test_a_missing_tool_names_what_is_wrong_with_those_that_are_here() -> None:
    error = missing("buildx", toolchain.Found(None, ("`/usr/bin/buildx`: 0.9.1 is older than 0.14.0",)))
    assert isinstance(error, ToolUnfit)
    assert "0.9.1 is older" in error.message
    assert "install" in error.hint


def test_too_little_space_says_what_needs_it_and_what_needs_less(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"`build` needs 1000000\.0 GB, the file system of `.*` has [\d.]+ GB free") as caught:
        require_space("`build`", 10**15, tmp_path / "not" / "yet", remedy="build one image")
    assert caught.value.hint == "build one image"


def test_a_throw_away_module_repeats_the_excludes_and_the_language_of_the_real_one() -> None:
    way = next(way for way in specs()["buildkitd"].ways if isinstance(way, Go))
    published = "module m\n\ngo 1.26.0\n\nrequire (\n\ta v1\n)\n\nexclude github.com/a/b v1.2.3\nexclude (\n\tc v1\n\td v2\n)\n"
    lines = throwaway_module(published, way, "0.34.2").splitlines()
    assert lines[:4] == ["module throwaway", "go 1.26.0", f"tool {way.package}", "require github.com/moby/buildkit v0.34.2"]
    assert lines[4:] == ["exclude github.com/a/b v1.2.3", "exclude (", "\tc v1", "\td v2", ")"]


def test_whoever_has_no_name_is_called_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert Host.here({}).user == str(os.getuid())
