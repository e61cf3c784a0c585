"""Which release something becomes, what is written for that and in which order, and each reason why nothing is."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import attest
from pipeline.errors import InputError, PromotionRefused
from pipeline.evidence import Key, Signed
from pipeline.oci import Digest, Repository
from pipeline.promote import Desk, reading
from pipeline.promotion import Blocked, Plan, Standing, Wanted, asked, number, past, plan, require_number
from pipeline.releases import Release
from pipeline.statements import SUMMARY, Decided

NOW = datetime(2026, 5, 10, 12, 0, tzinfo=UTC)
CANDIDATES, RELEASES = Repository("registry.example.com", "candidates/x"), Repository("registry.example.com", "releases/x")
A, B, C, D = (Digest("sha256:" + letter * 64) for letter in "abcd")
AWAY = '`nox -s rollback -- nlp --to 2.6.0 --reason "…"`'
VARIANTS: Mapping[str, str | None] = {"base": None, "nlp": "nlp", "vision": "vision"}


def release(number: int, variant: str | None = "nlp", line: str = "2.6") -> Release:
    return Release(line=line, number=number, variant=variant)


def verdict(digest: Digest, tag: str, action: str = "promote", minute: int = 0, **changes: Any) -> Decided:
    values = {"subject": str(RELEASES.at(digest)), "action": action, "tag": tag, "policy": "sha256:" + "0" * 64, "actor": "eve"}
    when = {"finished": NOW + timedelta(minutes=minute), "run": "17", "image": "nlp"}
    return Decided.model_validate({**values, **when, **changes})


def standing(image: str = "nlp", tags: Mapping[int, Digest | None] | None = None, **changes: Any) -> Standing:
    """Releases as promotions leave them: each with its verdict, the floating tag at the highest."""
    variant, named = VARIANTS[image], tags or {}
    releases = {release(number, variant): digest for number, digest in named.items()}
    verdicts = [verdict(digest, str(one), minute=one.number, image=image) for one, digest in releases.items() if digest]
    made = Standing(
        image=image,
        line="2.6",
        variant=variant,
        tags=releases,
        floating=named[max(named)] if named else None,
        verdicts=newest_first(verdicts),
    )
    return replace(made, **changes)


def newest_first(verdicts: Iterable[Decided]) -> list[Decided]:
    return sorted(verdicts, key=lambda one: one.finished, reverse=True)


def also(before: Standing, *verdicts: Decided, **changes: Any) -> Standing:
    return replace(before, verdicts=newest_first([*before.verdicts, *verdicts]), **changes)


def wanted(image: str = "nlp", digest: Digest = A, parent: tuple[str, Digest | None] | None = None) -> Wanted:
    return Wanted(image=image, source=CANDIDATES.at(digest), parent=parent)


def planned(*images: Wanted, given: int | None = None, lift: bool = False, **standings: Standing) -> Plan | Blocked:
    known = {name: standings.get(name, standing(name)) for name in VARIANTS}
    tags = [str(one) for each in known.values() for one in each.tags]
    return plan(images, known, tags, RELEASES, line="2.6", given=given, lift=lift)


def good(found: Plan | Blocked) -> Plan:
    assert isinstance(found, Plan), found
    return found


def refused(found: Plan | Blocked) -> tuple[str, str, bool]:
    assert isinstance(found, Blocked), found
    (only,) = found.obstacles
    return only.message, only.solution, only.conflict


def test_the_first_release_of_a_line_is_0_and_every_write_has_its_place() -> None:
    found = good(planned(wanted()))
    (one,) = found.promotions
    assert found.notes == ()
    assert list(one.writes) == [
        f"bring the image and its evidence to {RELEASES.at(A)}",
        "sign and attach the verdict: promote v2.6.0-nlp",
        "create the tag v2.6.0-nlp",
        "move the tag v2.6-nlp from nothing to v2.6.0-nlp",
    ]


def test_what_is_released_where_it_is_a_candidate_is_not_brought() -> None:
    here = Wanted(image="nlp", source=RELEASES.at(A))
    (one,) = good(planned(here)).promotions
    assert [write.partition(" ")[0] for write in one.writes] == ["sign", "create", "move"]


def test_the_number_is_one_above_the_lines_highest_so_an_image_skips_some() -> None:
    found = good(planned(wanted(), base=standing("base", {3: B}), nlp=standing("nlp", {1: C})))
    assert (found.number, str(found.promotions[0].release)) == (4, "v2.6.4-nlp")


def test_tags_of_other_lines_and_those_that_are_no_releases_do_not_count() -> None:
    tags = (
        "v2.7.9",
        "2.6.9",
        "v2.6.09-nlp",
        "v2.6.9+x",
        "v2.6.9-rc.1",
        "latest",
        "v2.6-nlp",
        "v2.6-nlp-0123456789ab",
        "v2.6.1-vision",
    )
    known = {"nlp": standing()}
    assert good(plan([wanted()], known, tags, RELEASES, line="2.6", given=None, lift=False)).number == 2


def test_ten_is_above_nine() -> None:
    assert good(planned(wanted(digest=D), nlp=standing(tags={9: A, 10: B}))).number == 11


def test_several_images_have_one_number_parents_first() -> None:
    found = good(planned(wanted("base", A), wanted("nlp", B, ("base", A)), base=standing("base", {7: C})))
    assert [str(one.release) for one in found.promotions] == ["v2.6.8", "v2.6.8-nlp"]


def test_in_ci_the_number_must_be_given() -> None:
    with pytest.raises(InputError, match="must be given in CI"):
        require_number(None, ci=True)
    require_number(0, ci=True)
    require_number(None, ci=False)


@pytest.mark.parametrize("text", ["03", "+3", "-1", "v3", "3.0", "", " 3", "٣", "1_0", "1" * 10])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a release's number"):
        number(text)


def test_a_number_is_written_as_in_the_tag() -> None:
    assert [number(text) for text in ("0", "3", "10", "999999999")] == [0, 3, 10, 999_999_999]


@pytest.mark.parametrize("text", ["2.6.2", "v2.6.2", "v2.6.2-nlp"])
def test_a_release_may_be_named_without_what_is_clear(text: str) -> None:
    assert asked(text, "2.6", "nlp") == release(2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2.6.02", "is no release"),
        ("02.6.2", "is no release"),
        ("2.6.2+cu124", "is no release"),
        ("v2.6.2-rc.1", "is no release"),
        ("v2.6.2-NLP", "is no release"),
        ("2.6", "is no release"),
        ("v2.6-nlp", "is no release"),
        ("vv2.6.2", "is no release"),
        ("V2.6.2", "is no release"),
        ("latest", "is no release"),
        ("v2.6.2-rc1", "is of another image"),
        ("v2.6.2-vision", "is of another image"),
        ("2.5.2", "is of the line 2.5"),
        ("2.6.2-nlp", "is no tag: `v2.6.2-nlp` is one"),
    ],
)
def test_a_release_of_something_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        asked(text, "2.6", "nlp")


def test_what_is_released_already_has_nothing_to_write() -> None:
    (one,) = good(planned(wanted(), nlp=standing(tags={0: B, 1: A}))).promotions
    assert (one.done, list(one.writes), str(one.release)) == (True, [], "v2.6.1-nlp")


def test_a_run_that_ended_before_the_floating_tag_moved_is_finished() -> None:
    (one,) = good(planned(wanted(), nlp=standing(tags={0: B, 1: A}, floating=B))).promotions
    assert list(one.writes) == [f"move the tag v2.6-nlp from v2.6.0-nlp ({B}) to v2.6.1-nlp"]


def test_a_set_that_ended_half_way_keeps_its_number() -> None:
    found = good(planned(wanted("base", A), wanted("nlp", B), base=standing("base", {4: A}), nlp=standing("nlp", {3: C})))
    assert (found.number, [one.done for one in found.promotions]) == (4, [True, False])


def test_a_set_that_is_released_as_a_whole_has_the_number_that_it_has() -> None:
    found = good(planned(wanted("base", A), wanted("nlp", B), base=standing("base", {4: A}), nlp=standing("nlp", {4: B})))
    assert (found.number, found.notes) == (4, ())


def test_a_part_that_has_an_older_number_begins_no_set() -> None:
    found = planned(wanted("base", A), wanted("nlp", B), base=standing("base", {3: A}), vision=standing("vision", {5: C}))
    assert good(found).number == 6


def test_a_set_goes_on_above_where_one_of_the_rest_has_its_number() -> None:
    three = wanted("base", A), wanted("nlp", B), wanted("vision", D)
    assert good(planned(*three, base=standing("base", {4: A}), vision=standing("vision", {4: C}))).number == 5


def test_a_set_whose_number_is_taken_by_another_goes_on_and_what_is_released_keeps_its_own() -> None:
    found = good(planned(wanted("base", A), wanted("nlp", B), base=standing("base", {4: A}), nlp=standing("nlp", {4: C})))
    assert (found.number, [str(one.release) for one in found.promotions]) == (5, ["v2.6.4", "v2.6.5-nlp"])
    assert found.notes == ("`base` is released as `v2.6.4` already, so it does not become number 5",)


def test_a_tag_that_names_something_else_is_a_conflict() -> None:
    message, _, conflict = refused(planned(wanted(), given=1, nlp=standing(tags={1: B})))
    assert (message, conflict) == (f"`v2.6.1-nlp` names {B} already, not {A}", True)


def test_a_tag_whose_content_is_gone_is_taken() -> None:
    message, _, conflict = refused(planned(wanted(), given=1, nlp=standing(tags={1: None})))
    assert (message, conflict) == (f"`v2.6.1-nlp` names something that is gone already, not {A}", True)


def test_a_number_below_the_highest_is_backwards() -> None:
    message, solution, conflict = refused(planned(wanted(), given=2, nlp=standing(tags={3: B})))
    assert (message, solution, conflict) == (
        "`v2.6.2-nlp` is below `v2.6.3-nlp`: a promotion never goes backwards",
        "`--number 4` or more",
        False,
    )


def test_an_older_release_is_backwards_and_the_rollback_is_named() -> None:
    message, solution, conflict = refused(planned(wanted(), nlp=standing(tags={0: A, 1: B})))
    assert message == "it is `v2.6.0-nlp`, and `v2.6.1-nlp` is there: a promotion never goes backwards"
    assert (solution, conflict) == ('`nox -s rollback -- nlp --to 2.6.0 --reason "…"`', False)


@pytest.mark.parametrize("above", [B, None], ids=["withdrawn", "gone"])
def test_above_what_is_withdrawn_or_gone_nothing_is_backwards(above: Digest | None) -> None:
    before = also(standing(tags={0: A, 1: above}), verdict(B, "v2.6.1-nlp", "withdraw", 9), floating=A)
    assert good(planned(wanted(), nlp=before)).promotions[0].done


def test_the_first_release_whose_floating_tag_is_not_there_yet_is_finished() -> None:
    (one,) = good(planned(wanted(), nlp=standing(tags={0: A}, floating=None))).promotions
    assert list(one.writes) == ["move the tag v2.6-nlp from nothing to v2.6.0-nlp"]


def test_what_is_released_does_not_become_another_number_that_is_given() -> None:
    found = good(planned(wanted(), given=5, nlp=standing(tags={1: A})))
    assert found.notes == ("`nlp` is released as `v2.6.1-nlp` already, so it does not become number 5",)


def test_below_a_withdrawn_release_that_the_floating_tag_still_names_is_backwards_too() -> None:
    before = standing(tags={0: A, 1: B})
    message, _, _ = refused(planned(wanted(), nlp=also(before, verdict(B, "v2.6.1-nlp", "withdraw", 9))))
    assert "never goes backwards" in message


def test_what_was_withdrawn_is_not_released_again() -> None:
    before = standing(tags={0: B, 1: A})
    gone = verdict(A, "v2.6.1-nlp", "withdraw", 9, reason="wrong sums")
    assert refused(planned(wanted(), nlp=also(before, gone)))[0] == "it was withdrawn as `v2.6.1-nlp` by eve: wrong sums"


def test_a_held_image_is_refused_until_somebody_lifts_the_hold() -> None:
    held = also(standing(tags={0: B, 1: C}), verdict(B, "v2.6.0-nlp", "rollback", 9, hold=True, reason="it burns"), floating=B)
    message, solution, _ = refused(planned(wanted(), nlp=held))
    assert message == "`v2.6-nlp` is held at `v2.6.0-nlp` since 2026-05-10 12:09 by eve: it burns"
    assert "--lift-hold --reason" in solution
    (one,) = good(planned(wanted(), lift=True, nlp=held)).promotions
    assert (one.decided, str(one.release), one.moves) == (False, "v2.6.2-nlp", True)
    assert good(planned(wanted(), lift=True, nlp=held)).notes == ()
    after = also(held, verdict(A, "v2.6.2-nlp", minute=10), tags={**held.tags, release(2): A}, floating=A)
    assert (after.hold, after.top) == (None, release(2))


def test_the_same_release_may_be_released_anew_over_its_hold() -> None:
    held = also(standing(tags={0: B, 1: A}), verdict(B, "v2.6.0-nlp", "rollback", 9, hold=True), floating=B)
    (one,) = good(planned(wanted(), lift=True, nlp=held)).promotions
    assert [write.partition(" ")[0] for write in one.writes] == ["sign", "move"]


def test_a_hold_that_there_is_not_is_not_lifted() -> None:
    found = good(planned(wanted(), lift=True, nlp=standing(tags={0: A})))
    assert (found.promotions[0].done, found.notes) == (True, ("`nlp` is not held: there is no hold to lift",))


def test_a_hold_on_a_tag_that_names_something_else_holds_nothing() -> None:
    assert also(standing(tags={0: B}), verdict(C, "v2.6.0-nlp", "rollback", 9, hold=True)).hold is None


def test_the_floating_tag_should_name_what_is_held_else_the_highest_that_is_proved_and_good() -> None:
    held = also(standing(tags={0: B, 1: C}), verdict(B, "v2.6.0-nlp", "rollback", 9, hold=True))
    assert held.top == release(0)
    unproved = standing(tags={0: B, 1: C}, verdicts=[verdict(B, "v2.6.0-nlp")])
    assert unproved.top == release(0)
    assert also(standing(tags={0: B, 1: C}), verdict(C, "v2.6.1-nlp", "withdraw", 9)).top == release(0)


@pytest.mark.parametrize("action", ["promote", "rollback", "withdraw"])
def test_a_verdict_on_what_a_tag_does_not_name_says_nothing_of_it(action: str) -> None:
    moved = standing(tags={0: B}, verdicts=[verdict(C, "v2.6.0-nlp", action)])
    assert (moved.proof(release(0)), moved.withdrawn(release(0)), moved.top) == (None, None, None)
    assert (
        "which is no release of it"
        in refused(
            planned(
                wanted(parent=("base", B)), base=replace(standing("base", {0: B}), verdicts=[verdict(C, "v2.6.0", image="base")])
            )
        )[0]
    )


def test_a_withdrawal_neither_holds_nor_lifts() -> None:
    held = also(standing(tags={0: B, 1: C}), verdict(B, "v2.6.0-nlp", "rollback", 8, hold=True))
    assert also(held, verdict(C, "v2.6.1-nlp", "withdraw", 9)).hold is not None


@pytest.mark.parametrize("digest", [C, None])
def test_a_child_of_what_is_no_release_is_refused(digest: Digest | None) -> None:
    message, solution, _ = refused(planned(wanted(parent=("base", digest)), base=standing("base", {0: B, 1: None})))
    assert "which is no release of it" in message
    assert solution == "`nox -s promote -- base nlp` releases both, the parent first"


def test_a_child_of_a_release_or_of_one_in_the_same_set_is_allowed() -> None:
    assert isinstance(planned(wanted(parent=("base", B)), base=standing("base", {0: B, 1: C})), Plan)
    assert isinstance(planned(wanted("base", C), wanted(parent=("base", C))), Plan)


def test_a_child_of_a_withdrawn_release_or_of_one_without_a_verdict_is_refused() -> None:
    before = standing("base", {0: B})
    withdrawn = also(before, verdict(B, "v2.6.0", "withdraw", 9, image="base"))
    for parent in (withdrawn, replace(before, verdicts=())):
        assert "which is no release of it" in refused(planned(wanted(parent=("base", B)), base=parent))[0]


def test_a_child_before_its_parent_is_refused() -> None:
    found = planned(wanted("nlp", A, ("base", B)), wanted("base", B))
    assert isinstance(found, Blocked)


def test_what_cannot_be_read_refuses() -> None:
    assert refused(planned(wanted(), nlp=standing(unread=("`x` cannot be had",))))[0] == "`x` cannot be had"


def test_a_release_without_a_verdict_that_counts_gets_one() -> None:
    (one,) = good(planned(wanted(), nlp=standing(tags={0: A}, verdicts=()))).promotions
    assert list(one.writes) == ["sign and attach the verdict: promote v2.6.0-nlp"]


def test_nobody_else_chooses_the_number_of_a_release() -> None:
    """A tag without a verdict is somebody's who may write, and has no key: our own verdicts come first."""
    for verdicts in ((), standing(tags={3: A}).verdicts):
        stray = standing(tags={3: A, 9: A}, verdicts=verdicts)
        message, solution, conflict = refused(planned(wanted(), given=3, nlp=stray))
        assert (message.partition(",")[0], solution.partition(" if")[0], conflict) == (
            "`v2.6.9-nlp` names it already",
            "`--number 9`",
            True,
        )
    assert good(planned(wanted(), given=9, nlp=stray)).promotions[0].release.number == 9


def test_a_floating_tag_that_names_no_release_is_told() -> None:
    found = good(planned(wanted(), nlp=standing(tags={0: B}, floating=C)))
    assert found.notes == (f"`v2.6-nlp` names {C}, which is no release",)


def test_all_obstacles_of_all_images_are_told_at_once() -> None:
    found = planned(wanted("base", A), wanted("nlp", B, ("base", C)), given=0, base=standing("base", {0: B, 3: C}))
    assert isinstance(found, Blocked)
    assert [one.image for one in found.obstacles] == ["base"]
    both = planned(wanted("base", A), wanted("nlp", B, ("base", D)), given=0, base=standing("base", {0: B}))
    assert isinstance(both, Blocked)
    assert [one.image for one in both.obstacles] == ["base", "nlp"]


def test_the_floating_tag_never_moves_backwards() -> None:
    """Promotions of whatever, with whatever number, over whatever stands, among rollbacks and withdrawals."""
    chance, digests = random.Random(17), [Digest(f"sha256:{at:064x}") for at in range(12)]
    moves = 0
    for _ in range(150):
        now = standing()
        for minute in range(12):
            act, any_release = chance.random(), chance.choice([*now.tags] or [None])
            if act < 0.2 and any_release:
                now = rolled_back(now, any_release, minute)
            elif act < 0.3 and any_release:
                now = also(now, verdict(known(now, any_release), str(any_release), "withdraw", minute))
            else:
                now, moved = promoted(now, chance, chance.choice(digests), minute)
                moves += moved
    assert moves > 300


def known(now: Standing, one: Release) -> Digest:
    digest = now.tags[one]
    assert digest is not None
    return digest


def rolled_back(now: Standing, to: Release, minute: int) -> Standing:
    if now.withdrawn(to):
        return now
    hold = to != now.highest
    return also(now, verdict(known(now, to), str(to), "rollback", minute, hold=hold), floating=now.tags[to])


def promoted(now: Standing, chance: random.Random, digest: Digest, minute: int) -> tuple[Standing, bool]:
    lift, given = chance.random() < 0.3, chance.choice([None, None, *range(8)])
    found = planned(wanted(digest=digest), given=given, lift=lift, nlp=now)
    if isinstance(found, Blocked):
        return now, False
    (one,) = found.promotions
    before = now.releases(now.floating) if now.floating else ()
    if one.moves:
        assert not before or one.release.number >= before[0].number
        assert now.hold is None or lift
    after = also(now, verdict(digest, str(one.release), minute=minute)) if not one.decided else now
    after = replace(after, tags={**now.tags, one.release: digest}, floating=digest)
    assert after.hold is None
    assert after.top is not None
    assert known(after, after.top) == digest
    return after, one.moves


def test_the_past_tells_gaps_forks_and_runs_that_ended_half_way() -> None:
    before = standing(tags={1: A, 3: B, 4: None}, floating=C)
    lost, half = verdict(D, "v2.6.3-nlp", minute=7), verdict(D, "v2.6.5-nlp", minute=8)
    found = past(before, ["v2.6.0", "v2.6.1-nlp"], [lost, half])
    assert [(one.release.number, one.state) for one in found.entries] == [(1, ""), (3, ""), (4, "gone")]
    assert found.notes == (
        "`v2.6.0-nlp` is not there: other images have this number",
        "`v2.6.2-nlp` is not there: no image has this number",
        f"`v2.6-nlp` names {C}, which is no release: somebody else has moved it",
        f"promote of {D} as `v2.6.3-nlp` by eve at 2026-05-10 12:07: `v2.6.3-nlp` names {B} instead",
        f"promote of {D} as `v2.6.5-nlp` by eve at 2026-05-10 12:08: there is no tag `v2.6.5-nlp`",
    )


def test_a_withdrawal_that_is_dated_ahead_blocks_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine with a wrong clock signs it; it must not pass for nothing."""
    ahead = verdict(A, "v2.6.0-nlp", "withdraw", minute=60)
    key = Key(name="release", roles=frozenset({"release"}))
    signed = Signed(manifest=B, key=key, subject=str(A), record=ahead, predicate_type=SUMMARY)
    monkeypatch.setattr(reading, "attached", lambda *_: (signed,))
    registry = SimpleNamespace(resolve=lambda _: A)
    desk: Any = SimpleNamespace(
        variants=VARIANTS, line="2.6", registry=registry, repository=RELEASES, keys=(), now=lambda: NOW + timedelta(minutes=1)
    )
    found = reading.standing("nlp", ["v2.6.0-nlp", "v2.6-nlp"], desk)
    (note,) = [one for one in past(found, []).notes if "ahead of this machine's clock" in one]
    assert str(B) in note
    message, solution, _ = refused(planned(wanted(digest=B), nlp=found))
    assert (message, "set the clock" in solution) == (note, True)


def test_the_past_tells_who_did_what_and_why() -> None:
    held = also(standing(tags={0: A, 1: B}), verdict(A, "v2.6.0-nlp", "rollback", 9, hold=True, reason="it burns"), floating=A)
    found = past(also(held, verdict(B, "v2.6.1-nlp", "withdraw", 10)), [])
    assert [one.state for one in found.entries] == ["held here", "withdrawn"]
    assert [(one.action, one.reason) for one in found.entries[0].verdicts] == [("promote", ""), ("rollback", "it burns")]
    assert found.notes == ()


def test_the_past_tells_where_the_floating_tag_is_and_what_nobody_released() -> None:
    good_one = past(standing(tags={0: A, 1: B}), ["v2.6.0-nlp", "v2.6.1-nlp"])
    assert ([one.state for one in good_one.entries], good_one.notes) == (["", "current"], ())
    bare = past(standing(tags={0: A}, verdicts=()), ["v2.6.0-nlp"])
    assert [one.state for one in bare.entries] == ["no verdict, current"]
    assert bare.notes == ("`v2.6-nlp` names `v2.6.0-nlp`, on which no verdict counts",)
    missing = past(standing(tags={0: A}, floating=None), ["v2.6.0-nlp"])
    assert missing.notes == ("`v2.6-nlp` is not there: `nox -s promote -- nlp` finishes, or went wrong",)
    assert past(standing(), []).notes == ()


def test_the_past_tells_of_a_tag_what_is_said_of_what_it_names_and_of_numbers_those_of_its_line() -> None:
    lost = verdict(C, "v2.6.1-nlp", minute=7)
    found = past(
        also(standing(tags={1: A}), lost), ["v2.5.0", "v2.6.1-nlp"], [verdict(D, "latest"), verdict(D, "v2.6.0", image="base")]
    )
    assert [[str(one.subject) for one in each.verdicts] for each in found.entries] == [[str(RELEASES.at(A))]]
    assert found.notes == (
        "`v2.6.0-nlp` is not there: no image has this number",
        f"promote of {C} as `v2.6.1-nlp` by eve at 2026-05-10 12:07: `v2.6.1-nlp` names {A} instead",
    )


def test_the_past_tells_a_floating_tag_that_was_left_behind_or_names_what_is_withdrawn() -> None:
    left = past(standing(tags={0: A, 1: B}, floating=A), [])
    assert left.notes == ("`v2.6-nlp` should name `v2.6.1-nlp`: a run ended before it moved the tag; run it again",)
    bad = past(also(standing(tags={0: A, 1: B}), verdict(B, "v2.6.1-nlp", "withdraw", 9)), [])
    assert bad.notes == (f"`v2.6-nlp` names `v2.6.1-nlp`, which is withdrawn: {AWAY}",)
    held = also(standing(tags={0: A, 1: B}), verdict(B, "v2.6.1-nlp", "rollback", 8, hold=True), floating=B)
    assert past(also(held, verdict(B, "v2.6.1-nlp", "withdraw", 9)), []).notes == bad.notes
    alone = past(also(standing(tags={0: A}), verdict(A, "v2.6.0-nlp", "withdraw", 9)), [])
    assert alone.notes[0].endswith("which is withdrawn: there is no other release: build, test and `nox -s promote -- nlp`")


def test_what_is_withdrawn_is_so_under_each_number_that_it_has() -> None:
    twice = also(standing(tags={0: A, 1: B, 2: B}), verdict(B, "v2.6.1-nlp", "withdraw", 9))
    found = past(twice, [])
    assert [one.state for one in found.entries] == ["", "withdrawn, current", "withdrawn, current"]
    assert (twice.top, twice.good) == (release(0), release(0))
    assert found.notes == (f"`v2.6-nlp` names `v2.6.2-nlp`, which is withdrawn: {AWAY}",)


@pytest.mark.parametrize(("minutes", "right"), [(5, True), (-5, True), (6, False), (-6, False), (None, True)])
def test_who_has_a_wrong_clock_signs_no_verdict(monkeypatch: pytest.MonkeyPatch, minutes: int | None, right: bool) -> None:
    monkeypatch.setattr(attest, "listed", lambda *_, **__: "a key")
    there = None if minutes is None else NOW + timedelta(minutes=minutes)
    parts = {field.name: None for field in fields(Desk)}
    registry = SimpleNamespace(clock=lambda _: there)
    desk = Desk(**{**parts, "registry": registry, "key": str, "now": lambda: NOW, "repository": RELEASES})  # type: ignore[arg-type]
    if right:
        desk.may_sign()
        return
    with pytest.raises(PromotionRefused, match="it is 2026-05-10 12:00:00 UTC here, and 2026-05-10 1"):
        desk.may_sign()
