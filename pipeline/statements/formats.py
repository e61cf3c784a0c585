"""Records as in-toto statements about one digest, and back.

Formats: in-toto Statement v1, SLSA provenance v1 and verification summary v1, in-toto test-result v0.1 and vulns v0.2,
CycloneDX. What reads them elsewhere finds the standard fields; the whole record travels beside them, and is believed only
when the standard fields are exactly those that it makes.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import ValidationError

from pipeline.errors import InputError
from pipeline.oci import Pinned
from pipeline.statements.values import Bom, Built, Decided, Findings, Outcome, Record, Scanned, Tested

STATEMENT_TYPES = ("https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1")
"""What we write, and what cosign writes."""
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
VULNERABILITIES = "https://in-toto.io/attestation/vulns/v0.2"
CYCLONEDX = "https://cyclonedx.org/bom"
FINDINGS = "urn:gpu-image-pipeline:findings:v1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
"""What `cosign sign` attaches: no record, the digest alone."""
BUILD_TYPE = "urn:gpu-image-pipeline:build:v1"
VERIFIER = "urn:gpu-image-pipeline:policy:v1"

Statement = Annotated[Mapping[str, Any], "an in-toto Statement"]
Statable = Built | Tested | Scanned | Findings | Bom | Decided
R = TypeVar("R", bound=Record)


def built_statement(built: Built) -> Statement:
    """`built` as SLSA provenance v1 on its image."""
    return _statement(built.subject, PROVENANCE, _built(built))


def tested_statement(tested: Tested) -> Statement:
    """`tested` as an in-toto test result on its image."""
    return _statement(tested.subject, TEST_RESULT, _tested(tested))


def scanned_statement(scanned: Scanned) -> Statement:
    """`scanned` as in-toto vulns v0.2 on its image."""
    return _statement(scanned.subject, VULNERABILITIES, _scanned(scanned))


def findings_statement(findings: Findings) -> Statement:
    """`findings` on its image."""
    return _statement(findings.subject, FINDINGS, findings.model_dump(mode="json"))


def bom_statement(subject: str, document: Mapping[str, Any]) -> Statement:
    """A CycloneDX document on its image, as the scanner wrote it."""
    return _statement(subject, CYCLONEDX, document)


def decided_statement(decided: Decided) -> Statement:
    """`decided` as a SLSA verification summary on its image."""
    return _statement(decided.subject, SUMMARY, _decided(decided))


def read(statement: Statement) -> Statable:
    """The record of a statement that one of the functions above made; its subject's repository is where it was made.

    Raises `InputError` for what none of them makes: another type, a field too many or too few, fields that contradict.
    """
    kind, predicate = statement.get("predicateType"), statement.get("predicate")
    if statement.get("_type") not in STATEMENT_TYPES or not isinstance(predicate, Mapping):
        raise InputError("is not an in-toto statement")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise InputError(f"has the predicate type `{kind}`, which is none of ours")
    found: Statable = reader(statement, predicate)
    return found


def subject_digest(statement: Statement) -> str:
    """`sha256:…` of the one image that a statement is about; raises `InputError` when it is about none, or several."""
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1 or not isinstance(subjects[0], Mapping):
        raise InputError("is not about exactly one image")
    digests = subjects[0].get("digest")
    digest = digests.get("sha256") if isinstance(digests, Mapping) else None
    if not isinstance(digest, str):
        raise InputError("names no sha256 digest")
    return f"sha256:{digest}"


def _built(built: Built) -> Mapping[str, Any]:
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"image": built.image, "inputs": dict(built.inputs)},
            "internalParameters": built.model_dump(mode="json"),
            "resolvedDependencies": [{"uri": material} for material in built.materials],
        },
        "runDetails": {
            "builder": {"id": built.builder},
            "metadata": {
                "invocationId": built.run,
                "startedOn": _rfc3339(built.started),
                "finishedOn": _rfc3339(built.finished),
            },
        },
    }


def _tested(tested: Tested) -> Mapping[str, Any]:
    names = {outcome: [c.name for c in tested.checks if c.outcome is outcome] for outcome in Outcome}
    return {
        "result": "PASSED" if tested.outcome is Outcome.PASSED else "FAILED",
        "configuration": [{"name": f"suite-{tested.lane}", "digest": {"sha256": tested.suite}}],
        "passedTests": names[Outcome.PASSED],
        "warnedTests": [],
        "failedTests": names[Outcome.FAILED] + names[Outcome.ERROR],
        "annotations": tested.model_dump(mode="json"),
    }


def _scanned(scanned: Scanned) -> Mapping[str, Any]:
    results = [{"id": one.id, "severity": [{"method": "trivy", "score": one.severity}]} for one in scanned.vulnerabilities]
    database = {"version": scanned.database.version, "lastUpdate": _rfc3339(scanned.database.updated)}
    return {
        "scanner": {"uri": scanned.scanner, "db": database, "result": results},
        "metadata": {"scanStartedOn": _rfc3339(scanned.started), "scanFinishedOn": _rfc3339(scanned.finished)},
        "record": scanned.model_dump(mode="json"),
    }


def _decided(decided: Decided) -> Mapping[str, Any]:
    inputs = [{"digest": {"sha256": digest.removeprefix("sha256:")}} for digest in decided.statements]
    return {
        "verifier": {"id": VERIFIER},
        "timeVerified": _rfc3339(decided.finished),
        "resourceUri": decided.subject,
        "policy": {"uri": VERIFIER, "digest": {"sha256": decided.policy.removeprefix("sha256:")}},
        "inputAttestations": inputs,
        "verificationResult": "FAILED" if decided.action == "withdraw" else "PASSED",
        "verifiedLevels": ["SLSA_BUILD_LEVEL_1"],
        "record": decided.model_dump(mode="json"),
    }


def _reader(kind: type[R], record: Callable[[Mapping[str, Any]], Any], make: Callable[[R], Mapping[str, Any]]) -> Any:
    """Reads the record out of a predicate, and compares what it makes with what is there."""

    def reader(statement: Statement, predicate: Mapping[str, Any]) -> R:
        try:
            found = kind.model_validate_json(_json(record(predicate)))
            made = make(found)
        except (ValidationError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"is not a statement of ours: {_first(error)}") from error
        if made != predicate:
            raise InputError("says one thing in its standard fields and another in its record")
        if str(Pinned.parse(found.subject).digest) != subject_digest(statement):  # type: ignore[attr-defined]
            raise InputError("is about one image by its subject and about another by its record")
        return found

    return reader


def _read_bom(statement: Statement, predicate: Mapping[str, Any]) -> Bom:
    if predicate.get("bomFormat") != "CycloneDX":
        raise InputError("is not a CycloneDX document")
    try:
        components: dict[str, list[str]] = {}
        for component in predicate.get("components") or ():
            components.setdefault(str(component["name"]), []).append(str(component.get("version", "")))
        finished = datetime.fromisoformat(predicate["metadata"]["timestamp"])
        if finished.tzinfo is None:
            raise ValueError("its timestamp names no zone")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"is not a CycloneDX document that we can read: {error}") from error
    digest = subject_digest(statement)
    subject = f"{statement['subject'][0].get('name', '')}@{digest}"
    return Bom(subject=subject, components=components, finished=finished, document=predicate)


_READERS: Mapping[str, Callable[[Statement, Mapping[str, Any]], Any]] = {
    PROVENANCE: _reader(Built, lambda predicate: predicate["buildDefinition"]["internalParameters"], _built),
    TEST_RESULT: _reader(Tested, lambda predicate: predicate["annotations"], _tested),
    VULNERABILITIES: _reader(Scanned, lambda predicate: predicate["record"], _scanned),
    FINDINGS: _reader(Findings, lambda predicate: predicate, lambda findings: findings.model_dump(mode="json")),
    SUMMARY: _reader(Decided, lambda predicate: predicate["record"], _decided),
    CYCLONEDX: _read_bom,
}


OURS = frozenset(_READERS)
"""The predicate types of what we sign, the plain signature aside."""


def _statement(subject: str, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    pinned = Pinned.parse(subject)
    return {
        "_type": STATEMENT_TYPES[0],
        "subject": [{"name": str(pinned.repository), "digest": {"sha256": pinned.digest.hex}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def _json(value: Any) -> str:
    return json.dumps(value)


def _first(error: Exception) -> str:
    return f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}" if isinstance(error, ValidationError) else f"{error!r}"


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
