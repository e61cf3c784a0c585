"""Whose fault it is that a GPU lane did not pass: the image's, the machine's or ours; pure.

Three witnesses, the strongest first: what the machine itself reports, what a known-good image does with the same GPUs
before and after, and what the failure says (`failures`). Only the first two prove that a machine is sick; words alone,
which come from the image, never do.
"""

from dataclasses import dataclass

from pipeline.failures import Row
from pipeline.statements import Outcome, Reference

OUTCOMES = {"image": Outcome.FAILED, "machine": Outcome.INFRASTRUCTURE, "pipeline": Outcome.ERROR}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is known when the checks have ended; `row` is what `failures.yaml` knows of the failure."""

    outcome: Outcome
    reason: str
    reference: Reference
    row: Row | None = None
    events: tuple[str, ...] = ()
    """What became worse on the machine meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the lane ended; `proved`: the machine is sick, whatever the image is."""

    outcome: Outcome
    reason: str = ""
    cause: str = ""
    remedy: str = ""
    proved: bool = False


SICK = "take the machine out of service; `nvidia-smi -q` and the kernel's log say more"
REFERENCE_FAILS = "`nox -s doctor` on this machine; another one can go on"


def judge(case: Case) -> Verdict:
    """The lane's verdict; a pass on a machine that got worse meanwhile is none."""
    if case.outcome is Outcome.NOT_RUN:
        return Verdict(outcome=case.outcome, reason=case.reason)
    if case.events:
        return sick(f"{'; '.join(case.events)}{_said(case)}", SICK)
    if case.outcome is Outcome.PASSED:
        return Verdict(outcome=Outcome.PASSED)
    if case.reference.after not in (None, Outcome.PASSED):
        return reference_fails(case.reference, _said(case))
    if case.row:
        return _by_row(case, case.row)
    return Verdict(outcome=case.outcome, reason=case.reason)


def reference_fails(reference: Reference, said: str = "") -> Verdict:
    """The verdict where the reference image did not pass; a failure that no row knows may also be the check's own."""
    reason = f"the reference image fails on these GPUs: {reference.reason}{said}"
    known = bool(reference.cause)
    return Verdict(outcome=Outcome.INFRASTRUCTURE, reason=reason, cause=reference.cause, remedy=REFERENCE_FAILS, proved=known)


def sick(reason: str, remedy: str) -> Verdict:
    """The verdict where the machine itself reports what is wrong with it."""
    return Verdict(outcome=Outcome.INFRASTRUCTURE, reason=reason, remedy=remedy, proved=True)


def _said(case: Case) -> str:
    return f" (the checks said: {case.reason})" if case.reason else ""


def _by_row(case: Case, row: Row) -> Verdict:
    passes = case.reference.after is Outcome.PASSED
    owner = row.owner if row.owner != "reference" else "image" if passes else "machine"
    reason = f"{case.reason}; the reference image passes on the same GPUs" if row.owner == "reference" and passes else case.reason
    return Verdict(outcome=OUTCOMES[owner], reason=reason, cause=row.name, remedy=row.remedy)
