"""Rules about who signed, what was built, and whether policy, registry and statements can be believed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline import policy
from pipeline.evidence import Ignored, Key, Why
from pipeline.policy import Allowed, decide
from pipeline.statements import Decided
from tests import cases
from tests.cases import (
    KEYS,
    NOW,
    SUBJECT,
    YESTERDAY,
    all_good,
    beside,
    instead,
    lanes_asked,
    passed,
    reasons,
    refused,
    signed,
    strict,
)

SECOND = timedelta(seconds=1)


# policy, registry, release, unreadable, future, withdrawn


def test_the_policy_counts_as_it_is_committed_and_pinned() -> None:
    good = cases.case().checkout
    assert refused(cases.case(checkout=replace(good, clean=False))) == ["policy"]
    assert refused(cases.case(checkout=replace(good, clean=False)), strict(checkout="any")) == []
    assert refused(cases.case(checkout=replace(good, pinned=None))) == []
    assert "policy: no digest is pinned: " in "".join(decide(strict(), cases.case(checkout=replace(good, pinned=None))).notes)
    assert refused(cases.case(checkout=replace(good, policy="sha256:" + "0" * 64))) == ["policy"]
    assert refused(cases.case(checkout=replace(good, policy="sha256:" + "0" * 64)), strict(checkout="any")) == ["policy"]
    assert refused(cases.case(checkout=replace(good, pinned=""))) == ["policy"]


def test_a_policy_for_laptops_is_for_registries_on_them() -> None:
    assert refused(cases.case(), strict(registry="loopback")) == ["registry"]
    assert refused(cases.case(registry_loopback=True), strict(registry="loopback")) == []


def test_an_image_that_the_catalog_does_not_release_is_refused() -> None:
    assert refused(cases.case(expected=cases.expected(released=False))) == ["release"]


def test_what_cannot_be_had_refuses_and_says_what_to_delete() -> None:
    gone = Ignored(manifest="sha256:" + "9" * 64, why=Why.UNREADABLE, text="is listed, and not there")
    (reason,) = reasons(beside(gone))
    assert reason.rule == "unreadable"
    assert "curl -X DELETE https://registry.example.com/v2/team/images/manifests/sha256:999" in reason.solution


def test_more_than_is_looked_at_refuses_once_and_says_how_to_find_what_is_junk() -> None:
    crowd = Ignored(manifest="sha256:" + "9" * 64, why=Why.CROWD, text="is the first of 7 that were not looked at")
    (reason,) = reasons(beside(crowd))
    assert reason.rule == "crowd"
    assert f"`nox -s verify -- {SUBJECT} --keys policies/keys --json`" in reason.solution


def test_a_statement_that_is_dated_ahead_refuses_beside_all_that_is_good() -> None:
    assert refused(beside(signed(passed("cpu", NOW + timedelta(minutes=5))))) == []
    assert refused(beside(signed(passed("cpu", NOW + timedelta(minutes=5) + SECOND)))) == ["future"]


def test_what_was_withdrawn_is_never_released_again() -> None:
    verdict = Decided(
        image="nlp",
        subject=str(SUBJECT),
        action="withdraw",
        tag="v1.0.3-nlp",
        policy=cases.DIGEST,
        actor="somebody",
        reason="wrong weights",
        finished=YESTERDAY,
        run="17",
    )
    assert refused(beside(signed(verdict, KEYS["release"]))) == ["withdrawn"]
    assert refused(beside(signed(verdict, KEYS["ci"]))) == []
    promoted = verdict.model_copy(update={"action": "promote"})
    decision = decide(strict(), beside(signed(promoted, KEYS["release"])))
    assert isinstance(decision, Allowed)
    assert len(decision.statements) == len(all_good())


# signature


def test_each_role_that_must_sign_has_signed_the_digest_itself() -> None:
    assert refused(cases.case(all_good()[1:])) == ["signature"]
    both = strict(signed=("ci", "release"))
    assert refused(cases.case(), both) == ["signature"]
    assert refused(beside(signed(None, KEYS["release"])), both) == []
    assert refused(cases.case([signed(None, KEYS["release"]), *all_good()[1:]])) == ["signature"]


def test_a_policy_without_keys_says_how_to_make_some() -> None:
    bare = policy.parse(cases.RELEASE.read_bytes(), "release.yaml")
    found = reasons(cases.case([]), bare)
    assert [reason.message for reason in found if reason.rule == "signature"] == [
        "the policy lists no key of the role `ci`, so nothing that one signed can count",
        "the policy lists no key of the role `gpu`, so nothing that one signed can count",
    ]
    assert "`cosign generate-key-pair --output-key-prefix ci`" in found[0].solution
    others = strict(keys=strict().keys[2:], signed=("release",))
    lacking = [reason.message for reason in reasons(cases.case([]), others) if "the policy lists no key" in reason.message]
    assert [text.split("`")[1] for text in lacking] == ["ci", "gpu"]
    assert set(refused(cases.case(), bare)) == {"signature"}


def test_a_policy_needs_no_key_of_a_lane_that_need_not_run() -> None:
    asked = lanes_asked(gpu={"required": False})
    keys = tuple(one for one in asked.keys if one.name != "gpu")
    assert refused(cases.case(cases.without_gpu_lane()), asked.model_copy(update={"keys": keys})) == []


def test_only_the_policys_own_keys_count_as_it_lists_them() -> None:
    wider = Key(name="ci", roles=frozenset({"ci", "gpu"}))
    assert "signature" in refused(beside(signed(passed("gpu", NOW), wider)))
    listed = strict().keys
    late = strict(keys=(listed[0].model_copy(update={"revoked": True}), *listed[1:]))
    assert "signature" in refused(cases.case(), late)
    messages = [reason.message for reason in reasons(cases.case([]), late)]
    assert "the policy lists no key of the role `ci`, so nothing that one signed can count" in messages


# build


@pytest.mark.parametrize(
    "change",
    [
        {"image": "base"},
        {"input_hash": "f" * 64},
        {"tag": "v1.0-nlp-ffffffffffff"},
        {"dirty": True},
        {"commit": None},
        {"commit": ""},
    ],
    ids=str,
)
def test_what_was_built_is_what_this_checkout_describes(change: dict[str, Any]) -> None:
    assert refused(instead(cases.built(**change))) == ["build"]


def test_other_inputs_are_named() -> None:
    inputs = {"file:Dockerfile": "9", "claim:torch": "2", "parent:base": "3"}
    (reason,) = reasons(instead(cases.built(input_hash="f" * 64, inputs=inputs)))
    assert reason.message == "it was built from other inputs: `file:Dockerfile`, `parent:base`"
    known = {"file:Dockerfile": "1", "claim:torch": "2"}
    (five,) = reasons(instead(cases.built(input_hash="f" * 64, inputs=known | {f"file:{name}": "0" for name in "abcde"})))
    assert five.message.endswith(": `file:a`, `file:b`, `file:c`, `file:d`, `file:e`")
    (six,) = reasons(instead(cases.built(input_hash="f" * 64, inputs=known | {f"file:{name}": "0" for name in "abcdef"})))
    assert six.message.endswith("`file:e` and 1 more")
    (none,) = reasons(instead(cases.built(input_hash="f" * 64)))
    assert none.message == f"it was built from other inputs: `{'f' * 64}`"


def test_a_policy_may_ask_for_two_builds_or_none_from_a_commit() -> None:
    twice = strict(build=strict().build.model_copy(update={"reproduced": True}))
    assert refused(cases.case(), twice) == ["build"]
    assert refused(instead(cases.built(reproduced=True)), twice) == []
    loose = strict(build=strict().build.model_copy(update={"clean": False}))
    assert refused(instead(cases.built(dirty=True, commit=None)), loose) == []
