"""A promotion to a registry that others write to as well: what is believed of what hangs there, and what is written when."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import promote
from pipeline.evidence import Evidence, Key, Role, Why
from pipeline.gather import gather
from pipeline.oci import Digest, Pinned, Repository
from pipeline.policy import Allowed, Refused, decide
from pipeline.promote import Desk, Prepared, Subject, Told
from pipeline.registry import Registry, attaching
from pipeline.statements import Decided
from pipeline.story import Silent
from tests import cases
from tests.cases import KEYS, NOW, OTHER, strict
from tests.edges.test_gather import hang
from tests.fakes import FakeRegistry, fake_registry
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

    def prepared(self, desk: Desk | None = None) -> Prepared:
        return promote.prepare([Subject(image="nlp", source=self.source)], desk or self.desk, judge, given=None, lift=False)

    def released(self) -> Evidence:
        """What counts at the destination once the candidate is released there."""
        assert promote.apply(self.prepared(), self.desk, Told())
        return self.evidence()

    def evidence(self) -> Evidence:
        return gather(self.target, self.desk.keys, Registry(), now=NOW)


def judge(image: str, evidence: Evidence, size: int | None) -> Allowed | Refused:
    return decide(strict(), cases.case(evidence=evidence, released_size=size))


@pytest.fixture(params=["same repository", "another repository"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(attaching, "SETTLE_HERE", 0)
    monkeypatch.setattr(Registry, "clock", lambda *_: NOW)
    signers = {role: Signer(key=key, folder=tmp_path, cosign=Path()) for role, key in KEYS.items()}
    cosign: Any = SimpleNamespace(
        sign=lambda content, role: signers[role](content), public=lambda role: pem(signers[role].private)
    )
    with fake_registry() as server:
        server.lists_referrers = server.mounts = True
        here = server.repository("candidates/x")
        desk = desk_at(here if request.param == "same repository" else server.repository("releases/x"), cosign, signers, tmp_path)
        made = Shop(server, desk, signers, server.put_image(here))
        made.good()
        yield made


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


def test_a_release_has_its_evidence_its_verdict_its_signature_and_both_tags(shop: Shop) -> None:
    found = shop.released()
    assert found.signed_by("release")
    (verdict,) = found.all(Decided)
    assert (verdict.action, verdict.tag, verdict.subject) == ("promote", "v1.0.0-nlp", str(shop.target))
    assert len(found.counted) == 7
    for tag in ("v1.0.0-nlp", "v1.0-nlp"):
        assert Registry().resolve(shop.desk.repository.tag(tag)) == shop.target.digest
    assert shop.prepared().plan.promotions[0].done  # type: ignore[union-attr]


def test_a_release_signature_of_another_image_that_somebody_hung_there_stands_for_none(shop: Shop) -> None:
    if shop.target != shop.source:
        shop.server.put_image(shop.desk.repository)
    shop.hang("release", signature_of(OTHER.digest), on=shop.target)
    assert shop.released().signed_by("release")


@pytest.mark.parametrize("changes", [{"roles": frozenset({"ci"})}, {"revoked": True}, {"retired": cases.YESTERDAY}], ids=str)
def test_a_verdict_or_signature_by_a_key_that_does_not_count_stands_for_none(shop: Shop, changes: dict[str, Any]) -> None:
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
    return Decided(
        image="nlp",
        subject=str(shop.target),
        action="promote",
        tag="v1.0.0-nlp",
        policy=cases.DIGEST,
        rules=case.decision.rules,
        statements=[str(one) for one in case.decision.statements],
        actor="eve",
        finished=NOW,
        run="17",
    )


def test_a_verdict_that_an_earlier_run_left_is_not_signed_again(shop: Shop) -> None:
    left = shop.hang("release", stated(the_verdict(shop)), on=shop.target)
    found = shop.released()
    assert [one.manifest for one in found.counted if isinstance(one.record, Decided)] == [left]
    assert not found.because(Why.OLDER)
