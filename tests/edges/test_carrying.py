"""An image and its statements, from one repository to another: what it takes, and what is refused."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import attest, carry, names, parents, statements
from pipeline.errors import PromotionRefused
from pipeline.evidence import Key
from pipeline.gather import Keys
from pipeline.oci import Digest, Pinned
from pipeline.plan import Step
from pipeline.registry import Registry, attaching
from pipeline.story import Silent
from tests import cases
from tests.edges.test_gather import hang
from tests.fakes import FakeRegistry, fake_registry
from tests.unit.test_dsse import CURVE, bundle

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
NOTES = {"note": "x"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(attaching, "SETTLE_HERE", 0)
    with fake_registry() as running:
        running.mounts = True
        yield running


@pytest.fixture
def client(tmp_path: Path) -> Registry:
    return Registry(locks=tmp_path / "locks")


def released(image: Pinned, server: FakeRegistry) -> Pinned:
    return server.repository("team/released").at(image.digest)


def test_an_image_takes_a_request_a_blob_and_three(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    blobs = len(json.loads(client.raw_manifest(image)[0])["layers"]) + 1
    server.requests.clear()
    assert carry.bring("core", image, released(image, server), {}, client, Silent())[1] == ()
    assert len(server.requests) == blobs + 3
    assert client.raw_manifest(released(image, server)) == client.raw_manifest(image)


@pytest.mark.parametrize(("lists", "more"), [(False, 5), (True, 3)], ids=["list in a tag", "list of its own"])
def test_a_statement_takes_three_and_their_list_a_few(server: FakeRegistry, client: Registry, lists: bool, more: int) -> None:
    server.lists_referrers = lists
    image = server.put_image(server.repository())
    attached = [client.attach(image, BUNDLE, text, BUNDLE, NOTES).digest for text in (b"one", b"two", b"three", b"four")]
    server.requests.clear()
    carry.bring("core", image, server.repository("team/alone").at(image.digest), {}, client, Silent())
    alone = len(server.requests)
    server.requests.clear()
    evidence = carry.statements("core", image, attached, client)
    _, entries = carry.bring("core", image, released(image, server), evidence, client, Silent())
    assert len(server.requests) == alone + 3 * len(attached) + more
    assert {one.digest for one in client.referrers(released(image, server))} == {one.digest for one in entries} == set(attached)


def test_what_is_there_is_left(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    attached = [client.attach(image, BUNDLE, text, BUNDLE, NOTES).digest for text in (b"one", b"two")]
    evidence = carry.statements("core", image, attached, client)
    carry.bring("core", image, released(image, server), evidence, client, Silent())
    server.requests.clear()
    assert carry.bring("core", image, released(image, server), evidence, client, Silent())[1] == ()
    assert {method for method, _, _ in server.requests} == {"GET"}


def test_a_statement_that_is_listed_and_deleted_is_told(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    kept, lost = (client.attach(image, BUNDLE, text, BUNDLE, NOTES).digest for text in (b"evidence", b"more"))
    del server.manifests[image.repository.path, str(lost)]
    with pytest.raises(PromotionRefused, match="deleted since") as told:
        carry.statements("core", image, [kept, lost], client)
    assert (str(lost) in told.value.message, str(kept) in told.value.message) == (True, False)


# parents


STEP = Step(image="nlp", action="build", reason="", tag="v1.0-nlp", input_hash=cases.HASH, digest=None)
KEY = Key(name="ci", roles=frozenset({"ci"}))


class Parents:
    """A candidate in one repository of a registry that is wanted in another."""

    def __init__(self, server: FakeRegistry, client: Registry, labels: Mapping[str, str]) -> None:
        server.lists_referrers = True
        self.server, self.client = server, client
        self.source, self.target = server.repository("theirs/x"), server.repository("ours/x")
        self.image = server.put_image(self.source, labels=labels, tag=STEP.tag)

    def built(self, **changes: Any) -> Digest:
        record = cases.built().model_copy(update={"subject": str(self.image), **changes})
        return hang(self.server, self.image, bundle(attest.canonical(statements.built_statement(record))))

    def bring(self, key: Key = KEY) -> bool:
        keys: Keys = [(key, CURVE.public_key())]
        return parents.bring(
            STEP, source=self.source, target=self.target, keys=keys, registry=self.client, now=cases.NOW, story=Silent()
        )

    def brought(self) -> Digest | None:
        return self.client.resolve(self.target.tag(STEP.tag))


@pytest.fixture
def theirs(server: FakeRegistry, client: Registry) -> Parents:
    return Parents(server, client, {names.LABEL_INPUT_HASH: cases.HASH})


def test_a_parent_that_an_accepted_key_says_to_have_built_is_brought_with_that_statement(theirs: Parents) -> None:
    built = theirs.built()
    hang(theirs.server, theirs.image, b"junk")
    assert theirs.bring()
    assert theirs.brought() == theirs.image.digest
    assert [one.digest for one in theirs.client.referrers(theirs.target.at(theirs.image.digest))] == [built]


@pytest.mark.parametrize("changes", [{"image": "other"}, {"input_hash": "f" * 64}], ids=str)
def test_a_parent_that_was_built_as_something_else_is_left(theirs: Parents, changes: dict[str, str]) -> None:
    theirs.built(**changes)
    assert (theirs.bring(), theirs.brought()) == (False, None)


@pytest.mark.parametrize(
    "changes", [{"roles": frozenset({"gpu", "release"})}, {"revoked": True}], ids=lambda changes: min(changes)
)
def test_a_parent_that_no_accepted_key_vouches_for_is_left(theirs: Parents, changes: dict[str, Any]) -> None:
    assert (theirs.bring(), theirs.brought()) == (False, None)
    theirs.built()
    assert (theirs.bring(replace(KEY, **changes)), theirs.brought()) == (False, None)


@pytest.mark.parametrize("labels", [{names.LABEL_INPUT_HASH: "f" * 64}, {}], ids=["other inputs", "no label"])
def test_a_parent_whose_label_names_other_inputs_is_left(server: FakeRegistry, client: Registry, labels: dict[str, str]) -> None:
    theirs = Parents(server, client, labels)
    theirs.built()
    assert (theirs.bring(), theirs.brought()) == (False, None)


def test_a_parent_that_is_not_there_or_breaks_off_is_left(theirs: Parents) -> None:
    theirs.built()
    theirs.server.blobs.pop(str(Digest.of(b"a layer")))
    theirs.server.mounts = False
    assert (theirs.bring(), theirs.brought()) == (False, None)
    del theirs.server.manifests[theirs.source.path, STEP.tag]
    assert (theirs.bring(), theirs.brought()) == (False, None)
