"""Blobs from one repository to another, and tags that move, against servers on loopback that break off, lose and refuse."""

import json
import random
from collections.abc import Iterator

import pytest

from pipeline.credentials import Credential
from pipeline.errors import NotThere, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.oci import Descriptor, Digest, Manifest, Repository
from pipeline.registry import Registry, answers, arriving, copying, session, uploads
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown

PART = 1000
CONTENT = random.Random(1).randbytes(4500)
BLOB = Descriptor("application/octet-stream", Digest.of(CONTENT), len(CONTENT))
MOUNT = f"/v2/team/releases/blobs/uploads/?mount=sha256%3A{BLOB.digest.hex}&from=team%2Fimages"
HELD = f"/v2/team/releases/blobs/{BLOB.digest}"
ORIGIN = f"/v2/team/images/blobs/{BLOB.digest}"
DENIED = Answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "action: pull"}]}')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RETRIES", session.RETRIES.new(backoff_factor=0))
    monkeypatch.setattr(arriving, "PAUSE", 0)
    monkeypatch.setattr(uploads, "PAUSE", 0)
    monkeypatch.setattr(answers, "CHUNK", 100)
    monkeypatch.setattr(uploads, "PART", PART)
    monkeypatch.setattr(copying, "SMALL", PART)


@pytest.fixture
def far() -> Iterator[FakeRegistry]:
    """Where the blob is."""
    with fake_registry() as running:
        running.put_blob(CONTENT)
        yield running


@pytest.fixture
def near() -> Iterator[FakeRegistry]:
    """Where it goes."""
    with fake_registry() as running:
        yield running


def copy(far: FakeRegistry, near: FakeRegistry) -> list[int]:
    """What was told of the progress."""
    told: list[int] = []
    Registry().copy_blob(far.repository(), near.repository("team/releases"), BLOB, advance=told.append)
    return told


def within(server: FakeRegistry) -> tuple[Repository, Descriptor, Repository]:
    return server.repository("team/releases"), BLOB, server.repository()


def sent(server: FakeRegistry) -> list[int]:
    """Bytes of each PATCH, as it was meant."""
    return [int(headers["Content-Length"]) for method, _, headers in server.requests if method == "PATCH"]


def test_a_blob_arrives_in_parts_and_nothing_stays_open(far: FakeRegistry, near: FakeRegistry) -> None:
    assert sum(copy(far, near)) == BLOB.size
    assert (near.blobs[str(BLOB.digest)], near.uploads) == (CONTENT, {})
    assert sent(near) == [1000, 1000, 1000, 1000, 500]


def test_a_small_blob_takes_four_requests(far: FakeRegistry, near: FakeRegistry) -> None:
    small = far.put_blob(b"small")
    Registry().copy_blob(far.repository(), near.repository(), Descriptor("x", Digest(small["digest"]), 5))
    assert near.blobs[small["digest"]] == b"small"
    assert [method for method, _, _ in (*far.requests, *near.requests)] == ["GET", "HEAD", "POST", "PUT"]


def test_an_empty_blob_arrives(far: FakeRegistry, near: FakeRegistry) -> None:
    empty = far.put_blob(b"")
    Registry().copy_blob(far.repository(), near.repository(), Descriptor("x", Digest(empty["digest"]), 0))
    assert near.blobs == {empty["digest"]: b""}


def test_a_blob_that_is_there_is_not_read(far: FakeRegistry, near: FakeRegistry) -> None:
    near.put_blob(CONTENT)
    assert copy(far, near) == [BLOB.size]
    assert far.requests == []


def test_only_the_rest_is_sent_after_a_break(far: FakeRegistry, near: FakeRegistry) -> None:
    near.cuts = [None, 300, 0, None]
    assert sum(copy(far, near)) == BLOB.size
    assert near.blobs[str(BLOB.digest)] == CONTENT
    assert sent(near) == [1000, 1000, 700, 700, 1000, 1000, 500]
    assert [headers.get("Range") for _, _, headers in far.requests] == [None, "bytes=1000-", "bytes=1000-"]


def test_a_lost_answer_is_not_sent_again(far: FakeRegistry, near: FakeRegistry) -> None:
    near.cuts = [None, 1000]
    copy(far, near)
    assert sent(near) == [1000, 1000, 1000, 1000, 500]


def test_an_upload_that_the_registry_forgot_is_begun_anew_and_told_once(far: FakeRegistry, near: FakeRegistry) -> None:
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/first"})
    ]
    near.uploads["first"] = b""
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/first?_state=1999"] = [unknown("BLOB_UPLOAD_UNKNOWN")]
    told = copy(far, near)
    assert sum(told) == BLOB.size
    assert near.blobs[str(BLOB.digest)] == CONTENT
    assert near.uploads == {}
    assert len(sent(near)) == 3 + 5


def test_a_registry_that_forgets_always_is_given_up(far: FakeRegistry, near: FakeRegistry) -> None:
    place = {"Location": "/v2/team/releases/blobs/uploads/none"}
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [Answer(202, headers=place)] * 9
    with pytest.raises(Temporary, match="was lost by"):
        copy(far, near)
    assert len(near.asked("POST")) == 3


def test_a_registry_that_always_breaks_off_is_given_up_and_the_upload_cancelled(far: FakeRegistry, near: FakeRegistry) -> None:
    near.cuts = [0] * 9
    with pytest.raises(Temporary, match=r"does not get through .* after 0 bytes: .* cannot be reached"):
        copy(far, near)
    assert near.uploads == {}
    assert len(sent(near)) == uploads.TRIES


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_is_busy_is_waited_for(far: FakeRegistry, near: FakeRegistry, status: int) -> None:
    near.uploads["a"] = b""
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(status, headers={"Retry-After": "0"})] * 2
    copy(far, near)
    assert near.blobs[str(BLOB.digest)] == CONTENT


def test_a_registry_that_stays_busy_is_quoted(far: FakeRegistry, near: FakeRegistry) -> None:
    near.uploads["a"] = b""
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(503, b"back soon")]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a?_state=0"] = [Answer(503, b"back soon")] * 9
    with pytest.raises(Temporary, match="answered 503, back soon"):
        copy(far, near)
    assert near.uploads == {}


def test_a_right_that_lacks_for_a_part_is_refused(far: FakeRegistry, near: FakeRegistry) -> None:
    near.uploads["a"] = b""
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [DENIED]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a?_state=0"] = [DENIED]
    with pytest.raises(RegistryRefused, match="action: pull"):
        copy(far, near)
    assert near.uploads == {}


def test_a_registry_that_takes_less_gets_the_rest(far: FakeRegistry, near: FakeRegistry) -> None:
    near.uploads["a"] = CONTENT[:400]
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(202, headers={"Range": "0-399"})]
    copy(far, near)
    assert near.blobs[str(BLOB.digest)] == CONTENT
    assert sent(near) == [1000, 600, 1000, 1000, 1000, 500]


def first_upload(near: FakeRegistry) -> str:
    """The path of the upload that is opened first."""
    near.uploads["a"] = b""
    place = "/v2/team/releases/blobs/uploads/a"
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [Answer(202, headers={"Location": place})]
    return place


OVER_4_MIB = b'{"errors": [{"code": "RANGE_INVALID", "message": "the request body is too large"}]}'


@pytest.mark.parametrize(
    ("path", "answer", "parts"),
    [
        pytest.param("", Answer(416, OVER_4_MIB), 1, id="GitHub's: no part over 4 MiB"),
        pytest.param("?_state=999", Answer(400, b"no second"), 2, id="Google's: no second part"),
        pytest.param("?_state=999", Answer(202, headers={"Range": "0-999"}), 2, id="Amazon's: a range that stands still"),
        pytest.param("?_state=999", Answer(202, headers={"Range": "0-2000"}), 2, id="a range that ends behind the last byte"),
    ],
)
def test_a_registry_that_takes_no_parts_gets_blobs_whole(
    far: FakeRegistry, near: FakeRegistry, path: str, answer: Answer, parts: int
) -> None:
    near.canned["PATCH", first_upload(near) + path] = [answer]
    registry, other = Registry(), far.put_blob(CONTENT[:3000])
    registry.copy_blob(far.repository(), near.repository("team/releases"), BLOB)
    registry.copy_blob(far.repository(), near.repository(), Descriptor("x", Digest(other["digest"]), 3000))
    assert near.blobs == far.blobs
    assert near.uploads == {}
    assert sent(near) == [*[1000] * parts, 4500, 3000]
    ranges = [headers.get("Content-Range") for method, _, headers in near.requests if method == "PATCH"]
    assert ranges[-2:] == [None, None]


def test_parts_that_make_no_blob_are_sent_whole(far: FakeRegistry, near: FakeRegistry) -> None:
    wrong = Answer(400, b'{"errors": [{"code": "DIGEST_INVALID"}]}')
    near.canned["PUT", f"{first_upload(near)}?_state=4499&digest=sha256%3A{BLOB.digest.hex}"] = [wrong]
    assert sum(copy(far, near)) == BLOB.size
    assert near.blobs == {str(BLOB.digest): CONTENT}
    assert sent(near) == [1000, 1000, 1000, 1000, 500, 4500]


def test_what_breaks_off_whole_is_begun_anew(far: FakeRegistry, near: FakeRegistry) -> None:
    near.canned["PATCH", first_upload(near)] = [Answer(416)]
    near.cuts = [None, 2000, None]
    assert sum(copy(far, near)) == BLOB.size
    assert sent(near) == [1000, 4500, 4500]
    assert near.blobs == {str(BLOB.digest): CONTENT}


@pytest.mark.parametrize("status", [400, 413])
def test_a_blob_that_is_refused_whole_too_is_told_with_the_registrys_words(
    far: FakeRegistry, near: FakeRegistry, status: int
) -> None:
    place = {"Location": "/v2/team/releases/blobs/uploads/a"}
    near.uploads["a"] = b""
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [Answer(202, headers=place)] * 9
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(status, b"not so")] * 9
    with pytest.raises(ToolFailed, match="not so") as caught:
        copy(far, near)
    assert near.blobs == {}
    assert ("client_max_body_size" in caught.value.hint) == (status == 413)


@pytest.mark.parametrize("status", [201, 204])
def test_a_part_may_be_taken_with_another_status(far: FakeRegistry, near: FakeRegistry, status: int) -> None:
    near.uploads["a"] = CONTENT[:1000]
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(status, headers={"Range": "0-999"})]
    copy(far, near)
    assert near.blobs == {str(BLOB.digest): CONTENT}


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_registry_that_does_not_tell_what_it_has_got_gets_all_anew(far: FakeRegistry, near: FakeRegistry, status: int) -> None:
    near.canned["GET", f"{first_upload(near)}?_state=999"] = [Answer(status)]
    near.cuts = [None, 300]
    copy(far, near)
    assert near.blobs == {str(BLOB.digest): CONTENT}
    assert sent(near) == [1000, 1000, 1000, 1000, 1000, 1000, 500]


def test_a_registry_that_asks_for_an_hour_is_told_at_once(far: FakeRegistry, near: FakeRegistry) -> None:
    near.uploads["a"] = b""
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [
        Answer(202, headers={"Location": "/v2/team/releases/blobs/uploads/a"})
    ]
    near.canned["PATCH", "/v2/team/releases/blobs/uploads/a"] = [Answer(429, headers={"Retry-After": "3600"})]
    with pytest.raises(Temporary, match="asks to wait 3600 s"):
        copy(far, near)
    assert near.uploads == {}


@pytest.mark.parametrize("ranges", [True, False])
def test_reading_goes_on_where_it_broke_off(far: FakeRegistry, near: FakeRegistry, ranges: bool) -> None:
    broken = Answer(200, CONTENT[:2500], length=4500)
    rest = Answer(206, CONTENT[2500:], {"Content-Range": "bytes 2500-4499/4500"}) if ranges else Answer(200, CONTENT)
    far.canned["GET", ORIGIN] = [broken, rest]
    copy(far, near)
    assert far.requests[1][2]["Range"] == "bytes=2500-"
    assert near.blobs[str(BLOB.digest)] == CONTENT
    assert sent(near) == [1000, 1000, 1000, 1000, 500]


def test_reading_that_always_breaks_off_is_given_up(far: FakeRegistry, near: FakeRegistry) -> None:
    far.canned["GET", ORIGIN] = [Answer(200, CONTENT[:10], length=4500)] * 20
    with pytest.raises(Temporary, match="the connection broke"):
        copy(far, near)
    assert (near.blobs, near.uploads) == ({}, {})
    assert len(far.requests) == arriving.TRIES


@pytest.mark.parametrize(
    "given",
    [
        [Answer(200, CONTENT[:-1] + b"!")],
        [Answer(200, CONTENT + b"more")],
        [Answer(200, CONTENT[:4000])] * 20,
        [Answer(200, CONTENT[:900], length=4500), Answer(206, CONTENT[800:], {"Content-Range": "bytes 800-4499/4500"})],
        [Answer(200, CONTENT[:900], length=4500), Answer(206, CONTENT[900:])],
    ],
)
def test_other_bytes_never_become_a_blob(far: FakeRegistry, near: FakeRegistry, given: list[Answer]) -> None:
    far.canned["GET", ORIGIN] = given
    with pytest.raises(ToolFailed, match=r"arrived damaged|other bytes"):
        copy(far, near)
    assert (near.blobs, near.uploads, near.asked("PUT")) == ({}, {}, [])


def test_a_copy_that_is_stopped_leaves_no_upload_open(far: FakeRegistry, near: FakeRegistry) -> None:
    def stop(amount: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Registry().copy_blob(far.repository(), near.repository(), BLOB, advance=stop)
    assert near.asked("DELETE", "/blobs/uploads/")
    assert (near.blobs, near.uploads) == ({}, {})


def test_a_blob_that_is_not_there_is_told_apart(near: FakeRegistry) -> None:
    with fake_registry() as empty, pytest.raises(NotThere):
        copy(empty, near)


def test_a_quota_is_told_as_one_with_its_remedy(far: FakeRegistry, near: FakeRegistry) -> None:
    told = (
        "adding 2.9 KiB of storage resource, which when updated to current usage of 1 KiB will exceed the configured upper limit"
    )
    answer = Answer(403, json.dumps({"errors": [{"code": "DENIED", "message": told}]}).encode())
    near.canned["POST", "/v2/team/releases/blobs/uploads/"] = [answer]
    with pytest.raises(RegistryRefused, match=r"2\.9 KiB") as caught:
        copy(far, near)
    assert "quota" in caught.value.hint
    far.canned["POST", MOUNT] = [answer]
    with pytest.raises(RegistryRefused, match=r"2\.9 KiB"):
        Registry().mount(*within(far))


def test_a_mount_within_a_registry_sends_no_bytes(far: FakeRegistry) -> None:
    far.canned["POST", MOUNT] = [Answer(201, headers={"Docker-Content-Digest": str(BLOB.digest)})] * 2
    assert Registry().mount(*within(far))
    Registry().copy_blob(far.repository(), far.repository("team/releases"), BLOB)
    assert [path for _, path, _ in far.requests] == [MOUNT, MOUNT]


def test_another_registry_is_not_asked_to_mount(far: FakeRegistry, near: FakeRegistry) -> None:
    assert not Registry().mount(near.repository(), BLOB, far.repository())
    assert near.requests == []


def test_a_mount_of_something_else_is_an_error(far: FakeRegistry) -> None:
    far.canned["POST", MOUNT] = [Answer(201, headers={"Docker-Content-Digest": str(Digest.of(b"else"))})]
    with pytest.raises(ToolFailed, match="says that it is"):
        Registry().mount(*within(far))


def test_an_upload_opened_in_place_of_a_mount_is_cancelled(far: FakeRegistry) -> None:
    assert not Registry().mount(*within(far))
    assert far.uploads == {}
    assert len(far.asked("DELETE")) == 1


def test_an_upload_opened_in_place_of_a_mount_is_used(far: FakeRegistry) -> None:
    far.canned["HEAD", HELD] = [unknown("BLOB_UNKNOWN")]
    Registry().copy_blob(far.repository(), far.repository("team/releases"), BLOB)
    assert far.uploads == {}
    assert far.asked("POST") == [MOUNT]
    assert far.asked("DELETE") == []


@pytest.mark.parametrize("answer", [DENIED, Answer(403), Answer(404), Answer(405)])
def test_a_refused_mount_is_no_error_while_the_source_can_be_read(far: FakeRegistry, answer: Answer) -> None:
    far.canned["POST", MOUNT] = [answer] * 2
    assert not Registry().mount(*within(far))
    far.canned["HEAD", HELD] = [unknown("BLOB_UNKNOWN")]
    Registry().copy_blob(far.repository(), far.repository("team/releases"), BLOB)
    assert sum(sent(far)) == BLOB.size


def test_a_refused_mount_is_an_error_where_the_source_cannot_be_read(far: FakeRegistry) -> None:
    far.canned["POST", MOUNT], far.canned["HEAD", ORIGIN] = [DENIED] * 2, [DENIED, unknown("BLOB_UNKNOWN")]
    with pytest.raises(RegistryRefused, match=f"team/images@{BLOB.digest}"):
        Registry().mount(*within(far))
    with pytest.raises(NotThere, match=f"team/images@{BLOB.digest}"):
        Registry().mount(*within(far))


class Logins:
    """A password for each host."""

    def __init__(self, **secrets: str) -> None:
        self.secrets = secrets

    def of(self, host: str) -> Credential:
        return Credential.of(b"ci", self.secrets[host.rpartition(":")[2]].encode())


def test_a_token_for_a_mount_is_for_both_repositories(far: FakeRegistry) -> None:
    far.users, far.token_service = {"ci": "secret"}, True
    far.canned["POST", MOUNT] = [Answer(401, headers={"WWW-Authenticate": f'Bearer realm="http://{far.host}/token"'})]
    logins = Logins(**{far.host.rpartition(":")[2]: "secret"})
    assert not Registry(credentials=logins).mount(*within(far))
    assert "repository:team/releases:pull,push repository:team/images:pull" in far.tokens.values()
    (asked,) = far.asked("GET", "releases%3Apull%2Cpush")
    assert asked.count("scope=") == 2


def test_each_registry_gets_its_own_login_alone(far: FakeRegistry, near: FakeRegistry) -> None:
    far.users, near.users = {"ci": "far"}, {"ci": "near"}
    logins = Logins(**{server.host.rpartition(":")[2]: server.users["ci"] for server in (far, near)})
    Registry(credentials=logins).copy_blob(far.repository(), near.repository(), BLOB)
    given = [{headers.get("Authorization", "") for _, _, headers in server.requests} - {""} for server in (far, near)]
    assert [len(each) for each in given] == [1, 1]
    assert given[0] != given[1]


def test_an_upload_outlives_its_token(far: FakeRegistry, near: FakeRegistry) -> None:
    far.users, near.users, near.token_service = {"ci": "far"}, {"ci": "near"}, True
    logins = Logins(**{server.host.rpartition(":")[2]: server.users["ci"] for server in (far, near)})
    Registry(credentials=logins).copy_blob(far.repository(), near.repository(), BLOB, advance=lambda amount: near.tokens.clear())
    assert near.blobs[str(BLOB.digest)] == CONTENT
    assert near.uploads == {}


MANIFESTS = "/v2/team/images/manifests/v1"
IMMUTABLE = Answer(412, b'{"errors": [{"code": "PRECONDITION", "message": "\'team/images:v1\' configured as immutable."}]}')


def images(server: FakeRegistry) -> tuple[Repository, Manifest, Manifest]:
    """A repository whose tag `v1` names the first of two images."""
    repository, client = server.repository(), Registry()
    first, second = (server.put_image(repository, layers=(name,)) for name in (b"first", b"second"))
    server.manifests[repository.path, "v1"] = client.manifest(first).body
    return repository, client.manifest(first), client.manifest(second)


def test_a_tag_moves_from_what_was_expected(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    Registry().move_tag(repository, "v1", second, expected=first.digest)
    assert Registry().resolve(repository.tag("v1")) == second.digest
    Registry().move_tag(repository, "v2", first, expected=None)
    assert Registry().resolve(repository.tag("v2")) == first.digest


def test_a_tag_that_names_something_else_does_not_move(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    for expected in (None, Digest.of(b"else")):
        with pytest.raises(TagConflict, match=f"names `{first.digest}` now, and not"):
            Registry().move_tag(repository, "v1", second, expected=expected)
    with pytest.raises(TagConflict, match="names nothing now"):
        Registry().move_tag(repository, "v2", second, expected=first.digest)
    assert near.asked("PUT") == []


def test_a_tag_that_names_it_already_is_left(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    Registry().move_tag(repository, "v1", first, expected=second.digest)
    assert near.asked("PUT") == []


def test_the_rule_that_freezes_a_tag_is_named(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    near.canned["PUT", MANIFESTS] = [IMMUTABLE]
    with pytest.raises(TagConflict, match="configured as immutable"):
        Registry().move_tag(repository, "v1", second, expected=first.digest)


def test_a_tag_frozen_by_our_own_write_whose_answer_was_lost_is_written(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    near.canned["PUT", MANIFESTS] = [IMMUTABLE, IMMUTABLE]
    near.canned["GET", MANIFESTS] = [Answer(200, first.body), Answer(200, second.body), Answer(200, second.body)]
    Registry().move_tag(repository, "v1", second, expected=first.digest)
    near.canned["GET", MANIFESTS] = [unknown("MANIFEST_UNKNOWN"), Answer(200, second.body), Answer(200, second.body)]
    assert Registry().create_tag(repository, "v1", second) == second.digest


def test_who_is_overtaken_finds_out(near: FakeRegistry) -> None:
    repository, first, second = images(near)
    near.canned["GET", MANIFESTS] = [Answer(200, first.body), Answer(200, first.body)]
    with pytest.raises(TagConflict, match=f"names `{first.digest}`: another has moved it"):
        Registry().move_tag(repository, "v1", second, expected=first.digest)
