"""Rendered Jobs really run: the same containers, files and words on an engine give the record that the lane gives here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import nvidia
from pipeline.engine import Engine, connect
from tests.integration import pods
from tests.integration.conftest import Stack
from tests.integration.families import LINKS, Ended, Family
from tests.integration.images import forget, python_layer
from tests.integration.test_cli_checks import PYTHON
from tests.machines import recorded

CHECK = """\
import os
from pathlib import Path

import pytest


def test_home_is_the_users(lane):
    home = Path.home()
    assert (home / "kept").read_text() == "by the image"
    (home / "new").write_text("x")
    assert lane == "cpu"


def test_root_is_read_only():
    with pytest.raises(OSError):
        Path("/new").write_text("x")


def test_it_needs_a_gpu(gpus):
    if not gpus:
        pytest.skip("needs 1 GPU")


def test_it_measures(measure):
    measure("figure", 3, floor=2)
"""
ON_GPU = """\
import pytest


@pytest.mark.gpus(1, memory=14, capability="7.5")
def test_the_gpu_is_the_one_that_was_given(gpus, lane):
    assert [(gpu["name"], lane) for gpu in gpus] == [("Tesla T4", "gpu")]
"""
SMI = """\
#!/usr/bin/python3
import sys

print({said!r}.get(tuple(sys.argv[1:]), ""), end="")
"""
ADDED = "FROM scratch AS layer\nCOPY --chown=1000:0 kept /layer/home/user/kept\nFROM base\nCOPY --link --from=layer /layer/ /\n"


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Engine]:
    engine = connect(stack.environment, run="integration-pods")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory, stack: Stack, engine: Engine) -> Iterator[Family]:
    family = Family(tmp_path_factory.mktemp("pods"), stack)
    family.image("python", "release: false\n", PYTHON)
    family.write("python/python.tar", python_layer())
    family.image("app", "parent: python\nchecks: {cpu: [it], gpu: [on-gpu]}\n", ADDED, kept=b"by the image")
    family.write("app/checks/test_it.py", CHECK)
    family.write("app/checks/test_on_gpu.py", ON_GPU)
    family.image("web", "parent: python\nvariant: web\nchecks: {gpu: [serves]}\n", LINKS, data=b"x")
    family.write("web/checks/service_serves.py", "def test_it(start): ...\n")
    assert family.call("build").code == 0
    yield family
    for digest in family.digests():
        forget(engine, family.repository.at(digest))


def image_of(family: Family, engine: Engine) -> str:
    """The engine's id of `app`, which a run of its lane has brought there."""
    tag = next(tag for tag in family.tags() if tag.startswith("v1.0-") and "python" not in tag and "web" not in tag)
    return str(engine.client.inspect_image(f"{family.repository}:{tag}")["Id"])  # type: ignore[no-untyped-call]


def collected(family: Family, log: str, folder: Path) -> Ended:
    (folder / "log").write_text(log)
    return family.call("test", "--collect", str(folder / "log"), "--json")


def plain(lane: dict[str, object]) -> dict[str, object]:
    """A record without what differs from run to run, and from machine to machine."""
    text = json.loads(json.dumps(lane), object_hook=lambda found: {key: found[key] for key in found if key != "seconds"})
    for key in ("started", "finished", "run", "machine", "memory", "tag", "size"):
        text.pop(key, None)
    return dict(text)


def test_a_rendered_job_gives_the_record_of_the_lane_here(family: Family, engine: Engine, tmp_path: Path) -> None:
    here = family.call("test", "app", "--lane", "cpu", "--json")
    assert here.code == 0
    statement = next((family.root / ".pipeline/statements").glob("*/tested-cpu.json"))
    by_engine = json.loads(statement.read_text())
    rendered = family.call("test", "app", "--render", "kubernetes", "--lane", "cpu")
    assert rendered.code == 0
    log = pods.log_of(rendered.stdout, image_of(family, engine), tmp_path)
    there = collected(family, log, tmp_path)
    assert there.code == 0
    assert plain(there.data[0]) == plain(here.data[0])
    by_pod = json.loads(statement.read_text())
    assert by_pod != by_engine
    assert by_pod["predicateType"] == by_engine["predicateType"]
    assert by_pod["subject"] == by_engine["subject"]
    assert set(by_pod["predicate"]) == set(by_engine["predicate"])


def test_a_job_on_a_gpu_is_judged_by_what_its_node_says(family: Family, engine: Engine, tmp_path: Path) -> None:
    texts = (recorded("t4.query.csv"), recorded("t4.q.txt"), "", "")
    said = {argv[1:]: text for argv, text in zip(nvidia.QUESTIONS, texts, strict=True)}
    (tmp_path / "nvidia-smi").write_text(SMI.format(said=said))
    (tmp_path / "nvidia-smi").chmod(0o755)
    rendered = family.call("test", "app", "--render", "kubernetes", "--queue", "gpus")
    assert "nvidia.com/gpu: '1'" in rendered.stdout
    family.call("test", "app", "--lane", "cpu")
    smi = f"{tmp_path / 'nvidia-smi'}:/usr/bin/nvidia-smi:ro"
    (tmp_path / "with").mkdir()
    passed = collected(family, pods.log_of(rendered.stdout, image_of(family, engine), tmp_path / "with", binds=[smi]), tmp_path)
    assert (passed.code, passed.data[0]["outcome"]) == (0, "passed")
    assert [gpu["name"] for gpu in passed.data[0]["gpus"]] == ["Tesla T4"]
    (tmp_path / "without").mkdir()
    sick = collected(family, pods.log_of(rendered.stdout, image_of(family, engine), tmp_path / "without"), tmp_path)
    assert (sick.code, sick.data[0]["outcome"]) == (75, "infrastructure")


def test_what_a_pod_cannot_do_is_left_out_and_said(family: Family) -> None:
    rendered = family.call("test", "web", "--render", "kubernetes")
    assert (rendered.code, rendered.stdout) == (3, "")
    assert "a pod starts no containers" in rendered.stderr


def test_a_log_that_nobody_asked_for_is_refused(family: Family, tmp_path: Path) -> None:
    told = collected(family, f"-----PIPELINE JOB {'7' * 32}-----\n", tmp_path)
    assert told.code == 2
    assert "nothing is known here of the job" in told.stderr
    empty = family.call("test", "--collect", "-")
    assert (empty.code, "of no jobs" in empty.stderr) == (2, True)
