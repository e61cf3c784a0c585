"""Rules about checks: exactly at their borders and one step beyond, and passes that would hide a failure."""

from datetime import timedelta

import pytest

from pipeline import statements
from pipeline.policy import Suite
from pipeline.statements import Checked, Outcome
from tests import cases
from tests.cases import (
    GPU,
    NOW,
    OLDER,
    YESTERDAY,
    beside,
    failed,
    gpu,
    instead,
    lanes_asked,
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
T4 = [gpu("Tesla T4")]


# lanes


@pytest.mark.parametrize("lane", ["cpu", "gpu"])
def test_a_lane_counts_as_long_as_it_is_young(lane: statements.Lane) -> None:
    age = strict().lanes[lane].age
    assert refused(instead(passed(lane, NOW - age))) == []
    assert refused(instead(passed(lane, NOW - age - SECOND))) == ["lanes"]


@pytest.mark.parametrize("lane", ["cpu", "gpu"])
def test_a_lane_counts_with_todays_checks_only(lane: statements.Lane) -> None:
    (reason,) = reasons(instead(passed(lane, suite=OLDER)))
    assert reason.message.endswith("only results of other checks than today's")
    assert reason.solution.startswith(f"`nox -s test -- nlp --lane {lane}")


@pytest.mark.parametrize(
    "checks",
    [
        [],
        [("base", "matmul", Outcome.PASSED)],
        [("base", "matmul", Outcome.PASSED), ("nlp", "bert", Outcome.NOT_RUN)],
        [("base", "matmul", Outcome.PASSED), ("base", "bert", Outcome.PASSED)],
        [("base", "matmul", Outcome.PASSED), ("nlp", "bert::test_a", Outcome.PASSED)],
        [("base", "matmul", Outcome.PASSED), ("nlp", "bert", Outcome.PASSED), ("nlp", "bert", Outcome.NOT_RUN)],
    ],
)
def test_a_pass_holds_every_check_that_the_catalog_lists(checks: list[tuple[str, str, Outcome]]) -> None:
    record = passed("gpu", checks=[Checked(image=image, name=name, outcome=outcome) for image, name, outcome in checks])
    assert refused(instead(record)) == ["lanes"]


def test_a_pass_that_holds_a_failed_check_is_a_failure() -> None:
    checks = [Checked(image=image, name=name, outcome=Outcome.PASSED) for image, name in cases.CHECKS["gpu"]]
    checks.append(Checked(image="nlp", name="extra", outcome=Outcome.FAILED, reason="wrong"))
    assert refused(instead(passed("gpu", checks=checks))) == ["failing-lane"]


def test_a_lower_rung_is_enough_only_where_any_is() -> None:
    rung = [Checked(image=i, name=n, outcome=Outcome.PASSED, rung="one GPU") for i, n in cases.CHECKS["gpu"]]
    (reason,) = reasons(instead(passed("gpu", checks=rung)))
    assert "matmul (one GPU)" in reason.message
    assert refused(instead(passed("gpu", checks=rung)), lanes_asked(gpu={"rungs": "any"})) == []
    cpu = [Checked(image=i, name=n, outcome=Outcome.PASSED, rung="gloo") for i, n in cases.CHECKS["cpu"]]
    assert refused(instead(passed("cpu", checks=cpu))) == []


@pytest.mark.parametrize(
    ("names", "good"),
    [
        (["NVIDIA A100-SXM4-80GB"], True),
        (["NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3"], True),
        (["nvidia h200"], True),
        (["Tesla T4"], False),
        (["NVIDIA A10"], False),
        (["NVIDIA A1000 Laptop"], False),
        (["NVIDIA GH200 480GB"], False),
        (["NVIDIA A100-SXM4-80GB", "Tesla T4"], False),
        ([], False),
    ],
)
def test_gpus_are_known_by_whole_words_of_their_names(names: list[str], good: bool) -> None:
    found = instead(passed("gpu", gpus=[gpu(name, index) for index, name in enumerate(names)]))
    assert refused(found) == ([] if good else ["lanes"])


def test_each_kind_of_gpu_wants_a_pass_of_its_own() -> None:
    asked = lanes_asked(gpu={"gpus": (("A100", "H100"), ("T4",))})
    assert refused(cases.case(), asked) == ["lanes"]
    assert refused(beside(signed(passed("gpu", gpus=T4))), asked) == []
    assert refused(beside(signed(passed("gpu", NOW - timedelta(days=31), gpus=T4))), asked) == ["lanes"]


def test_without_kinds_a_pass_on_any_gpu_is_enough() -> None:
    asked = lanes_asked(gpu={"gpus": ()})
    assert refused(instead(passed("gpu", gpus=T4)), asked) == []
    assert refused(cases.case(without_gpu_lane()), asked) == ["lanes"]


@pytest.mark.parametrize("suite", [None, Suite(hash=GPU, checks=())])
def test_a_required_lane_that_the_catalog_has_no_checks_for_refuses(suite: Suite | None) -> None:
    lanes = {name: one for name, one in (("cpu", cases.expected().lanes["cpu"]), ("gpu", suite)) if one}
    assert refused(cases.case(expected=cases.expected(lanes=lanes))) == ["lanes"]


def test_a_pass_of_one_lane_is_none_of_another_with_the_same_checks() -> None:
    same = {lane: Suite(hash=cases.CPU, checks=cases.CHECKS["cpu"]) for lane in cases.CHECKS}
    found = cases.case(without_gpu_lane(), expected=cases.expected(lanes=same))
    assert refused(found, lanes_asked(gpu={"gpus": ()})) == ["lanes"]


def test_a_lane_that_is_not_required_is_shown_as_not_assessed() -> None:
    asked = lanes_asked(gpu={"required": False})
    found = cases.case(without_gpu_lane())
    assert refused(found, asked) == []
    ruled = state(found, "lanes", asked)
    assert (ruled.held, ruled.assessed, ruled.reasons) == (False, False, ("lane `gpu` is not required, and has no pass",))
    assert state(cases.case(), "lanes", asked).held
    assert not state(instead(passed("gpu", checks=[])), "lanes", asked).assessed
    assert not state(instead(failed("gpu")), "lanes", asked).assessed
    neither = state(cases.case([]), "lanes", asked)
    assert (neither.held, neither.assessed, len(neither.reasons)) == (False, True, 2)


# failing lanes


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ERROR])
@pytest.mark.parametrize("lane", ["cpu", "gpu"])
def test_a_lane_that_fails_refuses_even_where_it_is_not_required(outcome: Outcome, lane: statements.Lane) -> None:
    asked = lanes_asked(cpu={"required": False}, gpu={"required": False})
    assert "failing-lane" in refused(instead(failed(lane, outcome=outcome)), asked)
    assert refused(beside(signed(failed(lane, YESTERDAY - SECOND, outcome=outcome))), asked) == []
    assert refused(instead(failed(lane, suite=OLDER, outcome=outcome)), asked) == []


def test_only_an_attestation_of_a_failed_test_is_no_release() -> None:
    # a bare `cosign verify` accepts it: it is signed, by the right key, about this digest
    found = refused(cases.case([signed(failed("gpu"))]))
    assert {"signature", "build", "lanes", "failing-lane"} <= set(found)


def test_an_old_pass_under_a_newer_failure_refuses() -> None:
    assert "failing-lane" in refused(beside(signed(failed("gpu", YESTERDAY + SECOND))))


def test_a_pass_on_one_kind_of_gpu_hides_no_failure_on_another() -> None:
    a100 = failed("gpu")
    assert set(refused(instead(a100, passed("gpu", NOW, gpus=T4)))) == {"lanes", "failing-lane"}
    asked = lanes_asked(gpu={"gpus": (("T4",),)})
    assert refused(instead(a100, passed("gpu", NOW, gpus=T4)), asked) == ["failing-lane"]
    asked = lanes_asked(gpu={"required": False})
    assert refused(instead(a100, passed("gpu", NOW, gpus=T4)), asked) == ["failing-lane"]


def test_a_failure_on_a_gpu_that_nobody_asked_for_refuses() -> None:
    (reason,) = reasons(beside(signed(failed("gpu", gpus=T4))))
    assert (reason.rule, reason.message) == ("failing-lane", "lane `gpu` failed on Tesla T4: matmul: 3 is not 4")


def test_a_failure_without_a_reason_names_the_checks_that_failed() -> None:
    checks = [
        Checked(image="base", name="matmul", outcome=Outcome.FAILED, reason="3 is not 4"),
        Checked(image="nlp", name="bert", outcome=Outcome.PASSED, reason="slow"),
    ]
    (reason,) = reasons(beside(signed(failed("gpu", gpus=T4, checks=checks, reason=""))))
    assert reason.message == "lane `gpu` failed on Tesla T4: matmul: 3 is not 4"


def test_a_newer_pass_of_older_checks_hides_no_failure_of_todays() -> None:
    assert set(refused(instead(failed("gpu"), passed("gpu", NOW, suite=OLDER)))) == {"lanes", "failing-lane"}


@pytest.mark.parametrize("outcome", [Outcome.INFRASTRUCTURE, Outcome.NOT_RUN])
def test_a_sick_machine_after_a_pass_leaves_the_pass(outcome: Outcome) -> None:
    assert refused(beside(signed(passed("gpu", NOW, outcome=outcome)))) == []
    assert "failing-lane" in refused(instead(failed("gpu"), passed("gpu", NOW, outcome=outcome)))
    assert refused(instead(passed("gpu", outcome=outcome))) == ["lanes"]


# claims


def test_a_claim_is_a_component_in_that_version_by_whichever_spelling() -> None:
    assert refused(instead(cases.bom(components={"torch": ["2.5.1", "2.6.0"], "HuggingFace.Hub": ["0.36.2"]}))) == []
    (reason,) = reasons(instead(cases.bom(components={"torch": ["2.6.0+cu124"], "huggingface-hub": ["0.36.2"]})))
    assert (reason.rule, reason.message) == ("claims", "it claims `torch: 2.6.0`, and that is 2.6.0+cu124")


def test_a_claim_that_neither_a_component_nor_a_check_knows_refuses() -> None:
    (reason,) = reasons(cases.case(expected=cases.expected(claims={**cases.CLAIMS, "speed": "high"})))
    assert (reason.rule, reason.message) == (
        "claims",
        "it claims `speed: high`, and that is not in it, and no check has this name",
    )


def test_a_claim_with_a_check_of_its_name_is_proved_by_it_with_this_claim() -> None:
    assert refused(instead(passed("cpu", claims={**cases.CLAIMS, "cuda": "12.1"}))) == ["claims"]
    assert refused(cases.case(expected=cases.expected(claims={"cuda": "12.1"}))) == ["claims"]


def test_a_claims_check_that_has_not_passed_proves_nothing_though_all_others_have() -> None:
    checks = [
        Checked(image="base", name="cuda", outcome=Outcome.NOT_RUN),
        Checked(image="nlp", name="imports", outcome=Outcome.PASSED),
    ]
    assert refused(instead(passed("cpu", checks=checks))) == ["lanes", "claims"]


def test_a_claims_check_that_has_passed_proves_it_though_another_has_failed() -> None:
    checks = [
        Checked(image="base", name="cuda", outcome=Outcome.PASSED),
        Checked(image="nlp", name="imports", outcome=Outcome.FAILED),
    ]
    assert refused(instead(failed("cpu", checks=checks))) == ["lanes", "failing-lane"]


def test_a_claim_of_a_component_is_not_assessed_where_nothing_lists_them() -> None:
    ruled = state(cases.case(without(statements.Bom)), "claims", strict(bom="show"))
    assert (ruled.held, ruled.assessed) == (False, False)


def test_a_claim_is_not_assessed_where_its_lane_need_not_run() -> None:
    lanes = {"cpu": Suite(hash=cases.CPU, checks=(("nlp", "imports"),)), "gpu": Suite(hash=GPU, checks=(("base", "cuda"),))}
    found = cases.case(without_gpu_lane(), expected=cases.expected(lanes=lanes))
    asked = lanes_asked(gpu={"required": False})
    assert refused(found, asked) == []
    assert not state(found, "claims", asked).assessed
