"""Getting tools, with a `Run` that plays apt, pip and Go."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.command import Completed
from pipeline.errors import Temporary, ToolFailed, ToolUnfit
from pipeline.install import get, workshop
from pipeline.story import Silent
from pipeline.toolchain import Host, find, folder, specs
from tests.unit.test_toolchain import go_binary, program

Play = Callable[[tuple[str, ...], Mapping[str, str], Path], str | None]


class Machine:
    """A `Run` that lets `play` do each call (or refuse it), and keeps them."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.calls: list[tuple[str, ...]] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, **_: Any) -> Completed:
        words = tuple(map(str, argv))
        self.calls.append(words)
        self.environments.append(env or {})
        out = self.play(words, env or {}, cwd or Path("/nowhere")) or ""
        return Completed(argv=words, code=0, stdout=out, stderr="", seconds=0.0)


class Listener(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def host(tmp_path: Path, *, root: bool = False, suite: str = "") -> Host:
    path = str(program(tmp_path / "path", "go").parent)
    return Host(root=root, user="x", linux=True, suite=suite, systemd=False, environment={"PATH": path, "HOME": "/nowhere"})


def go(module: str = "github.com/docker/buildx", version: str = "v0.38.2") -> Play:
    def play(words: tuple[str, ...], env: Mapping[str, str], _: Path) -> str | None:
        if words[1] == "version":
            return "go version go1.26.8 linux/amd64"
        if words[1] == "install":
            program(Path(env["GOMODCACHE"]), "filled")
            program(Path(env["GOBIN"]), "buildx", go_binary(f"mod\t{module}\t{version}\th1:x="))
        return None

    return play


def obtain(name: str, run: Machine, here: Host, cache: Path, story: Silent | None = None) -> None:
    with workshop(cache=cache, host=here, run=run, story=story or Silent()) as shop:
        get(name, shop)


def test_a_tool_built_with_go_appears_whole_and_go_leaves_nothing(tmp_path: Path) -> None:
    run, here, cache = Machine(go()), host(tmp_path), tmp_path / "cache"
    obtain("buildx", run, here, cache)
    found = find("buildx", host=here, cache=cache, run=run).tool
    assert found is not None
    assert found.path == folder("buildx", cache) / "buildx"
    assert {each.name for each in (cache / "tools").iterdir()} == {"buildx", "versions.json", "versions.lock", ".lock"}


def test_go_works_in_folders_of_ours_and_says_the_version_that_it_builds(tmp_path: Path) -> None:
    run, cache = Machine(go()), tmp_path / "cache"
    obtain("buildx", run, host(tmp_path), cache)
    at = next(index for index, words in enumerate(run.calls) if "install" in words)
    assert run.calls[at][-1] == "github.com/docker/buildx/cmd/buildx@v0.38.2"
    assert "-ldflags=-s -w -X github.com/docker/buildx/version.Version=v0.38.2" in run.calls[at]
    for name in ("GOPATH", "GOMODCACHE", "GOCACHE", "GOBIN"):
        assert run.environments[at][name].startswith(str(cache / "tools" / ".partial"))
    assert run.environments[at]["CGO_ENABLED"] == "0"


@pytest.mark.parametrize("built", [go(version="v0.1.0"), go(module="example.com/other")])
def test_what_was_not_built_from_the_wanted_module_is_refused(tmp_path: Path, built: Play) -> None:
    with pytest.raises(ToolUnfit, match=r"was not built from github\.com/docker/buildx") as caught:
        obtain("buildx", Machine(built), host(tmp_path), tmp_path / "cache")
    assert caught.value.hint == specs()["buildx"].remedy
    assert not folder("buildx", tmp_path / "cache").exists()


def test_what_a_killed_run_left_is_removed_before_the_next_begins(tmp_path: Path) -> None:
    program(tmp_path / "cache" / "tools" / ".partial" / "old" / "buildx", "half")
    with workshop(cache=tmp_path / "cache", host=host(tmp_path), run=Machine(go()), story=Silent()) as shop:
        assert list((tmp_path / "cache" / "tools" / ".partial").iterdir()) == [shop.room]
        assert list(shop.room.iterdir()) == []


def test_an_interrupted_install_leaves_nothing_half_there(tmp_path: Path) -> None:
    def play(words: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> str | None:
        go()(words, env, cwd)
        if words[1] == "install":
            raise KeyboardInterrupt
        return "go version go1.26.8"

    with pytest.raises(KeyboardInterrupt):
        obtain("buildx", Machine(play), host(tmp_path), tmp_path / "cache")
    assert not (tmp_path / "cache" / "tools" / ".partial").exists()
    assert not folder("buildx", tmp_path / "cache").exists()


def pip(name: str, says: str) -> Play:
    def play(words: tuple[str, ...], _: Mapping[str, str], __: Path) -> str | None:
        if "download" in words:
            place = Path(words[words.index("-d") + 1])
            place.mkdir(parents=True)
            with zipfile.ZipFile(place / f"{name}.whl", "w") as wheel:
                wheel.writestr(f"{name}-1.data/scripts/{name}", "#!/bin/sh\n")
        return says

    return play


def test_a_wheel_is_downloaded_by_hash_only(tmp_path: Path) -> None:
    said = list[str]()

    def play(words: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> str | None:
        if "download" in words:
            said.append(Path(words[words.index("-r") + 1]).read_text())
        return pip("uv", "uv 0.13.9")(words, env, cwd)

    run = Machine(play)
    obtain("uv", run, host(tmp_path), tmp_path / "cache")
    words = next(each for each in run.calls if "download" in each)
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(words)
    assert said[0].startswith("uv==0.13.9 --hash=sha256:")
    assert find("uv", host=host(tmp_path), cache=tmp_path / "cache", run=run).tool


def test_a_wheel_that_brings_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolUnfit, match=r"says it is `0\.1\.0`, 0\.13\.9 was meant"):
        obtain("uv", Machine(pip("uv", "uv 0.1.0")), host(tmp_path), tmp_path / "cache")
    assert not folder("uv", tmp_path / "cache").exists()


def test_when_one_way_fails_the_next_is_taken_and_the_user_hears_of_it(tmp_path: Path) -> None:
    def play(words: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> str | None:
        if words[0] == "apt-get":
            raise ToolFailed("`apt-get download` failed with exit status 100")
        if words[1] == "install":
            module = "mod\tgithub.com/distribution/distribution/v3\tv3.1.2\t"
            program(Path(env["GOBIN"]), "registry", go_binary(module))
        return "go version go1.26.8"

    story, run = Listener(), Machine(play)
    obtain("registry", run, host(tmp_path, suite="bookworm"), tmp_path / "cache", story)
    assert len(story.warnings) == 1
    assert "`registry` could not be had this way (debian)" in story.warnings[0]
    assert folder("registry", tmp_path / "cache").exists()


def test_a_full_disk_is_not_a_missing_tool(tmp_path: Path) -> None:
    def play(words: tuple[str, ...], _: Mapping[str, str], __: Path) -> str | None:
        if words[1] == "install":
            raise ToolFailed("go: write: no space left on device")
        return "go version go1.26.8"

    with pytest.raises(Temporary, match="the disk is full"):
        obtain("buildx", Machine(play), host(tmp_path), tmp_path / "cache")


def test_packages_are_installed_after_a_killed_earlier_attempt_is_mended(tmp_path: Path) -> None:
    here = host(tmp_path, root=True, suite="bookworm")

    def play(words: tuple[str, ...], _: Mapping[str, str], __: Path) -> str | None:
        if "install" in words:
            program(tmp_path / "path", "git")
        return "git version 2.39.5"

    run = Machine(play)
    obtain("git", run, here, tmp_path / "cache")
    assert [words[0] for words in run.calls[:3]] == ["apt-get", "dpkg", "apt-get"]
    assert run.calls[1] == ("dpkg", "--configure", "-a")
    assert run.calls[2][-1] == "git"


def test_packages_that_bring_no_fit_tool_are_a_failure_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ToolUnfit, match="bring no fit `git`") as caught:
        obtain("git", Machine(lambda *_: ""), host(tmp_path, root=True, suite="bookworm"), tmp_path / "cache")
    assert caught.value.hint == specs()["git"].remedy
