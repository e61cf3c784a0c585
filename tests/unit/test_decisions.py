"""A decision on one screen, word for word, and as data."""

import io
import json
from dataclasses import replace
from datetime import timedelta

from rich.console import Console

from pipeline import report
from pipeline.policy import Case, decide
from pipeline.statements import Checked, Outcome
from tests import cases
from tests.cases import NOW, beside, failed, gpu, instead, passed, signed, strict, without_gpu_lane


def screen(case: Case) -> str:
    said = io.StringIO()
    Console(file=said, width=140).print(report.decision_table(decide(strict(), case), case.evidence))
    return "\n".join(line.rstrip() for line in said.getvalue().splitlines()) + "\n"


def test_a_refusal_says_what_the_image_is_each_rule_and_what_mends_it() -> None:
    case = cases.case([*without_gpu_lane(), signed(passed("gpu", outcome=Outcome.NOT_RUN, reason="no driver"))])
    text = screen(case)
    assert text.startswith("nlp: REFUSED, for 1 reason\n")
    assert f"digest     {cases.SUBJECT}" in text
    assert f"built      v1.0-nlp-0123456789ab from commit {'e' * 40}, 2026-05-09 12:00" in text
    assert "lane cpu   passed, 2 checks, 2026-05-09 12:00" in text
    assert "scan       no vulnerability in 170 packages, 1 not assessed; debian 12; looked up 2026-05-09 12:00, " in text
    assert "signature         held\n" in text
    assert "lanes             refused   lane `gpu` on A100 or H100 or H200: no result that counts\n" in text
    assert (
        "\nlanes: lane `gpu` on A100 or H100 or H200: no result that counts\n"
        "  `nox -s test -- nlp --lane gpu --require-gpu`, then `nox -s sign -- nlp`\n" in text
    )
    assert "a lane's result of `gpu` is not-run: no driver" in " ".join(text.split())


def test_lanes_are_shown_with_their_gpus_rungs_and_failures() -> None:
    checks = [Checked(name="matmul", image="base", outcome=Outcome.PASSED, rung="one GPU")]
    pair = [gpu("Tesla T4", 0), gpu("Tesla T4", 1)]
    passing = passed("gpu", NOW, checks=checks, gpus=pair, machine={"driver": "550.54.15"})
    text = screen(beside(signed(passing), signed(failed("gpu", NOW))))
    assert "passed on 2x Tesla T4 with driver 550.54.15, 1 check, 2026-05-10 12:00; lower rungs: matmul (one GPU)" in text
    assert "failed on 1x NVIDIA A100-SXM4-80GB, 2 checks, 2026-05-10 12:00; matmul: 3 is not 4" in text


def test_vulnerabilities_are_counted_once_with_their_fixes() -> None:
    found = [cases.weakness(), cases.weakness(package="libssl"), cases.weakness(id="CVE-2026-2", fixed="")]
    assert "2 HIGH (1 with a fix) in 170 packages" in screen(instead(cases.scanned(vulnerabilities=found)))


def test_a_vulnerability_of_two_packages_counts_by_its_worst_severity_and_any_fix() -> None:
    mended = cases.weakness(package="cryptography")
    found = [mended, cases.weakness(package="openssl", severity="LOW", fixed="")]
    for order in (found, found[::-1]):
        assert "1 HIGH (1 with a fix) in 170 packages" in screen(instead(cases.scanned(vulnerabilities=order)))


def test_what_was_not_assessed_is_never_called_held() -> None:
    text = screen(cases.case([]))
    assert "scan     vulnerabilities: not assessed" in text
    assert "vulnerabilities   not assessed   vulnerabilities: not assessed\n" in text


def test_a_summary_for_ci_says_the_same_and_nothing_in_it_acts() -> None:
    case = beside(signed(failed("gpu", NOW, reason="a | b\n<img src=x>\r![ALLOWED](https://example.com)")))
    text = report.decision_markdown(decide(strict(), case), case.evidence)
    assert text.startswith("### nlp: REFUSED, for 2 reasons\n\n| | |\n| --- | --- |\n| digest | ")
    assert (
        "| failing-lane | refused | lane `gpu` failed on NVIDIA A100-SXM4-80GB: a \\| b &lt;img src=x> ![ALLOWED]\\(https" in text
    )
    assert "\n- failing-lane: lane `gpu` failed on NVIDIA A100-SXM4-80GB: a | b &lt;img src=x> ![ALLOWED]" in text
    assert "\n  - `nox -s test" in text
    assert not [each for each in ("<img", "](", "\r") if each in text]


def test_a_permission_names_the_exceptions_that_it_used_and_what_else_is_to_know() -> None:
    found = instead(cases.scanned(vulnerabilities=[cases.weakness(published=None)]))
    case = replace(found, exceptions=cases.exception())
    text = screen(case)
    assert text.startswith("nlp: ALLOWED\n")
    assert "vulnerabilities   waived   CVE-2026-1 (HIGH) in openssl 3.0.1: fixed in 3.0.2" in text
    assert "(exceptions: CVE-2026-1)" in text
    assert "\nsize: no release to compare with\n" in text


def test_decisions_as_data() -> None:
    allowed, refused = decide(strict(), cases.case()), decide(strict(), cases.case([]))
    good, bad = json.loads(json.dumps(report.decisions_json([allowed, refused])))
    assert (good["allowed"], good["reasons"], bad["allowed"]) == (True, [], False)
    assert good["subject"] == str(cases.SUBJECT)
    assert len(good["rules"]) == len(bad["rules"]) == 22
    assert set(good["statements"]) == {str(one.manifest) for one in cases.all_good()}
    assert good["lanes"][1]["gpus"] == ["NVIDIA A100-SXM4-80GB"]
    assert bad["reasons"][0] == {
        "rule": "signature",
        "message": "no key of the role `ci` signed the digest itself",
        "solution": "`nox -s sign -- nlp`",
        "finding": "",
    }


def test_an_issue_says_what_time_alone_has_made_wrong_when_it_will_be_and_who_stands_on_it() -> None:
    late = cases.weakness(id="CVE-2026-1", severity="CRITICAL", published=NOW - timedelta(days=400))
    soon = cases.weakness(id="CVE-2026-2", severity="CRITICAL", published=NOW - timedelta(hours=1))
    text = report.issue_markdown(decide(strict(), instead(cases.scanned(vulnerabilities=[late, soon]))), ["lab"])
    assert "- vulnerabilities: CVE-2026-1" in text
    assert "`nox -s update -- nlp`" in text
    assert "- vulnerabilities: 1 with a fix, in their grace: CVE-2026-2 (CRITICAL)" in text
    assert "Released images that stand on it: lab." in text


def test_there_is_no_issue_about_what_time_has_not_changed() -> None:
    assert report.issue_markdown(decide(strict(), cases.case(without_gpu_lane())), []) == ""
