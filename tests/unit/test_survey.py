"""A survey asks the registry little, believes no tag without its label, and takes no error for an absence."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline import context, names
from pipeline.catalog import Catalog
from pipeline.errors import PipelineError, TagConflict
from pipeline.explain import Explanation, explain
from pipeline.inputs import InputHash
from pipeline.locks import PackagesLock, format_packages, overlay_name, packages_digest
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.story import Silent
from pipeline.survey import Survey, survey
from tests.bench.generated import catalog_of
from tests.fakes import Answer, FakeRegistry, fake_registry


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


class Stage:
    """A catalog of a few images, and a registry for its candidates."""

    def __init__(self, root: Path, registry: FakeRegistry) -> None:
        self.settings = Settings(root=catalog_of(root, 3), cache=root / "cache", candidates=f"{registry.host}/c")
        self.registry = registry
        self.story = Told()

    @property
    def catalog(self) -> Catalog:
        return context.load(self.settings)

    @property
    def hashes(self) -> dict[str, InputHash]:
        return dict(context.hashes(self.settings, self.catalog))

    def tag(self, name: str) -> str:
        return self.catalog.candidate_tag(self.catalog.images[name], self.hashes[name].value)

    def put(self, name: str, labels: dict[str, str] | None = None) -> Pinned:
        found = self.hashes[name]
        labels = {names.LABEL_INPUT_HASH: found.value, names.LABEL_INPUTS: json.dumps(dict(found.parts))} | (labels or {})
        return self.registry.put_image(self.catalog.candidate_repository, labels=labels, tag=self.tag(name))

    def survey(self, *selection: str) -> Survey:
        return survey(self.settings, self.catalog, Registry(), selection, story=self.story)

    def explain(self, name: str) -> Explanation:
        return explain(self.settings, self.catalog, Registry(), name, story=self.story)

    def edit(self, name: str, text: str) -> None:
        (self.settings.images / name / "Dockerfile").write_text(text)


@contextmanager
def staged(root: Path) -> Iterator[Stage]:
    with fake_registry() as registry:
        yield Stage(root, registry)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as made:
        yield made


def test_an_empty_registry_holds_nothing(stage: Stage) -> None:
    assert [step.action for step in stage.survey().steps] == ["build"] * 3


def test_a_candidate_with_the_right_label_is_reused_by_digest(stage: Stage) -> None:
    pinned = stage.put("image-1")
    found = stage.survey()
    assert {step.image: step.digest for step in found.steps} == {"image-0": None, "image-1": pinned.digest, "image-2": None}
    assert found.hashes == stage.hashes
    assert stage.story.warned == []


def test_one_list_of_tags_and_three_reads_a_candidate_are_all_that_is_asked(stage: Stage) -> None:
    stage.put("image-1")
    stage.survey("image-1")
    assert sorted(path.partition("/v2/c/generated/")[2].partition("/")[0] for _, path, _ in stage.registry.requests) == [
        "blobs",
        "manifests",
        "manifests",
        "tags",
    ]


@pytest.mark.parametrize("label", ["0" * 64, ""])
def test_a_tag_that_holds_something_else_stops_the_run(stage: Stage, label: str) -> None:
    stage.put("image-1", {names.LABEL_INPUT_HASH: label})
    with pytest.raises(TagConflict, match=stage.tag("image-1")) as caught:
        stage.survey()
    assert caught.value.exit_code == 8


def test_a_registry_that_does_not_answer_is_not_empty(stage: Stage) -> None:
    stage.registry.canned["GET", "/v2/c/generated/tags/list?n=1000"] = [Answer(403, b"{}")] * 9
    with pytest.raises(PipelineError) as caught:
        stage.survey()
    assert caught.value.exit_code == 9


def test_a_lock_from_the_cache_is_said_once(stage: Stage) -> None:
    home = stage.settings.images / "os"
    home.mkdir()
    (home / "image.yaml").write_text("description: O\nrelease: false\nrootfs: {suite: bookworm, packages: []}\n")
    lock = format_packages(PackagesLock(packages_digest("bookworm", []), "bookworm", ()))
    (home / "packages.lock").write_text(lock)
    overlay = stage.settings.cache / "overlays" / overlay_name("os", lock.encode())
    overlay.parent.mkdir(parents=True)
    overlay.write_text(lock)
    stage.survey()
    assert stage.story.said == [f"`os` is made from `{overlay}`, in place of the packages that its own lock names"]


def test_explain_names_what_differs_from_the_closest_candidate(stage: Stage) -> None:
    stage.edit("image-0", "FROM scratch\nCOPY --link checks /\n")
    stage.put("image-0")
    stage.edit("image-0", "FROM scratch\nCOPY --link requirements /\n")
    stage.put("image-0")
    closest = stage.tag("image-0")
    (stage.settings.images / "image-0" / "new").write_text("")
    found = stage.explain("image-0")
    assert found.closest == closest
    assert [(part.name, part.state, part.before) for part in found.differences] == [("file:new", "added", None)]
    assert found.descendants == ("image-1", "image-2")
    assert found.tag == stage.tag("image-0")


def test_explain_finds_no_difference_from_the_candidate_of_these_inputs(stage: Stage) -> None:
    stage.put("image-1")
    assert stage.explain("image-1").closest == stage.tag("image-1")
    assert stage.explain("image-1").differences == ()


def test_explain_names_parts_that_are_gone_and_changed(stage: Stage) -> None:
    new = stage.settings.images / "image-1" / "new"
    new.write_text("")
    stage.put("image-1")
    new.unlink()
    stage.edit("image-0", "FROM scratch\n")
    assert {part.name: part.state for part in stage.explain("image-1").differences} == {
        "file:new": "removed",
        "parent:image-0": "changed",
    }


def test_explain_works_without_any_candidate_and_does_not_take_those_of_others(stage: Stage) -> None:
    stage.put("image-1")
    found = stage.explain("image-0")
    assert found.closest is None
    assert {part.state for part in found.parts} == {"added"}


def test_explain_says_when_candidates_do_not_tell_what_they_were_built_from(stage: Stage) -> None:
    stage.put("image-1", {names.LABEL_INPUTS: "{"})
    assert stage.explain("image-1").closest is None
    assert stage.story.warned == ["candidates of `image-1` left out, since they do not list their inputs: 1"]
