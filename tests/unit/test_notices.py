"""What CI tells of images: one issue for each while something is wrong, none afterwards; and what a push need not fail for."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline import notices, report
from pipeline.errors import InputError
from pipeline.notices import Issue, Notice, Request
from pipeline.policy import Case, Policy, Refused, decide, waits
from tests import cases
from tests.cases import NOW, instead, strict

TITLE = "nlp: vulnerabilities in what is released"
NOW_IT_IS = f"r.example.com/candidates/x@sha256:{'1' * 64}"
BEFORE = f"r.example.com/candidates/x@sha256:{'2' * 64}"
ROBOT = {"login": "github-actions[bot]", "type": "Bot"}


def notice(**changes: Any) -> Notice:
    return Notice.model_validate({"image": "nlp", "subject": NOW_IT_IS, **changes})


def issue(number: int = 7, body: str = f"`{NOW_IT_IS}`, judged", title: str = TITLE) -> Issue:
    return Issue(number=number, title=title, body=body)


def asked(one: Notice, *there: Issue) -> Sequence[Request]:
    return list(notices.requests([one], there))


def listed(**changes: Any) -> dict[str, Any]:
    return {"number": 7, "title": TITLE, "body": "b", "user": ROBOT, "labels": [], **changes}


def test_what_is_wrong_becomes_one_issue_that_is_brought_up_to_date_and_never_a_second() -> None:
    wrong = notice(text="- CVE-1\n")
    assert asked(wrong) == [Request(method="POST", path="issues", body={"title": TITLE, "body": "- CVE-1\n"})]
    assert asked(wrong, issue()) == [Request(method="PATCH", path="issues/7", body={"body": "- CVE-1\n"})]
    assert asked(wrong, issue(body="- CVE-1")) == [], "the same asks for nothing"
    assert [one.path for one in asked(wrong, issue(9), issue(3))] == ["issues/3"]
    assert asked(wrong, issue(title="lab: vulnerabilities in what is released"))[0].method == "POST"


def test_what_is_clean_again_is_closed_first_and_then_told_why() -> None:
    state, comment = asked(notice(clear="Nothing is wrong."), issue())
    assert state == Request(method="PATCH", path="issues/7", body={"state": "closed", "state_reason": "completed"})
    assert comment == Request(method="POST", path="issues/7/comments", body={"body": f"`{NOW_IT_IS}`: Nothing is wrong."})
    assert asked(notice(clear="Nothing is wrong.")) == [], "a second night finds it closed"


def test_a_release_that_was_superseded_or_withdrawn_is_named_beside_the_one_that_took_its_place() -> None:
    _, comment = asked(notice(clear="Nothing is wrong."), issue(body=f"`{BEFORE}`, judged"))
    assert comment.body["body"] == (
        f"`sha256:{'2' * 64}`, which this was about, was superseded, rolled back or withdrawn: users get `{NOW_IT_IS}` now. "
        "Nothing is wrong."
    )


def test_what_nobody_knows_enough_of_stays_open_and_is_told() -> None:
    assert asked(notice(), issue()) == []
    assert list(notices.requests([], [issue()])) == []
    assert "Left open, since nobody could say anything of their images: #7\n" in notices.markdown([], [issue()])
    assert "| nlp | nobody knows |" in notices.markdown([notice()], [])
    assert "Left open" not in notices.markdown([notice(clear="x")], [issue(), issue(8, title="a question")])


def test_only_the_robots_own_issues_count_on_whatever_page() -> None:
    stranger = listed(number=1, user={"login": "somebody"})
    ghost, change = listed(number=2, user=None), listed(number=3, pull_request={"url": "x"})
    pages = [[stranger, ghost], [change, listed(body=None)]]
    assert notices.issues(json.dumps(pages).encode()) == (Issue(number=7, title=TITLE, body=""),)


@pytest.mark.parametrize("content", [b"", b"[{}]", b'[[{"number": "x"}]]', b'{"message": "Not Found"}'])
def test_what_is_no_list_of_issues_is_never_taken_for_none(content: bytes) -> None:
    with pytest.raises(InputError, match="no pages of issues"):
        notices.issues(content)


@pytest.mark.parametrize(
    "spoiled", [{"image": "x'; id"}, {"image": "a\nb"}, {"subject": "x"}, {"subject": f"{NOW_IT_IS}\n@all"}, {"more": "x"}]
)
def test_a_notice_with_another_image_or_subject_than_there_can_be_is_refused(spoiled: dict[str, str]) -> None:
    content = json.dumps({"image": "nlp", "subject": NOW_IT_IS, **spoiled}).encode()
    with pytest.raises(InputError, match=r"`x\.json` is no file of `verify --issues`"):
        notices.parse("x.json", content)


def test_an_issue_is_never_longer_than_the_platform_takes() -> None:
    (request,) = asked(notice(text="".join(f"- CVE-{number}: {'x' * 90}\n" for number in range(2000))))
    assert len(request.body["body"]) < 65_536
    assert request.body["body"].endswith(" lines more are in the run's summary.\n")


def clear(case: Case, policy: Policy | None = None) -> str:
    return notices.clear(decide(policy or strict(), case))


def test_an_image_is_clean_where_every_rule_that_ages_holds_or_is_excepted() -> None:
    assert clear(cases.case()).endswith(": nothing that it asks about has a fix.")
    found = instead(cases.scanned(vulnerabilities=[cases.weakness(published=None)]))
    assert clear(found) == ""
    assert clear(replace(found, exceptions=cases.exception())).endswith("all that is known of it is excepted: `CVE-2026-1`.")


@pytest.mark.parametrize(
    "case",
    [
        cases.case([]),
        cases.case(now=NOW + timedelta(days=30)),
        cases.case(cases.without(type(cases.scanned()))),
    ],
    ids=["nothing is known", "the look-up is old", "nobody looked"],
)
def test_an_image_of_which_too_little_is_known_is_not_called_clean(case: Case) -> None:
    assert clear(case) == ""


def test_nothing_in_an_issue_calls_a_person_or_names_another_issue() -> None:
    late = cases.weakness(package="@babel/core", published=NOW - timedelta(days=400), installed="#12", fixed="<b>[x](y)")
    text = report.issue_markdown(decide(strict(), instead(cases.scanned(vulnerabilities=[late]))), [])
    assert "babel/core" in text
    assert not [each for each in ("@babel", "#12", "<b>", "](") if each in text]
    assert f"`{cases.SUBJECT}`" in text, "what is copied from it stays as it is"


def test_what_only_has_to_grow_older_may_wait_and_nothing_else() -> None:
    young = cases.built(finished=NOW - timedelta(hours=1), started=NOW - timedelta(hours=2))
    late = cases.scanned(vulnerabilities=[cases.weakness(published=None)])
    decision, worse = decide(strict(), instead(young)), decide(strict(), instead(young, late))
    assert isinstance(decision, Refused)
    assert isinstance(worse, Refused)
    assert waits(decision)
    assert {reason.rule for reason in worse.reasons} == {"soak", "vulnerabilities"}
    assert not waits(worse)
