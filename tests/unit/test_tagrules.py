"""Which tags a Harbor freezes and what its retention keeps, judged as Harbor does."""

from typing import Any

import pytest

from pipeline.errors import InputError
from pipeline.tagrules import ImmutableRule, Retention, frozen_by, matches

TAGS = ("v1", "v1.2", "w1", "other")


def rule(tags: Any = "**", repositories: Any = "**", **more: Any) -> ImmutableRule:
    def selectors(wanted: Any, decoration: str) -> Any:
        return [{"kind": "doublestar", "decoration": decoration, "pattern": wanted}] if isinstance(wanted, str) else wanted

    scope = {"repository": selectors(repositories, "repoMatches")}
    told = {"id": 1, "tag_selectors": selectors(tags, "matches"), "scope_selectors": scope, **more}
    return ImmutableRule.read(told)


def excluding(pattern: str, decoration: str) -> list[dict[str, str]]:
    return [{"decoration": decoration, "pattern": pattern}]


@pytest.mark.parametrize(
    ("given", "frozen"),
    [
        (rule("{v*,w*}"), "v1 v1.2 w1"),
        (rule("v*"), "v1 v1.2"),
        (rule(excluding("v*", "excludes")), "w1 other"),
        (rule("", ""), "v1 v1.2 w1 other"),
        (rule("*", "a/*"), "v1 v1.2 w1 other"),
        (rule("*", "*"), ""),
        (rule("*", "immp/a/b"), ""),
        (rule("*", excluding("a/**", "repoExcludes")), ""),
        (rule([], []), ""),
        (rule("*", None, scope_selectors=None), ""),
        (rule("**"), "v1 v1.2 w1 other"),
        (rule([*excluding("v*", "matches"), *excluding("other", "matches")]), "v1 v1.2"),
        (rule("**", disabled=True), ""),
        (rule("**", template="foo"), "v1 v1.2 w1 other"),
    ],
    ids=lambda value: str(value),
)
def test_rules_freeze_what_a_real_harbor_froze_in_repository_a_b(given: ImmutableRule, frozen: str) -> None:
    assert [tag for tag in TAGS if given.freezes("a/b", tag)] == frozen.split()


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        ("v[0-9]*.[0-9]*.[0-9]*", "v2.6.3-nlp", True),
        ("v[0-9]*.[0-9]*.[0-9]*", "v2.6.3", True),
        ("v[0-9]*.[0-9]*.[0-9]*", "v2.6-nlp", False),
        ("v[0-9]*.[0-9]*.[0-9]*", "v2.6-nlp-0123456789ab", False),
        ("v*", "v2.6-nlp", True),
        ("v?.?.?", "v2.6.3", True),
        ("v2.6", "v2x6", False),
        ("[^v]*", "v1", False),
        ("[^v]*", "x1", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("team/**", "team/a/b", True),
        ("team/**", "team", False),
        ("**/b", "b", True),
        ("**/b", "a/c/b", True),
        ("a/**/b", "a/b", True),
        ("a/*", "a/b/c", False),
        ("{a,b{c,d}}1", "bd1", True),
        ("a,b", "a,b", True),
        ("", "anything", True),
    ],
)
def test_patterns_mean_what_doublestar_means(pattern: str, text: str, matched: bool) -> None:
    assert matches(pattern, text) is matched


@pytest.mark.parametrize("pattern", ["v[0-9", "v[]", "{a,b", "v\\", "[-a]", "[a-]"])
def test_a_pattern_that_cannot_be_read_is_an_error(pattern: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        matches(pattern, "v1")


def test_the_first_rule_that_freezes_is_named_with_what_it_ignores() -> None:
    two = rule([*excluding("v*", "matches"), *excluding("other", "matches")])
    assert frozen_by([rule("w*"), two], "a/b", "v1") == two
    assert frozen_by([rule("w*"), two], "a/b", "other") is None
    assert str(two) == "rule 1 (tags `v*` (the other 1 are ignored), repositories `**`)"
    assert str(rule(excluding("v*", "excludes"), disabled=True)) == "rule 1 (tags all but `v*`, repositories `**`, disabled)"


def test_an_empty_pattern_and_a_missing_selector_are_told() -> None:
    assert rule("").empty
    assert rule("**", "").empty
    assert not rule().empty
    assert rule(None).inert
    assert not rule().inert


def policy(*rules: dict[str, Any], cron: str = "0 0 0 * * *") -> Retention:
    return Retention.read({"rules": rules, "trigger": {"kind": "Schedule", "settings": {"cron": cron}}})


def retained(template: str, tags: str = "**", repositories: str = "**", **more: Any) -> dict[str, Any]:
    scope = {"repository": [{"decoration": "repoMatches", "pattern": repositories}]}
    return {"template": template, "tag_selectors": [{"decoration": "matches", "pattern": tags}], "scope_selectors": scope, **more}


@pytest.mark.parametrize(
    ("given", "deletes"),
    [
        (policy(), False),
        (policy(retained("always")), False),
        (policy(retained("latestPushedK")), True),
        (policy(retained("latestPushedK"), retained("always", "v*")), False),
        (policy(retained("always", "v*")), False),
        (policy(retained("always", "w*")), True),
        (policy(retained("latestPushedK", repositories="others/**")), False),
        (policy(retained("latestPushedK", disabled=True)), False),
        (policy(retained("always", disabled=True), retained("nDaysSinceLastPull")), True),
    ],
)
def test_retention_deletes_what_no_rule_keeps_for_good(given: Retention, deletes: bool) -> None:
    assert given.deletes("a/b", "v2.6-nlp-0123456789ab") is deletes


def test_a_policy_without_a_time_waits_for_somebody() -> None:
    assert policy().scheduled
    assert not policy(cron="").scheduled
    assert not Retention.read({}).scheduled
