"""Which exceptions count, which of them a finding uses, and what should be said about the others."""

from collections.abc import Iterator, Set
from datetime import datetime, timedelta

from pipeline.evidence import Why
from pipeline.policy.case import Case, Fault
from pipeline.policy.codes import BY_NAME, Code
from pipeline.policy.model import Waiver

LONGEST = timedelta(days=180)
"""From now to the day when an exception ends; a longer one is a policy, and is written there."""
SHOWN = (Why.FOREIGN, Why.UNSIGNED, Why.REVOKED, Why.RETIRED, Why.ROLE, Why.SUBJECT, Why.VOID)
"""What did not count and should be seen; what is unreadable or dated ahead has rules of its own."""
EACH = 3
"""How much of one kind is listed, so that junk cannot bury the rest."""


def usable(case: Case) -> tuple[Waiver, ...]:
    """The exceptions that count for this image now."""
    return tuple(one for one in _of(case) if not useless(one, case.now))


def waivers(code: Code, fault: Fault, live: tuple[Waiver, ...]) -> tuple[Waiver, ...]:
    """Those that waive a fault: of its rule, and named exactly as its finding, or by another name of it."""
    if not code.waivable or bool(fault.finding) is not code.findings:
        return ()
    return tuple(one for one in live if one.rule == code.name and one.id in (fault.finding, *fault.aliases))


def notes(case: Case, used: Set[Waiver]) -> tuple[str, ...]:
    """What did not count on the digest, and exceptions of this image that do nothing."""
    return (*_not_counted(case), *(f"exception `{one.label}` {text}" for one in _of(case) if (text := _idle(one, case, used))))


def _idle(one: Waiver, case: Case, used: Set[Waiver]) -> str:
    return useless(one, case.now) or ("" if one in used else f"is not used: remove it (owner: {one.owner})")


def _of(case: Case) -> tuple[Waiver, ...]:
    return tuple(one for one in case.exceptions.exceptions if one.image == case.image)


def useless(one: Waiver, now: datetime) -> str:
    """Why an exception does not count, whatever is found; empty when it does."""
    if one.expires <= now:
        return f"expired at {one.expires.isoformat()} (owner: {one.owner})"
    if one.expires - now > LONGEST:
        return f"is too wide: it ends more than {LONGEST.days} days from now, so it does not count"
    if bool(one.id) is not BY_NAME[one.rule].findings:
        wide = "is too wide: it names no finding" if BY_NAME[one.rule].findings else "names a finding, and its rule has none"
        return f"{wide}, so it does not count"
    return ""


def _not_counted(case: Case) -> Iterator[str]:
    for why in SHOWN:
        found = case.evidence.because(why)
        yield from (f"does not count ({why.value}): `{one.manifest}` {one.text}" for one in found[:EACH])
        if len(found) > EACH:
            yield f"does not count ({why.value}): {len(found) - EACH} more"
