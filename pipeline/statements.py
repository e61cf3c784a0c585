"""What the stages found, as unsigned in-toto statements about one digest, and back.

Formats: in-toto Statement v1, SLSA provenance v1, in-toto test-result v0.1. A statement is data: it says nothing of
whether an image is good enough, which is the policy's business.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from pipeline.gpus import Gpu
from pipeline.oci import Pinned

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
BUILD_TYPE = "urn:gpu-image-pipeline:build:v1"

Lane = Literal["cpu", "gpu"]


class Outcome(Enum):
    """How a check or a lane ended; only `PASSED` is a pass, and there is no truth value to mistake for one."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"
    INFRASTRUCTURE = "infrastructure"
    ERROR = "error"

    def __bool__(self) -> NoReturn:
        raise TypeError("an outcome has no truth value: compare it with `Outcome.PASSED`")


NOT_SELECTED = "not selected"
"""Why a check did not run that a selection left out."""
WORST_FIRST = (Outcome.ERROR, Outcome.FAILED, Outcome.INFRASTRUCTURE, Outcome.NOT_RUN, Outcome.PASSED)


def overall(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a lane from its checks': the worst; a lane without checks did not run."""
    return min(outcomes, key=WORST_FIRST.index, default=Outcome.NOT_RUN)


class Record(BaseModel):
    """Base of all records: frozen, and no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Built(Record):
    """How an image was built."""

    image: str
    subject: str
    """The image: `repository@sha256:…`."""
    tag: str
    """The candidate tag."""
    input_hash: str
    inputs: Mapping[str, str]
    """The named parts of the input hash."""
    parent: str | None
    """The parent that it stands on: `repository@sha256:…`."""
    materials: Sequence[str]
    """What BuildKit says it resolved, as package URLs with digests."""
    commit: str | None
    dirty: bool
    builder: str
    compression_level: int
    size: int
    """Compressed bytes of all layers."""
    reproduced: bool = False
    """Whether a second build, without any cache, gave the same digest."""
    started: datetime
    finished: datetime
    run: str


class Checked(Record):
    """One check's result."""

    name: str
    """`file` or `file::test`."""
    image: str
    """The image whose suite it belongs to."""
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    """All that was said when it failed, at most 8,000 characters."""
    rung: str = ""
    """Where the full check cannot run: which step of its ladder did."""
    seconds: float = 0.0
    measured: Mapping[str, float | int | str | bool] = Field(default_factory=dict)
    """Figures and facts that the check recorded; `<name>.floor` is the limit of `<name>`."""


class Reference(Record):
    """What a known-good image did with the same GPUs; tells a sick machine from a sick image."""

    subject: str = ""
    """`repository@sha256:…`; empty where there is none."""
    origin: str
    """Where it comes from, or why there is none."""
    before: Outcome | None = None
    after: Outcome | None = None
    """Set when the image did not pass."""
    reason: str = ""
    """Why it did not pass."""
    cause: str = ""
    """The row of `failures.yaml` that knows why, where that is a machine's fault."""


class Tested(Record):
    """One lane's result."""

    image: str
    subject: str
    lane: Lane
    outcome: Outcome
    reason: str = ""
    checks: Sequence[Checked]
    suite: str
    """Hash of the check files that ran, 64 hex digits."""
    claims: Mapping[str, str] = Field(default_factory=dict)
    """What the image claims of its versions, its parents' claims included."""
    machine: Mapping[str, str]
    memory: int = 0
    """The most bytes of host memory that one process had."""
    gpus: Sequence[Gpu] = ()
    """Those that it ran on, or would have."""
    reference: Reference | None = None
    cause: str = ""
    """Which row of `failures.yaml` knows the failure."""
    remedy: str = ""
    events: Sequence[str] = ()
    """What became worse on the machine meanwhile."""
    started: datetime
    finished: datetime
    run: str


Statement = Annotated[Mapping[str, Any], "an in-toto Statement v1"]


def built_statement(built: Built) -> Statement:
    """`built` as SLSA provenance v1 on its image."""
    resolved = [{"uri": material} for material in built.materials]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"image": built.image, "inputs": dict(built.inputs)},
            "internalParameters": {
                "inputHash": built.input_hash,
                "tag": built.tag,
                "parent": built.parent,
                "commit": built.commit,
                "dirty": built.dirty,
                "compressionLevel": built.compression_level,
                "size": built.size,
                "reproduced": built.reproduced,
            },
            "resolvedDependencies": resolved,
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
    return _statement(built.subject, PROVENANCE, predicate)


def tested_statement(tested: Tested) -> Statement:
    """`tested` as an in-toto test result on its image; the whole record travels in `annotations`."""
    names = {outcome: [c.name for c in tested.checks if c.outcome is outcome] for outcome in Outcome}
    predicate = {
        "result": "PASSED" if tested.outcome is Outcome.PASSED else "FAILED",
        "configuration": [{"name": f"suite-{tested.lane}", "digest": {"sha256": tested.suite}}],
        "passedTests": names[Outcome.PASSED],
        "warnedTests": [],
        "failedTests": names[Outcome.FAILED] + names[Outcome.ERROR],
        "annotations": tested.model_dump(mode="json"),
    }
    return _statement(tested.subject, TEST_RESULT, predicate)


def _statement(subject: str, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    pinned = Pinned.parse(subject)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": str(pinned.repository), "digest": {"sha256": pinned.digest.hex}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone().isoformat(timespec="seconds")
