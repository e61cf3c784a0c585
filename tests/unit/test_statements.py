"""Records make the round trip through in-toto statements, also as cosign writes them; nothing else is believed."""

import copy
import json
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pipeline import statements
from pipeline.errors import InputError
from pipeline.gpus import Gpu
from pipeline.statements import (
    Bom,
    Built,
    Checked,
    Database,
    Decided,
    Findings,
    Licence,
    Outcome,
    Place,
    Reference,
    Ruled,
    Scanned,
    Secret,
    Statable,
    Statement,
    Vulnerability,
)

SUBJECT = "registry.example.com/team/images@sha256:" + "a" * 64
STARTED = datetime(2026, 5, 1, 12, 0, 0, 250, tzinfo=UTC)
FINISHED = datetime(2026, 5, 1, 14, 0, 0, tzinfo=timezone(timedelta(hours=2)))
TIMES: dict[str, Any] = {"started": STARTED, "finished": FINISHED, "run": "17"}
GPU = Gpu(index=0, uuid="GPU-1", name="NVIDIA A100", capability=(8, 0), memory=80 * 2**30, used=0)
BUILT = Built(
    image="nlp",
    subject=SUBJECT,
    tag="v1.0-nlp-0123456789ab",
    input_hash="c" * 64,
    inputs={"parent": "d" * 64},
    parent=None,
    materials=["pkg:docker/x@sha256:1"],
    commit=None,
    dirty=True,
    builder="local",
    compression_level=7,
    size=2_350_000_000,
    **TIMES,
)
TESTED = statements.Tested(
    image="nlp",
    subject=SUBJECT,
    lane="gpu",
    outcome=Outcome.FAILED,
    checks=[
        Checked(name="one", image="nlp", outcome=Outcome.PASSED, measured={"a": 1.0, "b": 2, "c": True, "d": "9007199254740993"}),
        Checked(name="two", image="nlp", outcome=Outcome.FAILED, reason="wrong"),
    ],
    suite="e" * 64,
    machine={"kernel": "6.1"},
    gpus=[GPU],
    reference=Reference(origin="none", before=Outcome.PASSED),
    **TIMES,
)
SCANNED = Scanned(
    image="nlp",
    subject=SUBJECT,
    scanner="pkg:golang/scanner@1",
    database=Database(version="2", updated=STARTED),
    system="debian 12",
    packages=7,
    vulnerabilities=[Vulnerability(id="CVE-1", package="p", installed="1", severity="HIGH", place=Place(file="/x"))],
    source="image",
    **TIMES,
)
FINDINGS = Findings(
    image="nlp",
    subject=SUBJECT,
    scanner="pkg:golang/scanner@1",
    licences=[Licence(name="MIT", category="notice")],
    secrets=[Secret(rule="aws", severity="CRITICAL")],
    size=5,
    **TIMES,
)
DECIDED = Decided(
    image="nlp",
    subject=SUBJECT,
    action="promote",
    tag="v1.0.3-nlp",
    policy="sha256:" + "f" * 64,
    rules=[Ruled(code="lane", held=True)],
    statements=["sha256:" + "b" * 64],
    actor="somebody",
    finished=FINISHED,
    run="17",
)
DOCUMENT: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "metadata": {"timestamp": "2026-05-01T12:00:00+00:00"},
    "components": [{"name": "openssl", "version": "3.0"}, {"name": "openssl", "version": "1.1"}, {"name": "bare"}],
}
MADE: list[tuple[Statable, Statement]] = [
    (BUILT, statements.built_statement(BUILT)),
    (TESTED, statements.tested_statement(TESTED)),
    (SCANNED, statements.scanned_statement(SCANNED)),
    (FINDINGS, statements.findings_statement(FINDINGS)),
    (DECIDED, statements.decided_statement(DECIDED)),
]
BY_NAME = pytest.mark.parametrize(("record", "statement"), MADE, ids=[type(record).__name__ for record, _ in MADE])


TWICE = [{"digest": {"sha256": "a"}}] * 2


def as_cosign_writes(statement: Statement) -> Any:
    """Through Go: whole floats lose their point, the type is v0.1."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return {**plain(json.loads(json.dumps(statement))), "_type": "https://in-toto.io/Statement/v0.1"}


def test_other_names_of_a_vulnerability_are_written_where_there_are_any_so_that_older_statements_count() -> None:
    (plain,) = SCANNED.vulnerabilities
    named = SCANNED.model_copy(update={"vulnerabilities": [plain.model_copy(update={"aliases": ["GHSA-xxxx-yyyy-zzzz"]})]})
    assert "aliases" not in json.dumps(statements.scanned_statement(SCANNED))
    read = statements.read(json.loads(json.dumps(statements.scanned_statement(named))))
    assert isinstance(read, Scanned)
    assert read.vulnerabilities[0].aliases == ["GHSA-xxxx-yyyy-zzzz"]


@BY_NAME
def test_a_record_comes_back(record: Statable, statement: Statement) -> None:
    for written in (json.loads(json.dumps(statement)), as_cosign_writes(statement)):
        assert statements.read(written).model_dump(mode="json") == record.model_dump(mode="json")


def test_a_bill_of_materials_is_read_and_kept_whole() -> None:
    found = statements.read(statements.bom_statement(SUBJECT, DOCUMENT))
    assert isinstance(found, Bom)
    assert (found.subject, found.components) == (SUBJECT, {"openssl": ["3.0", "1.1"], "bare": [""]})
    assert found.document == DOCUMENT
    bare = {name: value for name, value in DOCUMENT.items() if name != "components"}
    empty = statements.read(statements.bom_statement(SUBJECT, bare))
    assert isinstance(empty, Bom)
    assert empty.components == {}


@BY_NAME
def test_a_field_too_many_or_too_few_is_refused(record: Statable, statement: Statement) -> None:
    for change in ({"verdict": "fine"}, {}):
        changed: Any = {**statement, "predicate": {**statement["predicate"], **change}}
        if not change:
            changed["predicate"].pop(next(iter(changed["predicate"])))
        with pytest.raises(InputError):
            statements.read(changed)


@BY_NAME
def test_a_statement_of_another_format_is_refused(record: Statable, statement: Statement) -> None:
    for kind in ("https://in-toto.io/Statement/v2", "", None):
        with pytest.raises(InputError, match="is not an in-toto statement"):
            statements.read({**statement, "_type": kind})


@BY_NAME
def test_a_record_about_another_image_is_refused(record: Statable, statement: Statement) -> None:
    moved: Any = copy.deepcopy(dict(statement))
    moved["subject"][0]["digest"]["sha256"] = "9" * 64
    with pytest.raises(InputError, match="by its record"):
        statements.read(moved)


def test_standard_fields_that_contradict_the_record_are_refused() -> None:
    lying: Any = copy.deepcopy(dict(statements.tested_statement(TESTED)))
    lying["predicate"]["result"] = "PASSED"
    with pytest.raises(InputError, match="one thing in its standard fields"):
        statements.read(lying)


@pytest.mark.parametrize(
    "statement",
    [
        {},
        {"_type": "https://in-toto.io/Statement/v1"},
        {"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://example.com/x", "predicate": {}},
        {"_type": "https://in-toto.io/Statement/v1", "predicateType": ["x"], "predicate": {}},
        {**statements.bom_statement(SUBJECT, {**DOCUMENT, "bomFormat": "SPDX"})},
        {**statements.bom_statement(SUBJECT, {**DOCUMENT, "metadata": {}})},
        {**statements.bom_statement(SUBJECT, {**DOCUMENT, "metadata": {"timestamp": "2026-05-01T12:00:00"}})},
    ],
)
def test_what_none_of_ours_makes_is_refused(statement: Statement) -> None:
    with pytest.raises(InputError):
        statements.read(statement)


@pytest.mark.parametrize("subject", [None, [], "x", [{}], [{"digest": {"sha512": "a"}}], [{"digest": ["a"]}], TWICE])
def test_a_statement_is_about_exactly_one_digest(subject: Any) -> None:
    with pytest.raises(InputError):
        statements.subject_digest({"subject": subject})
    with pytest.raises(InputError):
        statements.read({**statements.bom_statement(SUBJECT, DOCUMENT), "subject": subject})


def test_a_time_that_has_no_utc_is_refused() -> None:
    early: Any = json.loads(json.dumps(statements.built_statement(BUILT)))
    early["predicate"]["buildDefinition"]["internalParameters"]["started"] = "0001-01-01T00:00:00+14:00"
    with pytest.raises(InputError, match="is not a statement of ours"):
        statements.read(early)


def test_whatever_is_put_into_a_statement_it_is_read_or_refused() -> None:
    luck = random.Random(4)
    made = [json.loads(json.dumps(statement)) for _, statement in MADE] + [statements.bom_statement(SUBJECT, DOCUMENT)]
    for _ in range(2000):
        with suppress(InputError):
            statements.read(mutated(luck.choice(made), luck))


def mutated(value: Any, luck: random.Random) -> Any:
    """A copy with some things left out, and some that are others."""
    if isinstance(value, dict):
        return {name: other(one, luck) for name, one in value.items() if luck.random() > 0.02}
    return [other(one, luck) for one in value] if isinstance(value, list) else value


def other(value: Any, luck: random.Random) -> Any:
    if luck.random() > 0.04:
        return mutated(value, luck)
    return luck.choice([None, True, 0, -1.5, 10**400, "", "x", SUBJECT, "0001-01-01T00:00:00+14:00", [], ["x"], {}, {"name": 1}])


def test_a_lane_is_called_passed_only_when_it_did() -> None:
    for outcome in Outcome:
        told = statements.tested_statement(TESTED.model_copy(update={"outcome": outcome}))
        assert (told["predicate"]["result"] == "PASSED") is (outcome is Outcome.PASSED)


def standard(statement: Statement, *path: str) -> Any:
    """The predicate without the whole record, which is under `path`: what others read of it."""
    predicate = json.loads(json.dumps(statement["predicate"]))
    place = predicate
    for name in path[:-1]:
        place = place[name]
    assert place.pop(path[-1])
    return predicate


def test_others_find_in_standard_fields_how_it_was_built() -> None:
    assert standard(statements.built_statement(BUILT), "buildDefinition", "internalParameters") == {
        "buildDefinition": {
            "buildType": "urn:gpu-image-pipeline:build:v1",
            "externalParameters": {"image": "nlp", "inputs": {"parent": "d" * 64}},
            "resolvedDependencies": [{"uri": "pkg:docker/x@sha256:1"}],
        },
        "runDetails": {
            "builder": {"id": "local"},
            "metadata": {
                "invocationId": "17",
                "startedOn": "2026-05-01T12:00:00+00:00",
                "finishedOn": "2026-05-01T12:00:00+00:00",
            },
        },
    }


def test_others_find_in_standard_fields_which_checks_passed_and_failed() -> None:
    checks = [*TESTED.checks, Checked(name="three", image="nlp", outcome=Outcome.ERROR)]
    checks.append(Checked(name="four", image="nlp", outcome=Outcome.NOT_RUN))
    tested = TESTED.model_copy(update={"checks": checks})
    assert standard(statements.tested_statement(tested), "annotations") == {
        "result": "FAILED",
        "configuration": [{"name": "suite-gpu", "digest": {"sha256": "e" * 64}}],
        "passedTests": ["one"],
        "warnedTests": [],
        "failedTests": ["two", "three"],
    }


def test_others_find_in_standard_fields_what_was_looked_up_and_found() -> None:
    assert standard(statements.scanned_statement(SCANNED), "record") == {
        "scanner": {
            "uri": "pkg:golang/scanner@1",
            "db": {"version": "2", "lastUpdate": "2026-05-01T12:00:00+00:00"},
            "result": [{"id": "CVE-1", "severity": [{"method": "trivy", "score": "HIGH"}]}],
        },
        "metadata": {"scanStartedOn": "2026-05-01T12:00:00+00:00", "scanFinishedOn": "2026-05-01T12:00:00+00:00"},
    }


@pytest.mark.parametrize(("action", "result"), [("promote", "PASSED"), ("rollback", "PASSED"), ("withdraw", "FAILED")])
def test_others_find_in_standard_fields_what_was_decided(action: str, result: str) -> None:
    told = statements.decided_statement(DECIDED.model_copy(update={"action": action}))
    assert standard(told, "record") == {
        "verifier": {"id": "urn:gpu-image-pipeline:policy:v1"},
        "timeVerified": "2026-05-01T12:00:00+00:00",
        "resourceUri": SUBJECT,
        "policy": {"uri": "urn:gpu-image-pipeline:policy:v1", "digest": {"sha256": "f" * 64}},
        "inputAttestations": [{"digest": {"sha256": "b" * 64}}],
        "verificationResult": result,
        "verifiedLevels": ["SLSA_BUILD_LEVEL_1"],
    }
