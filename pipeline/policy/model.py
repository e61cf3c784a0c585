"""What a policy asks, and the exceptions from it, as strict values; nothing has a default that would ask less."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pipeline import evidence
from pipeline.catalog import CheckName, Entry, ImageName, Sentence, Word
from pipeline.evidence import Role
from pipeline.policy.codes import WAIVABLE
from pipeline.statements import Lane, Severity
from pipeline.yaml_text import Unquoted

CATEGORIES = ("forbidden", "restricted", "reciprocal", "notice", "permissive", "unencumbered", "unknown")
"""The scanner's, of licences."""
DAY = timedelta(days=1)

_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": DAY}
_DURATION = re.compile(r"(0|[1-9][0-9]{0,4}) (minute|hour|day)s?")
_PERCENT = re.compile(r"((?:0|[1-9][0-9]{0,3})(?:\.[0-9]{1,2})?) ?%")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_KEY_FILE = re.compile(r"keys/[A-Za-z0-9_][A-Za-z0-9._-]*\.pub")
SERVICES = ("awskms", "gcpkms", "azurekms", "hashivault", "openbao", "k8s", "pkcs11", "gitlab")
"""How the addresses of keys in services begin."""
_KMS = re.compile(rf"(?:{'|'.join(SERVICES)})://\S+")
_SPDX = re.compile(r"(?:LicenseRef-)?[A-Za-z0-9][A-Za-z0-9.+-]*")


def _duration(value: Any) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"must be a time such as `7 days`, `24 hours` or `30 minutes`, not `{value}`")
    return int(match[1]) * _UNITS[match[2]]


def _percent(value: Any) -> Decimal:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"must be a share such as `10 %`, not `{value}`")
    return Decimal(match[1])


def _moment(end: timedelta) -> Callable[[Any], datetime]:
    """A moment, or a day: its beginning, or with `end` its end."""

    def read(value: Any) -> datetime:
        text = value.raw if isinstance(value, Unquoted) else value
        try:
            if isinstance(text, str) and _DATE.fullmatch(text):
                return datetime.fromisoformat(text).replace(tzinfo=UTC) + end
            if isinstance(text, str) and _MOMENT.fullmatch(text):
                return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"must be a day that there is: {error}") from error
        raise ValueError(f"must be a day such as `2026-05-31`, or `2026-05-31T12:00:00Z`, not `{text}`")

    return read


def _shaped(pattern: re.Pattern[str], meaning: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"is not {meaning}: `{text}`")
        return text

    return AfterValidator(check)


def _licence(text: str) -> str:
    if text not in CATEGORIES and (text.islower() or not _SPDX.fullmatch(text)):
        known = ", ".join(f"`{name}`" for name in CATEGORIES)
        raise ValueError(f"is no SPDX name such as `AGPL-3.0-only`, and none of {known}: `{text}`")
    return text


def _filled(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not items:
        raise ValueError("is empty: name at least one")
    return items


def _distinct(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(items)) != len(items):
        raise ValueError("names something twice")
    return items


def _exact(text: str) -> str:
    if "*" in text:
        raise ValueError(f"must be one exact finding, without `*`: `{text}`")
    return text


def _waivable(text: str) -> str:
    if text not in WAIVABLE:
        raise ValueError(f"is no rule that can be waived, as are {', '.join(f'`{name}`' for name in WAIVABLE)}: `{text}`")
    return text


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Percent = Annotated[Decimal, BeforeValidator(_percent)]
Day = Annotated[datetime, BeforeValidator(_moment(timedelta(0)))]
"""The day's first moment, UTC."""
DayEnd = Annotated[datetime, BeforeValidator(_moment(DAY))]
"""The moment after the day's last, UTC."""
Roles = Annotated[tuple[Role, ...], AfterValidator(_filled), AfterValidator(_distinct)]
Words = Annotated[tuple[Word, ...], AfterValidator(_filled)]


class ListedKey(Entry):
    """A key: one of `file` (its public half, beside the policy), `kms` or `development`."""

    name: CheckName
    roles: Roles
    file: Annotated[str, _shaped(_KEY_FILE, "a file such as `keys/ci.pub`")] | None = None
    kms: Annotated[str, _shaped(_KMS, "the address of a key in a KMS, such as `awskms:///alias/ci`")] | None = None
    development: bool = False
    """The one that `setup` makes on a laptop."""
    retired: Day | None = None
    """What it signed from this day on does not count."""
    revoked: bool = False
    """Nothing that it signed counts."""

    @property
    def key(self) -> evidence.Key:
        """It as evidence knows it."""
        return evidence.Key(name=self.name, roles=frozenset(self.roles), retired=self.retired, revoked=self.revoked)

    @property
    def origins(self) -> tuple[str, ...]:
        """What the key is known by; a policy that counts has exactly one."""
        return tuple(filter(None, (self.file, self.kms, "development" if self.development else None)))


class Build(Entry):
    """How an image must have been built."""

    clean: bool
    """From a commit, with nothing changed beside it."""
    reproduced: bool
    """Twice, with the same digest."""


class LaneAsked(Entry):
    """What is asked of one lane."""

    required: bool
    gpus: tuple[Words, ...]
    """For each list one pass, on GPUs whose names have one of its words."""
    rungs: Literal["full", "any"]
    """Whether a check may have run on a lower step of its ladder."""
    age: Duration


class Lanes(Entry):
    """Both lanes, so that none is left out unseen."""

    cpu: LaneAsked
    gpu: LaneAsked

    def __getitem__(self, lane: Lane) -> LaneAsked:
        return self.cpu if lane == "cpu" else self.gpu


class Scan(Entry):
    """What is asked of the look-up of vulnerabilities."""

    required: bool
    age: Duration
    database_age: Duration
    """Of the scanner's database, when it was looked up."""
    end_of_life: Literal["refuse", "show"]
    grace: Mapping[Severity, Duration]
    """How long it may be known when there is a fix, since the scanner dates no fixes; severities not named are shown only."""


class Licences(Entry):
    """The licences that are refused: the scanner's categories, or SPDX names with all their versions' variants."""

    refused: tuple[Annotated[str, AfterValidator(_licence)], ...]


class Size(Entry):
    """How much larger than the last release an image may be."""

    growth: Percent


class Frozen(Entry):
    """A time without releases, its last day included."""

    begin: Annotated[Day, Field(alias="from")]
    end: Annotated[DayEnd, Field(alias="to")]
    reason: Sentence


class Policy(Entry):
    """What must be true of an image; `pipeline.policy.parse` makes it."""

    registry: Literal["loopback", "any"]
    checkout: Literal["clean", "any"]
    """Whether policy, exceptions and keys count only as they are committed."""
    keys: tuple[ListedKey, ...]
    signed: Roles
    """The roles that must each have signed the digest."""
    build: Build
    lanes: Lanes
    scan: Scan
    unassessed: Literal["refuse", "show"]
    """Packages without advisories."""
    bom: Literal["required", "show"]
    licences: Licences
    secrets: Literal["refuse", "show"]
    size: Size
    soak: Duration
    """Since the build."""
    freeze: tuple[Frozen, ...]

    @property
    def known(self) -> tuple[evidence.Key, ...]:
        """All keys, as evidence knows them."""
        return tuple(listed.key for listed in self.keys)


class Waiver(Entry):
    """One exception: it counts for one rule, one image and one finding, until its day begins."""

    rule: Annotated[str, AfterValidator(_waivable)]
    image: ImageName
    id: Annotated[Sentence, AfterValidator(_exact)] = ""
    """The CVE or its GHSA, licence, file or package; empty for rules that have no single findings."""
    owner: Sentence
    reason: Sentence
    expires: Day

    @property
    def label(self) -> str:
        """What a decision calls it."""
        return f"{self.rule} {self.id}".strip()


class Exceptions(Entry):
    """All exceptions; `pipeline.policy.parse_exceptions` makes them."""

    exceptions: tuple[Waiver, ...]


NO_EXCEPTIONS = Exceptions(exceptions=())
