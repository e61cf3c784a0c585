"""What a pull request reads: what is different from the last release, and nothing that nobody knows."""

import io
import json
from datetime import timedelta
from typing import Any

from rich.console import Console

from pipeline import report
from pipeline.changes import PACKAGES, SHOWN, Change, Contents, vulnerabilities
from pipeline.report.changes import SCREEN, weaknesses_json
from pipeline.statements import Scanned
from tests.cases import NOW as TODAY
from tests.cases import scanned, weakness


def with_known(*found: tuple[str, str], **changes: Any) -> Scanned:
    """A scan that found these ids with their severities."""
    known = [weakness(id=name, severity=severity) for name, severity in found]
    return scanned(vulnerabilities=known, **changes)


RELEASED = Contents(
    tag="v2.6.3-nlp",
    size=2_440_000_000,
    packages={"numpy": ["1.26.3"], "old": ["1"], "same": ["2"]},
    scanned=with_known(("CVE-1", "HIGH"), ("CVE-2", "LOW")),
)
NOW = Contents(
    size=2_441_500_000,
    packages={"numpy": ["1.26.4"], "new": ["3"], "same": ["2"]},
    scanned=with_known(("CVE-2", "LOW"), ("CVE-3", "CRITICAL")),
)


def told(now: Contents = NOW, released: Contents | None = RELEASED) -> str:
    return report.changes_markdown([Change(image="nlp", state="built", reason="no candidate", now=now, released=released)])


def test_size_packages_and_vulnerabilities_are_compared_with_the_last_release() -> None:
    assert told().splitlines() == [
        "### nlp: built",
        "",
        "- no candidate",
        "- size against `v2.6.3-nlp`: 2,441.5 MB, +1.5 MB",
        "- packages: 3 differ",
        "  - + new 3",
        "  - numpy 1.26.3 → 1.26.4",
        "  - - old 1",
        "- vulnerabilities against `v2.6.3-nlp`: 1 new, 1 gone",
        "  - + CVE-3 CRITICAL, with a fix: openssl",
        "  - - CVE-1 HIGH, with a fix: openssl",
    ]


def test_what_nobody_knows_is_said_and_never_called_the_same() -> None:
    text = told(Contents(size=1))
    assert "packages are not compared: nobody knows those of this image" in text
    assert "vulnerabilities are not compared: nobody knows those of this image: no look-up of them counts" in text
    assert "new" not in text
    assert "nobody knows those of `v2.6.3-nlp`" in told(released=Contents(tag="v2.6.3-nlp"))
    (both,) = vulnerabilities(Contents(), Contents(tag="v1", unscanned="the registry is down"))
    assert both == (
        "vulnerabilities are not compared: nobody knows those of this image: no look-up of them counts; "
        "nobody knows those of `v1`: the registry is down"
    )
    (first,) = vulnerabilities(NOW, None)
    assert first == "vulnerabilities are not compared: nothing is released that they could be compared with"
    assert "nothing to compare with" in told(released=None)


def test_a_long_list_is_cut_and_counted() -> None:
    many = Contents(size=1, packages={f"p{number:03}": ["1"] for number in range(SHOWN + 5)}, scanned=with_known())
    assert "and 8 more" in told(many)


def test_a_release_manager_sees_the_worst_that_come_and_the_worst_that_go_and_how_many_more() -> None:
    come = with_known(*((f"CVE-{number}", "HIGH" if number < SCREEN else "CRITICAL") for number in range(1, SCREEN + 4)))
    said = io.StringIO()
    Console(file=said, width=140).print(report.weaknesses_screen(Contents(scanned=come), RELEASED))
    head, *lines = [line.rstrip() for line in said.getvalue().splitlines() if line.strip()]
    assert head == f"vulnerabilities against `v2.6.3-nlp`: {SCREEN + 1} new, 0 gone"
    assert len(lines) == SCREEN + 1
    assert lines[0] == "  + CVE-10 CRITICAL, with a fix: openssl"
    assert lines[-1] == "  and 1 more"
    (gone,) = (line for line in vulnerabilities(Contents(scanned=with_known(("CVE-1", "HIGH"))), RELEASED) if "- " in line)
    assert gone == "  - CVE-2 LOW, with a fix: openssl"


def test_a_vulnerability_counts_once_with_its_worst_severity_its_packages_and_whether_there_is_a_fix() -> None:
    several = [weakness(package=f"perl-{number}", fixed="", severity="LOW") for number in range(PACKAGES + 1)]
    found = Contents(scanned=scanned(vulnerabilities=[*several, weakness(package="a", fixed="", severity="HIGH")]))
    _, line = vulnerabilities(found, Contents(tag="v1", scanned=scanned()))
    assert line == "  + CVE-2026-1 HIGH, without a fix: a, perl-0, perl-1 and 2 more"
    mended = Contents(scanned=scanned(vulnerabilities=[weakness(fixed=""), weakness(package="b")]))
    assert "with a fix: b, openssl" in list(vulnerabilities(mended, Contents(tag="v1", scanned=scanned())))[1]


def test_a_vulnerability_that_got_another_name_neither_came_nor_went() -> None:
    by_ghsa = scanned(vulnerabilities=[weakness(id="GHSA-xxxx-yyyy-zzzz")])
    by_cve = scanned(vulnerabilities=[weakness(id="CVE-2026-7", aliases=["GHSA-xxxx-yyyy-zzzz"])])
    for now, before in ((by_ghsa, by_cve), (by_cve, by_ghsa)):
        (head,) = vulnerabilities(Contents(scanned=now), Contents(tag="v1", scanned=before))
        assert head == "vulnerabilities against `v1`: 0 new, 0 gone"


def test_what_lost_its_advisories_is_not_called_gone_and_what_got_some_is_not_called_new() -> None:
    dark, light = scanned(unassessed=["openssl 3.0.1"]), with_known(("CVE-1", "HIGH"))
    for now, before in ((dark, light), (light, dark)):
        head, line = vulnerabilities(Contents(scanned=now), Contents(tag="v1", scanned=before))
        assert head == "vulnerabilities against `v1`: 0 new, 0 gone, 1 that one side cannot tell"
        assert line == "  ? CVE-1 HIGH, with a fix: openssl"


def test_that_one_database_is_newer_is_said() -> None:
    older = scanned(TODAY - timedelta(days=30))
    (head,) = vulnerabilities(Contents(scanned=scanned()), Contents(tag="v1", scanned=older))
    assert head.endswith("0 new, 0 gone; by databases of 2026-05-09 06:00 and, for the release, 2026-04-10 06:00")


def test_as_data_all_of_them_are_listed_and_what_is_not_known_is_null() -> None:
    found = json.loads(json.dumps(weaknesses_json(NOW, RELEASED)))
    assert found["against"] == "v2.6.3-nlp"
    assert found["new"] == [{"id": "CVE-3", "severity": "CRITICAL", "fixable": True, "packages": ["openssl"], "aliases": []}]
    assert ([one["id"] for one in found["gone"]], found["unsettled"], found["not-assessed"]) == (["CVE-1"], [], {})
    for now, before, side in ((Contents(), RELEASED, "this"), (NOW, Contents(tag="v1"), "released"), (NOW, None, "released")):
        unknown = weaknesses_json(now, before)
        assert (unknown["new"], unknown["gone"], unknown["unsettled"]) == (None, None, None)
        assert set(unknown["not-assessed"]) == {side}


def test_nothing_that_an_image_says_acts_in_the_summary() -> None:
    text = told(Contents(packages={"<img src=x>": ["1\n# 2"], "[a](b)": ["1"]}))
    assert "<img" not in text
    assert "\n# 2" not in text
    assert "](b)" not in text.replace("]\\(", "")


def test_where_nothing_was_built_it_says_so() -> None:
    assert report.changes_markdown([]) == "No image was built.\n"
