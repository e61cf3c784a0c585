"""Whose fault it is that a lane did not pass: every witness, alone and against the others."""

from typing import get_args

import pytest

from pipeline.blame import Case, Verdict, judge, reference_fails
from pipeline.failures import Owner, Row
from pipeline.statements import Outcome, Reference

PASSES = Reference(subject="r@sha256:0", origin="a release", before=Outcome.PASSED, after=Outcome.PASSED)
FAILS = PASSES.model_copy(update={"after": Outcome.FAILED, "reason": "matmul: 3 is not 4"})
BREAKS = FAILS.model_copy(update={"cause": "cuda-unknown"})
NONE = Reference(origin="nothing is released yet")


OWNERS: tuple[Owner, ...] = get_args(Owner)


def row(owner: Owner) -> Row:
    return Row(name="a-row", texts=("some words",), owner=owner, remedy="do this")


def verdict(
    outcome: Outcome = Outcome.FAILED, reference: Reference = PASSES, row: Row | None = None, events: tuple[str, ...] = ()
) -> Verdict:
    return judge(Case(outcome=outcome, reason="matmul: wrong", reference=reference, row=row, events=events))


def test_a_failure_that_no_row_knows_is_the_images_when_the_reference_passes() -> None:
    assert verdict() == Verdict(outcome=Outcome.FAILED, reason="matmul: wrong")


def test_without_a_reference_a_failure_is_the_images_too() -> None:
    assert verdict(reference=NONE).outcome is Outcome.FAILED


def test_a_reference_that_fails_afterwards_makes_it_the_machines() -> None:
    found = verdict(reference=FAILS, row=row("image"))
    assert found.outcome is Outcome.INFRASTRUCTURE
    assert "the reference image fails on these GPUs: matmul: 3 is not 4 (the checks said: matmul: wrong)" in found.reason


def test_a_reference_proves_a_sick_machine_only_by_words_that_a_row_knows() -> None:
    # otherwise a check that is itself wrong would put every machine into quarantine
    assert not verdict(reference=FAILS).proved
    assert verdict(reference=BREAKS).proved
    assert not reference_fails(FAILS).proved
    assert reference_fails(BREAKS).proved


def test_what_the_machine_reports_outweighs_all_else() -> None:
    found = verdict(events=("Xid 79",), row=row("image"))
    assert (found.outcome, found.proved) == (Outcome.INFRASTRUCTURE, True)
    assert "Xid 79" in found.reason


def test_a_pass_on_a_machine_that_got_worse_meanwhile_is_none() -> None:
    assert verdict(Outcome.PASSED).outcome is Outcome.PASSED
    assert verdict(Outcome.PASSED, events=("GPU-1 is gone",)).outcome is Outcome.INFRASTRUCTURE


def test_a_lane_that_did_not_run_blames_nobody() -> None:
    assert verdict(Outcome.NOT_RUN, events=("Xid 79",)) == Verdict(outcome=Outcome.NOT_RUN, reason="matmul: wrong")


@pytest.mark.parametrize(
    ("owner", "reference", "outcome"),
    [
        ("image", PASSES, Outcome.FAILED),
        ("machine", PASSES, Outcome.INFRASTRUCTURE),
        ("pipeline", PASSES, Outcome.ERROR),
        ("reference", PASSES, Outcome.FAILED),
        ("reference", NONE, Outcome.INFRASTRUCTURE),
    ],
)
def test_a_row_says_whose_fault_its_words_are(owner: Owner, reference: Reference, outcome: Outcome) -> None:
    found = verdict(Outcome.ERROR, reference=reference, row=row(owner))
    assert (found.outcome, found.cause, found.remedy) == (outcome, "a-row", "do this")


def test_words_alone_never_prove_that_a_machine_is_sick() -> None:
    # they come from the image, which could put every machine into quarantine
    for known in map(row, OWNERS):
        assert not verdict(row=known).proved
        assert not verdict(row=known, reference=NONE).proved


def test_a_pass_is_never_made_of_anything_else() -> None:
    for outcome in Outcome:
        for reference in (PASSES, FAILS, NONE):
            for known in (None, *map(row, OWNERS)):
                found = verdict(outcome, reference=reference, row=known)
                assert found.outcome is not Outcome.PASSED or outcome is Outcome.PASSED
