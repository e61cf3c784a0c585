"""Rules about what is in an image, its size and its time: exactly at their borders and one step beyond."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipeline.policy import Allowed, Case, Policy, decide
from pipeline.policy.contents import LISTED
from pipeline.policy.model import Frozen, Size
from pipeline.statements import Bom, Built, Database, Findings, Licence, Place, Scanned, Secret
from tests import cases
from tests.cases import NOW, YESTERDAY, instead, reasons, refused, scan_asked, state, strict, without

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


# bom, scan


def test_an_empty_list_of_packages_is_none() -> None:
    assert refused(instead(cases.bom(components={})), strict(bom="show")) == ["bom", "claims"]
    assert reasons(cases.case(without(Bom)))[0].message == "nothing that counts lists its packages"
    assert reasons(instead(cases.bom(components={})))[0].message == "the list of its packages is empty"
    assert refused(cases.case(without(Bom))) == ["bom"]
    assert refused(cases.case(without(Bom)), strict(bom="show")) == []
    assert not state(cases.case(without(Bom)), "bom", strict(bom="show")).assessed


def test_a_scan_counts_as_long_as_it_is_young() -> None:
    assert refused(instead(cases.scanned(NOW - timedelta(days=7)))) == []
    assert refused(instead(cases.scanned(NOW - timedelta(days=7) - SECOND))) == ["scan"]


def test_a_scan_counts_with_a_database_that_was_young_then() -> None:
    def with_database(updated: datetime) -> Case:
        return instead(cases.scanned(database=Database(version="2", updated=updated)))

    assert refused(with_database(YESTERDAY - timedelta(hours=48))) == []
    assert refused(with_database(YESTERDAY - timedelta(hours=48) - SECOND)) == ["scan"]
    assert refused(with_database(YESTERDAY + timedelta(minutes=5))) == []
    assert refused(with_database(YESTERDAY + timedelta(minutes=5) + SECOND)) == ["scan"]


def test_a_scan_of_nothing_is_never_clean() -> None:
    asked = scan_asked(required=False)
    assert refused(instead(cases.scanned(packages=0))) == ["scan"]
    assert refused(instead(cases.scanned(packages=0)), asked) == ["scan"]
    assert refused(instead(cases.scanned(packages=1))) == []


def test_a_scan_that_is_not_required_is_shown_as_not_assessed() -> None:
    asked = scan_asked(required=False)
    none, old = cases.case(without(Scanned)), instead(cases.scanned(NOW - timedelta(days=70)))
    assert refused(none) == ["scan"]
    assert (refused(none, asked), refused(old, asked)) == ([], [])
    for code in ("scan", "vulnerabilities"):
        ruled = state(none, code, asked)
        assert (ruled.held, ruled.assessed, ruled.reasons) == (False, False, ("vulnerabilities: not assessed",))
    assert not state(old, "scan", asked).assessed


# vulnerabilities, end of life, unassessed


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"published": NOW - timedelta(days=14) - SECOND}, ["vulnerabilities"]),
        ({"published": None}, ["vulnerabilities"]),
        ({"published": NOW + timedelta(minutes=5)}, []),
        ({"published": NOW + timedelta(minutes=5) + SECOND}, ["vulnerabilities"]),
        ({"severity": "CRITICAL", "published": NOW - timedelta(days=3)}, []),
        ({"severity": "CRITICAL", "published": NOW - timedelta(days=3) - SECOND}, ["vulnerabilities"]),
        ({"severity": "MEDIUM", "published": None}, []),
        ({"severity": "UNKNOWN", "published": NOW - timedelta(days=14)}, []),
        ({"severity": "UNKNOWN", "published": NOW - timedelta(days=14) - SECOND}, ["vulnerabilities"]),
        ({"fixed": "", "published": None, "severity": "CRITICAL"}, []),
    ],
    ids=str,
)
def test_a_fix_has_its_grace(change: dict[str, Any], codes: list[str]) -> None:
    assert refused(instead(cases.scanned(vulnerabilities=[cases.weakness(**change)]))) == codes


def test_vulnerabilities_that_do_not_refuse_are_shown() -> None:
    found = [
        cases.weakness(),
        cases.weakness(id="CVE-2026-2", fixed=""),
        cases.weakness(id="CVE-2026-3", severity="LOW"),
    ]
    decision = decide(strict(), instead(cases.scanned(vulnerabilities=found)))
    assert isinstance(decision, Allowed)
    assert [note for note in decision.notes if note.startswith("vulnerabilities")] == [
        "vulnerabilities: 1 with a fix, in their grace: CVE-2026-1 (HIGH) openssl",
        "vulnerabilities: 1 without a fix: CVE-2026-2 (HIGH) openssl",
        "vulnerabilities: not judged: 1 LOW",
    ]


def test_one_vulnerability_in_two_places_is_one_reason() -> None:
    twice = [cases.weakness(published=None, place=Place(file=file)) for file in ("a", "b")]
    (reason,) = reasons(instead(cases.scanned(vulnerabilities=twice)))
    assert reason.finding == "CVE-2026-1"
    assert reason.message == "CVE-2026-1 (HIGH) in openssl 3.0.1 (`a`, `b`): fixed in 3.0.2; nobody knows since when"


def test_one_vulnerability_of_the_packages_of_one_source_is_one_reason() -> None:
    names = ("libcrypto3", "libssl-dev", "libssl3", "openssl")
    place = Place(file="var/lib/dpkg/status", image="os")
    many = [cases.weakness(published=None, package=name, place=place) for name in names]
    (reason,) = reasons(instead(cases.scanned(vulnerabilities=many)))
    where = "in libcrypto3, libssl-dev, libssl3 and 1 more 3.0.1 (`var/lib/dpkg/status` of os)"
    assert reason.message == f"CVE-2026-1 (HIGH) {where}: fixed in 3.0.2; nobody knows since when"


def test_what_a_parent_brought_is_mended_in_the_parent() -> None:
    of_parent = cases.weakness(published=None, place=Place(file="x", image="os"))
    own = cases.weakness(published=None, place=Place(file="x", image="nlp"))
    one, other = reasons(instead(cases.scanned(vulnerabilities=[of_parent, own])))
    assert one.solution.startswith("`nox -s update -- os`, then `nox -s build test scan sign -- os nlp`; ")
    assert other.solution.startswith("`nox -s update -- nlp`, then `nox -s build test scan sign -- nlp`; ")
    assert one.solution.endswith("except `CVE-2026-1` in `policies/exceptions.yaml`")


def test_the_worst_is_shown_first_once_and_with_what_its_distribution_says_of_it() -> None:
    never = {"fixed": "", "status": "will_not_fix"}
    minor = [cases.weakness(id=f"CVE-2005-{number}", fixed="", status="affected") for number in range(LISTED)]
    worst = [cases.weakness(id="CVE-2026-9", severity="CRITICAL", package=name, **never) for name in ("libperl", "perl")]
    low = [cases.weakness(id="CVE-2026-8", severity="LOW", package=name) for name in ("libperl", "perl")]
    decision = decide(strict(), instead(cases.scanned(vulnerabilities=[*minor, *worst, *low])))
    first, second = [note for note in decision.notes if note.startswith("vulnerabilities")]
    assert first.startswith(
        f"vulnerabilities: {LISTED + 1} without a fix: CVE-2026-9 (CRITICAL, will not fix) libperl, perl, CVE-2005-0 (HIGH)"
    )
    assert first.endswith("and 1 more")
    assert second == "vulnerabilities: not judged: 1 LOW"


def test_an_exception_may_name_a_vulnerability_by_another_of_its_names() -> None:
    ghsa = "GHSA-xxxx-yyyy-zzzz"
    found = instead(cases.scanned(vulnerabilities=[cases.weakness(published=None, aliases=[ghsa])]))
    assert refused(replace(found, exceptions=cases.exception(id=ghsa))) == []
    assert refused(replace(found, exceptions=cases.exception(id="GHSA-xxxx-yyyy-0000"))) == ["vulnerabilities"]
    plain = instead(cases.scanned(vulnerabilities=[cases.weakness(published=None)]))
    assert refused(replace(plain, exceptions=cases.exception(id=ghsa))) == ["vulnerabilities"]


def test_a_system_without_advisories_refuses_or_is_shown() -> None:
    assert refused(instead(cases.scanned(end_of_life=True))) == ["end-of-life"]
    assert refused(instead(cases.scanned(end_of_life=True)), scan_asked(end_of_life="show")) == []


def test_packages_without_advisories_are_shown_or_refuse() -> None:
    (reason,) = reasons(cases.case(), strict(unassessed="refuse"))
    assert (reason.rule, reason.finding) == ("unassessed", "nvidia-cudnn-cu12 9.1.0.70")
    ten, eleven = (decide(strict(), instead(cases.scanned(unassessed=["p 1"] * count))).notes[0] for count in (10, 11))
    assert ten == "unassessed: without advisories (10): " + ", ".join(["p 1"] * 10)
    assert eleven == "unassessed: without advisories (11): " + ", ".join(["p 1"] * 10) + " and 1 more"


# licences, secrets


@pytest.mark.parametrize(
    ("refuse", "name", "category", "bad"),
    [
        ("forbidden", "AGPL-3.0-only", "forbidden", True),
        ("forbidden", "MIT", "notice", False),
        ("AGPL-3.0", "AGPL-3.0-or-later", "forbidden", True),
        ("AGPL-3.0-only", "AGPL-3.0", "unknown", True),
        ("AGPL-3.0-only", "agpl-3.0+", "unknown", True),
        ("AGPL-3.0-only", "MIT AND (AGPL-3.0-only OR GPL-2.0-only)", "unknown", True),
        ("AGPL-3.0", "AGPL-3+", "unknown", True),
        ("AGPL-3.0", "AGPL-3.0-only WITH Autoconf-exception-3.0", "unknown", True),
        ("GPL-3.0-only", "LGPL-3+", "unknown", False),
        ("GPL-3.0-only", "AGPL-3.0-only", "forbidden", False),
        ("GPL-3.0-only", "LGPL-3.0-only", "restricted", False),
        ("unknown", "something", "unknown", True),
        ("Zlib", "forbidden", "notice", False),
        ("forbidden", "forbidden", "notice", False),
    ],
)
def test_a_licence_is_refused_by_category_or_name(refuse: str, name: str, category: str, bad: bool) -> None:
    found = instead(cases.findings(licences=[Licence(name=name, category=category, package="p")]))
    asked = strict(licences=strict().licences.model_copy(update={"refused": (refuse,)}))
    assert refused(found, asked) == (["licences"] if bad else [])


@pytest.mark.parametrize("name", ["AGPL-3+", "Apache-2.0 AND LicenseRef-Own AND AGPL-3.0-or-later", "AGPL-1.0-only WITH x"])
def test_what_is_not_released_is_found_in_names_that_the_scanner_has_no_category_for(name: str) -> None:
    assert refused(instead(cases.findings(licences=[Licence(name=name, category="unknown", package="p")]))) == ["licences"]


def test_a_refused_licence_is_excepted_by_its_name() -> None:
    licences = [Licence(name=name, category="forbidden", package="p") for name in ("SSPL-1.0", "")]
    assert [reason.finding for reason in reasons(instead(cases.findings(licences=licences)))] == ["SSPL-1.0", "p"]


def test_one_licence_of_many_packages_is_one_reason() -> None:
    many = [Licence(name="SSPL-1.0", category="forbidden", package=f"p{number}", place=Place(file="f")) for number in range(5)]
    (reason,) = reasons(instead(cases.findings(licences=many)))
    assert reason.message == "`SSPL-1.0` (forbidden): p0 f, p1 f, p2 f and 2 more"


def test_a_secret_refuses_or_is_shown() -> None:
    found = instead(cases.findings(secrets=[Secret(rule="aws", severity="CRITICAL", place=Place(file="root/.aws"))]))
    (reason,) = reasons(found)
    assert (reason.rule, reason.finding) == ("secrets", "root/.aws")
    assert reasons(instead(cases.findings(secrets=[Secret(rule="aws", severity="LOW")])))[0].finding == "aws"
    assert refused(found, strict(secrets="show")) == []


def test_findings_that_are_not_there_are_not_clean() -> None:
    assert refused(cases.case(without(Findings))) == ["licences", "secrets"]
    loose = strict(secrets="show", licences=strict().licences.model_copy(update={"refused": ()}))
    assert refused(cases.case(without(Findings)), loose) == []
    assert not state(cases.case(without(Findings)), "secrets", loose).assessed


# size, soak, freeze


def test_an_image_keeps_to_its_limit() -> None:
    assert refused(cases.case(expected=cases.expected(size_limit=1_000_000))) == []
    assert refused(cases.case(expected=cases.expected(size_limit=999_999))) == ["size"]
    assert refused(cases.case(expected=cases.expected(size_limit=None))) == []
    assert refused(instead(cases.findings(size=1_000_001))) == ["size"]
    assert refused(instead(cases.built(size=1_000_001))) == ["size"]
    assert not state(cases.case(without(Built, Findings)), "size").assessed


def test_an_image_grows_no_more_than_granted_since_the_last_release() -> None:
    asked = strict(size=Size(growth="10 %"))  # type: ignore[arg-type]
    assert refused(cases.case(released_size=909_091), asked) == []
    assert refused(cases.case(released_size=909_090), asked) == ["size"]
    assert refused(cases.case(released_size=2_000_000), asked) == []
    assert refused(cases.case(released_size=0), asked) == ["size"]
    quarter = strict(size=Size(growth="25 %"))  # type: ignore[arg-type]
    assert refused(cases.case(released_size=800_000), quarter) == []
    assert refused(cases.case(released_size=799_999), quarter) == ["size"]


def test_a_candidate_soaks() -> None:
    assert refused(instead(cases.built(finished=NOW - DAY))) == []
    (reason,) = reasons(instead(cases.built(finished=NOW - DAY + SECOND)))
    assert (reason.rule, reason.message) == ("soak", "it is too young until 2026-05-10T12:00:01+00:00")
    assert not state(cases.case(without(Built)), "soak").assessed


def test_nothing_is_released_while_releases_are_frozen() -> None:
    def frozen(begin: datetime, end: datetime) -> Policy:
        return strict(freeze=(Frozen.model_construct(begin=begin, end=end, reason="holidays"),))

    assert refused(cases.case(), frozen(NOW, NOW + SECOND)) == ["freeze"]
    assert refused(cases.case(), frozen(NOW + SECOND, NOW + DAY)) == []
    assert refused(cases.case(), frozen(NOW - DAY, NOW)) == []
