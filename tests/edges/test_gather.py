"""What hangs on an image in a registry that may lie: each thing counts by its signature, or is told apart by its reason."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from pipeline import attest, dsse, gather, names, statements
from pipeline.errors import NotThere, RegistryRefused, ToolFailed
from pipeline.evidence import Evidence, Ignored, Key, Signed, Why
from pipeline.oci import OCI_EMPTY, OCI_MANIFEST, Descriptor, Digest, Pinned
from pipeline.registry import Registry
from pipeline.statements import Outcome, Statement
from tests import cases
from tests.cases import NOW
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown
from tests.unit.test_dsse import CURVE, bundle

CI = Key(name="ci", roles=frozenset({"ci"}))
KEYS: gather.Keys = [(CI, CURVE.public_key())]


def hang(server: FakeRegistry, image: Pinned, content: bytes, *, kind: str = dsse.BUNDLE_TYPE, **changes: Any) -> Digest:
    """Attach a bundle as cosign would, or with `changes` as somebody else would."""
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": kind,
        "config": server.put_blob(b"{}") | {"mediaType": OCI_EMPTY},
        "layers": [server.put_blob(content) | {"mediaType": dsse.BUNDLE_TYPE}],
        "subject": {"mediaType": OCI_MANIFEST, "digest": str(image.digest), "size": 9},
    }
    return server.put_manifest(image.repository, {**body, **changes}).digest


@dataclass
class Hung:
    """An image, and what hangs on it in a registry that keeps its own list."""

    server: FakeRegistry
    image: Pinned = field(init=False)

    def __post_init__(self) -> None:
        self.image = self.server.put_image(self.server.repository())

    def about(self, record: Any) -> Any:
        return record.model_copy(update={"subject": str(self.image)})

    def hang(self, content: bytes, *, kind: str = dsse.BUNDLE_TYPE, **changes: Any) -> Digest:
        return hang(self.server, self.image, content, kind=kind, **changes)

    def evidence(self, keys: gather.Keys = KEYS) -> Evidence:
        return gather.gather(self.image, keys, Registry(), now=NOW)

    def whys(self, keys: gather.Keys = KEYS) -> list[tuple[str, Why]]:
        return [(one.manifest, one.why) for one in self.evidence(keys).ignored]


@pytest.fixture
def hung() -> Iterator[Hung]:
    with fake_registry() as server:
        server.lists_referrers = True
        yield Hung(server)


def of(statement: Statement) -> bytes:
    return bundle(attest.canonical(statement))


def passed(hung: Hung) -> bytes:
    return of(statements.tested_statement(hung.about(cases.passed("cpu"))))


def test_what_our_key_signed_counts(hung: Hung) -> None:
    lane, plain = hung.hang(passed(hung)), hung.hang(of(attest.signature(hung.image)))
    found = hung.evidence()
    assert [(one.manifest, one.key) for one in found.counted] == [(lane, CI)]
    assert [one.outcome for one in found.all(statements.Tested)] == [Outcome.PASSED]
    assert ([one.manifest for one in found.signatures], found.ignored) == ([plain], ())


def test_what_nobody_known_signed_is_not_looked_into(hung: Hung) -> None:
    other: gather.Keys = [(CI, ec.generate_private_key(ec.SECP256R1()).public_key())]
    nonsense = hung.hang(bundle(b"nonsense"))
    assert hung.whys(other) == [(str(nonsense), Why.UNSIGNED)]
    assert hung.whys([]) == [(str(nonsense), Why.UNSIGNED)]


def test_what_a_list_calls_something_else_than_a_bundle_is_not_fetched(hung: Hung) -> None:
    kinds = ["text/plain", "\x1b[2J", dsse.BUNDLE_TYPE.replace("v0.3", "v0.2")]
    hung.hang(passed(hung), kind=kinds[0])
    hung.hang(b"x", kind=kinds[1])
    hung.hang(passed(hung), kind=kinds[2])
    hung.server.requests.clear()
    found = hung.evidence()
    assert (found.counted, {one.why for one in found.ignored}) == ((), {Why.FOREIGN})
    assert {one.text for one in found.ignored} == {f"is `{kinds[0]}`, and no bundle", f"is `{kinds[2]}`, and no bundle"} | {
        "is of a type that is none, and no bundle"
    }
    assert not hung.server.asked("GET", "/blobs/")


@pytest.mark.parametrize("told", ["", OCI_EMPTY])
def test_where_a_list_does_not_tell_the_type_the_manifest_does(hung: Hung, told: str) -> None:
    lane = hung.hang(passed(hung))
    entry = {"mediaType": OCI_MANIFEST, "digest": str(lane), "size": 9, "artifactType": told}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    hung.server.canned["GET", f"/v2/team/images/referrers/{hung.image.digest}"] = [Answer(200, index)]
    assert [one.manifest for one in hung.evidence().counted] == [lane]


def test_as_much_as_is_looked_at_may_hang_there_and_one_more_is_told(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "ATTACHED", 2)
    for content in (b"one", b"two"):
        hung.hang(content)
    hung.hang(b"another kind", kind="text/plain")
    assert {why for _, why in hung.whys()} == {Why.FOREIGN}
    hung.hang(passed(hung))
    hung.server.requests.clear()
    (crowd,) = hung.evidence().because(Why.CROWD)
    assert len(hung.server.asked("GET", "/blobs/")) == 2
    assert crowd.text == "is the first of 1 that were not looked at: 3 are attached to this image"


def test_a_manifest_or_bundle_that_is_listed_and_gone_may_have_been_a_failure(hung: Hung) -> None:
    lane = hung.hang(content := passed(hung))
    del hung.server.blobs[str(Digest.of(content))]
    assert hung.whys() == [(str(lane), Why.UNREADABLE)]
    hung.server.canned["GET", f"/v2/team/images/manifests/{lane}"] = [unknown("MANIFEST_UNKNOWN")]
    assert hung.whys() == [(str(lane), Why.UNREADABLE)]


@pytest.mark.parametrize("place", ["manifests", "blobs"])
def test_what_may_not_be_read_is_no_fault_of_the_image(hung: Hung, place: str) -> None:
    lane = hung.hang(content := passed(hung))
    digest = lane if place == "manifests" else Digest.of(content)
    hung.server.canned["GET", f"/v2/team/images/{place}/{digest}"] = [Answer(403)]
    with pytest.raises(RegistryRefused):
        hung.evidence()


def test_a_manifest_or_bundle_of_other_bytes_may_have_been_a_failure(hung: Hung) -> None:
    lane = hung.hang(content := passed(hung))
    other = hung.hang(of(statements.tested_statement(hung.about(cases.failed("cpu")))))
    place = hung.image.repository.path
    hung.server.blobs[str(Digest.of(content))] = b"other bytes"
    assert (str(lane), Why.UNREADABLE) in hung.whys()
    lie = Answer(200, hung.server.manifests[place, str(other)], {"Docker-Content-Digest": str(other)})
    hung.server.canned["GET", f"/v2/{place}/manifests/{lane}"] = [lie]
    assert (str(lane), Why.UNREADABLE) in hung.whys()


def test_a_registry_that_lies_about_the_image_or_lacks_it_is_not_listened_to(hung: Hung) -> None:
    place = hung.image.repository.path
    hung.server.manifests[place, str(hung.image.digest)] = hung.server.manifests[place, str(hung.hang(b"x"))]
    with pytest.raises(ToolFailed, match="answered"):
        hung.evidence()
    del hung.server.manifests[place, str(hung.image.digest)]
    with pytest.raises(NotThere):
        hung.evidence()


def test_what_is_too_large_for_ours_blocks_nothing(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = hung.hang(content := passed(hung))
    monkeypatch.setattr(gather, "STATEMENT_LIMIT", len(content))
    assert hung.whys() == []
    monkeypatch.setattr(gather, "STATEMENT_LIMIT", len(content) - 1)
    assert hung.whys() == [(str(lane), Why.FOREIGN)]


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {dsse.PREDICATE_ANNOTATION: statements.SUMMARY}},
        {"annotations": {names.ANNOTATION_VERDICT: "withdraw v1.0.3-nlp"}},
        {"layers": []},
        {"config": {"mediaType": OCI_MANIFEST, "digest": str(Digest.of(b"{}")), "size": 2}},
    ],
    ids=["noted as a verdict's type", "noted as a verdict", "nothing in it", "more in it"],
)
def test_what_somebody_wraps_as_something_else_is_nothing(hung: Hung, changes: Mapping[str, Any]) -> None:
    lane = hung.hang(passed(hung), **changes)
    assert (hung.evidence().counted, hung.whys()) == ((), [(str(lane), Why.FOREIGN)])


def test_a_size_that_others_would_believe_must_be_right(hung: Hung) -> None:
    content = passed(hung)
    wrong = [{**hung.server.put_blob(content), "mediaType": dsse.BUNDLE_TYPE, "size": len(content) + 1}]
    lane = hung.hang(content, layers=wrong)
    assert hung.whys() == [(str(lane), Why.FOREIGN)]


def test_what_is_noted_down_as_it_is_counts(hung: Hung) -> None:
    hung.hang(passed(hung), annotations={dsse.PREDICATE_ANNOTATION: statements.TEST_RESULT})
    assert len(hung.evidence().counted) == 1


def test_what_our_key_said_of_our_kind_and_we_cannot_read_may_have_been_a_failure(hung: Hung) -> None:
    later = {**statements.tested_statement(hung.about(cases.failed("cpu"))), "predicate": {"result": "of a newer pipeline"}}
    lane = hung.hang(of(later))
    assert hung.whys() == [(str(lane), Why.UNREADABLE)]
    revoked: gather.Keys = [(Key(name="ci", roles=CI.roles, revoked=True), CURVE.public_key())]
    assert hung.whys(revoked) == [(str(lane), Why.FOREIGN)]


@pytest.mark.parametrize("payload", [b"nonsense", b"{}", b'{"predicateType":"https://example.com/x"}'])
def test_what_our_key_said_of_another_kind_is_not_ours(hung: Hung, payload: bytes) -> None:
    other = hung.hang(bundle(payload))
    assert hung.whys() == [(str(other), Why.FOREIGN)]


def test_a_signature_that_names_no_image_is_none(hung: Hung) -> None:
    nameless = hung.hang(of({**attest.signature(hung.image), "subject": []}))
    assert (hung.evidence().signatures, hung.whys()) == ((), [(str(nameless), Why.FOREIGN)])


def test_who_looks_for_few_things_fetches_those_and_what_is_not_told(hung: Hung) -> None:
    told = {dsse.PREDICATE_ANNOTATION: statements.TEST_RESULT}
    lane = hung.hang(passed(hung), annotations=told)
    untold = hung.hang(of(statements.built_statement(hung.about(cases.built()))))
    hung.hang(of(statements.findings_statement(hung.about(cases.findings()))), annotations={dsse.PREDICATE_ANNOTATION: "x"})
    found = gather.found(hung.image, KEYS, Registry(), kinds=[statements.TEST_RESULT])
    assert {str(one.manifest) for one in found} == {str(lane), str(untold)}


def listed(content: bytes) -> Signed | Ignored:
    told = {names.ANNOTATION_BUNDLE: content.decode()} if content else {}
    return gather.shown(Descriptor(OCI_MANIFEST, Digest.of(content), 9, told), KEYS)


def test_what_a_list_shows_proves_itself() -> None:
    found = listed(of(statements.tested_statement(cases.passed("cpu"))))
    assert isinstance(found, Signed)
    assert (found.key, found.subject, type(found.record)) == (CI, str(cases.SUBJECT.digest), statements.Tested)
    for content in (b"", b"junk", bundle(b"nonsense").replace(b'"sig": "', b'"sig": "AAAA')):
        assert isinstance(listed(content), Ignored)
