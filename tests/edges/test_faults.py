"""The proxy of the tests does to a request what it says, and to no other."""

import http.client
from collections.abc import Iterator
from contextlib import closing

import pytest

from pipeline.credentials import Credential
from pipeline.registry import Registry, session
from tests.fakes import FakeRegistry, fake_registry
from tests.faults import Fault, Faulty, Kind, each_fault, faulty

LOST = (http.client.HTTPException, OSError)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def proxy(registry: FakeRegistry) -> Iterator[Faulty]:
    with faulty(registry.host) as running:
        yield running


def ask(proxy: Faulty, method: str = "GET", path: str = "/v2/", body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(proxy.host, timeout=300)) as connection:
        connection.request(method, path, body)
        with connection.getresponse() as answer:
            return answer.status, answer.read()


def test_only_the_requests_that_were_named_go_wrong(registry: FakeRegistry, proxy: Faulty) -> None:
    proxy.expect(Fault(kind=Kind.ANSWER, status=503, at=2, times=2, method="GET", path="/tags/"))
    paths = ["/v2/", "/v2/a/b/tags/list", "/v2/a/b/tags/list", "/v2/", "/v2/a/b/tags/list", "/v2/a/b/tags/list"]
    assert [ask(proxy, path=path)[0] for path in paths] == [200, 404, 503, 200, 503, 404]
    assert len(registry.requests) == 4
    assert [each.path for each in proxy.asked("GET", "/tags/")] == ["/v2/a/b/tags/list"] * 4


@pytest.mark.parametrize(("kind", "reached"), [(Kind.RESET, 0), (Kind.LOSE, 1)])
def test_a_connection_breaks_before_or_after_the_registry_has_done_it(
    registry: FakeRegistry, proxy: Faulty, kind: Kind, reached: int
) -> None:
    proxy.expect(Fault(kind=kind))
    with pytest.raises(LOST):
        ask(proxy, "POST", "/v2/a/b/blobs/uploads/", b"")
    assert len(registry.uploads) == reached
    assert [each.status for each in proxy.log] == [0]


def test_half_of_a_body_is_sent_and_half_of_an_answer_arrives(registry: FakeRegistry, proxy: Faulty) -> None:
    blob = registry.put_blob(b"0123456789")
    proxy.expect(Fault(kind=Kind.TRUNCATE, path="/blobs/sha256"), Fault(kind=Kind.CUT, method="PATCH"))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(proxy, path=f"/v2/a/b/blobs/{blob['digest']}")
    assert caught.value.partial == b"01234"
    with pytest.raises(LOST):
        ask(proxy, "PATCH", "/v2/a/b/blobs/uploads/1", b"0123456789")
    assert (proxy.up(), proxy.asked("GET")[0].down) == (5, 5)


def test_one_that_is_gone_is_served_again_at_the_same_port(registry: FakeRegistry) -> None:
    with faulty(registry.host, Fault(kind=Kind.GONE, at=2)) as proxy:
        assert ask(proxy)[0] == 200
        for _ in range(2):
            with pytest.raises(LOST):
                ask(proxy)
    assert [each.status for each in proxy.log] == [200, 0]
    with faulty(registry.host, port=int(proxy.host.rpartition(":")[2])) as again:
        assert ask(again)[0] == 200
        assert again.down() == len(ask(again)[1])


def test_a_header_that_comes_twice_is_passed_on_whole(registry: FakeRegistry, proxy: Faulty) -> None:
    with closing(http.client.HTTPConnection(proxy.host, timeout=300)) as connection:
        connection.putrequest("GET", "/v2/")
        for kind in ("application/one", "application/two"):
            connection.putheader("Accept", kind)
        connection.endheaders()
        assert connection.getresponse().status == 200
    assert registry.requests[0][2]["Accept"] == "application/one, application/two"


def test_who_listens_hears_of_each_request(proxy: Faulty) -> None:
    heard: list[str] = []
    proxy.heard = lambda passed: heard.append(f"{passed.method} {passed.status}")
    proxy.expect(Fault(kind=Kind.DELAY, seconds=0.01))
    assert [ask(proxy)[0], ask(proxy, "HEAD")[0]] == [200, 200]
    assert heard == ["GET 200", "HEAD 200"]


class Login:
    """One login for all."""

    def of(self, host: str) -> Credential:
        return Credential.of(b"ci", b"secret")


def test_a_token_that_expired_is_fetched_anew(registry: FakeRegistry, proxy: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RETRIES", session.RETRIES.new(backoff_factor=0))
    registry.host, registry.users, registry.token_service = proxy.host, {"ci": "secret"}, True
    registry.put_image(registry.repository(), tag="v1")
    client, tag = Registry(credentials=Login()), registry.repository().tag("v1")
    assert client.resolve(tag)
    proxy.expect(Fault(kind=Kind.EXPIRE, path="/manifests/"))
    assert client.resolve(tag) == client.resolve(tag)
    assert len(proxy.asked("GET", "/token")) == 1
    assert [each.status for each in proxy.asked("GET", "/manifests/")] == [401, 200, 200]


def test_each_kind_of_fault_is_listed_once() -> None:
    faults = each_fault(3, method="PUT")
    assert {fault.kind for fault in faults} == set(Kind) - {Kind.GONE}
    assert {fault.status for fault in faults} >= {401, 403, 404, 409, 412, 429, 500, 503}
    assert len({str(fault) for fault in faults}) == len(faults)
