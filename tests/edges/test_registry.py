"""The registry client against a server on loopback that lies, breaks off and refuses."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest
import requests

from pipeline.errors import NotThere, PipelineError, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.oci import DOCKER_INDEX, OCI_INDEX, Descriptor, Digest
from pipeline.registry import BLOB_LIMIT, Registry, answers, reading, session
from pipeline.registry.trust import Trust
from pipeline.survey import in_parallel
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(session, "RETRIES", session.RETRIES.new(backoff_factor=0))
    with fake_registry() as running:
        yield running


@pytest.fixture
def client() -> Registry:
    return Registry()


MANIFESTS = "/v2/team/images/manifests/"


def test_a_tag_resolves_to_the_digest_of_the_bytes_that_it_names(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository(), tag="v1")
    assert client.resolve(server.repository().tag("v1")) == image.digest


def test_all_manifest_types_are_accepted_so_that_nothing_is_converted(server: FakeRegistry, client: Registry) -> None:
    server.put_image(server.repository(), tag="v1")
    client.resolve(server.repository().tag("v1"))
    accepted = server.requests[-1][2]["Accept"]
    assert OCI_INDEX in accepted
    assert DOCKER_INDEX in accepted


@pytest.mark.parametrize("code", ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND", "TAG_EXPIRED"])
def test_a_tag_is_absent_when_the_registry_says_so(server: FakeRegistry, client: Registry, code: str) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [unknown(code)]
    assert client.resolve(server.repository().tag("v1")) is None


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"<html>Not Found</html>", {"Content-Type": "text/html"}),
        Answer(404),
        Answer(404, b'{"errors": [{"code": "DENIED"}]}'),
        Answer(404, b'{"errors": "MANIFEST_UNKNOWN"}'),
        Answer(404, b"[]"),
        Answer(400, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'),
    ],
)
def test_any_other_404_is_an_error_and_never_not_there(server: FakeRegistry, client: Registry, answer: Answer) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [answer]
    with pytest.raises(ToolFailed):
        client.resolve(server.repository().tag("v1"))


def test_an_html_error_page_is_told_in_one_readable_line(server: FakeRegistry, client: Registry) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [Answer(404, b"<html>\n<body>\n  no such   page</body>")]
    with pytest.raises(ToolFailed, match="answered 404, <html> <body> no such page</body>"):
        client.resolve(server.repository().tag("v1"))


def test_a_missing_or_empty_digest_header_is_made_up_for_by_hashing(server: FakeRegistry, client: Registry) -> None:
    for headers in ({}, {"Docker-Content-Digest": ""}):
        server.canned["GET", MANIFESTS + "v1"] = [Answer(200, b'{"schemaVersion": 2}', headers)]
        assert client.resolve(server.repository().tag("v1")) == Digest.of(b'{"schemaVersion": 2}')


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[]", b'"v1"', b'{"error": "captive portal"}'])
@pytest.mark.parametrize("digest", [{}, {"Docker-Content-Digest": ""}])
def test_a_page_that_answers_for_the_registry_is_not_what_a_tag_names(
    server: FakeRegistry, client: Registry, body: bytes, digest: dict[str, str]
) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [Answer(200, body, {"Content-Type": "text/html", **digest})]
    with pytest.raises(ToolFailed, match="no manifest"):
        client.resolve(server.repository().tag("v1"))


def test_a_digest_header_that_lies_about_the_body_is_an_error(server: FakeRegistry, client: Registry) -> None:
    lie = {"Docker-Content-Digest": f"sha256:{'0' * 64}"}
    server.canned["GET", MANIFESTS + "v1"] = [Answer(200, b"{}", lie)]
    with pytest.raises(ToolFailed, match="says that"):
        client.resolve(server.repository().tag("v1"))


def test_a_manifest_with_other_bytes_than_its_digest_is_an_error(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    server.canned["GET", MANIFESTS + str(image.digest)] = [Answer(200, b"{}")]
    with pytest.raises(ToolFailed, match=r"where .* was asked for"):
        client.manifest(image)


def test_a_manifest_keeps_its_bytes(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    assert client.manifest(image).body == server.manifests["team/images", str(image.digest)]


def test_an_index_is_not_taken_for_an_image(server: FakeRegistry, client: Registry) -> None:
    index = server.put_manifest(server.repository(), {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []})
    with pytest.raises(ToolFailed, match=r"image.index"):
        client.manifest(index)


def test_a_manifest_that_does_not_end_is_cut_off(server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MANIFEST_LIMIT", 100)
    server.canned["GET", MANIFESTS + "v1"] = [Answer(200, b"x" * 101)]
    with pytest.raises(ToolFailed, match="more than 100 bytes"):
        client.resolve(server.repository().tag("v1"))


def test_an_image_configuration_is_read_through_verified_bytes(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository(), labels={"a": "b"})
    assert client.config(image).labels == {"a": "b"}


def blob(content: bytes) -> Descriptor:
    return Descriptor("application/octet-stream", Digest.of(content), len(content))


def test_a_blob_that_breaks_off_is_temporary(server: FakeRegistry, client: Registry) -> None:
    wanted = blob(b"0123456789")
    server.canned["GET", f"/v2/team/images/blobs/{wanted.digest}"] = [Answer(200, b"01234", length=10)]
    with pytest.raises(Temporary, match="the connection broke"):
        client.blob(server.repository(), wanted)


@pytest.mark.parametrize("body", [b"01234", b"0123456780", b"0123456789more"])
def test_a_blob_with_another_size_or_content_is_never_complete(server: FakeRegistry, client: Registry, body: bytes) -> None:
    wanted = blob(b"0123456789")
    server.canned["GET", f"/v2/team/images/blobs/{wanted.digest}"] = [Answer(200, body)]
    with pytest.raises(ToolFailed, match="arrived damaged"):
        client.blob(server.repository(), wanted)


@pytest.mark.parametrize("size", [9, 11])
def test_a_blob_of_another_size_than_its_manifest_says_is_never_complete(
    server: FakeRegistry, client: Registry, size: int
) -> None:
    server.put_blob(b"0123456789")
    with pytest.raises(ToolFailed, match=f"arrived damaged: 10 bytes of {size}"):
        client.blob(server.repository(), replace(blob(b"0123456789"), size=size))


def test_a_blob_that_does_not_end_is_cut_off(server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", 1000)
    server.put_blob(bytes(5000))
    found: list[bytes] = []
    with pytest.raises(ToolFailed, match="arrived damaged"):
        found.extend(client.stream(server.repository(), replace(blob(bytes(5000)), size=1500)))
    assert found == [bytes(1000)]


def test_a_large_blob_is_streamed_and_not_held(server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", 1000)
    content = bytes(5000)
    server.put_blob(content)
    assert [len(chunk) for chunk in client.stream(server.repository(), blob(content))] == [1000] * 5
    with pytest.raises(ToolFailed, match="more than"):
        client.blob(server.repository(), replace(blob(content), size=BLOB_LIMIT + 1))


def test_tags_are_listed_over_all_pages(server: FakeRegistry, client: Registry) -> None:
    pages = "/v2/team/images/tags/list?n=1000"
    more = {"Link": '</v2/team/images/tags/list?last=b&n=1000>; rel="next"'}
    server.canned["GET", pages] = [Answer(200, b'{"tags": ["a", "b"]}', more)]
    server.canned["GET", "/v2/team/images/tags/list?last=b&n=1000"] = [Answer(200, b'{"tags": null}')]
    assert client.tags(server.repository()) == ("a", "b")


@pytest.mark.parametrize("rest", [["e", "f"], [], ["d"]])
def test_a_full_page_is_looked_behind_where_the_registry_does_not_tell_of_more(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch, rest: list[str]
) -> None:
    monkeypatch.setattr(reading, "TAGS_ASKED", 2)
    asked = "/v2/team/images/tags/list?n=2"
    server.canned["GET", asked] = [Answer(200, b'{"tags": ["a", "b"]}')]
    server.canned["GET", f"{asked}&last=b"] = [Answer(200, b'{"tags": ["c", "d"]}')]
    server.canned["GET", f"{asked}&last=d"] = [Answer(200, json.dumps({"tags": rest}).encode())]
    server.canned["GET", f"{asked}&last=f"] = [Answer(200, b'{"tags": null}')]
    assert client.tags(server.repository()) == tuple(dict.fromkeys(["a", "b", "c", "d", *rest]))


def test_a_registry_that_gives_the_same_page_for_ever_gives_it_twice(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TAGS_ASKED", 2)
    asked = "/v2/team/images/tags/list?n=2"
    server.canned["GET", asked] = server.canned["GET", f"{asked}&last=b"] = [Answer(200, b'{"tags": ["a", "b"]}')] * 2
    assert client.tags(server.repository()) == ("a", "b")
    assert len(server.requests) == 2


def test_a_list_of_tags_that_does_not_end_is_an_error(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TAGS_ASKED", 1)
    monkeypatch.setattr(reading, "PAGES", 3)
    asked = "/v2/team/images/tags/list?n=1"
    for last, tag in (("", "a"), ("&last=a", "b"), ("&last=b", "c")):
        server.canned["GET", asked + last] = [Answer(200, json.dumps({"tags": [tag]}).encode())]
    with pytest.raises(ToolFailed, match="does not end"):
        client.tags(server.repository())


def test_a_list_of_tags_that_is_gone_on_its_second_page_is_no_list(server: FakeRegistry, client: Registry) -> None:
    more = {"Link": '</v2/team/images/tags/list?last=b>; rel="next"'}
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [Answer(200, b'{"tags": ["a", "b"]}', more)]
    server.canned["GET", "/v2/team/images/tags/list?last=b"] = [unknown("NAME_UNKNOWN")]
    with pytest.raises(NotThere):
        client.tags(server.repository())


def test_an_unknown_repository_has_no_tags(server: FakeRegistry, client: Registry) -> None:
    assert client.tags(server.repository()) == ()


@pytest.mark.parametrize("link", ["</v2/team/images/tags/list?n=1000>", "<http://192.0.2.1/v2/team/images/tags/list>"])
def test_pages_that_go_in_circles_or_elsewhere_are_an_error(server: FakeRegistry, client: Registry, link: str) -> None:
    page = Answer(200, b'{"tags": ["a"]}', {"Link": f'{link}; rel="next"'})
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [page, page]
    with pytest.raises(ToolFailed, match=r"in circles|elsewhere"):
        client.tags(server.repository())


@pytest.mark.parametrize("body", [b"not json", b"[]", b"{}", b'{"tags": 3}', b"[" * 100_000])
def test_an_unreadable_list_of_tags_is_not_an_empty_one(server: FakeRegistry, client: Registry, body: bytes) -> None:
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [Answer(200, body)]
    with pytest.raises(ToolFailed, match="cannot be read"):
        client.tags(server.repository())


def test_a_list_of_tags_that_is_refused_is_not_a_broken_one(server: FakeRegistry, client: Registry) -> None:
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [Answer(403)]
    with pytest.raises(RegistryRefused):
        client.tags(server.repository())


def test_a_list_of_tags_that_breaks_off_is_temporary(server: FakeRegistry, client: Registry) -> None:
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [Answer(200, b'{"tags": [', length=100)]
    with pytest.raises(Temporary, match="the connection broke while the list of tags"):
        client.tags(server.repository())


def test_a_list_of_tags_without_end_is_not_read_to_its_end(
    server: FakeRegistry, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TAGS_LIMIT", 100)
    server.canned["GET", "/v2/team/images/tags/list?n=1000"] = [Answer(200, b" " * 101)]
    with pytest.raises(ToolFailed, match="more than 100 bytes"):
        client.tags(server.repository())


def test_a_tag_is_created_with_the_bytes_of_the_manifest(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    assert client.create_tag(server.repository(), "v1", client.manifest(image)) == image.digest
    assert server.manifests["team/images", "v1"] == server.manifests["team/images", str(image.digest)]


def test_a_tag_that_exists_is_never_moved(server: FakeRegistry, client: Registry) -> None:
    first = server.put_image(server.repository(), tag="v1")
    second = server.put_image(server.repository(), layers=(b"other",))
    assert client.create_tag(server.repository(), "v1", client.manifest(second)) == first.digest
    assert [method for method, _, _ in server.requests].count("PUT") == 0


def test_the_loser_of_a_race_for_a_tag_is_told_the_winner(server: FakeRegistry, client: Registry) -> None:
    winner = server.put_image(server.repository(), tag="v1")
    loser = client.manifest(server.put_image(server.repository(), layers=(b"other",)))
    server.canned["GET", MANIFESTS + "v1"] = [unknown("MANIFEST_UNKNOWN")]
    server.canned["PUT", MANIFESTS + "v1"] = [Answer(201)]
    assert client.create_tag(server.repository(), "v1", loser) == winner.digest


@pytest.mark.parametrize(("status", "code"), [(412, "PRECONDITION"), (409, "TAG_IMMUTABLE"), (400, "TAG_INVALID")])
def test_a_registry_that_refuses_the_tag_as_immutable_is_a_conflict(
    server: FakeRegistry, client: Registry, status: int, code: str
) -> None:
    """Harbor's words, another's, and Amazon's."""
    manifest = client.manifest(server.put_image(server.repository()))
    said = json.dumps({"errors": [{"code": code, "message": "immutable"}]}).encode()
    server.canned["PUT", MANIFESTS + "v1"] = [Answer(status, said)]
    with pytest.raises(TagConflict, match="immutable"):
        client.create_tag(server.repository(), "v1", manifest)


def test_a_tag_that_is_accepted_and_then_unknown_is_an_error(server: FakeRegistry, client: Registry) -> None:
    manifest = client.manifest(server.put_image(server.repository()))
    server.canned["PUT", MANIFESTS + "v1"] = [Answer(201)]
    with pytest.raises(ToolFailed, match="did not know it"):
        client.create_tag(server.repository(), "v1", manifest)


def test_passing_faults_are_tried_again(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository())
    soon = Answer(429, b"Too Many Requests", {"Retry-After": "0"})
    server.canned["GET", MANIFESTS + str(image.digest)] = [Answer(503), soon, Answer(500, b"oops")]
    server.canned["PUT", MANIFESTS + "v1"] = [Answer(502)]
    assert client.create_tag(server.repository(), "v1", client.manifest(image)) == image.digest


@pytest.mark.parametrize("wait", ["1.16ms", "soon", ""])
def test_a_wait_that_cannot_be_read_is_as_long_as_ours(server: FakeRegistry, client: Registry, wait: str) -> None:
    image = server.put_image(server.repository(), tag="v1")
    server.canned["GET", MANIFESTS + "v1"] = [Answer(429, b"retry-after: 1.16ms", {"Retry-After": wait})]
    assert client.resolve(server.repository().tag("v1")) == image.digest
    answer = client._wire.greet(server.host)
    answer.raw.headers["Retry-After"] = wait
    assert answers.pause(answer, server.host) == 0


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_that_stays_is_temporary(server: FakeRegistry, client: Registry, status: int) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [Answer(status, b"Too Many Requests (HAP429).")] * 9
    with pytest.raises(Temporary, match=rf"answered {status}, Too Many Requests \(HAP429\)"):
        client.resolve(server.repository().tag("v1"))
    assert len(server.requests) == 5


@pytest.mark.parametrize("wait", ["3600", formatdate(4102444800, usegmt=True)])
def test_a_registry_that_asks_for_too_much_patience_is_told_at_once(server: FakeRegistry, client: Registry, wait: str) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [Answer(429, headers={"Retry-After": wait})]
    with pytest.raises(Temporary, match="asks to wait"):
        client.resolve(server.repository().tag("v1"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_refused_rights_are_not_tried_again(server: FakeRegistry, client: Registry, status: int) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [
        Answer(status, json.dumps({"errors": [{"code": "DENIED", "message": "no"}]}).encode())
    ]
    with pytest.raises(RegistryRefused, match=f"answered {status}, no"):
        client.resolve(server.repository().tag("v1"))
    assert len(server.requests) == 1


def test_a_repository_that_must_be_created_first_is_told_as_such(server: FakeRegistry, client: Registry) -> None:
    """Amazon's registry makes none by itself."""
    server.canned["POST", "/v2/team/images/blobs/uploads/"] = [unknown("NAME_UNKNOWN")]
    with pytest.raises(NotThere, match="cannot be written") as caught:
        client.upload(server.repository(), b"content")
    assert "create it first" in caught.value.hint


def test_what_is_read_only_for_now_is_told_as_such(server: FakeRegistry, client: Registry) -> None:
    said = b'{"errors": [{"code": "DENIED", "message": "The system is in read only mode. Any modification is prohibited."}]}'
    server.canned["POST", "/v2/team/images/blobs/uploads/"] = [Answer(403, said)]
    with pytest.raises(RegistryRefused, match="read only mode") as caught:
        client.upload(server.repository(), b"content")
    assert "docker login" not in caught.value.hint


@pytest.mark.parametrize("status", [401, 403, 405])
def test_storage_that_lets_nobody_ask_for_a_blob_is_read_from(server: FakeRegistry, client: Registry, status: int) -> None:
    """As behind GitHub's registry, and Pulp: where a registry leads is signed for GET alone."""
    held = server.put_blob(b"content")
    path = f"/v2/team/images/blobs/{held['digest']}"
    with fake_registry() as storage:
        away = Answer(307, headers={"Location": f"http://{storage.host}/bucket"})
        server.canned["HEAD", path] = server.canned["GET", path] = [away] * 2
        storage.canned["HEAD", "/bucket"] = [Answer(status)]
        storage.canned["GET", "/bucket"] = [Answer(200, b"content")]
        client.upload(server.repository(), b"content")
    assert server.asked("POST") == []
    server.canned["HEAD", path] = [Answer(status)]
    with pytest.raises(PipelineError, match="cannot be looked for"):
        client.upload(server.repository(), b"content")


def test_a_registry_that_is_down_is_named_and_temporary(client: Registry, server: FakeRegistry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Temporary, match=f"`{host}` cannot be reached: .*refused") as caught:
        client.ping(host)
    assert "nox -s setup" in caught.value.hint


def test_a_proxy_that_does_not_lead_on_is_told_without_its_password(
    server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret@{server.host}")
    with pytest.raises(Temporary, match=r"`registry\.example\.com` cannot be reached through the proxy: 501") as caught:
        Registry().ping("registry.example.com")
    assert "NO_PROXY" in caught.value.hint
    assert "s3cret" not in str(caught.value)


def test_ping_wants_a_registry(server: FakeRegistry, client: Registry) -> None:
    client.ping(server.host)
    server.canned["GET", "/v2/"] = [Answer(404, b"<html>")]
    with pytest.raises(ToolFailed, match="is not a registry"):
        client.ping(server.host)


def test_threads_that_come_and_go_use_the_same_connections(server: FakeRegistry, client: Registry) -> None:
    """Answers without a body too: each would cost a new connection otherwise, and behind TLS two more ways back and forth."""
    server.mounts = True
    blobs = [client.upload(server.repository(), text.encode()) for text in "abcdefgh"]
    for _ in range(3):
        in_parallel(lambda blob: client.mount(server.repository("team/other"), blob, server.repository()), blobs)
        in_parallel(lambda blob: client.blob(server.repository(), blob), blobs)
    assert server.connections <= len(blobs)


def test_a_redirect_to_another_host_carries_no_authorization(server: FakeRegistry) -> None:
    with fake_registry() as storage:
        storage.canned["GET", "/bucket"] = [Answer(200, b"ok")]
        server.canned["GET", "/v2/"] = [Answer(307, headers={"Location": f"http://{storage.host}/bucket"})]
        client = session.Connections(Trust(None)).opened(server.host, loopback=True)
        answer = client.get(f"http://{server.host}/v2/", headers={"Authorization": "Basic c2VjcmV0"})
    assert answer.content == b"ok"
    assert "Authorization" in server.requests[-1][2]
    assert "Authorization" not in storage.requests[-1][2]


def test_a_redirect_from_https_to_http_is_refused() -> None:
    before, after = requests.Response(), requests.PreparedRequest()
    before.url = "https://registry.example.com/v2/"
    after.prepare(method="GET", url="http://registry.example.com/v2/")
    with pytest.raises(RegistryRefused, match="from https to"):
        session.Session().rebuild_auth(after, before)


def test_only_loopback_is_spoken_to_without_encryption() -> None:
    assert session.base("localhost:5601") == "http://localhost:5601"
    assert session.base("harbor.example.com") == "https://harbor.example.com"


def test_several_threads_can_use_one_client(server: FakeRegistry, client: Registry) -> None:
    image = server.put_image(server.repository(), tag="v1")
    found: list[Digest | None] = []
    threads = [threading.Thread(target=lambda: found.append(client.resolve(server.repository().tag("v1")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [image.digest] * 8


def test_the_fake_hashes_as_a_registry_does(server: FakeRegistry) -> None:
    assert server.put_blob(b"x")["digest"] == "sha256:" + hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("kind", [requests.exceptions.SSLError, requests.exceptions.ConnectTimeout])
def test_what_opens_storage_elsewhere_is_not_shown(
    client: Registry, server: FakeRegistry, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("HTTPSConnectionPool(host='s3'): Max retries exceeded with url: /x?sig=secret&more=1 (Caused by nothing)")

    monkeypatch.setattr(session.Session, "request", fail)
    with pytest.raises((RegistryRefused, Temporary)) as caught:
        client.resolve(server.repository().tag("x"))
    assert "/x?… (Caused by nothing)" in caught.value.message


def test_a_registry_tells_what_time_it_is_there(server: FakeRegistry, client: Registry) -> None:
    told = client.clock(server.host)
    assert told is not None
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}, {"Date": formatdate(0, usegmt=True), "Age": "9"}])
def test_a_registry_may_not_tell_what_time_it_is_there(headers: dict[str, str]) -> None:
    answer = requests.Response()
    answer.headers.update(headers)
    assert answers.date(answer) is None


def test_what_a_registry_says_is_one_line_and_no_novel(server: FakeRegistry, client: Registry) -> None:
    said = [{"code": "DENIED", "message": "no\nerror: all is well\r\n" + "x" * 9000}]
    server.canned["GET", "/v2/team/images/manifests/x"] = [Answer(403, json.dumps({"errors": said}).encode())]
    with pytest.raises(RegistryRefused, match="answered 403, no error: all is well xxx") as caught:
        client.resolve(server.repository().tag("x"))
    assert len(caught.value.message) < 1300
