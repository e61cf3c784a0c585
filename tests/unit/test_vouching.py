"""On a registry that others write to, a candidate is reused only when an accepted key says to have built it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline import dsse, records, vouching
from pipeline import gather as gathering
from pipeline.catalog import Catalog, Image
from pipeline.errors import TagConflict
from pipeline.evidence import Evidence, Key, Signed
from pipeline.oci import Digest, Pinned
from pipeline.plan import Step
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import PROVENANCE, Built
from pipeline.survey import Survey
from pipeline.verbs import work
from tests.fakes import fake_registry
from tests.unit.test_statements import BUILT

DIGEST = Digest.of(b"")
STEP = Step(image="nlp", action="reuse", reason="", tag="v1.0-nlp", input_hash=BUILT.input_hash, digest=DIGEST)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def catalog() -> Catalog:
    return Catalog.model_validate(
        {
            "line": "1.0",
            "repository": "images",
            "candidates": "harbor.example.com/ml",
            "releases": "harbor.example.com/releases",
            "platform": "linux/amd64",
            "epoch": datetime(2025, 1, 29, tzinfo=UTC),
            "compression-level": 3,
            "images": {},
        }
    )


def signed(*records: Built) -> tuple[Signed, ...]:
    key = Key(name="ci", roles=frozenset({"ci"}))
    return tuple(
        Signed(manifest=DIGEST, key=key, subject=str(DIGEST), record=record, predicate_type=PROVENANCE) for record in records
    )


def signed_by(monkeypatch: pytest.MonkeyPatch, *records: Built) -> list[Pinned]:
    """Let an accepted key have signed these about every image; returns those that are asked for."""
    found = signed(*records)
    asked: list[Pinned] = []

    def gather(pinned: Pinned, *_: object, **__: object) -> Evidence:
        asked.append(pinned)
        return Evidence(subject=pinned, counted=found)

    monkeypatch.setattr(vouching, "gather", gather)
    return asked


def vouch(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, *records: Built, step: Step = STEP) -> None:
    asked = signed_by(monkeypatch, *records)
    vouching.vouched([step], catalog, [], Registry(), now=NOW)
    assert asked == [catalog.candidate_repository.at(DIGEST)]


def proved(catalog: Catalog, *steps: Step) -> tuple[Step, ...]:
    return vouching.unvouched(steps, catalog, [], Registry(), now=NOW)


def test_what_a_run_built_that_ended_before_it_could_sign_is_proved_by_building_it_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_by(monkeypatch)
    new = replace(STEP, action="build", digest=None)
    assert proved(catalog, STEP, new) == (replace(STEP, action="build", reason=vouching.UNVOUCHED), new)
    signed_by(monkeypatch, BUILT)
    assert proved(catalog, STEP) == (STEP,)


def test_what_was_built_from_other_inputs_is_a_conflict_however_it_is_asked(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_by(monkeypatch, BUILT.model_copy(update={"input_hash": "f" * 64}))
    with pytest.raises(TagConflict, match="a build of other inputs"):
        proved(catalog, STEP)


def test_a_candidate_whose_build_an_accepted_key_signed_is_reused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    vouch(catalog, monkeypatch, BUILT)


def test_a_candidate_that_nobody_vouches_for_stops_the_run(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TagConflict, match="no build that a key of the release policy has signed"):
        vouch(catalog, monkeypatch)


@pytest.mark.parametrize("change", [{"image": "other"}, {"input_hash": "f" * 64}])
def test_a_build_of_something_else_vouches_for_nothing(
    change: dict[str, str], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TagConflict, match="a build of other inputs"):
        vouch(catalog, monkeypatch, BUILT.model_copy(update=change))


def test_a_candidate_whose_build_is_nowhere_on_record_is_built_again(catalog: Catalog, tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path)
    with fake_registry() as registry:
        pinned = registry.put_image(registry.repository("ml/images"))
        here = catalog.model_copy(update={"candidates": f"{registry.host}/ml"})
        step = replace(STEP, digest=pinned.digest)

        def planned() -> Step:
            return vouching.unrecorded([step], here, settings, Registry(locks=tmp_path))[0]

        assert planned() == replace(step, action="build", reason=vouching.UNRECORDED)
        record = records.path(settings, pinned.digest, "built")
        records.write_text(record, "{}")
        assert planned() == step
        record.unlink()
        told = {dsse.PREDICATE_ANNOTATION: PROVENANCE}
        Registry(locks=tmp_path).attach(pinned, dsse.BUNDLE_TYPE, b"a bundle", dsse.BUNDLE_TYPE, told)
        assert planned() == step


def test_a_plan_for_ci_builds_what_nobody_vouches_for_so_that_its_build_is_signed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image without checks lacks nothing else, and would stop whatever stands on it."""
    family = catalog.model_copy(update={"images": {"nlp": Image(name="nlp", description="I")}})
    found = Survey(catalog=family, hashes={}, steps=(STEP,))
    monkeypatch.setattr(work, "survey_of", lambda *_, **__: found)
    monkeypatch.setattr(work, "policy_of", lambda *_: SimpleNamespace(keys=()))
    monkeypatch.setattr(work, "expected_of", lambda *_: SimpleNamespace(lanes={}))
    call = cast(Any, SimpleNamespace(arguments=SimpleNamespace(rebuild=False), registry=None, now=lambda: NOW))
    for known, build in ((), ("nlp",)), ((BUILT,), ()):
        counted = signed(*known)
        monkeypatch.setattr(
            gathering, "gather", lambda pinned, *_, counted=counted, **__: Evidence(subject=pinned, counted=counted)
        )
        assert work._lacking(call, family).build == build
