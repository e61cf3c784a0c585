"""A promotion to a registry that others write to as well: what is believed of what hangs there, and what is written when."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import names, promote, report
from pipeline.errors import InputError, PipelineError, PromotionRefused, RegistryRefused, TagConflict, Temporary
from pipeline.evidence import Evidence, Key, Role, Why
from pipeline.gather import gather
from pipeline.oci import Digest, Pinned, Repository
from pipeline.policy import CODES, Allowed, Refused, decide
from pipeline.promote import Desk, Prepared, Subject, Told
from pipeline.registry import Registry, attaching
from pipeline.releases import Release
from pipeline.statements import Decided
from pipeline.story import Silent
from tests import cases
from tests.cases import KEYS, NOW, OTHER, strict
from tests.edges.test_gather import hang
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown
from tests.integration.signing import DOCUMENT, Signer, signature_of, stated
from tests.unit.test_dsse import pem


@dataclass
class Shop:
    """A candidate with all that the strictest policy asks for, and the desk of a release manager."""

    server: FakeRegistry
    desk: Desk
    signers: dict[Role, Signer]
    source: Pinned

    @property
    def target(self) -> Pinned:
        return self.desk.repository.at(self.source.digest)

    def hang(self, role: Role, content: Any, *, on: Pinned | None = None) -> Digest:
        return hang(self.server, on or self.source, self.signers[role](content))

    def good(self) -> None:
        self.hang("ci", signature_of(self.source.digest))
        for record in (cases.built(), cases.scanned(), cases.findings(), cases.bom(document=DOCUMENT), cases.passed("cpu")):
            self.hang("ci", stated(record.model_copy(update={"subject": str(self.source)})))
        self.hang("gpu", stated(cases.passed("gpu").model_copy(update={"subject": str(self.source)})))

    def prepared(self, desk: Desk | None = None, given: int | None = None) -> Prepared:
        return promote.prepare([Subject(image="nlp", source=self.source)], desk or self.desk, judge, given=given, lift=False)

    def released(self) -> Evidence:
        """What counts at the destination once the candidate is released there."""
        assert promote.apply(self.prepared(), self.desk, Told())
        return self.evidence()

    def evidence(self) -> Evidence:
        return gather(self.target, self.desk.keys, Registry(), now=NOW)


def judge(image: str, evidence: Evidence, size: int | None) -> Allowed | Refused:
    return decide(strict(), cases.case(evidence=evidence, released_size=size))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Releases are in another repository of the same registry."""
    yield from made(tmp_path, monkeypatch, "releases/x")


@pytest.fixture(params=["candidates/x", "releases/x"])
def either(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from made(tmp_path, monkeypatch, request.param)


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, releases: str) -> Iterator[Shop]:
    monkeypatch.setattr(attaching, "SETTLE_HERE", 0)
    monkeypatch.setattr(Registry, "clock", lambda *_: NOW)
    signers = {role: Signer(key=key, folder=tmp_path, cosign=Path()) for role, key in KEYS.items()}
    cosign: Any = SimpleNamespace(
        sign=lambda content, role: signers[role](content), public=lambda role: pem(signers[role].private)
    )
    with fake_registry() as server:
        server.lists_referrers = server.mounts = True
        desk = desk_at(server.repository(releases), cosign, signers, tmp_path)
        shop = Shop(server, desk, signers, server.put_image(server.repository("candidates/x")))
        shop.good()
        yield shop


def desk_at(repository: Repository, cosign: Any, signers: dict[Role, Signer], locks: Path) -> Desk:
    return Desk(
        registry=Registry(locks=locks),
        harbor=lambda: None,
        repository=repository,
        line="1.0",
        variants={"nlp": "nlp"},
        cosign=cosign,
        key=lambda: "release",  # type: ignore[arg-type,return-value]
        keys=[signer.public for signer in signers.values()],
        policy=cases.DIGEST,
        actor="eve",
        run="17",
        now=lambda: NOW,
        story=Silent(),
    )


def test_a_release_has_its_evidence_its_verdict_its_signature_and_both_tags(either: Shop) -> None:
    shop = either
    found = shop.released()
    assert found.signed_by("release")
    (verdict,) = found.all(Decided)
    assert (verdict.action, verdict.tag, verdict.subject) == ("promote", "v1.0.0-nlp", str(shop.target))
    assert [rule.code for rule in verdict.rules] == [code.name for code in CODES]
    counted = [*found.signatures, *(one for one in found.counted if not isinstance(one.record, Decided))]
    assert set(verdict.statements) == {str(one.manifest) for one in counted if "release" not in one.key.roles}
    assert len(found.counted) == 7
    for tag in ("v1.0.0-nlp", "v1.0-nlp"):
        assert Registry().resolve(shop.desk.repository.tag(tag)) == shop.target.digest
    assert shop.prepared().plan.promotions[0].done  # type: ignore[union-attr]
    assert settled(shop) is not None
    assert promote.apply(shop.prepared(), replace(shop.desk, keys=shop.desk.keys[:2]), Told()) == ()


def test_a_release_signature_of_another_image_that_somebody_hung_there_stands_for_none(either: Shop) -> None:
    shop = either
    if shop.target != shop.source:
        shop.server.put_image(shop.desk.repository)
    shop.hang("release", signature_of(OTHER.digest), on=shop.target)
    assert shop.released().signed_by("release")


@pytest.mark.parametrize(
    "changes", [{"roles": frozenset({"ci"})}, {"revoked": True}, {"retired": cases.YESTERDAY}], ids=lambda changes: min(changes)
)
def test_a_verdict_or_signature_by_a_key_that_does_not_count_stands_for_none(either: Shop, changes: dict[str, Any]) -> None:
    shop = either
    key = replace(Key(name="old", roles=frozenset({"release"})), **changes)
    shop.signers["gpu"] = Signer(key=key, folder=Path(), cosign=Path())
    shop.desk = replace(shop.desk, keys=[*shop.desk.keys, shop.signers["gpu"].public])
    shop.hang("gpu", stated(the_verdict(shop)), on=shop.target)
    if "roles" not in changes:
        shop.hang("gpu", signature_of(shop.target.digest), on=shop.target)
    found = shop.released()
    assert [one.key for one in found.counted if isinstance(one.record, Decided)] == [KEYS["release"]]
    assert KEYS["release"] in [one.key for one in found.signatures]


def the_verdict(shop: Shop) -> Decided:
    """What the promotion will say."""
    if shop.target != shop.source:
        shop.server.put_image(shop.desk.repository)
    (case,) = shop.prepared().cases
    return decided(shop, rules=case.decision.rules, statements=[str(one) for one in case.decision.statements])


def decided(shop: Shop, **changes: Any) -> Decided:
    values = {"image": "nlp", "subject": str(shop.target), "action": "promote", "tag": "v1.0.0-nlp", "policy": cases.DIGEST}
    return Decided.model_validate({**values, "actor": "eve", "finished": NOW, "run": "17", **changes})


def test_a_verdict_that_an_earlier_run_left_is_not_signed_again(either: Shop) -> None:
    shop = either
    others = {"finished": cases.YESTERDAY, "run": "16", "actor": "adam", "rules": ()}
    left = shop.hang("release", stated(the_verdict(shop).model_copy(update=others)), on=shop.target)
    found = shop.released()
    assert [one.manifest for one in found.counted if isinstance(one.record, Decided)] == [left]
    assert not found.because(Why.OLDER)


@pytest.mark.parametrize("beside", ["the candidate", "the release"])
def test_a_release_signature_that_is_there_is_not_made_again(shop: Shop, beside: str) -> None:
    shop.server.put_image(shop.desk.repository)
    left = shop.hang("release", signature_of(shop.target.digest), on=shop.source if beside == "the candidate" else shop.target)
    found = shop.released()
    assert [one.manifest for one in found.signatures if "release" in one.key.roles] == [left]
    assert not found.because(Why.OLDER)


def test_a_run_that_ended_before_the_floating_tag_moved_says_nothing_twice(shop: Shop) -> None:
    shop.released()
    del shop.server.manifests[shop.desk.repository.path, "v1.0-nlp"]
    assert promote.apply(shop.prepared(), shop.desk, Told(reason="again"))
    assert floating(shop) == shop.target.digest
    assert [one.reason for one in shop.evidence().all(Decided)] == [""]


def test_a_verdict_that_says_something_else_stands_for_none(shop: Shop) -> None:
    another = {"reason": "another", "finished": cases.YESTERDAY}
    shop.hang("release", stated(the_verdict(shop).model_copy(update=another)), on=shop.target)
    assert sorted(one.reason for one in shop.released().all(Decided)) == ["", "another"]


# before the first write


def written(shop: Shop) -> list[str]:
    """What a run wrote, in its order."""
    return [path.rpartition("/x/")[2] for method, path, _ in shop.server.requests if method in ("PUT", "POST", "PATCH")]


def unwritten(shop: Shop, wanted: type[PipelineError], match: str, desk: Desk | None = None) -> None:
    shop.server.requests.clear()
    with pytest.raises(wanted, match=match):
        promote.apply(shop.prepared(desk), desk or shop.desk, Told())
    assert written(shop) == []


def test_what_the_policy_refuses_is_not_written(shop: Shop) -> None:
    shop.hang("gpu", stated(cases.failed("gpu", NOW).model_copy(update={"subject": str(shop.source)})))
    unwritten(shop, PromotionRefused, "`nlp`: the policy refuses it")


def test_a_withdrawal_at_the_destination_refuses(shop: Shop) -> None:
    shop.server.put_image(shop.desk.repository)
    shop.hang("release", stated(decided(shop, action="withdraw")), on=shop.target)
    unwritten(shop, PromotionRefused, "the policy refuses it")


def test_a_tag_that_names_something_else_is_a_conflict_before_all_other_reasons(shop: Shop) -> None:
    shop.server.put_image(shop.desk.repository, layers=(b"other",), tag="v1.0.0-nlp")
    shop.hang("gpu", stated(cases.failed("gpu", NOW).model_copy(update={"subject": str(shop.source)})))
    with pytest.raises(TagConflict, match=r"names .* already") as caught:
        promote.apply(shop.prepared(given=0), shop.desk, Told())
    assert "the policy refuses it" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"roles": frozenset({"ci", "gpu"})}, {"revoked": True}, {"retired": NOW}],
    ids=lambda changes: min(changes),
)
def test_who_has_no_key_that_counts_writes_nothing(shop: Shop, changes: dict[str, Any]) -> None:
    known = [(replace(key, **changes) if key.name == "release" else key, public) for key, public in shop.desk.keys]
    unwritten(shop, PromotionRefused, "may not sign as `release`", replace(shop.desk, keys=known))
    unwritten(shop, PromotionRefused, "may not sign as `release`", replace(shop.desk, keys=known[:2]))


RIGHTS = {"artifact:read", "repository:pull", "repository:push", "tag:create"}


@pytest.mark.parametrize("lacking", sorted(RIGHTS))
def test_who_lacks_a_right_writes_nothing(shop: Shop, lacking: str) -> None:
    harbor: Any = SimpleNamespace(read_only=lambda: False, rights=lambda _: RIGHTS - {lacking}, user="robot", host="h")
    unwritten(shop, RegistryRefused, f"`robot` lacks `{lacking}`", replace(shop.desk, harbor=lambda: harbor))
    harbor.read_only = lambda: True
    unwritten(shop, Temporary, "is read-only for now", replace(shop.desk, harbor=lambda: harbor))


def test_evidence_that_is_deleted_after_the_decision_refuses(shop: Shop) -> None:
    prepared = shop.prepared()
    gone = prepared.cases[0].decision.statements[0]
    del shop.server.manifests[shop.source.repository.path, str(gone)]
    shop.server.requests.clear()
    with pytest.raises(PromotionRefused, match=f"was deleted since it was decided upon: {gone}"):
        promote.apply(prepared, shop.desk, Told())
    assert written(shop) == []


# the writes


def test_tags_are_written_after_all_that_proves_them(shop: Shop) -> None:
    shop.server.requests.clear()
    shop.released()
    tags = [path for path in written(shop) if path.startswith("manifests/v")]
    assert tags == ["manifests/v1.0.0-nlp", "manifests/v1.0-nlp"] == written(shop)[-2:]
    assert {str(one.manifest) for one in shop.evidence().counted} <= {path.removeprefix("manifests/") for path in written(shop)}


def test_a_harbor_is_asked_to_create_the_tag_that_never_moves(shop: Shop) -> None:
    made: list[tuple[Repository, Digest, str]] = []

    def create_tag(*what: Any) -> None:
        made.append(what)
        shop.server.put_image(shop.desk.repository, tag="v1.0.0-nlp")

    harbor: Any = SimpleNamespace(read_only=lambda: False, rights=lambda _: RIGHTS, create_tag=create_tag)
    shop.desk = replace(shop.desk, harbor=lambda: harbor)
    shop.server.requests.clear()
    shop.released()
    assert made == [(shop.desk.repository, shop.target.digest, "v1.0.0-nlp")]
    assert [path for path in written(shop) if path.startswith("manifests/v")] == ["manifests/v1.0-nlp"]


@pytest.mark.parametrize("tag", ["v1.0.0-nlp", "v1.0-nlp"])
def test_every_tag_is_read_back_before_anything_is_announced(shop: Shop, tag: str) -> None:
    prepared = shop.prepared()
    promote.apply(prepared, shop.desk, Told())
    shop.server.put_image(shop.desk.repository, layers=(b"other",), tag=tag)
    (promotion,) = prepared.plan.promotions  # type: ignore[union-attr]
    done = replace(promotion, tagged=True, decided=True, before=promotion.target.digest)
    again = replace(prepared, plan=replace(prepared.plan, promotions=(done,)))  # type: ignore[arg-type]
    with pytest.raises(TagConflict, match=f"{tag}` names .* another has written it"):
        promote.apply(again, shop.desk, Told())


def test_who_is_overtaken_between_plan_and_tag_finds_out(shop: Shop) -> None:
    prepared = shop.prepared()
    shop.server.put_image(shop.desk.repository, layers=(b"other",), tag="v1.0.0-nlp")
    with pytest.raises(TagConflict, match=r"v1\.0\.0-nlp` names .*: another was faster"):
        promote.apply(prepared, shop.desk, Told())
    assert Registry().resolve(shop.desk.repository.tag("v1.0-nlp")) is None


@pytest.mark.parametrize(
    ("tag", "action", "says"),
    [
        ("v1.0.5-nlp", "promote", "follows `v1.0.5-nlp`, which came meanwhile"),
        ("v1.0.0-nlp", "rollback", "was held at `v1.0.0-nlp` by eve: it burns"),
    ],
)
def test_a_floating_tag_follows_what_came_meanwhile(shop: Shop, tag: str, action: str, says: str) -> None:
    prepared = shop.prepared(given=1 if action == "rollback" else None)
    other = shop.server.put_image(shop.desk.repository, layers=(b"other",), tag=tag)
    record = decided(shop, subject=str(other), tag=tag, action=action, hold=action == "rollback", reason="it burns")
    later = stated(record.model_copy(update={"finished": NOW + timedelta(minutes=1)}))
    hang(shop.server, other, shop.signers["release"](later))
    with pytest.raises(TagConflict, match=says):
        promote.apply(prepared, shop.desk, Told())
    assert Registry().resolve(shop.desk.repository.tag("v1.0-nlp")) == other.digest


def test_a_floating_tag_that_somebody_without_a_key_moved_meanwhile_is_moved_on(shop: Shop) -> None:
    prepared = shop.prepared()
    shop.server.put_image(shop.desk.repository, layers=(b"other",), tag="v1.0-nlp")
    promote.apply(prepared, shop.desk, Told())
    assert floating(shop) == shop.target.digest


def test_a_floating_tag_that_a_higher_release_moved_meanwhile_is_left(shop: Shop) -> None:
    prepared = shop.prepared()
    higher = release(shop, 5)
    shop.server.requests.clear()
    with pytest.raises(TagConflict):
        promote.apply(prepared, shop.desk, Told())
    assert ("manifests/v1.0-nlp" in written(shop), floating(shop)) == (False, higher.digest)


def test_a_floating_tag_that_may_not_move_is_told_at_once(shop: Shop) -> None:
    release(shop, 0)
    release(shop, 1)
    shop.server.canned["PUT", f"/v2/{shop.desk.repository.path}/manifests/v1.0-nlp"] = [Answer(412)] * 9
    shop.server.requests.clear()
    with pytest.raises(TagConflict):
        promote.rollback(back(shop), shop.desk)
    assert written(shop).count("manifests/v1.0-nlp") == 1


def test_a_floating_tag_that_others_keep_moving_is_given_up_and_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    release(shop, 0)
    release(shop, 1)
    tries: list[int] = []

    def overtaken(*_: Any, **__: Any) -> None:
        tries.append(1)
        shop.server.put_image(shop.desk.repository, layers=(b"%d" % len(tries),), tag="v1.0-nlp")
        raise TagConflict("another was faster")

    monkeypatch.setattr(Registry, "move_tag", overtaken)
    with pytest.raises(TagConflict, match="another was faster"):
        promote.rollback(back(shop), shop.desk)
    assert len(tries) == 5


# nothing to do


def told(shop: Shop, role: Role, record: Decided) -> None:
    """A verdict that the list shows whole, as promotions leave it."""
    content = shop.signers[role](stated(record))
    notes = {names.ANNOTATION_VERDICT: f"{record.action} {record.tag}", names.ANNOTATION_BUNDLE: content.decode()}
    hang(shop.server, shop.target, content, annotations=notes)


def settled(shop: Shop) -> promote.Settled | None:
    return promote.settled(Subject(image="nlp", source=shop.source), shop.desk)


def tagged(shop: Shop, *tags: str) -> None:
    for tag in tags:
        shop.server.put_image(shop.desk.repository, tag=tag)


def test_what_both_tags_and_a_verdict_name_is_settled(shop: Shop) -> None:
    tagged(shop, "v1.0.0-nlp", "v1.0-nlp")
    assert settled(shop) is None
    told(shop, "release", decided(shop))
    told(shop, "release", decided(shop, finished=cases.YESTERDAY, actor="adam"))
    found = settled(shop)
    assert found is not None
    assert (found.key, found.tag, found.number, found.target) == ("release", "v1.0.0-nlp", 0, shop.target)


@pytest.mark.parametrize("tag", ["v1.0.0-nlp", "v1.0-nlp"])
def test_what_one_of_the_tags_does_not_name_is_not_settled(shop: Shop, tag: str) -> None:
    tagged(shop, *({"v1.0.0-nlp", "v1.0-nlp"} - {tag}))
    told(shop, "release", decided(shop))
    assert settled(shop) is None
    shop.server.put_image(shop.desk.repository, layers=(b"other",), tag=tag)
    assert settled(shop) is None


@pytest.mark.parametrize(
    ("role", "changes"),
    [
        ("ci", {}),
        ("release", {"action": "withdraw"}),
        ("release", {"action": "rollback"}),
        ("release", {"image": "other"}),
        ("release", {"tag": "v1.0.0"}),
        ("release", {"tag": "v1.1.0-nlp"}),
        ("release", {"tag": "latest"}),
        ("release", {"finished": NOW + timedelta(hours=1)}),
        ("release", {"subject": str(OTHER)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside a good one", "alone"])
def test_what_any_other_verdict_is_about_is_not_settled(shop: Shop, role: Role, changes: dict[str, Any], beside: bool) -> None:
    tagged(shop, "v1.0.0-nlp", "v1.0-nlp", "v1.0.0", "v1.1.0-nlp")
    told(shop, role, decided(shop, **changes))
    if beside:
        told(shop, "release", decided(shop))
    assert settled(shop) is None


def test_a_verdict_on_the_same_bytes_elsewhere_settles_nothing_here(shop: Shop) -> None:
    tagged(shop, "v1.0.0-nlp", "v1.0-nlp")
    told(shop, "release", decided(shop, subject=str(shop.source)))
    assert settled(shop) is None


# back


def release(shop: Shop, number: int, **changes: Any) -> Pinned:
    """A release with its verdict, a minute after the one before; the floating tag follows."""
    tag = f"v1.0.{number}-nlp"
    image = shop.server.put_image(shop.desk.repository, layers=(tag.encode(),), tag=tag)
    shop.server.put_image(shop.desk.repository, layers=(tag.encode(),), tag="v1.0-nlp")
    verdict(shop, image, tag=tag, finished=cases.YESTERDAY + timedelta(minutes=number), **changes)
    return image


def verdict(shop: Shop, image: Pinned, role: Role = "release", **changes: Any) -> None:
    hang(shop.server, image, shop.signers[role](stated(decided(shop, subject=str(image), **changes))))


def back(shop: Shop, to: str = "1.0.0", reason: str = "it burns", good: bool = True) -> promote.Rollback:
    case = cases.case() if good else cases.case([])
    return promote.prepare_rollback("nlp", to, reason, shop.desk, lambda *_: decide(strict(), case, rollback=True))


def floating(shop: Shop) -> Digest | None:
    return Registry().resolve(shop.desk.repository.tag("v1.0-nlp"))


def test_a_rollback_signs_its_verdict_then_moves_the_tag_and_once_is_enough(shop: Shop) -> None:
    old, new = release(shop, 0), release(shop, 1)
    prepared = back(shop)
    assert (prepared.holds, prepared.decided, prepared.done) == (True, False, False)
    assert prepared.undo == 'nox -s rollback -- nlp --to 1.0.1 --reason "…"'
    shop.server.requests.clear()
    promote.rollback(prepared, shop.desk)
    assert [path for path in written(shop) if "manifests" in path][-1] == "manifests/v1.0-nlp"
    assert floating(shop) == old.digest
    (said,) = [one for one in gather(old, shop.desk.keys, Registry(), now=NOW).all(Decided) if one.action == "rollback"]
    assert (said.tag, said.hold, said.reason, said.previous) == ("v1.0.0-nlp", True, "it burns", str(new.digest))
    again = back(shop)
    assert (again.done, again.undo) == (True, prepared.undo)
    shop.server.requests.clear()
    promote.rollback(again, replace(shop.desk, keys=shop.desk.keys[:2]))
    assert written(shop) == []
    assert not back(shop, reason="another").decided
    assert not back(shop, to="1.0.1").holds


def test_a_rollback_to_where_the_tag_is_already_holds_it_there(shop: Shop) -> None:
    old, _ = release(shop, 0), release(shop, 1)
    shop.server.put_image(shop.desk.repository, layers=(b"v1.0.0-nlp",), tag="v1.0-nlp")
    assert (back(shop).done, back(shop).undo) == (False, "")
    promote.rollback(back(shop), shop.desk)
    (said,) = [one for one in gather(old, shop.desk.keys, Registry(), now=NOW).all(Decided) if one.action == "rollback"]
    assert said.hold


def test_who_goes_back_while_another_goes_elsewhere_finds_out_and_follows(shop: Shop) -> None:
    release(shop, 0)
    new = release(shop, 1)
    prepared = back(shop)
    later: dict[str, Any] = {"finished": NOW + timedelta(minutes=1), "hold": True, "reason": "better there"}
    verdict(shop, new, tag="v1.0.1-nlp", action="rollback", **later)
    with pytest.raises(TagConflict, match="by eve: better there"):
        promote.rollback(prepared, shop.desk)
    assert floating(shop) == new.digest


def test_a_withdrawal_after_a_rollback_undoes_nothing_of_it_and_nobody_is_sent_back_to_it(shop: Shop) -> None:
    release(shop, 0)
    new = release(shop, 1)
    promote.rollback(back(shop), shop.desk)
    verdict(shop, new, tag="v1.0.1-nlp", action="withdraw", finished=NOW + timedelta(minutes=1))
    assert (back(shop).done, back(shop).undo) == (True, "")


def test_where_the_floating_tag_named_nothing_no_command_undoes_a_rollback(shop: Shop) -> None:
    release(shop, 0)
    del shop.server.manifests[shop.desk.repository.path, "v1.0-nlp"]
    assert back(shop).undo == ""
    promote.rollback(back(shop), shop.desk)
    assert (back(shop).done, back(shop).undo) == (True, "")


def test_a_verdict_is_dated_after_all_that_it_follows_though_this_clock_is_behind(shop: Shop) -> None:
    old, new = release(shop, 0), release(shop, 1)
    verdict(shop, new, tag="v1.0.1-nlp", finished=NOW + timedelta(minutes=4))
    promote.rollback(back(shop), shop.desk)
    later = gather(old, shop.desk.keys, Registry(), now=NOW).all(Decided)
    assert [one.finished for one in later if one.action == "rollback"] == [NOW + timedelta(minutes=4, seconds=1)]
    assert back(shop).done


def test_what_was_attached_is_seen_to_stay_listed_before_a_tag_names_the_image(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Pinned, int, Digest | None]] = []

    def keep(_: Registry, pinned: Pinned, entries: Any) -> None:
        kept.append((pinned, len(entries), floating(shop)))

    monkeypatch.setattr(Registry, "keep_listed", keep)
    promote.apply(shop.prepared(), shop.desk, Told())
    assert kept == [(shop.target, 9, None)]
    new = release(shop, 1)
    promote.rollback(back(shop), shop.desk)
    assert kept[1:] == [(shop.target, 1, new.digest)]
    promote.withdraw("v1.0.1-nlp", "wrong sums", shop.desk, dry=False)
    assert kept[2:] == [(new, 1, shop.target.digest)]


def test_a_rollback_whose_tag_did_not_move_signs_no_second_verdict(shop: Shop) -> None:
    old, new = release(shop, 0), release(shop, 1)
    promote.rollback(back(shop), shop.desk)
    shop.server.put_image(shop.desk.repository, layers=(b"v1.0.1-nlp",), tag="v1.0-nlp")
    assert (floating(shop), back(shop).decided, back(shop).done) == (new.digest, True, False)
    shop.server.requests.clear()
    promote.rollback(back(shop), shop.desk)
    assert (written(shop), floating(shop)) == (["manifests/v1.0-nlp"], old.digest)


@pytest.mark.parametrize(
    ("text", "wanted", "match"),
    [
        ("1.0.0", PromotionRefused, "`v1.0.0-nlp` was withdrawn by eve"),
        ("1.0.1", PromotionRefused, "no verdict on `v1.0.1-nlp` counts"),
        ("1.0.2", InputError, "`v1.0.2-nlp` is gone from the registry"),
        ("1.0.3", InputError, "`v1.0.3-nlp` is no release that is there"),
    ],
)
def test_what_is_withdrawn_unproved_or_gone_is_not_gone_back_to(
    shop: Shop, text: str, wanted: type[Exception], match: str
) -> None:
    verdict(shop, release(shop, 0), tag="v1.0.0-nlp", action="withdraw")
    release(shop, 1, role="ci")
    gone = release(shop, 2)
    shop.server.canned["GET", f"/v2/{gone.repository.path}/manifests/v1.0.2-nlp"] = [unknown("MANIFEST_UNKNOWN")]
    with pytest.raises(wanted, match=match):
        back(shop, to=text)


def test_where_nothing_is_released_a_rollback_says_how_to_release(shop: Shop) -> None:
    with pytest.raises(InputError) as caught:
        back(shop, to="1.0.0")
    assert caught.value.hint == "nothing is released yet: `nox -s promote -- nlp`"


def test_a_rollback_that_is_refused_or_has_no_key_or_right_writes_nothing(shop: Shop) -> None:
    release(shop, 0)
    release(shop, 1)
    shop.server.requests.clear()
    with pytest.raises(TypeError, match="only what is allowed"):
        promote.rollback(back(shop, good=False), shop.desk)
    with pytest.raises(PromotionRefused, match="may not sign as `release`"):
        promote.rollback(back(shop), replace(shop.desk, keys=shop.desk.keys[:2]))
    harbor: Any = SimpleNamespace(read_only=lambda: True, host="h")
    with pytest.raises(Temporary, match="is read-only"):
        promote.rollback(back(shop), replace(shop.desk, harbor=lambda: harbor))
    assert written(shop) == []


def test_a_withdrawal_is_said_once_and_moves_nothing(shop: Shop) -> None:
    old, _, new = release(shop, 0), release(shop, 2, role="ci"), release(shop, 1)
    said: list[str] = []
    for dry, new_verdicts in ((True, 0), (False, 1), (False, 0)):
        shop.server.requests.clear()
        found = promote.withdraw("v1.0.1-nlp", "wrong sums", shop.desk, dry=dry)
        assert (found.written, found.concerned, str(found.better), floating(shop)) == (
            bool(new_verdicts),
            True,
            "v1.0.0-nlp",
            new.digest,
        )
        assert len([path for path in written(shop) if "manifests" in path]) == new_verdicts
        said.append(next(iter(report.withdrawal_lines(found))))
    assert said == [f"v1.0.1-nlp {what}" for what in ("would be withdrawn", "is withdrawn", "was withdrawn already")]
    promote.withdraw("v1.0.0-nlp", "as wrong", shop.desk, dry=False)
    found = promote.withdraw("v1.0.0-nlp", "as wrong", shop.desk, dry=False)
    assert (found.better, found.concerned, found.target.digest) == (None, False, old.digest)


@pytest.mark.parametrize("text", ["v1.0.0", "v1.1.0-nlp", "v1.0-nlp", "1.0.0-nlp", "v1.0.0-other"])
def test_what_is_no_release_of_ours_is_not_withdrawn(shop: Shop, text: str) -> None:
    release(shop, 0)
    with pytest.raises(InputError, match="is no release of the line"):
        promote.withdraw(text, "wrong sums", shop.desk, dry=False)


def test_who_has_no_key_or_right_withdraws_nothing(shop: Shop) -> None:
    release(shop, 0)
    shop.server.requests.clear()
    harbor: Any = SimpleNamespace(read_only=lambda: True, host="h")
    for desk in (replace(shop.desk, keys=shop.desk.keys[:2]), replace(shop.desk, harbor=lambda: harbor)):
        with pytest.raises((PromotionRefused, Temporary)):
            promote.withdraw("v1.0.0-nlp", "wrong sums", desk, dry=False)
    assert written(shop) == []


# how it stands


def test_an_image_stands_by_its_own_tags_of_this_line_and_has_a_history_of_each(shop: Shop) -> None:
    new = release(shop, 1)
    tagged(shop, "v1.0.3", "v1.0.2-other", "v2.0.0-nlp", "v3.0.0", "latest")
    (case,) = shop.prepared().cases
    assert case.standing.tags == {Release(line="1.0", number=1, variant="nlp"): new.digest}
    here, later = promote.history("nlp", shop.desk)
    assert [(one.line, [str(each.release) for each in one.entries]) for one in (here, later)] == [
        ("1.0", ["v1.0.1-nlp"]),
        ("2.0", ["v2.0.0-nlp"]),
    ]
    assert (here.entries[0].state, later.entries[0].state) == ("current", "no verdict")
