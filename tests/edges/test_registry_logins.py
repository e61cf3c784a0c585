"""The registry client and those who guard registries: Basic, token services, wrong passwords, redirects, certificates."""

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from requests.adapters import DEFAULT_CA_BUNDLE_PATH

from pipeline.credentials import Credential
from pipeline.errors import InputError, PipelineError, RegistryRefused, Temporary, ToolFailed
from pipeline.oci import Digest, Repository
from pipeline.registry import Registry, session
from pipeline.registry.challenge import Challenge, choose, joined, parse
from pipeline.registry.session import Connections
from pipeline.registry.trust import Trust
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown

PASSWORD = "s3cr$t\"'ä"
MANIFESTS = "/v2/team/images/manifests/"


class Logins:
    """One login for all hosts, and which ones asked for it."""

    def __init__(self, user: str = "ci", secret: str = PASSWORD) -> None:
        self._login = Credential.of(user.encode(), secret.encode())
        self.asked: list[str] = []

    def of(self, host: str) -> Credential:
        self.asked.append(host)
        return self._login


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(session, "RETRIES", session.RETRIES.new(backoff_factor=0))
    with fake_registry() as running:
        running.users["ci"] = PASSWORD
        yield running


@pytest.fixture(params=["basic", "tokens"])
def guarded(server: FakeRegistry, request: pytest.FixtureRequest) -> FakeRegistry:
    server.token_service = request.param == "tokens"
    return server


def sent(server: FakeRegistry) -> list[str]:
    return [headers.get("Authorization", "") for _, path, headers in server.requests if path.startswith("/v2/team")]


def test_a_registry_that_is_open_gets_no_login(server: FakeRegistry) -> None:
    server.users.clear()
    server.put_image(server.repository(), tag="v1")
    logins = Logins()
    assert Registry(credentials=logins).resolve(server.repository().tag("v1"))
    assert sent(server) == [""]
    assert logins.asked == []


def test_basic_is_sent_when_it_is_asked_for_and_at_once_from_then_on(server: FakeRegistry) -> None:
    server.put_image(server.repository(), tag="v1")
    client = Registry(credentials=Logins())
    for _ in range(2):
        assert client.resolve(server.repository().tag("v1"))
    header = "Basic " + base64.b64encode(f"ci:{PASSWORD}".encode()).decode()
    assert sent(server) == ["", header, header]


def test_a_token_is_fetched_once_for_each_scope(server: FakeRegistry) -> None:
    server.token_service = True
    image = server.put_image(server.repository(), tag="v1")
    client = Registry(credentials=Logins())
    for _ in range(2):
        client.resolve(server.repository().tag("v1"))
        client.create_tag(server.repository(), "v2", client.manifest(image))
    assert set(server.tokens.values()) == {"repository:team/images:pull", "repository:team/images:pull,push"}
    asked = server.asked("GET", "/token")
    assert len(asked) == 2
    assert asked[0] == "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"


def test_a_token_is_for_one_repository_alone(server: FakeRegistry) -> None:
    server.token_service = True
    client = Registry(credentials=Logins())
    for path in ("team/images", "team/others"):
        server.put_image(server.repository(path), tag="v1")
        client.resolve(server.repository(path).tag("v1"))
    assert set(server.tokens.values()) == {"repository:team/images:pull", "repository:team/others:pull"}


def test_a_token_that_is_about_to_expire_is_fetched_anew(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("pipeline.registry.authorization.time.monotonic", lambda: now[0])
    server.token_service, server.token_life = True, 100
    server.put_image(server.repository(), tag="v1")
    client = Registry(credentials=Logins())
    for at in (1000.0, 1089.0, 1091.0):
        now[0] = at
        client.resolve(server.repository().tag("v1"))
    assert len(server.tokens) == 2


def test_a_token_that_is_refused_is_fetched_anew_once(server: FakeRegistry) -> None:
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    client = Registry(credentials=Logins())
    client.resolve(server.repository().tag("v1"))
    server.tokens.clear()
    client.resolve(server.repository().tag("v1"))
    assert len(server.asked("GET", "/token")) == 2


def test_what_a_registry_wants_besides_is_asked_for_too(server: FakeRegistry) -> None:
    """Azure's lists tags only for those who may `metadata_read`."""
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    client, wide = Registry(credentials=Logins()), "repository:team/images:pull,metadata_read"
    way = f'Bearer realm="http://{server.host}/token",service="fake",scope="repository:team/images:metadata_read"'
    listed = "/v2/team/images/tags/list?n=1000"
    client.resolve(server.repository().tag("v1"))
    server.canned["GET", listed] = [
        Answer(401, headers={"WWW-Authenticate": way}),
        *[Answer(200, b'{"tags": ["v1"]}')] * 2,
    ]
    assert client.tags(server.repository()) == ("v1",)
    assert list(server.tokens.values()) == ["repository:team/images:pull", wide]
    server.requests.clear()
    assert client.tags(server.repository()) == ("v1",)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("scope", "wanted", "both"),
    [
        ("repository:a/b:pull,push", "repository:a/b:push,pull", "repository:a/b:pull,push"),
        ("repository:a:pull,push repository:b:pull", "repository:b:pull", "repository:a:pull,push repository:b:pull"),
        ("repository:a:pull", "repository:a:metadata_read", "repository:a:pull,metadata_read"),
        ("repository:a:pull", "repository:b:pull", "repository:a:pull"),
        ("repository:a:pull", "", "repository:a:pull"),
        ("", "repository:user/image:pull", ""),
        ("repository:a:pull", "*", "repository:a:pull"),
        ("", "", ""),
    ],
)
def test_a_scope_is_widened_for_its_own_repositories_and_never_narrowed(scope: str, wanted: str, both: str) -> None:
    assert joined(scope, wanted) == both


def test_a_right_that_lacks_at_the_token_service_is_no_wrong_password(server: FakeRegistry) -> None:
    """As GitHub's says it."""
    server.token_service = True
    denied = Answer(403, b'{"errors": [{"code": "DENIED", "message": "token does not match expected scopes"}]}')
    server.canned["GET", "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"] = [denied]
    with pytest.raises(RegistryRefused, match=r"gives no token for .* does not match expected scopes \(asked as `ci`\)"):
        Registry(credentials=Logins()).resolve(server.repository().tag("v1"))


def test_an_access_token_by_its_other_name_is_one_too(server: FakeRegistry) -> None:
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    server.tokens["known"] = "repository:team/images:pull"
    told = Answer(200, b'{"access_token": "known", "token": ""}')
    server.canned["GET", "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"] = [told]
    assert Registry(credentials=Logins()).resolve(server.repository().tag("v1"))


def test_an_identity_token_is_exchanged_and_never_sent_as_a_password(server: FakeRegistry) -> None:
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    assert Registry(credentials=Logins("<token>")).resolve(server.repository().tag("v1"))
    assert server.asked("POST") == ["/token"]
    assert not [header for header in sent(server) if header.startswith("Basic")]


def test_nobody_gets_a_token_for_what_is_public(server: FakeRegistry) -> None:
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    server.tokens["open"] = "repository:team/images:pull"
    server.canned["GET", "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"] = [Answer(200, b'{"token": "open"}')]
    assert Registry().resolve(server.repository().tag("v1"))


def test_a_wrong_password_is_told_with_the_host_and_never_shown(guarded: FakeRegistry) -> None:
    client = Registry(credentials=Logins(secret="wr0ng"))
    for ask in (client.ping, lambda host: client.resolve(Repository(host, "team/images").tag("v1"))):
        with pytest.raises(RegistryRefused) as caught:
            ask(guarded.host)
        assert f"`docker login {guarded.host}`" in str(caught.value)
        assert "`ci`" in str(caught.value)
        assert "wr0ng" not in str(caught.value)
        assert base64.b64encode(b"ci:wr0ng").decode() not in str(caught.value)


def test_a_refusal_is_not_asked_about_in_a_loop(guarded: FakeRegistry) -> None:
    with pytest.raises(RegistryRefused):
        Registry(credentials=Logins(secret="wr0ng")).resolve(guarded.repository().tag("v1"))
    assert len(guarded.requests) <= 3


def test_rights_that_lack_are_no_wrong_password(server: FakeRegistry) -> None:
    denied = Answer(403, b'{"errors": [{"code": "DENIED", "message": "no pull"}]}')
    server.canned["GET", MANIFESTS + "v1"] = [denied]
    with pytest.raises(RegistryRefused, match=r"answered 403, no pull \(asked as `ci`\)"):
        Registry(credentials=Logins()).resolve(server.repository().tag("v1"))


def test_ping_goes_through_the_guards(guarded: FakeRegistry) -> None:
    Registry(credentials=Logins()).ping(guarded.host)
    with pytest.raises(RegistryRefused, match="docker login"):
        Registry().ping(guarded.host)


def test_a_challenge_without_a_way_in_is_a_plain_refusal(server: FakeRegistry) -> None:
    server.canned["GET", MANIFESTS + "v1"] = [Answer(401, headers={"WWW-Authenticate": ""})]
    with pytest.raises(RegistryRefused, match="answered 401"):
        Registry(credentials=Logins()).resolve(server.repository().tag("v1"))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(200, b"<html>"), ToolFailed),
        (Answer(200, b"{}"), RegistryRefused),
        (Answer(200, b'{"token": "a\\nb"}'), RegistryRefused),
        (Answer(302, headers={"Location": "/elsewhere"}), ToolFailed),
        (Answer(403, b'{"errors": [{"code": "DENIED"}]}'), RegistryRefused),
    ],
)
def test_a_token_service_that_gives_no_token_is_an_error(
    server: FakeRegistry, answer: Answer, error: type[PipelineError]
) -> None:
    server.token_service = True
    server.canned["GET", "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"] = [answer]
    with pytest.raises(error, match=server.host):
        Registry(credentials=Logins()).resolve(server.repository().tag("v1"))
    assert not server.asked("GET", "/elsewhere")


def test_a_token_service_that_is_down_is_temporary(server: FakeRegistry) -> None:
    server.token_service = True
    server.canned["GET", "/token?service=fake&scope=repository%3Ateam%2Fimages%3Apull"] = [Answer(503)] * 9
    with pytest.raises(Temporary, match="answered 503"):
        Registry(credentials=Logins()).resolve(server.repository().tag("v1"))


def test_no_login_goes_to_a_token_service_elsewhere_without_encryption(server: FakeRegistry) -> None:
    with fake_registry() as thief:
        way = f'Bearer realm="http://{thief.host}/token",service="fake"'
        server.canned["GET", MANIFESTS + "v1"] = [Answer(401, headers={"WWW-Authenticate": way})]
        with pytest.raises(RegistryRefused, match="without encryption") as caught:
            Registry(credentials=Logins()).resolve(server.repository().tag("v1"))
        assert "X-Forwarded-Proto" in caught.value.hint
        assert thief.requests == []


def test_storage_elsewhere_is_read_without_a_login(server: FakeRegistry) -> None:
    client, content = Registry(credentials=Logins()), b"a layer"
    wanted = server.put_blob(content)
    path = f"/v2/team/images/blobs/{wanted['digest']}"
    client.ping(server.host)
    with fake_registry() as storage:
        storage.users["nobody"] = "x"
        storage.canned["GET", "/bucket"] = [Answer(200, content)]
        server.canned["GET", path] = [Answer(307, headers={"Location": f"http://{storage.host}/bucket"})]
        descriptor = client.upload(server.repository(), content)
        assert client.blob(server.repository(), descriptor) == content
        assert [headers.get("Authorization") for _, _, headers in storage.requests] == [None]


def test_a_refusal_by_storage_elsewhere_gets_no_login_either(server: FakeRegistry) -> None:
    with fake_registry() as storage:
        storage.users["nobody"] = "x"
        server.canned["GET", MANIFESTS + "v1"] = [
            Answer(307, headers={"Location": f"http://{storage.host}/v2/team/images/tags/x"})
        ]
        with pytest.raises(RegistryRefused):
            Registry(credentials=Logins()).resolve(server.repository().tag("v1"))
        assert [headers.get("Authorization") for _, _, headers in storage.requests] == [None]


def test_an_upload_elsewhere_gets_no_login(server: FakeRegistry) -> None:
    client, content = Registry(credentials=Logins()), b"content"
    with fake_registry() as storage:
        storage.uploads["1"] = b""
        place = {"Location": f"http://{storage.host}/v2/bucket/blobs/uploads/1"}
        server.canned["POST", "/v2/team/images/blobs/uploads/"] = [Answer(202, headers=place)]
        client.upload(server.repository(), content)
        assert storage.blobs == {str(Digest.of(content)): content}
        assert [headers.get("Authorization") for _, _, headers in storage.requests] == [None]


def test_cookies_are_not_kept(server: FakeRegistry) -> None:
    server.users.clear()
    server.canned["GET", "/v2/"] = [Answer(200, b"{}", {"Set-Cookie": "sid=1; Path=/"})]
    client = Registry()
    client.ping(server.host)
    client.resolve(server.repository().tag("v1"))
    assert "Cookie" not in server.requests[-1][2]


def test_what_a_registry_echoes_is_redacted(server: FakeRegistry) -> None:
    client = Registry(credentials=Logins())
    client.ping(server.host)
    echo = {"errors": [{"code": "DENIED", "message": f"{PASSWORD} {base64.b64encode(f'ci:{PASSWORD}'.encode()).decode()}"}]}
    server.canned["GET", MANIFESTS + "v1"] = [Answer(403, json.dumps(echo).encode())]
    with pytest.raises(RegistryRefused, match=r"\*\*\* \*\*\*"):
        client.resolve(server.repository().tag("v1"))


def test_threads_share_tokens(server: FakeRegistry) -> None:
    server.token_service = True
    server.put_image(server.repository(), tag="v1")
    client = Registry(credentials=Logins())
    found: list[Digest | None] = []
    threads = [threading.Thread(target=lambda: found.append(client.resolve(server.repository().tag("v1")))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 6
    assert len(server.asked("GET", "/token")) == 1


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("", ()),
        ('Basic realm="Registry Realm"', (Challenge("basic", {"realm": "Registry Realm"}),)),
        (
            'Bearer realm="https://a/t",service="s",scope="repository:a/b:pull,push"',
            (Challenge("bearer", {"realm": "https://a/t", "service": "s", "scope": "repository:a/b:pull,push"}),),
        ),
        ('BEARER Realm = "x\\"y" , Service=s', (Challenge("bearer", {"realm": 'x"y', "service": "s"}),)),
        (
            'Negotiate, Basic realm="b", Bearer realm="r"',
            (Challenge("negotiate"), Challenge("basic", {"realm": "b"}), Challenge("bearer", {"realm": "r"})),
        ),
        ('Bearer realm="unclosed', (Challenge("bearer"),)),
        ("=,=", ()),
    ],
)
def test_challenges_are_read(header: str, challenges: tuple[Challenge, ...]) -> None:
    assert parse(header) == challenges


def test_a_token_service_is_chosen_before_basic() -> None:
    assert choose('Basic realm="b", Bearer realm="r"') == Challenge("bearer", {"realm": "r"})
    assert choose('Basic realm="b", Bearer service="s"') == Challenge("basic", {"realm": "b"})
    assert choose("Negotiate") is None


def test_a_port_that_goes_without_saying_makes_no_other_server() -> None:
    assert session.origin("https://Harbor.example.com:443/x") == session.origin("https://harbor.example.com/y")
    assert session.origin("https://harbor.example.com:80/x") != session.origin("http://harbor.example.com/x")
    assert session.origin("https://harbor.example.com@evil.example.com/") == ("https", "evil.example.com")


def test_a_certificate_that_is_not_trusted_is_not_asked_for_again() -> None:
    assert session.RETRIES.other == 0


def test_docker_hub_is_served_elsewhere() -> None:
    assert session.base("docker.io") == "https://registry-1.docker.io"


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    host = tmp_path / "harbor.example.com:8443"
    host.mkdir()
    trust = Trust(None, tmp_path)
    assert trust.special(host.name)
    assert not trust.special("harbor.example.com")
    (host / "ca.crt").write_text("no certificate")
    with pytest.raises(InputError, match=r"ca\.crt"):
        trust.context(host.name)
    (host / "ca.crt").unlink()
    (host / "client.cert").write_text("no certificate")
    with pytest.raises(RegistryRefused, match="has no key beside it"):
        trust.context(host.name)


def test_the_authorities_of_a_registry_are_good_for_its_token_service(tmp_path: Path) -> None:
    """GitLab's tokens come from another host or port than its images."""
    folder = tmp_path / "registry.example.com:5050"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(Path(DEFAULT_CA_BUNDLE_PATH).read_bytes())
    (folder / "client.cert").write_text("half of a pair: whoever shows it fails")
    trust = Trust(None, tmp_path)
    opened = Connections(trust).opened(folder.name, loopback=False)
    for url, own in ((f"https://{folder.name}/v2/", True), ("https://gitlab.example.com/jwt/auth", False)):
        adapter = opened.get_adapter(url)
        assert isinstance(adapter, requests.adapters.HTTPAdapter)
        request = requests.Request("GET", url).prepare()
        if own:
            with pytest.raises(RegistryRefused, match="has no key beside it"):
                adapter.build_connection_pool_key_attributes(request, True)
        else:
            _, pool = adapter.build_connection_pool_key_attributes(request, True)
            assert pool["ssl_context"] is trust.context(folder.name, pair=False)
    assert trust.context(folder.name, pair=False) is not trust.context("")


def test_a_404_without_the_registrys_word_is_not_not_there(server: FakeRegistry) -> None:
    server.users.clear()
    server.canned["GET", MANIFESTS + "v1"] = [unknown("MANIFEST_UNKNOWN"), Answer(404, b"<html>")]
    client = Registry()
    assert client.resolve(server.repository().tag("v1")) is None
    with pytest.raises(ToolFailed):
        client.resolve(server.repository().tag("v1"))
