"""Listing what refers to an image, and attaching to it, with registries that keep a list and with those that do not."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.credentials import Credential
from pipeline.errors import NotThere, RegistryRefused, TagConflict, Temporary, TooLarge, ToolFailed
from pipeline.oci import OCI_INDEX, OCI_MANIFEST, Descriptor, Digest, Manifest, Pinned
from pipeline.registry import Registry, attaching, index_text, referrers, session, writing
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
NOTES = {"org.opencontainers.image.created": "2026-01-01T00:00:00Z", "dev.sigstore.bundle.predicateType": "urn:a:v1"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(session, "RETRIES", session.RETRIES.new(backoff_factor=0))
    monkeypatch.setattr(attaching, "PAUSE", 0)
    monkeypatch.setattr(attaching, "SETTLE_HERE", 0)
    with fake_registry() as running:
        yield running


@pytest.fixture(params=["list", "tag"])
def either(server: FakeRegistry, request: pytest.FixtureRequest) -> FakeRegistry:
    server.lists_referrers = request.param == "list"
    return server


@pytest.fixture
def client(tmp_path: Path) -> Registry:
    return Registry(locks=tmp_path / "locks")


def stand_in(image: Pinned) -> str:
    return f"sha256-{image.digest.hex}"


def list_of(image: Pinned) -> str:
    return f"/v2/{image.repository.path}/referrers/{image.digest}"


def index_of(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(entries)}


def entry(number: int, kind: str = BUNDLE) -> dict[str, Any]:
    digest = str(Digest.of(str(number).encode()))
    return {"mediaType": OCI_MANIFEST, "digest": digest, "size": 10, "artifactType": kind, "annotations": {"number": str(number)}}


def page(*entries: dict[str, Any], **headers: str) -> Answer:
    return Answer(200, json.dumps(index_of(*entries)).encode(), {"Content-Type": OCI_INDEX, **headers})


def test_what_is_attached_is_listed_with_its_type_and_notes(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    (found,) = client.referrers(image, BUNDLE)
    assert found == attached
    assert found.artifact_type == BUNDLE
    assert found.annotations == NOTES
    assert client.referrers(image, "application/other") == ()
    manifest = client.manifest(image.repository.at(found.digest))
    assert manifest.subject == image.digest
    assert client.blob(image.repository, manifest.layers[0]) == b"evidence"
    assert client.blob(image.repository, manifest.config) == b"{}"


def test_what_refers_to_an_image_goes_with_it_byte_for_byte_and_twice_is_once(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    before = [client.attach(image, BUNDLE, text, BUNDLE, NOTES) for text in (b"one", b"two", b"three")]
    bodies = [client.raw_manifest(image.repository.at(one.digest))[0] for one in before]
    there = either.put_image(either.repository("releases/x"))
    assert there.digest == image.digest
    theirs = client.attach(there, BUNDLE, b"theirs", BUNDLE, NOTES)
    for _ in range(2):
        client.adopt(there, bodies)
        assert {one.digest for one in client.referrers(there)} == {theirs.digest, *(one.digest for one in before)}
    assert {one.artifact_type for one in client.referrers(there)} == {BUNDLE}
    assert all(dict(one.annotations) == NOTES for one in client.referrers(there))
    assert [client.raw_manifest(there.repository.at(one.digest))[0] for one in before] == bodies


def test_several_adopted_entries_are_one_write_of_the_list(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    before = [client.attach(image, BUNDLE, text, BUNDLE, NOTES) for text in (b"one", b"two", b"three")]
    bodies = [client.raw_manifest(image.repository.at(one.digest))[0] for one in before]
    there = server.put_image(server.repository("releases/x"))
    client.adopt(there, bodies)
    assert len(server.asked("PUT", "releases/x/manifests/sha256-")) == 1


def test_a_blob_that_another_writes_right_now_is_waited_for(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a distribution registry answered one of twenty who mounted the same blob."""
    monkeypatch.setattr(writing, "PAUSE", 0)
    codes = [{"code": "DIGEST_INVALID"}, {"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown to registry"}]
    unseen = Answer(400, json.dumps({"errors": codes}).encode())
    body = json.dumps(index_of()).encode()
    place = "PUT", f"/v2/team/images/manifests/{Digest.of(body)}"
    server.canned[place] = [unseen, unseen]
    client.put_manifest(server.repository(), body, OCI_INDEX)
    server.canned[place] = [unseen, unseen, unseen]
    with pytest.raises(Temporary, match="blob unknown to registry"):
        client.put_manifest(server.repository(), body, OCI_INDEX)
    assert len(server.asked("PUT", str(Digest.of(body)))) == 6


def test_a_glance_takes_one_request_where_the_list_is_a_tag(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    server.requests.clear()
    (found,) = client.glance(image)
    assert (found.annotations, len(server.requests)) == (NOTES, 1)
    assert client.glance(server.repository().at(Digest.of(b"other"))) == ()


def test_a_glance_asks_a_guarded_registry_for_its_own_list_first(server: FakeRegistry, tmp_path: Path) -> None:
    server.lists_referrers, server.users["ci"] = True, "secret"
    client = Registry(credentials=Login(), locks=tmp_path / "locks")
    image = server.put_image(server.repository())
    client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    server.requests.clear()
    assert len(client.glance(image)) == 1
    assert [path for _, path, _ in server.requests] == [list_of(image)]


class Login:
    """One login, everywhere."""

    def of(self, host: str) -> Credential:
        return Credential.of(b"ci", b"secret")


def test_the_manifest_is_the_one_that_cosign_writes(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    size = len(server.manifests["team/images", str(image.digest)])
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert json.loads(client.raw_manifest(image.repository.at(attached.digest))[0]) == {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": BUNDLE,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2},
        "layers": [{"mediaType": BUNDLE, "digest": str(Digest.of(b"evidence")), "size": 8}],
        "subject": {"mediaType": OCI_MANIFEST, "digest": str(image.digest), "size": size},
        "annotations": NOTES,
    }


def test_the_registrys_own_list_needs_no_tag(server: FakeRegistry, client: Registry) -> None:
    server.lists_referrers = True
    image = server.put_image(server.repository())
    client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    assert client.tags(image.repository) == ()


def test_nothing_is_attached_twice(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    first = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    either.requests.clear()
    assert client.attach(image, BUNDLE, b"evidence", BUNDLE, {"org.opencontainers.image.created": "later"}) == first
    assert either.asked("PUT") + either.asked("POST") == []


def test_the_same_content_of_another_type_or_on_another_image_is_attached(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    other = either.put_image(either.repository(), layers=(b"other",))
    for subject, kind in ((image, BUNDLE), (image, "application/other"), (other, BUNDLE)):
        client.attach(subject, kind, b"evidence", BUNDLE, NOTES)
    assert len(client.referrers(image)) == 2
    assert len(client.referrers(other)) == 1


def test_nothing_is_attached_to_an_image_that_is_not_there(either: FakeRegistry, client: Registry) -> None:
    absent = either.repository().at(Digest.of(b"x"))
    for ask in (lambda: client.referrers(absent), lambda: client.attach(absent, BUNDLE, b"x", BUNDLE, {})):
        with pytest.raises(NotThere):
            ask()
    assert either.asked("PUT") == []


def test_an_empty_list_for_an_unknown_image_is_not_no_evidence(server: FakeRegistry, client: Registry) -> None:
    absent = server.repository().at(Digest.of(b"x"))
    server.canned["GET", list_of(absent)] = [page()]
    with pytest.raises(NotThere) as caught:
        client.referrers(absent)
    assert caught.value.hint == "it was deleted, or never there: check repository and digest"


def test_a_list_is_read_over_all_pages(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    more = f'<{list_of(image)}?last=1>; rel="next"'
    server.canned["GET", list_of(image)] = [page(entry(1), entry(1), Link=more)]
    server.canned["GET", f"{list_of(image)}?last=1"] = [page(entry(2))]
    assert [each.annotations["number"] for each in client.referrers(image)] == ["1", "2"]


def test_a_plus_is_sent_as_percent_2b_and_an_ignored_filter_is_made_up_for(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    asked = f"{list_of(image)}?artifactType=application%2Fvnd.dev.sigstore.bundle.v0.3%2Bjson"
    untold = ("", "application/vnd.oci.empty.v1+json")
    server.canned["GET", asked] = [
        page(entry(1), entry(2, "application/other"), *(entry(3 + n, kind) for n, kind in enumerate(untold)))
    ]
    assert [each.annotations["number"] for each in client.referrers(image, BUNDLE)] == ["1", "3", "4"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>"),
        Answer(200, b"{}"),
        Answer(200, b'{"schemaVersion": 2, "manifests": {"a": 1}}'),
        Answer(200, b'{"schemaVersion": 2, "manifests": [{"digest": "md5:1"}]}'),
        Answer(200, json.dumps(index_of({**entry(1), "size": -1})).encode()),
        Answer(200, json.dumps(index_of({**entry(1), "artifactType": 1})).encode()),
        Answer(200, json.dumps(index_of({**entry(1), "annotations": {"a": 1}})).encode()),
        Answer(400, b'{"errors": [{"code": "BAD_REQUEST"}]}'),
    ],
)
def test_a_list_that_cannot_be_read_is_not_an_empty_one(server: FakeRegistry, client: Registry, answer: Answer) -> None:
    image = server.put_image(server.repository())
    server.canned["GET", list_of(image)] = [answer]
    with pytest.raises(ToolFailed, match="list of referrers"):
        client.referrers(image)


def test_what_is_named_by_another_algorithm_takes_no_list_away(either: FakeRegistry, client: Registry) -> None:
    """Registries take such from anybody who may push; nothing of ours is named so."""
    image = either.put_image(either.repository())
    odd = {**entry(1), "digest": f"sha512:{128 * 'a'}"}
    if either.lists_referrers:
        either.canned["GET", list_of(image)] = [page(odd, entry(2))]
    else:
        either.put_manifest(image.repository, index_of(odd, entry(2)), stand_in(image))
    assert [each.annotations["number"] for each in client.referrers(image)] == ["2"]


@pytest.mark.parametrize("code", ["NOT_FOUND", "MANIFEST_UNKNOWN"])
def test_a_list_that_gets_lost_reads_neither_as_no_list_nor_as_no_image(
    server: FakeRegistry, client: Registry, code: str
) -> None:
    """Harbor says `NOT_FOUND` of the whole list when one entry lost its image; anybody who may push can write the tag instead."""
    image = server.put_image(server.repository())
    server.put_manifest(image.repository, index_of(entry(1)), stand_in(image))
    more = f'<{list_of(image)}?last=1>; rel="next"'
    first = [] if code == "NOT_FOUND" else [page(entry(1), Link=more)]
    server.canned["GET", list_of(image)] = [*first, unknown(code)]
    server.canned["GET", f"{list_of(image)}?last=1"] = [unknown(code)]
    with pytest.raises(ToolFailed, match=r"cannot be read: .* answered 404") as caught:
        client.referrers(image)
    assert not isinstance(caught.value, NotThere)


def test_what_others_noted_down_makes_no_list_too_long(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = server.put_image(server.repository())
    long = [{**entry(number), "annotations": {"note": "x" * 2_500_000}} for number in range(2)]
    server.canned["GET", list_of(image)] = [page(*long), page(*long)]
    assert len(client.referrers(image)) == 2
    monkeypatch.setattr(referrers, "LIST_LIMIT", 4_000_000)
    with pytest.raises(TooLarge) as caught:
        client.referrers(image)
    assert f"/v2/team/images/referrers/{image.digest}` lists them" in caught.value.hint


def test_a_list_that_is_refused_or_down_is_not_an_empty_one(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    server.canned["GET", list_of(image)] = [Answer(403), *[Answer(503)] * 9]
    with pytest.raises(RegistryRefused):
        client.referrers(image)
    with pytest.raises(Temporary):
        client.referrers(image)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(405, b'{"errors": [{"code": "UNSUPPORTED"}]}'),
        Answer(406),
        Answer(303, headers={"Location": "/packages/for/people"}),
    ],
)
def test_a_registry_that_says_that_it_keeps_no_list_has_a_tag(server: FakeRegistry, client: Registry, answer: Answer) -> None:
    image = server.put_image(server.repository())
    server.put_manifest(image.repository, index_of(entry(1)), stand_in(image))
    server.canned["GET", list_of(image)] = [answer]
    assert len(client.referrers(image)) == 1
    assert not server.asked("GET", "/packages")


def test_a_registry_that_names_the_subject_and_keeps_no_list_gets_a_tag(server: FakeRegistry, client: Registry) -> None:
    """As Amazon's did for a time."""
    image = server.put_image(server.repository())
    server.lists_referrers = True
    server.canned["GET", list_of(image)] = [unknown("PAGE_UNKNOWN")]
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    server.lists_referrers = False
    assert client.referrers(image) == (attached,)
    assert Registry().referrers(image) == (attached,)


def test_a_stand_in_tag_that_is_no_index_is_told(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    server.put_image(image.repository, layers=(b"other",), tag=stand_in(image))
    with pytest.raises(ToolFailed, match="names something else"):
        client.referrers(image)


def test_too_many_referrers_are_told(server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referrers, "REFERRERS_LIMIT", 60)
    image = server.put_image(server.repository())
    server.put_manifest(image.repository, index_of(*map(entry, range(60))), stand_in(image))
    assert len(client.referrers(image)) == 60
    server.put_manifest(image.repository, index_of(*map(entry, range(61))), stand_in(image))
    with pytest.raises(ToolFailed, match="more than 60"):
        client.referrers(image)
    server.canned["GET", list_of(image)] = [page(*map(entry, range(61)))]
    with pytest.raises(ToolFailed, match="more than 60"):
        client.referrers(image)


def test_a_blob_over_the_callers_limit_is_told_and_not_read(server: FakeRegistry, client: Registry) -> None:
    layer = Descriptor(BUNDLE, Digest.of(b"x"), 20_000_000)
    with pytest.raises(TooLarge, match="20000000 bytes, more than 1000000"):
        client.blob(server.repository(), layer, limit=1_000_000)
    assert server.requests == []


def test_a_blob_that_is_not_there_is_told_apart(server: FakeRegistry, client: Registry) -> None:
    with pytest.raises(NotThere):
        client.blob(server.repository(), Descriptor(BUNDLE, Digest.of(b"x"), 1))


def test_junk_among_the_referrers_does_not_hinder_attaching(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    odd = server.put_manifest(image.repository, {"layers": "none"}).digest
    junk = (entry(1), {**entry(2), "mediaType": OCI_INDEX}, {**entry(3), "digest": str(odd)})
    server.put_manifest(image.repository, index_of(*junk), stand_in(image))
    server.put_blob(b"evidence")
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    assert attached in client.referrers(image)
    assert len(client.referrers(image)) == 4


def test_others_entries_stay_byte_for_byte(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    digest = b"1" * 64
    theirs = b'{"mediaType" : "a/b",\t"size":10, "digest":"sha256:%s", "x":"\\u00e4\xc3\xa4", "annotations":{"]":"}"}}' % digest
    body = b' {"manifests":[ %s ],\n "annotations":{"manifests":"[]"}, "schemaVersion":2,"mediaType":"%s"}\n' % (
        theirs,
        OCI_INDEX.encode(),
    )
    server.manifests[image.repository.path, stand_in(image)] = body
    client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    after = server.manifests[image.repository.path, stand_in(image)]
    head, tail = body.split(b" ],\n")
    assert after.startswith(head)
    assert after.endswith(b"],\n" + tail)
    assert len(json.loads(after)["manifests"]) == 2


@pytest.mark.parametrize(
    ("before", "entries"),
    [
        (None, 1),
        (b'{"schemaVersion":2,"manifests":[]}', 1),
        (b'{"manifests": [ ], "schemaVersion":2}', 1),
        (b'{"manifests":[],"schemaVersion":2,"manifests":[]}', 1),
        (json.dumps({"schemaVersion": 2, "manifests": [{"digest": f"sha512:{128 * 'a'}"}]}).encode(), 2),
    ],
)
def test_an_entry_is_added_to_any_index(before: bytes | None, entries: int) -> None:
    after = index_text.with_entry(before, Descriptor(OCI_MANIFEST, Digest.of(b"x"), 1, {"a": "ä"}, BUNDLE))
    assert len(json.loads(after)["manifests"]) == entries


@pytest.mark.parametrize(
    "before", [b"[]", b"{}", b'{"schemaVersion":2,"manifests":null}', '{"schemaVersion":2,"manifests":[]}'.encode("utf-16")]
)
def test_what_is_no_index_is_not_added_to(before: bytes) -> None:
    with pytest.raises(ToolFailed):
        index_text.with_entry(before, Descriptor(OCI_MANIFEST, Digest.of(b"x"), 1))


def test_an_entry_that_was_lost_is_added_anew(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    server.put_manifest(image.repository, index_of(entry(1)), stand_in(image))
    server.canned["PUT", f"/v2/team/images/manifests/{stand_in(image)}"] = [Answer(201), Answer(201)]
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    assert {each.digest for each in client.referrers(image)} == {attached.digest, Digest(entry(1)["digest"])}


def test_a_list_that_others_write_is_looked_at_twice(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = server.put_image(server.repository())
    ours = Descriptor(OCI_MANIFEST, Digest.of(b"ours"), 1, {}, BUNDLE)
    waited: list[float] = []

    def another_writes(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            server.put_manifest(image.repository, index_of(entry(1)), stand_in(image))

    assert client.referrers(image) == ()
    monkeypatch.setattr(attaching, "SETTLE_HERE", 1.0)
    monkeypatch.setattr("pipeline.registry.attaching.time.sleep", another_writes)
    attaching.enter(client._wire, image, [ours], tmp_path / "locks")
    client.keep_listed(image, [ours])
    assert {each.digest for each in client.referrers(image)} == {ours.digest, Digest(entry(1)["digest"])}
    assert waited == [1.0, 1.0]


def test_several_that_were_attached_are_looked_at_once_and_together(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = server.put_image(server.repository())
    waited: list[float] = []
    monkeypatch.setattr("pipeline.registry.attaching.time.sleep", waited.append)
    attached = [client.attach(image, BUNDLE, text, BUNDLE, NOTES, keep=False) for text in (b"one", b"two", b"three")]
    assert waited == []
    server.put_manifest(image.repository, index_of(entry(1)), stand_in(image))
    client.keep_listed(image, attached)
    assert {each.digest for each in client.referrers(image)} == {Digest(entry(1)["digest"]), *(one.digest for one in attached)}
    assert len(waited) == 2


def test_a_registry_that_keeps_no_list_is_asked_for_it_once(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    client.referrers(image)
    client.attach(image, BUNDLE, b"more evidence", BUNDLE, NOTES)
    assert len(server.asked("GET", list_of(image))) == 1


def test_who_has_seen_the_image_asks_for_the_list_alone(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    attached = client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)
    either.requests.clear()
    assert client.referrers(image, seen=True) == (attached,)
    assert len(either.requests) == 1


def test_an_entry_that_never_stays_is_told_in_the_end(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    server.canned["PUT", f"/v2/team/images/manifests/{stand_in(image)}"] = [Answer(201)] * 99
    with pytest.raises(Temporary, match="lost the entry"):
        client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)


def test_a_registry_that_takes_and_does_not_list_is_told(server: FakeRegistry, client: Registry) -> None:
    server.lists_referrers = True
    image = server.put_image(server.repository())
    server.canned["GET", list_of(image)] = [page()] * 99
    with pytest.raises(Temporary, match="does not list it"):
        client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES)


def test_a_list_that_lags_is_waited_for(server: FakeRegistry, client: Registry) -> None:
    server.lists_referrers = True
    image = server.put_image(server.repository())
    server.canned["GET", list_of(image)] = [page(), page()]
    assert client.attach(image, BUNDLE, b"evidence", BUNDLE, NOTES) in client.referrers(image)


def test_ten_threads_attach_to_one_image(either: FakeRegistry, client: Registry) -> None:
    image = either.put_image(either.repository())
    threads = [
        threading.Thread(target=client.attach, args=(image, BUNDLE, str(number).encode(), BUNDLE, NOTES)) for number in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(client.referrers(image, BUNDLE)) == 10


def test_a_blob_that_is_there_is_not_sent(server: FakeRegistry, client: Registry) -> None:
    server.put_blob(b"content")
    found = client.upload(server.repository(), b"content", BUNDLE)
    assert found == Descriptor(BUNDLE, Digest.of(b"content"), 7)
    assert server.asked("POST") == []


def test_an_upload_keeps_the_registrys_own_query(server: FakeRegistry, client: Registry) -> None:
    client.upload(server.repository(), b"content")
    (place,) = server.asked("PUT")
    assert "?_state=a%3Db&digest=sha256%3A" in place


def test_an_upload_that_the_registry_lost_is_begun_anew(server: FakeRegistry, client: Registry) -> None:
    lost = {"Location": "/v2/team/images/blobs/uploads/lost"}
    server.canned["POST", "/v2/team/images/blobs/uploads/"] = [Answer(202, headers=lost), Answer(503)]
    digest = str(Digest.of(b"content")).replace(":", "%3A")
    server.canned["PUT", f"/v2/team/images/blobs/uploads/lost?digest={digest}"] = [unknown("BLOB_UPLOAD_UNKNOWN")]
    client.upload(server.repository(), b"content")
    assert server.blobs[str(Digest.of(b"content"))] == b"content"


def test_an_upload_that_fails_for_good_is_told(server: FakeRegistry, client: Registry) -> None:
    full = Answer(500, b'{"errors": [{"code": "UNKNOWN", "message": "no space left on device"}]}')
    server.canned["POST", "/v2/team/images/blobs/uploads/"] = [full] * 99
    with pytest.raises(Temporary, match="no space left"):
        client.upload(server.repository(), b"content")
    server.canned["POST", "/v2/team/images/blobs/uploads/"] = [Answer(202)]
    with pytest.raises(ToolFailed, match="cannot be written"):
        client.upload(server.repository(), b"content")


def test_a_manifest_is_written_byte_for_byte(server: FakeRegistry, client: Registry) -> None:
    body = b' {"schemaVersion":2, "manifests":[],"mediaType":"' + OCI_INDEX.encode() + b'"}'
    pinned = client.put_manifest(server.repository(), body, OCI_INDEX, "v1")
    assert pinned.digest == Digest.of(body)
    assert client.raw_manifest(pinned) == (body, OCI_INDEX)
    assert client.resolve(server.repository().tag("v1")) == pinned.digest


def test_a_registry_that_takes_another_manifest_than_was_sent_is_told(server: FakeRegistry, client: Registry) -> None:
    lie = {"Docker-Content-Digest": str(Digest.of(b"x"))}
    server.canned["PUT", "/v2/team/images/manifests/v1"] = [Answer(201, headers=lie), Answer(412)]
    with pytest.raises(ToolFailed, match="says that it is"):
        client.put_manifest(server.repository(), b"{}", OCI_MANIFEST, "v1")
    with pytest.raises(TagConflict):
        client.put_manifest(server.repository(), b"{}", OCI_MANIFEST, "v1")


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (b'{"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}', OCI_MANIFEST),
        (b'{"mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [], "manifests": []}', OCI_MANIFEST),
        (b'{"schemaVersion": 1, "fsLayers": []}', "application/vnd.docker.distribution.manifest.v1+json"),
        (b'{"layers": []}', "text/plain"),
        (b"[]", OCI_MANIFEST),
        (b"<html>", OCI_MANIFEST),
        (b'{"mediaType": ["x"], "layers": []}', ""),
        (b'{"manifests": [], "layers": [], "fsLayers": []}', OCI_MANIFEST),
        (b"[" * 100_000, OCI_MANIFEST),
    ],
    ids=lambda value: value[-40:].decode() if isinstance(value, bytes) else value,
)
def test_a_manifest_of_doubtful_type_is_not_handed_out(server: FakeRegistry, client: Registry, body: bytes, header: str) -> None:
    pinned = server.repository().at(Digest.of(body))
    server.canned["GET", f"/v2/team/images/manifests/{pinned.digest}"] = [Answer(200, body, {"Content-Type": header})]
    with pytest.raises(ToolFailed):
        client.raw_manifest(pinned)


def test_a_manifest_that_does_not_tell_its_type_is_what_the_registry_says(server: FakeRegistry, client: Registry) -> None:
    pinned = server.repository().at(Digest.of(body := b'{"layers": []}'))
    answer = Answer(200, body, {"Content-Type": f"{OCI_MANIFEST} ; charset=utf-8"})
    server.canned["GET", f"/v2/team/images/manifests/{pinned.digest}"] = [answer]
    assert client.raw_manifest(pinned) == (body, OCI_MANIFEST)


def test_a_manifest_tells_what_it_refers_to(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    assert client.manifest(image).subject is None
    with pytest.raises(ToolFailed):
        Manifest.parse(client.manifest(image).body[:-1] + b', "subject": "x"}')
