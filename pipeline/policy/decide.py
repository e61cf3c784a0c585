"""The decision: every rule speaks, exceptions waive what they may, and only what is then without reasons is allowed."""

from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn, final

from pipeline.oci import Digest, Pinned
from pipeline.policy.case import Case, Fault, Remark, Unknown
from pipeline.policy.codes import BY_NAME, CODES, Code
from pipeline.policy.model import Policy, Waiver
from pipeline.policy.rules import RULES
from pipeline.policy.waivers import notes, usable, waivers
from pipeline.statements import Decided, Ruled, Tested

_MADE_HERE = object()


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why an image is refused."""

    rule: str
    message: str
    solution: str
    """The command that mends it."""
    finding: str = ""
    """What an exception would have to name; empty where none can."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What both decisions say."""

    image: str
    subject: Pinned
    at: datetime
    policy: str
    """Digest of policy, exceptions and keys."""
    rules: tuple[Ruled, ...]
    """Every rule, in the order of their table."""
    statements: tuple[Digest, ...]
    """The manifests that counted, signatures of the digest included, verdicts not."""
    lanes: tuple[Tested, ...] = ()
    """What counted of lanes with today's checks."""
    notes: tuple[str, ...] = ()
    """What a person should know besides: what did not count, exceptions that are of no use."""


@final
@dataclass(frozen=True, kw_only=True)
class Refused(Judged):
    """It may not be released."""

    reasons: tuple[Reason, ...]


@final
class Allowed(Judged):
    """It may be released; only `decide` makes one."""

    def __new__(cls, token: object = None, /, **_: object) -> "Allowed":
        """Raises `TypeError` for whoever is not `decide`."""
        if token is not _MADE_HERE:
            raise TypeError("only `decide` allows")
        return super().__new__(cls)

    def __init__(self, _token: object, /, *, judged: Judged) -> None:
        super().__init__(**vars(judged))

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("`Allowed` has no subclasses")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a permission is neither copied nor stored")


def decide(policy: Policy, case: Case, *, rollback: bool = False) -> Allowed | Refused:
    """Whether the image of `case` may be released under `policy`, with every reason at once.

    A `rollback` to what was released once waives the rules that time can break; integrity still refuses.
    """
    live = usable(case)
    spoken = [(code, tuple(RULES[code.name](policy, case))) for code in CODES]
    faults = [(code, said) for code, all_said in spoken for said in all_said if isinstance(said, Fault)]
    used = {(code.name, fault): waivers(code, fault, live) for code, fault in faults}
    ruled = tuple(_ruled(code, all_said, live, waived=rollback and code.ages) for code, all_said in spoken)
    refusing = ((code, fault) for code, fault in faults if not (used[code.name, fault] or (rollback and code.ages)))
    reasons = tuple(_reason(code, fault) for code, fault in refusing)
    remarks = [f"{code.name}: {said.message}" for code, all_said in spoken for said in all_said if isinstance(said, Remark)]
    counted = (*case.evidence.signatures, *case.evidence.counted)
    judged = Judged(
        image=case.image,
        subject=case.evidence.subject,
        at=case.now,
        policy=case.checkout.policy,
        rules=ruled,
        statements=tuple(signed.manifest for signed in counted if not isinstance(signed.record, Decided)),
        lanes=(*case.current("cpu"), *case.current("gpu")),
        notes=(*remarks, *notes(case, {one for found in used.values() for one in found})),
    )
    return Refused(**vars(judged), reasons=reasons) if reasons else Allowed(_MADE_HERE, judged=judged)


def waits(decision: Refused) -> bool:
    """Whether time alone lacks: every reason passes by itself."""
    return all(BY_NAME[reason.rule].passes for reason in decision.reasons)


def _ruled(code: Code, all_said: tuple[Fault | Unknown | Remark, ...], live: tuple[Waiver, ...], *, waived: bool) -> Ruled:
    faults = [said for said in all_said if isinstance(said, Fault)]
    unknown = [said for said in all_said if isinstance(said, Unknown)]
    found = [waivers(code, fault, live) for fault in faults]
    return Ruled(
        code=code.name,
        held=not faults and not unknown,
        assessed=bool(faults) or not unknown,
        reasons=(*(said.message for said in faults), *(said.message for said in unknown)),
        waived=bool(faults) and (waived or all(found)),
        exceptions=tuple(dict.fromkeys(one.id or one.rule for each in found for one in each)),
    )


def _reason(code: Code, fault: Fault) -> Reason:
    return Reason(rule=code.name, message=fault.message, solution=fault.solution, finding=fault.finding)
