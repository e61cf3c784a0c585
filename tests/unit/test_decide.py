"""A decision as a whole: it needs everything, nobody can forge it, junk changes nothing, and what exceptions can do."""

import copy
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline import policy
from pipeline.evidence import Evidence, Ignored, Key, Signed, Why, collect
from pipeline.policy import CODES, Allowed, Case, Exceptions, Refused, Waiver, decide
from pipeline.policy.model import Frozen
from pipeline.statements import Built, Findings
from tests import cases
from tests.cases import (
    KEYS,
    NOW,
    SUBJECT,
    all_good,
    beside,
    failed,
    instead,
    passed,
    reasons,
    refused,
    signed,
    state,
    strict,
    without,
    without_gpu_lane,
)

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


# all of it


def test_the_strictest_policy_allows_what_has_everything() -> None:
    decision = decide(strict(), cases.case())
    assert isinstance(decision, Allowed)
    assert [ruled.code for ruled in decision.rules] == [code.name for code in CODES]
    assert all(ruled.held for ruled in decision.rules)
    assert set(decision.statements) == {one.manifest for one in all_good()}
    assert (decision.image, decision.subject, decision.policy, decision.at) == ("nlp", SUBJECT, cases.DIGEST, NOW)


@pytest.mark.parametrize("at", range(len(all_good())), ids=[type(one.record).__name__ for one in all_good()])
def test_no_statement_can_be_missing(at: int) -> None:
    left = [one for place, one in enumerate(all_good()) if place != at]
    assert refused(cases.case(left))


@pytest.mark.parametrize("at", range(len(all_good())), ids=[type(one.record).__name__ for one in all_good()])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: replace(one, key=replace(one.key, revoked=True)),
        lambda one: replace(one, key=KEYS["release"]) if one.record else replace(one, key=KEYS["gpu"]),
        lambda one: replace(one, subject=str(cases.OTHER.digest)),
        lambda one: replace(one, predicate_type="https://example.com/x", record=None),
        lambda one: Ignored(manifest=str(one.manifest), why=Why.UNSIGNED, text="is signed by none of the keys"),
        lambda one: replace(one, key=Key(name="foreign", roles=one.key.roles)),
    ],
    ids=["revoked key", "other role", "other subject", "other type", "unknown key", "key of another policy"],
)
def test_no_statement_can_be_spoilt(at: int, spoil: Any) -> None:
    found: list[Signed | Ignored] = list(all_good())
    found[at] = spoil(found[at])
    assert refused(cases.case(found))


def test_nothing_at_all_refuses_with_every_reason_and_a_command_for_each() -> None:
    found = reasons(cases.case([]))
    assert {reason.rule for reason in found} == {"signature", "build", "lanes", "bom", "scan", "licences", "secrets"}
    assert all("`" in reason.solution for reason in found)
    assert decide(strict(), cases.case([])).notes == ()


def test_only_decide_allows() -> None:
    decision = decide(strict(), cases.case())
    assert isinstance(decision, Allowed)
    judged = policy.Judged(**vars(decision))
    for forge in (
        lambda: Allowed(**vars(judged)),  # type: ignore[call-arg]
        lambda: Allowed(object(), judged=judged),
        lambda: Allowed(None, judged=judged),
        lambda: replace(decision, image="other"),
        lambda: copy.copy(decision),
        lambda: pickle.dumps(decision),
        lambda: type("Mine", (Allowed,), {}),
    ):
        with pytest.raises(TypeError):
            forge()
    with pytest.raises(AttributeError):
        decision.image = "other"  # type: ignore[misc]


# junk


@pytest.mark.parametrize("why", [Why.FOREIGN, Why.UNSIGNED, Why.REVOKED, Why.RETIRED, Why.ROLE, Why.SUBJECT, Why.VOID])
def test_junk_by_whoever_may_push_neither_blocks_nor_helps(why: Why) -> None:
    junk = [Ignored(manifest=f"sha256:{number:064}", why=why, text="is junk") for number in range(60)]
    decision = decide(strict(), beside(*junk))
    assert isinstance(decision, Allowed)
    assert sum("does not count" in note for note in decision.notes) == 4
    assert any(note.endswith("57 more") for note in decision.notes)
    assert not any(note.endswith("more") for note in decide(strict(), beside(*junk[:3])).notes)
    assert refused(cases.case([*without(Built), *junk])) == ["build"]


def test_statements_of_another_image_or_a_revoked_key_are_shown_and_block_nothing() -> None:
    revoked = replace(KEYS["gpu"], revoked=True)
    decision = decide(strict(), beside(signed(failed("gpu", NOW), revoked), signed(failed("gpu", NOW), subject=cases.OTHER)))
    assert isinstance(decision, Allowed)
    assert [note.partition(":")[0] for note in decision.notes if "count" in note] == [
        "does not count (revoked)",
        "does not count (subject)",
    ]


# exceptions


def vulnerable(exceptions: Exceptions) -> Case:
    found = cases.scanned(vulnerabilities=[cases.weakness(published=None)])
    return replace(instead(found), exceptions=exceptions)


def notes_on_exceptions(case: Case) -> list[str]:
    return [note for note in decide(strict(), case).notes if note.startswith("exception")]


def test_an_exception_waives_its_finding_and_the_decision_names_it() -> None:
    decision = decide(strict(), vulnerable(cases.exception()))
    assert isinstance(decision, Allowed)
    ruled = next(one for one in decision.rules if one.code == "vulnerabilities")
    assert (ruled.held, ruled.waived, ruled.exceptions) == (False, True, ("CVE-2026-1",))
    assert ruled.reasons
    assert notes_on_exceptions(vulnerable(cases.exception())) == []


def test_an_exception_ends_with_the_second_before_its_day() -> None:
    assert refused(vulnerable(cases.exception(expires=NOW + SECOND))) == []
    for expires in (NOW, NOW - SECOND):
        assert refused(vulnerable(cases.exception(expires=expires))) == ["vulnerabilities"]
        (note,) = notes_on_exceptions(vulnerable(cases.exception(expires=expires)))
        assert "expired" in note


def test_an_exception_that_is_too_long_does_not_count() -> None:
    assert refused(vulnerable(cases.exception(expires=NOW + timedelta(days=180)))) == []
    found = vulnerable(cases.exception(expires=NOW + timedelta(days=180) + SECOND))
    assert refused(found) == ["vulnerabilities"]
    assert "is too wide" in notes_on_exceptions(found)[0]


@pytest.mark.parametrize(
    "change", [{"image": "other"}, {"id": "CVE-2026-11"}, {"id": "cve-2026-1"}, {"id": ""}, {"rule": "secrets"}], ids=str
)
def test_an_exception_of_something_else_does_not_count(change: dict[str, str]) -> None:
    assert refused(vulnerable(cases.exception(**change))) == ["vulnerabilities"]


def test_exceptions_that_do_nothing_are_told_of_this_image_alone() -> None:
    assert notes_on_exceptions(replace(cases.case(), exceptions=cases.exception())) == [
        "exception `vulnerabilities CVE-2026-1` is not used: remove it (owner: o)"
    ]
    assert notes_on_exceptions(replace(cases.case(), exceptions=cases.exception(image="other"))) == []
    assert "names no finding" in notes_on_exceptions(vulnerable(cases.exception(id="")))[0]


def test_one_exception_of_two_findings_leaves_the_other() -> None:
    two = [cases.weakness(published=None), cases.weakness(published=None, id="CVE-2026-2")]
    found = replace(instead(cases.scanned(vulnerabilities=two)), exceptions=cases.exception())
    (reason,) = reasons(found)
    assert reason.finding == "CVE-2026-2"
    ruled = state(found, "vulnerabilities")
    assert (ruled.held, ruled.waived, ruled.exceptions) == (False, False, ("CVE-2026-1",))


def test_what_is_missing_cannot_be_waived_as_a_finding() -> None:
    found = replace(cases.case(without(Findings)), exceptions=cases.exception(rule="licences", id="x"))
    assert refused(found) == ["licences", "secrets"]
    assert refused(replace(found, exceptions=cases.exception(rule="licences", id=""))) == ["licences", "secrets"]


@pytest.mark.parametrize("rule", ["size", "soak", "freeze"])
def test_rules_without_findings_are_waived_as_a_whole(rule: str) -> None:
    expected = cases.expected(size_limit=1)
    asked = strict(soak=DAY + SECOND, freeze=(Frozen.model_construct(begin=NOW, end=NOW + DAY, reason="holidays"),))
    found = cases.case(expected=expected, exceptions=cases.exception(rule=rule, id=""))
    assert refused(found, asked) == [one for one in ("size", "soak", "freeze") if one != rule]
    assert state(found, rule, asked).exceptions == (rule,)
    assert refused(replace(found, exceptions=cases.exception(rule=rule, id="x")), asked) == ["size", "soak", "freeze"]


def test_no_exception_waives_integrity_not_even_one_that_was_made_past_the_parser() -> None:
    for code in (code for code in CODES if not code.waivable):
        forged = Waiver.model_construct(rule=code.name, image="nlp", id="", owner="o", reason="r", expires=NOW + DAY)
        empty = Evidence(subject=SUBJECT)
        found = replace(cases.case(), evidence=empty, exceptions=Exceptions.model_construct(exceptions=(forged,)))
        assert {"signature", "build", "lanes", "bom", "scan"} <= set(refused(found))


# going back


def test_a_rollback_goes_on_over_what_time_brings_and_records_it_as_waived() -> None:
    stale = replace(instead(cases.scanned(NOW - 30 * DAY, vulnerabilities=[cases.weakness(severity="CRITICAL")])), now=NOW)
    found = replace(stale, expected=cases.expected(lanes={}, size_limit=1, claims={"torch": "2.7.0"}))
    asked = strict(soak=DAY + SECOND, freeze=(Frozen.model_construct(begin=NOW, end=NOW + DAY, reason="holidays"),))
    wrong = {"lanes", "claims", "scan", "vulnerabilities", "size", "soak", "freeze"}
    assert set(refused(found, asked)) == wrong
    decision = decide(asked, found, rollback=True)
    assert isinstance(decision, Allowed)
    assert {ruled.code for ruled in decision.rules if ruled.waived} == wrong
    assert all(ruled.reasons and not ruled.held for ruled in decision.rules if ruled.waived)


def test_integrity_refuses_a_rollback_too() -> None:
    bad = replace(cases.case(), evidence=Evidence(subject=SUBJECT))
    decision = decide(strict(), bad, rollback=True)
    assert isinstance(decision, Refused)
    assert {reason.rule for reason in decision.reasons} == {"signature", "build", "bom"}
    assert not {ruled.code for ruled in decision.rules if ruled.waived} & {"signature", "build", "bom"}
    withdrawn = cases.beside(signed(cases.built(dirty=True), KEYS["ci"]), Ignored(manifest="x", why=Why.UNREADABLE, text="y"))
    again = decide(strict(), withdrawn, rollback=True)
    assert isinstance(again, Refused)
    assert {reason.rule for reason in again.reasons} == {"unreadable", "build"}


# the policies that ship


def test_the_local_policy_allows_a_laptops_image_and_shows_what_nobody_looked_at() -> None:
    local = policy.parse(cases.RELEASE.with_name("local.yaml").read_bytes(), "local.yaml")
    (key,) = local.known
    records = [None, cases.built(dirty=True, commit=None), passed("cpu", NOW), cases.findings(), cases.bom()]
    evidence = collect(SUBJECT, [signed(record, key) for record in records], now=NOW)
    checkout = replace(cases.case().checkout, clean=False, pinned=None)
    found = replace(cases.case(checkout=checkout, registry_loopback=True), evidence=evidence)
    decision = decide(local, found)
    assert isinstance(decision, Allowed)
    assert [ruled.code for ruled in decision.rules if not ruled.assessed] == [
        "lanes",
        "scan",
        "vulnerabilities",
        "end-of-life",
        "unassessed",
    ]
    assert refused(replace(found, registry_loopback=False), local) == ["registry"]


def test_the_release_policy_lacks_of_a_whole_image_without_gpus_the_gpu_lane_alone() -> None:
    found = reasons(cases.case(without_gpu_lane()))
    assert [(reason.rule, reason.message) for reason in found] == [
        ("lanes", "lane `gpu` on A100 or H100 or H200: no result that counts")
    ]
    assert found[0].solution == "`nox -s test -- nlp --lane gpu --require-gpu`, then `nox -s sign -- nlp`"
