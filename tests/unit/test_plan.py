"""A plan builds what has no candidate, parents first, and says why."""

import random
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import context, plan
from pipeline.catalog import Catalog, Image
from pipeline.errors import InputError
from pipeline.inputs import InputHash
from pipeline.oci import Digest
from pipeline.settings import Settings
from tests.bench.generated import catalog_of

IMAGES = (
    Image(name="build-env", description="B", release=False),
    Image(name="os", description="O", release=False),
    Image(name="pytorch", description="P", parent="os", uses=("build-env",)),
    Image(name="lab", description="L", parent="pytorch", variant="lab"),
    Image(name="nlp", description="N", parent="pytorch", uses=("build-env",), variant="nlp"),
)
CATALOG = Catalog(
    line="2.6",
    repository="family",
    candidates="localhost:1/c",
    releases="localhost:1/r",
    platform="linux/amd64",
    epoch=datetime(2025, 1, 29, tzinfo=UTC),
    compression_level=7,
    images={image.name: image for image in IMAGES},
)
HASHES = {image.name: InputHash(value=f"{number}" * 64, parts={}) for number, image in enumerate(IMAGES)}
ALL = tuple(CATALOG.images)


def existing(names: Collection[str]) -> dict[str, Digest]:
    return {CATALOG.candidate_tag(CATALOG.images[name], HASHES[name].value): Digest.of(name.encode()) for name in names}


def planned(there: Collection[str], *names: str, rebuild: bool = False) -> dict[str, str]:
    steps = plan.make(CATALOG, HASHES, existing(there), names, rebuild=rebuild)
    return {step.image: f"{step.action}: {step.reason}" for step in steps}


def test_where_nothing_is_there_all_is_built_parents_first() -> None:
    assert planned([]) == {
        "build-env": "build: no candidate for these inputs",
        "os": "build: no candidate for these inputs",
        "pytorch": "build: no candidate for these inputs; `os` and `build-env` are built anew",
        "lab": "build: no candidate for these inputs; `pytorch` is built anew",
        "nlp": "build: no candidate for these inputs; `pytorch` and `build-env` are built anew",
    }


def test_where_all_is_there_nothing_is_built() -> None:
    assert set(planned(ALL).values()) == {"reuse: candidate exists"}


def test_a_step_names_its_tag_and_what_the_tag_holds() -> None:
    (step,) = plan.make(CATALOG, HASHES, existing(["nlp"]), ["nlp"])
    assert (step.tag, step.input_hash, step.digest) == ("v2.6-nlp-444444444444", "4" * 64, Digest.of(b"nlp"))


def test_what_is_named_brings_the_ancestors_that_it_must_be_built_from() -> None:
    assert list(planned([], "nlp")) == ["build-env", "os", "pytorch", "nlp"]
    assert list(planned(["pytorch", "build-env"], "nlp")) == ["build-env", "pytorch", "nlp"]
    assert list(planned(["nlp"], "nlp")) == ["nlp"]


def test_what_is_named_does_not_bring_its_descendants() -> None:
    assert list(planned([], "os")) == ["os"]


def test_rebuild_builds_what_is_named_and_reuses_what_it_stands_on() -> None:
    assert planned(ALL, "nlp", rebuild=True) == {
        "build-env": "reuse: candidate exists",
        "pytorch": "reuse: candidate exists",
        "nlp": "build: `--rebuild`",
    }
    assert set(planned(ALL, rebuild=True).values()) == {"build: `--rebuild`"}
    assert planned([], "os", rebuild=True) == {"os": "build: no candidate for these inputs"}


@pytest.mark.parametrize(
    ("name", "hint"), [("npl", "did you mean `nlp`?"), ("x", "there are `build-env`, `os`, `pytorch`, `lab`, `nlp`")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        planned([], "nlp", name)
    assert (caught.value.message, caught.value.hint) == (f"no image `{name}`", hint)


def test_descendants_are_all_whose_inputs_follow() -> None:
    assert plan.descendants(CATALOG, "os") == ("pytorch", "lab", "nlp")
    assert plan.descendants(CATALOG, "build-env") == ("pytorch", "lab", "nlp")
    assert plan.descendants(CATALOG, "nlp") == ()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_there_and_named_what_is_built_comes_after_all_that_it_needs(seed: int) -> None:
    chance = random.Random(seed)
    there = {name for name in ALL if chance.random() < 0.5}
    named = [name for name in ALL if chance.random() < 0.5]
    steps = plan.make(CATALOG, HASHES, existing(there), named, rebuild=chance.random() < 0.5)
    done: set[str] = set()
    for step in steps:
        assert step.action == "reuse" or done.issuperset(CATALOG.images[step.image].needs)
        assert (step.image in there) == (step.digest is not None)
        done.add(step.image)
    assert done.issuperset(named or ALL)


def test_a_generated_family_is_planned_whole_and_parents_first(tmp_path: Path) -> None:
    settings = Settings(root=catalog_of(tmp_path, 200), cache=tmp_path / "cache")
    catalog = context.load(settings)
    steps = plan.make(catalog, context.hashes(settings, catalog), {})
    place = {step.image: position for position, step in enumerate(steps)}
    assert len(steps) == len({step.tag for step in steps}) == 200
    assert all(place[need] < place[image.name] for image in catalog.images.values() for need in image.needs)
