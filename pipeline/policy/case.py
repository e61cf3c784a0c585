"""What a decision is made from: the evidence of one digest, what the catalog expects of it, and where and when one decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.evidence import Evidence
from pipeline.policy.model import NO_EXCEPTIONS, Exceptions
from pipeline.statements import Lane, Outcome, Tested


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The checks of one lane as the catalog lists them today; a lane without checks has none."""

    hash: str
    """64 hex digits, as in the lane's record."""
    checks: tuple[tuple[str, str], ...]
    """The image whose suite it is in, and the check's name."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the catalog at hand says of the image."""

    input_hash: str
    inputs: Mapping[str, str]
    """The named parts of the input hash."""
    tag: str
    """Its candidate's."""
    lanes: Mapping[Lane, Suite]
    claims: Mapping[str, str]
    """Its parents' included."""
    size_limit: int | None = None
    """Compressed bytes of all layers."""
    released: bool
    """Whether the catalog releases it at all."""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """Where the policy comes from."""

    clean: bool
    """Whether policy, exceptions and keys are as committed."""
    commit: str | None
    policy: str
    """Digest of policy, exceptions and keys, `sha256:…`."""
    pinned: str | None = None
    """The digest that the release environment wants them to have."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One image before a policy."""

    image: str
    evidence: Evidence
    expected: Expected
    now: datetime
    registry_loopback: bool
    """Whether the registry is on this machine, and no Harbor."""
    checkout: Checkout
    released_size: int | None = None
    """Bytes of the last release; nothing where there is none."""
    exceptions: Exceptions = NO_EXCEPTIONS

    def current(self, lane: Lane) -> tuple[Tested, ...]:
        """What counts of a lane that ran today's checks, one for each set of GPUs."""
        suite = self.expected.lanes.get(lane)
        found = self.evidence.all(Tested)
        return tuple(one for one in found if suite and (one.lane, one.suite) == (lane, suite.hash))

    def passed(self, lane: Lane) -> tuple[Tested, ...]:
        """Those of them that passed, with every check that the catalog lists."""
        return tuple(one for one in self.current(lane) if one.outcome is Outcome.PASSED and not self.lacking(one))

    def lacking(self, tested: Tested) -> tuple[str, ...]:
        """The listed checks that are not in the record, or did not pass there."""
        suite = self.expected.lanes[tested.lane]
        outcomes: dict[tuple[str, str], set[Outcome]] = {}
        for check in tested.checks:
            outcomes.setdefault((check.image, check.name), set()).add(check.outcome)
        return tuple(name for image, name in suite.checks if outcomes.get((image, name)) != {Outcome.PASSED})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a rule finds wrong; `solution` is a command that mends it, `finding` or one of `aliases` what an exception names."""

    message: str
    solution: str
    finding: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """What a rule cannot judge, where the policy does not ask for it."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Remark:
    """What a rule only shows."""

    message: str


Said = Fault | Unknown | Remark
