"""The command line as people and CI use it, on real tools: what is built, what is reused, what is said, how it ends."""

import json
import secrets
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.oci import Pinned
from tests.integration.conftest import Stack
from tests.integration.families import LINKS, Family, content, ended, tiny
from tests.integration.releasing import delete


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Family:
    return tiny(tmp_path, stack)


def actions(family: Family, *words: str) -> dict[str, str]:
    planned = family.call("plan", "--json", *words)
    assert planned.code == 0
    return {step["image"]: step["action"] for step in planned.data}


def states(built: object) -> dict[str, str]:
    assert isinstance(built, list)
    return {result["image"]: result["state"] for result in built}


def test_what_is_built_is_then_reused(family: Family) -> None:
    assert actions(family) == {"os": "build", "app": "build"}
    first = family.call("build", "--json")
    assert (first.code, states(first.data)) == (0, {"os": "built", "app": "built"})
    assert "building os" in first.stderr
    assert "building app" in first.stderr
    assert len(family.tags()) == 2

    assert actions(family) == {"os": "reuse", "app": "reuse"}
    second = family.call("build", "--json")
    assert (second.code, states(second.data)) == (0, {"os": "reused", "app": "reused"})
    assert "building" not in second.stderr
    assert "buildx has nothing to build here" in family.call("plan", "--bake").stderr
    assert [result["pinned"] for result in second.data] == [result["pinned"] for result in first.data]
    assert family.left() == []


def test_an_image_named_alone_whose_build_nobody_recorded_is_built_again_on_its_parent(family: Family) -> None:
    assert family.call("build").code == 0
    shutil.rmtree(family.root / ".pipeline")
    again = family.call("build", "app", "--json")
    assert (again.code, states(again.data)) == (0, {"os": "built", "app": "built"})
    assert len(family.tags()) == 2


def test_what_a_recorded_parent_stands_on_is_not_built_for_a_child_that_nobody_recorded(family: Family) -> None:
    family.image("lab", "parent: app\nvariant: lab\n", LINKS, data=b"lab")
    built = {result["image"]: Pinned.parse(result["pinned"]) for result in family.call("build", "--json").data}
    delete(family.repository, f"manifests/{built['os'].digest}")
    shutil.rmtree(family.root / ".pipeline" / "statements" / built["lab"].digest.hex)
    again = family.call("build", "lab", "--json")
    assert (again.code, states(again.data)) == (0, {"app": "reused", "lab": "built"})


def test_data_goes_to_stdout_only_when_asked_for(family: Family) -> None:
    for verb in ("plan", "build"):
        told = family.call(verb)
        assert (told.code, told.stdout) == (0, "")
        assert {"os", "app"} <= set(told.stderr.split())


def test_the_definition_that_plan_prints_is_one_for_buildx(family: Family, stack: Stack) -> None:
    printed = family.call("plan", "--bake")
    done = subprocess.run(
        [*stack.builder.command, "bake", "--file", "-", "--print"],
        env=family.environment,
        cwd=family.root,
        input=printed.stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)["target"]) == {"os", "app"}
    assert family.tags() == []


def test_one_byte_builds_its_image_and_what_stands_on_it(family: Family) -> None:
    family.image("lab", "parent: app\nvariant: lab\n", LINKS, data=b"lab")
    before = family.call("build", "--json")
    family.write("app/data", changed := secrets.token_bytes(1000))
    assert actions(family) == {"os": "reuse", "app": "build", "lab": "build"}

    explained = family.call("explain", "app", "--json")
    differ = [part["name"] for part in explained.data["parts"] if part["state"] != "same"]
    assert (explained.code, differ, explained.data["descendants"]) == (0, ["file:data"], ["lab"])
    assert "file:data" in family.call("explain", "app").stderr

    after = family.call("build", "--json")
    assert states(after.data) == {"os": "reused", "app": "built", "lab": "built"}
    assert after.of("os")["pinned"] == before.of("os")["pinned"]
    assert content(Pinned.parse(after.of("app")["pinned"])) == {"data": changed}, "builders know files by size and time"
    assert len(family.tags()) == 5


def test_a_failing_image_stops_its_children_and_nobody_else(family: Family, tmp_path: Path) -> None:
    family.image("sick", "parent: os\nvariant: sick\n", 'FROM base\nRUN ["/no/such/program"]\n')
    family.image("child", "parent: sick\nvariant: child\n", LINKS, data=b"x")
    built = family.call("build", "--json", "--statements", str(tmp_path / "said"), "--junit", str(tmp_path / "junit.xml"))
    assert built.code == 5
    assert states(built.data) == {"os": "built", "app": "built", "sick": "failed", "child": "aborted"}
    table = built.stderr[built.stderr.index("image ") :]
    assert {"os", "app", "sick", "child", "aborted"} <= set(table.split())
    said = {path.parent.name for path in (tmp_path / "said").glob("*/built.json")}
    assert said == {built.of(name)["pinned"].rpartition(":")[2] for name in ("os", "app")}
    assert (tmp_path / "junit.xml").read_text().count("<testcase ") == 4
    assert len(family.tags()) == 2
    assert family.left() == []


def test_builds_at_once_on_one_machine_and_on_another_give_one_candidate(family: Family, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "tools").parent.mkdir()
    (elsewhere / "tools").symlink_to((family.cache / "tools").readlink())
    runs = [family.start("build", "--json") for _ in range(2)]
    runs.append(family.start("build", "--json", PIPELINE_CACHE=str(elsewhere)))
    built = [ended(each) for each in runs]
    assert [each.code for each in built] == [0, 0, 0]
    assert len(family.tags()) == 2
    assert {each.of("app")["pinned"] for each in built} == {str(family.repository.at(digest)) for digest in family.digests()} - {
        built[0].of("os")["pinned"]
    }
    assert family.left() == []
