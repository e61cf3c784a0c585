"""Rules about what is in an image: its list of packages, vulnerabilities, licences, secrets."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pipeline.evidence import AHEAD
from pipeline.policy.case import Case, Fault, Remark, Said, Unknown
from pipeline.policy.model import CATEGORIES, Policy
from pipeline.statements import Bom, Findings, Licence, Scanned, Vulnerability

LISTED = 10
"""How much of one kind a remark lists."""
NOT_ASSESSED = "vulnerabilities: not assessed"


def bom(policy: Policy, case: Case) -> Iterator[Said]:
    """A list of packages counts, and has some."""
    found = case.evidence.one(Bom)
    if found is not None and found.components:
        return
    text = "nothing that counts lists its packages" if found is None else "the list of its packages is empty"
    yield Fault(message=text, solution=_scan(case)) if policy.bom == "required" or found else Unknown(message=text)


def scan(policy: Policy, case: Case) -> Iterator[Said]:
    """The look-up is young, was made with a young database, and looked at something."""
    scanned = case.evidence.one(Scanned)
    required = policy.scan.required
    if scanned is None:
        yield _unless(required, "no look-up of vulnerabilities counts" if required else NOT_ASSESSED, case)
        return
    if scanned.packages < 1:
        yield Fault(message="the scanner assessed no package at all", solution=_scan(case))
    if case.now - scanned.finished > policy.scan.age:
        text = f"vulnerabilities were looked up at {_at(scanned.finished)}, more than {_span(policy.scan.age)} ago"
        yield _unless(required, text, case)
    updated = scanned.database.updated
    if scanned.finished - updated > policy.scan.database_age:
        text = f"the database was of {_at(updated)}, more than {_span(policy.scan.database_age)} older than the look-up"
        yield _unless(required, text, case)
    elif updated - scanned.finished > AHEAD:
        yield Fault(message=f"the database is dated {_at(updated)}, after its own use", solution=_scan(case))


def vulnerabilities(policy: Policy, case: Case) -> Iterator[Said]:
    """What has a fix is refused when the grace of its severity is over; the rest is shown."""
    scanned = case.evidence.one(Scanned)
    if scanned is None:
        yield Unknown(message=NOT_ASSESSED)
        return
    asked = [one for one in scanned.vulnerabilities if one.severity in policy.scan.grace]
    over = [one for one in asked if one.fixed and _over(one, policy, case.now)]
    fix = f"`nox -s update -- {case.image}`, then `nox -s build test scan sign -- {case.image}`"
    for message, finding in dict.fromkeys((_late(one, policy), one.id) for one in over):
        yield Fault(message=message, solution=fix, finding=finding)
    yield from _listed("with a fix, in their grace", [one for one in asked if one.fixed and one not in over])
    yield from _listed("without a fix", [one for one in asked if not one.fixed])
    rest = Counter(one.severity for one in scanned.vulnerabilities if one.severity not in policy.scan.grace)
    if rest:
        yield Remark(message="not judged: " + ", ".join(f"{count} {severity}" for severity, count in sorted(rest.items())))


def end_of_life(policy: Policy, case: Case) -> Iterator[Said]:
    """A system without advisories has no known vulnerabilities, and many."""
    scanned = case.evidence.one(Scanned)
    if scanned is None:
        yield Unknown(message="no look-up tells")
    elif scanned.end_of_life:
        text = f"`{scanned.system}` gets no advisories any more"
        solution = f"name a newer suite under `rootfs:`, `nox -s update`, then `nox -s build test scan sign -- {case.image}`"
        refuse = policy.scan.end_of_life == "refuse"
        yield Fault(message=text, solution=solution, finding=scanned.system) if refuse else Remark(message=text)


def unassessed(policy: Policy, case: Case) -> Iterator[Said]:
    """Packages that no advisory is about are named."""
    scanned = case.evidence.one(Scanned)
    if scanned is None:
        yield Unknown(message="no look-up tells")
    elif policy.unassessed == "refuse":
        for package in scanned.unassessed:
            solution = f"ask its maker, then except `{package}` in `policies/exceptions.yaml` under `rule: unassessed`"
            yield Fault(message=f"there are no advisories for `{package}`", solution=solution, finding=package)
    elif scanned.unassessed:
        yield Remark(message=f"without advisories ({len(scanned.unassessed)}): {_some(scanned.unassessed)}")


def licences(policy: Policy, case: Case) -> Iterator[Said]:
    """No package or file is under a licence that the policy refuses, alone or beside others."""
    found, refused = case.evidence.one(Findings), policy.licences.refused
    if found is None:
        yield _unless(bool(refused), "nothing that counts lists its licences", case)
        return
    for one in found.licences:
        if _refused(one, refused):
            where = " ".join(filter(None, (one.package, one.place.file)))
            yield Fault(
                message=f"`{one.name}` ({one.category}): {where}",
                solution=f"`nox -s explain -- {case.image}` tells what brings it; remove it, or except the licence in "
                "`policies/exceptions.yaml`",
                finding=one.name or one.package,
            )


def secrets(policy: Policy, case: Case) -> Iterator[Said]:
    """Nothing in it looks like a secret."""
    found, refuse = case.evidence.one(Findings), policy.secrets == "refuse"
    if found is None:
        yield _unless(refuse, "nothing that counts says whether it holds secrets", case)
        return
    for one in found.secrets:
        text = f"`{one.place.file}` looks like a secret ({one.rule}, {one.severity})"
        solution = f"remove it, revoke it where it is valid, then `nox -s build test scan sign -- {case.image}`"
        finding = one.place.file or one.rule
        yield Fault(message=text, solution=solution, finding=finding) if refuse else Remark(message=text)


def _over(one: Vulnerability, policy: Policy, now: datetime) -> bool:
    """Without a date, or with one ahead, nobody can say that a fix is new."""
    if one.published is None or one.published > now + AHEAD:
        return True
    return now - one.published > policy.scan.grace[one.severity]


def _late(one: Vulnerability, policy: Policy) -> str:
    since = f"known since {_at(one.published)}, and the grace is {_span(policy.scan.grace[one.severity])}"
    since = since if one.published else "nobody knows since when"
    return f"{one.id} ({one.severity}) in {one.package} {one.installed}: fixed in {one.fixed}; {since}"


def _listed(what: str, found: list[Vulnerability]) -> Iterator[Remark]:
    names = list(dict.fromkeys(f"{one.id} ({one.severity}) {one.package}" for one in found))
    if names:
        yield Remark(message=f"{len(names)} {what}: {_some(names)}")


def _refused(licence: Licence, refused: tuple[str, ...]) -> bool:
    names = {_stem(word) for word in re.split(r"[\s()/,;]+", licence.name) if word}
    return licence.category in refused or bool(names & {_stem(word) for word in refused if word not in CATEGORIES})


def _stem(name: str) -> str:
    """`AGPL-3.0` is `AGPL-3.0-only`, `AGPL-3.0-or-later` and `AGPL-3.0+`: which of them was meant is often not written."""
    return re.sub(r"(?:-only|-or-later|\+)$", "", name.lower())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _unless(required: bool, text: str, case: Case) -> Said:
    return Fault(message=text, solution=_scan(case)) if required else Unknown(message=text)


def _scan(case: Case) -> str:
    return f"`nox -s scan sign -- {case.image}`"


def _at(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment else ""


def _span(span: timedelta) -> str:
    return f"{span}".removesuffix(", 0:00:00")
