"""What the signed statements on one digest prove: which count, and why the others do not; pure.

Statements are grouped by what they are about; in each group the newest by its own signed time counts, and of two with one
time the worse. Times are the word of whoever holds the key: they defend against neglect, not against a stolen key.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeVar

from pipeline.oci import Digest, Pinned
from pipeline.statements import (
    NOT_SELECTED,
    SIGNATURE,
    WORST_FIRST,
    Bom,
    Built,
    Decided,
    Findings,
    Outcome,
    Scanned,
    Statable,
    Tested,
)

AHEAD = timedelta(minutes=5)
"""How far ahead of our clock a statement may be dated."""

Role = Literal["ci", "gpu", "release"]
Group = tuple[str, ...]
R = TypeVar("R", bound=Statable)


class Why(StrEnum):
    """Why something on a digest does not count."""

    FOREIGN = "foreign"
    """No statement of ours: another kind of artifact, or not in our format."""
    UNSIGNED = "unsigned"
    """No known key signed it."""
    REVOKED = "revoked"
    RETIRED = "retired"
    ROLE = "role"
    """A key signed it that may not sign statements of this kind."""
    SUBJECT = "subject"
    """It is about another image."""
    FUTURE = "future"
    UNREADABLE = "unreadable"
    """A bundle in our format that the registry lists and does not hold: it may have been a failure. Never said of what anybody
    with push rights can attach at will: too large, no bundle, no signature."""
    CROWD = "crowd"
    """So much is attached that not all of it was looked at: what was left may have been a failure."""
    OLDER = "older"
    """A newer one of its group counts."""
    VOID = "void"
    """A lane that did not run, a machine's fault, or a pass of chosen tests alone: neither for nor against the image."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A public key: what it may sign, and until when."""

    name: str
    roles: frozenset[Role]
    retired: datetime | None = None
    """What it signed later does not count."""
    revoked: bool = False
    """Nothing that it signed counts."""


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A statement whose signature is good; `record` is nothing for the plain signature of a digest."""

    manifest: Digest
    key: Key
    subject: str
    """`sha256:…`, as the statement says."""
    record: Statable | None
    predicate_type: str


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """Something on the digest that does not count."""

    manifest: str
    why: Why
    text: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What counts for one digest."""

    subject: Pinned
    signatures: tuple[Signed, ...] = ()
    counted: tuple[Signed, ...] = ()
    """The newest of each group."""
    ignored: tuple[Ignored, ...] = ()

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """The records of one kind that count."""
        return tuple(signed.record for signed in self.counted if isinstance(signed.record, kind))

    def one(self, kind: type[R]) -> R | None:
        """The record of a kind of which one counts."""
        return next(iter(self.all(kind)), None)

    def signed_by(self, role: Role) -> bool:
        """Whether a key of this role signed the digest itself."""
        return any(role in signed.key.roles for signed in self.signatures)

    def because(self, *whys: Why) -> tuple[Ignored, ...]:
        """What does not count for one of these reasons."""
        return tuple(one for one in self.ignored if one.why in whys)


def collect(subject: Pinned, found: Collection[Signed | Ignored], *, now: datetime) -> Evidence:
    """The evidence of `subject` from all that is attached to it."""
    ignored = [one for one in found if isinstance(one, Ignored)]
    valid: list[Signed] = []
    for signed in (one for one in found if isinstance(one, Signed)):
        refusal = _refusal(subject, signed, now)
        if refusal:
            ignored.append(refusal)
        else:
            valid.append(signed)
    dated = [signed for signed in valid if signed.record is not None]
    signatures, undated = _signatures([signed for signed in valid if signed.record is None], dated)
    counted, older = _newest(dated)
    return Evidence(subject=subject, signatures=tuple(signatures), counted=tuple(counted), ignored=(*ignored, *undated, *older))


def role_of(record: Statable | None) -> frozenset[Role]:
    """The roles of which one must have signed such a statement; the plain signature of a digest may be `ci`'s or `release`'s."""
    if record is None:
        return frozenset({"ci", "release"})
    if isinstance(record, Decided):
        return frozenset({"release"})
    if isinstance(record, Tested) and record.lane == "gpu":
        return frozenset({"gpu"})
    return frozenset({"ci"})


def group_of(record: Statable) -> Group:
    """What a statement is about; of one group the newest counts. A pass on one GPU says nothing of a failure on two."""
    if isinstance(record, Tested):
        return ("tested", record.lane, record.suite, *sorted(gpu.name for gpu in record.gpus))
    if isinstance(record, Decided):
        return ("decided", record.action, record.tag, record.finished.isoformat())
    return (type(record).__name__.lower(),)


def _refusal(subject: Pinned, signed: Signed, now: datetime) -> Ignored | None:
    """Why a statement with a good signature does not count."""
    key, record = signed.key, signed.record
    if record is None and signed.predicate_type != SIGNATURE:
        return _ignored(signed, Why.FOREIGN, "is no statement of ours")
    if other := {signed.subject, _about(signed)} - {str(subject.digest)}:
        return _ignored(signed, Why.SUBJECT, f"is about `{min(other)}`")
    if key.revoked:
        return _ignored(signed, Why.REVOKED, f"is signed by `{key.name}`, which is revoked")
    if not key.roles & role_of(record):
        wanted = " or ".join(f"`{role}`" for role in sorted(role_of(record)))
        return _ignored(signed, Why.ROLE, f"is signed by `{key.name}`, whose role is not {wanted}")
    return _untimely(signed, record, now) or _void(signed, record) if record else None


def _about(signed: Signed) -> str:
    """The digest in the record itself."""
    return signed.record.subject.rpartition("@")[2] if signed.record else signed.subject


def _untimely(signed: Signed, record: Statable, now: datetime) -> Ignored | None:
    """A retired key cannot block anything by a date ahead: what it signed since does not count, whenever that is."""
    key = signed.key
    if key.retired and record.finished > key.retired:
        return _ignored(signed, Why.RETIRED, f"is newer than the day when `{key.name}` was retired")
    if record.finished > now + AHEAD:
        return _ignored(signed, Why.FUTURE, f"is dated {record.finished.isoformat()}, which is ahead of this machine's clock")
    return None


def _void(signed: Signed, record: Statable) -> Ignored | None:
    """Chosen tests can fail for the image, but not pass for it: else a newer `-k` would hide a failure of the rest."""
    if not isinstance(record, Tested):
        return None
    if record.outcome in (Outcome.NOT_RUN, Outcome.INFRASTRUCTURE):
        return _ignored(signed, Why.VOID, f"of `{record.lane}` is {record.outcome.value}: {record.reason}")
    if record.outcome is Outcome.PASSED and any(check.reason == NOT_SELECTED for check in record.checks):
        return _ignored(signed, Why.VOID, f"of `{record.lane}` is a pass of chosen checks alone")
    return None


def _signatures(signatures: Sequence[Signed], dated: Sequence[Signed]) -> tuple[list[Signed], list[Ignored]]:
    """Signatures carry no date: a retired key's counts only beside something that it signed in time.

    One of each key counts: whoever may push can attach copies of it, which must not go along to the releases.
    """
    in_time = {signed.key for signed in dated}
    ordered = sorted(signatures, key=lambda one: one.manifest)
    good = {one.key: one for one in ordered if not one.key.retired or one.key in in_time}
    text = "has no date, and its key `{}` is retired and signed nothing else here in time"
    late = [_ignored(one, Why.RETIRED, text.format(one.key.name)) for one in signatures if one.key not in good]
    again = [_ignored(one, Why.OLDER, "of the same key counts") for one in signatures if one is not good.get(one.key, one)]
    return [*good.values()], [*late, *again]


def _newest(valid: Sequence[Signed]) -> tuple[list[Signed], list[Ignored]]:
    groups: dict[Group, list[Signed]] = {}
    for signed in valid:
        if signed.record is not None:
            groups.setdefault(group_of(signed.record), []).append(signed)
    counted, older = [], []
    for members in groups.values():
        best = max(members, key=_order)
        counted.append(best)
        older += [_ignored(one, Why.OLDER, "a newer one counts") for one in members if one is not best]
    return counted, older


def _order(signed: Signed) -> tuple[datetime, int, int, str]:
    """By time; of one time the worse last, so that it wins: a failed lane, more findings."""
    record = signed.record
    assert record is not None
    outcome = -WORST_FIRST.index(record.outcome) if isinstance(record, Tested) else 0
    return record.finished, outcome, _weight(record), str(signed.manifest)


def _weight(record: Statable) -> int:
    if isinstance(record, Scanned):
        return len(record.vulnerabilities)
    if isinstance(record, Findings):
        return len(record.secrets) + len(record.licences)
    if isinstance(record, Built):
        return int(record.dirty) * 2 + int(not record.reproduced)
    return 0


def _ignored(signed: Signed, why: Why, text: str) -> Ignored:
    return Ignored(manifest=str(signed.manifest), why=why, text=f"{_kind(signed)} {text}")


def _kind(signed: Signed) -> str:
    record = signed.record
    if record is None:
        return "a signature" if signed.predicate_type == SIGNATURE else f"`{signed.predicate_type}`"
    names: dict[type, str] = {Built: "a build", Tested: "a lane's result", Scanned: "a scan", Findings: "a scan's findings"}
    return names.get(type(record), "a list of packages" if isinstance(record, Bom) else "a verdict")
