"""Rules about what is in an image: its list of packages, vulnerabilities, licences, secrets."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pipeline.evidence import AHEAD
from pipeline.policy.case import Case, Fault, Remark, Said, Unknown
from pipeline.policy.model import CATEGORIES, Policy
from pipeline.statements import SEVERITIES, Bom, Findings, Licence, Scanned, Vulnerability
from pipeline.wording import some

LISTED = 10
"""How much of one kind a remark lists."""
NAMED = 3
"""Packages, and places, of one vulnerability that are named; the others are counted."""
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
    worst = sorted(scanned.vulnerabilities, key=lambda one: SEVERITIES.index(one.severity))
    asked = [one for one in worst if one.severity in policy.scan.grace]
    fixed = [(one, _over(one, policy, case.now)) for one in asked if one.fixed]
    for group in _together([one for one, over in fixed if over]):
        yield _late(group, policy, case)
    yield from _listed("with a fix, in their grace", [one for one, over in fixed if not over])
    yield from _listed("without a fix", [one for one in asked if not one.fixed])
    others = {(one.id, one.severity) for one in worst if one.severity not in policy.scan.grace}
    rest = Counter(severity for _, severity in others)
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
        yield Remark(message=f"without advisories ({len(scanned.unassessed)}): {some(scanned.unassessed, LISTED)}")


def licences(policy: Policy, case: Case) -> Iterator[Said]:
    """No package or file is under a licence that the policy refuses, alone or beside others."""
    found, refused = case.evidence.one(Findings), policy.licences.refused
    if found is None:
        yield _unless(bool(refused), "nothing that counts lists its licences", case)
        return
    places: dict[tuple[str, str, str], list[str]] = {}
    for one in found.licences:
        if _refused(one, refused):
            where = " ".join(filter(None, (one.package, one.place.file)))
            places.setdefault((one.name or one.package, one.name, one.category), []).append(where)
    for (finding, name, category), all_of_it in places.items():
        yield Fault(
            message=f"`{name}` ({category}): {some(all_of_it, NAMED)}",
            solution=f"`nox -s explain -- {case.image}` tells what brings it; remove it, or except the licence in "
            "`policies/exceptions.yaml`",
            finding=finding,
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


def _together(found: Sequence[Vulnerability]) -> Iterator[Sequence[Vulnerability]]:
    """One vulnerability in all packages of one version: a distribution makes many packages of one source."""
    groups: dict[object, list[Vulnerability]] = {}
    for one in found:
        key = (one.id, one.severity, one.installed, one.fixed, one.published, tuple(one.aliases), one.place.image)
        groups.setdefault(key, []).append(one)
    yield from groups.values()


def _late(group: Sequence[Vulnerability], policy: Policy, case: Case) -> Fault:
    one, image = group[0], group[0].place.image or case.image
    packages = some(list(dict.fromkeys(each.package for each in group)), NAMED)
    places = some(list(dict.fromkeys(f"`{each.place.file}`" for each in group if each.place.file)), NAMED)
    where = f" ({places}{f' of {one.place.image}' if one.place.image else ''})" if places else ""
    since = f"known since {_at(one.published)}, and the grace is {_span(policy.scan.grace[one.severity])}"
    since = since if one.published else "nobody knows since when"
    names = " ".join(dict.fromkeys((image, case.image)))
    return Fault(
        message=f"{one.id} ({one.severity}) in {packages} {one.installed}{where}: fixed in {one.fixed}; {since}",
        solution=f"`nox -s update -- {image}`, then `nox -s build test scan sign -- {names}`; where the fix cannot be taken, "
        f"except `{one.id}` in `policies/exceptions.yaml`",
        finding=one.id,
        aliases=tuple(one.aliases),
    )


def _listed(what: str, found: Sequence[Vulnerability]) -> Iterator[Remark]:
    known: dict[str, list[Vulnerability]] = {}
    for one in found:
        known.setdefault(one.id, []).append(one)
    if known:
        yield Remark(message=f"{len(known)} {what}: {some([_brief(group) for group in known.values()], LISTED)}")


def _brief(group: Sequence[Vulnerability]) -> str:
    """`CVE-2026-1 (HIGH, will not fix) libssl3, openssl`, by the worst of its severities."""
    said = dict.fromkeys(each.outlook for each in group if each.outlook)
    packages = list(dict.fromkeys(each.package for each in group))
    return f"{group[0].id} ({', '.join((group[0].severity, *said))}) {some(packages, NAMED)}"


def _refused(licence: Licence, refused: tuple[str, ...]) -> bool:
    names = {_stem(word) for word in re.split(r"[\s()/,;]+", licence.name) if word}
    return licence.category in refused or bool(names & {_stem(word) for word in refused if word not in CATEGORIES})


def _stem(name: str) -> str:
    """`AGPL-3.0` is `AGPL-3.0-only`, `AGPL-3.0-or-later`, `AGPL-3.0+` and Debian's `AGPL-3`: often nobody says which is meant."""
    return re.sub(r"(?<=gpl-\d)$", ".0", re.sub(r"(?:-only|-or-later|\+)$", "", name.lower()))


def _unless(required: bool, text: str, case: Case) -> Said:
    return Fault(message=text, solution=_scan(case)) if required else Unknown(message=text)


def _scan(case: Case) -> str:
    return f"`nox -s scan sign -- {case.image}`"


def _at(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment else ""


def _span(span: timedelta) -> str:
    return f"{span}".removesuffix(", 0:00:00")
