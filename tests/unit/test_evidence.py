"""Which statements count: the right role, about this image, in time, the newest of each group; and why the others do not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from pipeline import attest, statements
from pipeline.evidence import AHEAD, Evidence, Ignored, Key, Signed, Why, collect
from pipeline.oci import Digest
from pipeline.statements import NOT_SELECTED, Bom, Built, Checked, Decided, Outcome, Scanned, Secret
from tests import cases
from tests.cases import KEYS, NOW, OTHER, SUBJECT, YESTERDAY, built, failed, findings, gpu, passed, scanned, signed

SECOND = timedelta(seconds=1)
RUNS = "abcdefgh"
"""Enough of them that digests, which decide between equals, cannot be in order by chance."""


def evidence(*found: Signed | Ignored) -> Evidence:
    return collect(SUBJECT, found, now=NOW)


def why(found: Evidence) -> list[Why]:
    return [one.why for one in found.ignored]


def verdict(tag: str = "v1.0.3-nlp", action: str = "promote") -> Decided:
    return Decided(
        image="nlp",
        subject=str(SUBJECT),
        action=action,  # type: ignore[arg-type]
        tag=tag,
        policy=cases.DIGEST,
        actor="somebody",
        finished=YESTERDAY,
        run="17",
    )


def test_all_that_is_in_order_counts() -> None:
    found = evidence(*cases.all_good())
    assert len(found.counted) == 6
    assert found.signed_by("ci")
    assert not found.signed_by("release")
    assert found.ignored == ()
    assert found.one(Built) == built()
    assert [one.lane for one in found.all(statements.Tested)] == ["cpu", "gpu"]


@pytest.mark.parametrize(
    ("record", "role"),
    [
        (built(), "gpu"),
        (built(), "release"),
        (passed("cpu"), "gpu"),
        (passed("gpu"), "ci"),
        (passed("gpu"), "release"),
        (scanned(), "gpu"),
        (findings(), "release"),
        (cases.bom(), "gpu"),
        (verdict(), "ci"),
        (None, "gpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_key_of_another_role_signs_nothing(record: object, role: str) -> None:
    found = evidence(signed(record, KEYS[role]))  # type: ignore[index, arg-type]
    assert (found.counted, found.signatures, why(found)) == ((), (), [Why.ROLE])


def test_a_revoked_key_signs_nothing() -> None:
    key = replace(KEYS["ci"], revoked=True)
    found = evidence(signed(built(), key), signed(None, key))
    assert [(one.why, one.text) for one in found.ignored] == [
        (Why.REVOKED, "a build is signed by `ci`, which is revoked"),
        (Why.REVOKED, "a signature is signed by `ci`, which is revoked"),
    ]


def test_a_statement_of_another_image_does_not_count() -> None:
    found = evidence(signed(built(), subject=OTHER), signed(None, subject=OTHER))
    assert (found.counted, found.signatures, why(found)) == ((), (), [Why.SUBJECT, Why.SUBJECT])


def test_a_record_that_is_not_about_its_own_subject_does_not_count() -> None:
    assert why(evidence(signed(built(subject=str(OTHER))))) == [Why.SUBJECT]


def test_a_signed_statement_of_another_kind_is_no_signature_of_the_digest() -> None:
    # what a bare `cosign verify` accepts: any attestation by the key
    found = evidence(signed(None, kind="https://example.com/anything"))
    assert (found.signatures, why(found)) == ((), [Why.FOREIGN])
    assert found.ignored[0].text == "`https://example.com/anything` is no statement of ours"


def test_a_date_may_lie_five_minutes_ahead_and_no_second_more() -> None:
    assert evidence(signed(passed("cpu", NOW + AHEAD))).ignored == ()
    assert why(evidence(signed(passed("cpu", NOW + AHEAD + SECOND)))) == [Why.FUTURE]


def test_a_retired_keys_older_statements_stand() -> None:
    key = replace(KEYS["ci"], retired=YESTERDAY)
    assert evidence(signed(built(), key)).ignored == ()
    assert why(evidence(signed(passed("cpu", YESTERDAY + SECOND), key))) == [Why.RETIRED]


def test_a_retired_key_cannot_block_by_a_date_ahead() -> None:
    key = replace(KEYS["ci"], retired=YESTERDAY)
    assert why(evidence(signed(passed("cpu", NOW + timedelta(days=900)), key))) == [Why.RETIRED]


def test_a_retired_keys_signature_counts_only_beside_what_it_signed_in_time() -> None:
    key = replace(KEYS["ci"], retired=YESTERDAY)
    assert why(evidence(signed(None, key))) == [Why.RETIRED]
    assert why(evidence(signed(None, key), signed(built()))) == [Why.RETIRED]
    assert evidence(signed(None, key), signed(built(), key)).signed_by("ci")


def test_one_signature_of_each_key_counts_however_often_others_attach_it() -> None:
    once, again = signed(None), replace(signed(None), manifest=Digest("sha256:" + "f" * 64))
    for found in (evidence(once, again), evidence(again, once)):
        assert found.signatures == (again,)
        assert why(found) == [Why.OLDER]
    assert len(evidence(once, signed(None, KEYS["release"])).signatures) == 2


def test_the_newest_of_a_group_counts_in_whatever_order_they_come() -> None:
    old, new = signed(passed("cpu", YESTERDAY)), signed(failed("cpu", YESTERDAY + SECOND))
    for found in (evidence(old, new), evidence(new, old)):
        assert found.counted == (new,)
        assert why(found) == [Why.OLDER]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (passed("cpu"), failed("cpu")),
        (failed("cpu"), failed("cpu", outcome=Outcome.ERROR)),
        *((scanned(run=run), scanned(run=run, vulnerabilities=[cases.weakness()])) for run in RUNS),
        *((findings(run=run), findings(run=run, secrets=[Secret(rule="aws", severity="LOW")])) for run in RUNS),
        *((findings(run=run, licences=[]), findings(run=run)) for run in RUNS),
        *((built(run=run, reproduced=True), built(run=run, reproduced=False)) for run in RUNS),
        *((built(run=run, reproduced=False), built(run=run, reproduced=True, dirty=True)) for run in RUNS),
    ],
)
def test_of_two_with_one_time_the_worse_counts(better: Built, worse: Built) -> None:
    for found in (evidence(signed(better), signed(worse)), evidence(signed(worse), signed(better))):
        assert [one.record for one in found.counted] == [worse]


def test_of_two_that_are_as_bad_the_same_counts_in_whatever_order_they_come() -> None:
    one, other = signed(scanned(run="1")), signed(scanned(run="2"))
    assert evidence(one, other).counted == evidence(other, one).counted


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.INFRASTRUCTURE])
def test_what_says_nothing_of_the_image_hides_neither_a_pass_nor_a_failure(outcome: Outcome) -> None:
    void = signed(passed("gpu", NOW, outcome=outcome))
    for record in (passed("gpu"), failed("gpu")):
        found = evidence(signed(record), void)
        assert found.all(statements.Tested) == (record,)
        assert why(found) == [Why.VOID]
    assert evidence(void).counted == ()


def test_a_pass_of_chosen_checks_hides_no_failure_and_a_failure_of_chosen_ones_counts() -> None:
    checks = [
        Checked(name="imports", image="nlp", outcome=Outcome.PASSED),
        Checked(name="cuda", image="base", outcome=Outcome.NOT_RUN, reason=NOT_SELECTED),
    ]
    assert evidence(signed(failed("cpu")), signed(passed("cpu", NOW, checks=checks))).all(statements.Tested) == (failed("cpu"),)
    chosen = failed("cpu", NOW, checks=checks)
    assert evidence(signed(passed("cpu")), signed(chosen)).all(statements.Tested) == (chosen,)


@pytest.mark.parametrize(
    "other",
    [
        passed("gpu", NOW, gpus=[gpu("Tesla T4")]),
        passed("gpu", NOW, gpus=[gpu(), gpu(index=1)]),
        passed("gpu", NOW, suite=cases.OLDER),
        passed("cpu", NOW),
        passed("cpu", NOW, suite=cases.GPU, gpus=[gpu()]),
    ],
    ids=["other GPU", "two of them", "other checks", "other lane", "other lane alone"],
)
def test_a_pass_of_something_else_does_not_hide_a_failure(other: statements.Tested) -> None:
    assert failed("gpu") in evidence(signed(failed("gpu")), signed(other)).all(statements.Tested)


def test_the_same_gpus_in_another_order_are_one_group() -> None:
    pair = [gpu("A", 0), gpu("B", 1)]
    found = evidence(signed(failed("gpu", gpus=pair)), signed(passed("gpu", NOW, gpus=pair[::-1])))
    assert [one.outcome for one in found.all(statements.Tested)] == [Outcome.PASSED]


def test_a_look_at_the_list_of_packages_replaces_an_older_one_at_the_image() -> None:
    again = scanned(NOW, source="sbom")
    assert evidence(signed(scanned()), signed(again)).all(Scanned) == (again,)


def test_every_verdict_counts() -> None:
    first = verdict("v1.0.3-nlp")
    again = first.model_copy(update={"finished": NOW})
    records = (first, verdict("v1.0.4-nlp"), verdict("v1.0.3-nlp", "withdraw"), again)
    assert evidence(*(signed(one, KEYS["release"]) for one in records)).all(Decided) == records


def test_junk_changes_nothing_and_is_kept_with_its_reason() -> None:
    junk = [Ignored(manifest=f"sha256:{number:064}", why=Why.UNSIGNED, text="is junk") for number in range(60)]
    found = evidence(*junk, *cases.all_good())
    assert found.counted == evidence(*cases.all_good()).counted
    assert found.because(Why.UNSIGNED) == tuple(junk)


def test_a_development_key_of_all_roles_signs_everything() -> None:
    key = Key(name="development", roles=frozenset({"ci", "gpu", "release"}))
    found = evidence(*(signed(one.record, key) for one in cases.all_good()), signed(verdict(), key))
    assert found.ignored == ()
    assert found.signed_by("release")
    assert found.one(Bom) is not None


# signed again


def known(record: statements.Statable | None, role: str, *there: Signed) -> Signed | None:
    made = attest.signature(SUBJECT) if record is None else statements.built_statement(record)  # type: ignore[arg-type]
    return attest.known(made, record, role, there)  # type: ignore[arg-type]


def test_what_is_signed_already_in_the_same_role_is_known() -> None:
    one, plain = signed(built(), kind=statements.PROVENANCE), signed(None)
    assert known(built(), "ci", plain, one) == one
    assert known(None, "ci", one, plain) == plain


@pytest.mark.parametrize(
    "there",
    [
        signed(built(), KEYS["release"], kind=statements.PROVENANCE),
        signed(built(), kind=statements.PROVENANCE, subject=OTHER),
        signed(built(run="18"), kind=statements.PROVENANCE),
        signed(built(), kind=statements.FINDINGS),
        signed(None),
    ],
    ids=["another role", "another image", "another record", "another kind", "a signature"],
)
def test_what_is_not_the_same_in_the_same_role_is_not_known(there: Signed) -> None:
    assert known(built(), "ci", there) is None


@pytest.mark.parametrize(
    "there",
    [signed(None, KEYS["release"]), signed(None, subject=OTHER), signed(built(), kind=statements.PROVENANCE)],
    ids=["another role", "another image", "a statement"],
)
def test_a_signature_by_another_or_of_another_image_is_not_known(there: Signed) -> None:
    assert known(None, "ci", there) is None
