"""An image and its statements, from one repository to another: what it takes, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import carry
from pipeline.errors import PromotionRefused
from pipeline.oci import Pinned
from pipeline.registry import Registry, attaching
from pipeline.story import Silent
from tests.fakes import FakeRegistry, fake_registry

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
    statements = carry.statements("core", image, attached, client)
    _, entries = carry.bring("core", image, released(image, server), statements, client, Silent())
    assert len(server.requests) == alone + 3 * len(attached) + more
    assert {one.digest for one in client.referrers(released(image, server))} == {one.digest for one in entries} == set(attached)


def test_what_is_there_is_left(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    attached = [client.attach(image, BUNDLE, text, BUNDLE, NOTES).digest for text in (b"one", b"two")]
    statements = carry.statements("core", image, attached, client)
    carry.bring("core", image, released(image, server), statements, client, Silent())
    server.requests.clear()
    assert carry.bring("core", image, released(image, server), statements, client, Silent())[1] == ()
    assert {method for method, _, _ in server.requests} == {"GET"}


def test_a_statement_that_is_listed_and_deleted_is_told(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    kept, lost = (client.attach(image, BUNDLE, text, BUNDLE, NOTES).digest for text in (b"evidence", b"more"))
    del server.manifests[image.repository.path, str(lost)]
    with pytest.raises(PromotionRefused, match="deleted since") as told:
        carry.statements("core", image, [kept, lost], client)
    assert (str(lost) in told.value.message, str(kept) in told.value.message) == (True, False)
