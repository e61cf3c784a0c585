"""What the stages find about one digest: records of a build, of lanes, of scans, of decisions. They judge nothing."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, NoReturn, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from pipeline.gpus import Gpu

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
    started: AwareDatetime
    finished: AwareDatetime
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
    started: AwareDatetime
    finished: AwareDatetime
    run: str


Severity = Literal["CRITICAL", "HIGH", "MEDIUM", "LOW", "UNKNOWN"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The worst first."""
_USUAL = ("", "unknown", "affected", "fixed")


class Place(Record):
    """Where in an image something was found."""

    file: str = ""
    layer: str = ""
    """The layer's diff-id, `sha256:…`; empty where the scanner does not tell."""
    image: str = ""
    """The image of the family whose layer that is; empty where no candidate of the lineage has it."""


class Vulnerability(Record):
    """One vulnerability of one package."""

    id: str
    package: str
    installed: str
    fixed: str = ""
    """The first version without it; empty while there is none."""
    severity: Severity
    status: str = ""
    """What the distribution says: `affected`, `fixed`, `end_of_life`…"""
    published: AwareDatetime | None = None
    aliases: Sequence[str] = ()
    """Other names of this one vulnerability: `GHSA-…`; not of bulletins, which are about several. Where it has none, nothing
    is written, so that statements from before there were any still count."""
    place: Place = Place()

    @property
    def outlook(self) -> str:
        """`will not fix`, `end of life`…; empty where the distribution says what it says of most."""
        return "" if self.status in _USUAL else self.status.replace("_", " ")

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if name != "aliases" or self.aliases}


class Database(Record):
    """A scanner's database."""

    version: str
    updated: AwareDatetime
    """When it was built."""


class Scanned(Record):
    """The known vulnerabilities of an image, at one moment."""

    image: str
    subject: str
    scanner: str
    """Its package URL: `pkg:golang/github.com/aquasecurity/trivy@0.76.0`."""
    database: Database
    system: str
    """The operating system that was recognised: `debian 12.13`."""
    end_of_life: bool = False
    """Whether that system gets no advisories any more."""
    packages: int
    """Packages that were assessed; never 0."""
    unassessed: Sequence[str] = ()
    """Packages, `name version`, that the scanner has no advisories for."""
    vulnerabilities: Sequence[Vulnerability] = ()
    source: Literal["image", "sbom"]
    """What was looked at: the image's layers, or the list of its packages alone."""
    started: AwareDatetime
    finished: AwareDatetime
    run: str


class Licence(Record):
    """A licence that a package, or a file, is under."""

    name: str
    """SPDX where it is known."""
    package: str = ""
    category: str
    """The scanner's: `forbidden`, `restricted`, `reciprocal`, `notice`, `permissive`, `unencumbered`, `unknown`."""
    place: Place = Place()


class Secret(Record):
    """Something that looks like a secret; never its text."""

    rule: str
    severity: Severity
    place: Place = Place()


class Findings(Record):
    """Licences, secrets and size of an image."""

    image: str
    subject: str
    scanner: str
    licences: Sequence[Licence] = ()
    secrets: Sequence[Secret] = ()
    size: int
    """Compressed bytes of all layers."""
    started: AwareDatetime
    finished: AwareDatetime
    run: str


class Bom(Record):
    """What is in an image, from its CycloneDX document."""

    subject: str
    components: Mapping[str, Sequence[str]]
    """Name → its versions."""
    finished: AwareDatetime
    document: Mapping[str, Any]
    """The whole CycloneDX document."""


class Ruled(Record):
    """One rule of a policy and what it said of an image."""

    code: str
    held: bool
    assessed: bool = True
    """False where nobody knows, and the policy does not ask; never together with `held`."""
    reasons: Sequence[str] = ()
    waived: bool = False
    exceptions: Sequence[str] = ()
    """The exceptions that it used, by their `id`."""


class Decided(Record):
    """A promotion, a rollback or a withdrawal, as its release manager signs it."""

    image: str
    subject: str
    action: Literal["promote", "rollback", "withdraw"]
    tag: str
    """The immutable release: `v2.6.3-nlp`."""
    previous: str = ""
    """The digest that the floating tag named before; empty where it named none."""
    policy: str
    """Digest of the policy and its exceptions, `sha256:…`."""
    rules: Sequence[Ruled] = ()
    statements: Sequence[str] = ()
    """Digests of the manifests of the statements that counted."""
    hold: bool = False
    actor: str
    reason: str = ""
    finished: AwareDatetime
    run: str
