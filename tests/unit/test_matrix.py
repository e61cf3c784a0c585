"""What a CI has to do fits into its limits, in the same order every time; a second try goes elsewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline import context, matrix, runs, tries
from pipeline.catalog import Catalog, Checks, Image
from pipeline.errors import CatalogError, InputError
from pipeline.settings import Settings
from tests.bench.generated import catalog_of
from tests.unit.test_plan import CATALOG as FAMILY

CHECKS = Checks(cpu=("imports",), gpu=("imports",))
RUNNERS = {"h100": ("self-hosted", "gpu", "h100"), "a100": ("self-hosted", "gpu", "a100")}


def large(count: int, **others: Any) -> Catalog:
    """A family of `count` images, each of which is checked on GPUs."""
    names = [f"image-{number}" for number in range(count)]
    images = {name: Image(name=name, description="I", checks=CHECKS) for name in names}
    return FAMILY.model_copy(update={"images": images, "runners": RUNNERS, **others})


def planned(catalog: Catalog) -> matrix.Work:
    names = list(catalog.images)
    return matrix.work(catalog, build=names, check=names, why={name: ["is new"] for name in names})


@pytest.mark.parametrize(("count", "jobs"), [(1, 2), (128, 256), (129, 130), (300, 200), (1000, 250)])
def test_a_family_of_any_size_fits_into_one_matrix(count: int, jobs: int) -> None:
    found = planned(large(count))
    assert len(found.gpu) == jobs <= matrix.MOST_JOBS
    for runner in RUNNERS:
        of_runner = [name for job in found.gpu if job.id.startswith(runner) for name in job.images.split()]
        assert sorted(of_runner) == sorted(found.check)


def test_300_images_are_one_line_of_ascii_far_below_the_limit_of_an_output() -> None:
    text = matrix.outputs(planned(large(300)))["gpu"]
    assert len(text) < 60_000
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text)["include"][0].keys() == {"id", "labels", "images", "minutes", "avoid"}


def test_the_same_family_gives_the_same_jobs_whatever_order_it_is_read_in() -> None:
    catalog = large(300)
    backwards = catalog.model_copy(update={"images": dict(reversed([*catalog.images.items()]))})
    assert planned(catalog).gpu == planned(backwards).gpu


def test_what_no_output_can_hold_is_refused() -> None:
    kinds = {f"kind{number}": ("gpu",) for number in range(60)}
    with pytest.raises(InputError, match="characters of JSON"):
        planned(large(1000, runners=kinds))


def test_more_kinds_of_runners_than_jobs_are_refused() -> None:
    with pytest.raises(InputError, match="more than 256 kinds of runners"):
        planned(large(1, runners={f"kind{number}": ("gpu",) for number in range(257)}))


def test_an_image_goes_to_the_runners_that_it_names() -> None:
    image = Image(name="one", description="O", checks=CHECKS, runners=("a100",))
    (job,) = planned(large(0, images={"one": image})).gpu
    assert (job.id, job.labels, job.images, job.minutes) == ("a100-1", RUNNERS["a100"], "one", 90)


def test_where_nothing_changes_there_is_no_work_and_no_matrix() -> None:
    found = matrix.work(large(3), build=[], check=[], why={})
    assert set(matrix.outputs(found).values()) == {""}
    assert matrix.markdown(found) == "No image changes: nothing is built.\n"
    for change in (True, False):
        assert matrix.child_pipeline(found, change=change)["nothing"] == {"extends": ".nothing"}


def test_a_child_pipeline_has_a_job_for_each_stage_and_two_for_each_gpu_lane() -> None:
    told = matrix.child_pipeline(planned(large(1)), change=False)
    assert told["variables"] == {"IMAGES": "image-0", "CHECK": "image-0", "SCAN": "image-0"}
    assert {"build", "check", "scan", "sign", "verify", "gpu a100-1", "sign gpu a100-1", "gpu h100-1"} <= told.keys()
    assert told["sign gpu h100-1"] == {
        "extends": ".sign-gpu",
        "needs": [{"job": "gpu h100-1"}, {"job": "sign"}],
        "variables": {"IMAGES": "image-0"},
    }


def test_a_change_that_is_not_merged_has_one_job_and_none_on_a_gpu() -> None:
    told = matrix.child_pipeline(planned(large(2)), change=True)
    assert told.keys() == {"include", "workflow", "variables", "change"}


def test_an_image_without_checks_is_built_and_scanned_and_has_no_lane() -> None:
    found = matrix.work(FAMILY, build=["os", "nlp"], check=[], why={})
    assert (found.build, found.check, found.scan, found.gpu) == (("os", "nlp"), (), ("nlp",), ())


def test_an_image_has_the_lanes_of_what_it_stands_on() -> None:
    below = FAMILY.images["pytorch"].model_copy(update={"checks": CHECKS})
    catalog = FAMILY.model_copy(update={"images": {**FAMILY.images, "pytorch": below}})
    assert matrix.lanes(catalog, "nlp") == ("cpu", "gpu")
    assert matrix.lanes(catalog, "os") == ()


def test_a_second_try_has_the_same_images_and_avoids_the_machine_of_the_first() -> None:
    (job,) = matrix.again(large(3), {"h100-2": ["image-1"]}, {"h100-2": ["node-7", "GPU-1"]})
    assert (job.id, job.labels, job.images, job.avoid) == ("h100-2", RUNNERS["h100"], "image-1", "GPU-1 node-7")


@pytest.mark.parametrize("job", ["h200-1", "h100", "h100-x", "-1"])
def test_a_second_try_of_an_unknown_job_is_refused(job: str) -> None:
    with pytest.raises(InputError, match="is no job of this catalog"):
        matrix.again(large(3), {job: ["image-1"]}, {job: ["node"]})


def test_a_second_try_of_an_unknown_image_is_refused() -> None:
    with pytest.raises(InputError, match="is no job of this catalog"):
        matrix.again(large(1), {"h100-1": ["image-7"]}, {"h100-1": ["node"]})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"images":[],"machines":["m"],"reason":""}',
        b'{"images":["a"],"machines":[],"reason":""}',
        b'{"images":["a"],"machines":["m\\nn"],"reason":""}',
        b'{"images":["$(id)"],"machines":["m"],"reason":""}',
        b'{"images":["a"],"machines":["m"],"reason":"","more":1}',
    ],
)
def test_what_a_runner_could_have_written_at_will_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match="is no file of `test --later`"):
        tries.parse("h100-1.json", text)


def test_causes_are_counted_by_machine() -> None:
    one = tries.Try(images=("nlp",), machines=("node-7", "GPU-1"), reason="ECC | <b>", cause="ecc")
    other = tries.Try(images=("lab",), machines=("node-8",), reason="no | driver\nmore", cause="")
    told = tries.markdown({"h100-1": one, "h100-2": one, "h100-3": other})
    assert "| `node-7` | ecc | 2 |" in told
    assert "| `node-8` | no \\| driver | 1 |" in told
    assert "`h100-3` is tried once more, on another machine: lab" in told


def test_runners_are_no_part_of_an_input_hash_and_must_be_known(tmp_path: Path) -> None:
    settings = Settings(root=catalog_of(tmp_path, 2), cache=tmp_path / "cache")
    before = context.hashes(settings, context.load(settings))
    shared = settings.images / "catalog.yaml"
    shared.write_text(shared.read_text() + "runners:\n  h100: [self-hosted, gpu]\n")
    own = settings.images / "image-1" / "image.yaml"
    own.write_text(own.read_text() + "runners: [h100]\n")
    catalog = context.load(settings)
    assert context.hashes(settings, catalog) == before
    assert (catalog.runners, catalog.images["image-1"].runners) == ({"h100": ("self-hosted", "gpu")}, ("h100",))
    own.write_text(own.read_text().replace("[h100]", "[h200]"))
    with pytest.raises(CatalogError, match=r"no runner `h200` in `images/catalog\.yaml`: it names `h100`"):
        context.load(settings)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{h100: []}", "`runners.h100` names nothing"),
        ("{h100: ['a b']}", "`runners.h100[0]` is not a runner's label"),
        ("{h100: ['$(id)']}", "`runners.h100[0]` is not a runner's label"),
        ("{H100: [gpu]}", "`runners.H100` is not a kind of runner"),
        ("{h100: [gpu, gpu]}", "`runners.h100` names twice: `gpu`"),
    ],
)
def test_a_label_that_no_runner_can_have_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    settings = Settings(root=catalog_of(tmp_path, 1), cache=tmp_path / "cache")
    shared = settings.images / "catalog.yaml"
    shared.write_text(shared.read_text() + f"runners: {text}\n")
    with pytest.raises(CatalogError, match=re.escape(f"images/catalog.yaml:8: {fault}")):
        context.load(settings)


@pytest.mark.parametrize(
    ("environment", "run"),
    [
        ({}, "random"),
        ({"GITHUB_RUN_ID": "17"}, "17"),
        ({"GITHUB_RUN_ID": "17", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "gpu"}, "17.2.gpu"),
        ({"CI_PIPELINE_ID": "9", "CI_JOB_ID": "10"}, "9.10"),
        ({"CI_JOB_ID": "10"}, "10"),
        ({"PIPELINE_RUN_ID": "mine-1", "GITHUB_RUN_ID": "17"}, "mine-1"),
    ],
)
def test_a_run_is_named_as_its_ci_names_it(environment: dict[str, str], run: str) -> None:
    assert runs.identify(environment, otherwise="random") == run


def test_a_run_of_any_other_name_is_refused() -> None:
    with pytest.raises(InputError, match="is no run's id"):
        runs.identify({"PIPELINE_RUN_ID": "a b"}, otherwise="random")


@pytest.mark.parametrize(
    ("run", "of"), [("17", True), ("17.1", True), ("17.2.gpu", True), ("171", False), ("1", False), ("", False)]
)
def test_attempts_and_jobs_belong_to_their_run_and_no_other_run_does(run: str, of: bool) -> None:
    assert runs.belongs(run, "17") is of
