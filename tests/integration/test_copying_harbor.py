"""Copies within a Harbor: mounts, rights that lack, a full project, a tag that a rule freezes."""

import os
from collections.abc import Iterator

import pytest

from pipeline.credentials import Credential
from pipeline.errors import NotThere, RegistryRefused, TagConflict
from pipeline.oci import OCI_MANIFEST, Descriptor, Digest, Manifest, Repository
from pipeline.registry import Registry, uploads
from tests.faults import Fault, Faulty, Kind, faulty
from tests.harbor.double import Double, started
from tests.harbor.state import ADMIN, PASSWORD, Robot

PULL, WRITE = "repository:pull", "repository:pull repository:push"
PART, SIZE = 2**20, 5 * 2**20
RULE = {
    "action": "immutable",
    "template": "immutable_template",
    "tag_selectors": [{"kind": "doublestar", "decoration": "matches", "pattern": "v*.*.*"}],
    "scope_selectors": {"repository": [{"kind": "doublestar", "decoration": "repoMatches", "pattern": "**"}]},
}


class Logins:
    """One login for all hosts."""

    def __init__(self, user: str, secret: str) -> None:
        self._login = Credential.of(user.encode(), secret.encode())

    def of(self, host: str) -> Credential:
        return self._login


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with started(tmp_path_factory.mktemp("harbor")) as running:
        for name in ("candidates", "releases", "secret"):
            running.project(name)
        yield running


@pytest.fixture(scope="module")
def proxy(harbor: Double) -> Iterator[Faulty]:
    with faulty(harbor.host) as running:
        yield running


@pytest.fixture
def promoter(harbor: Double) -> Registry:
    return client(harbor.robot(os.urandom(4).hex(), candidates=PULL, releases=WRITE))


def client(robot: Robot) -> Registry:
    return Registry(credentials=Logins(robot.name, robot.secret))


def blob_in(proxy: Faulty, project: str) -> tuple[Repository, Descriptor]:
    repository = Repository(proxy.host, f"{project}/app")
    blob = Registry(credentials=Logins(ADMIN, PASSWORD)).upload(repository, os.urandom(SIZE))
    proxy.expect()
    return repository, blob


def test_a_blob_is_mounted_from_another_project(proxy: Faulty, promoter: Registry) -> None:
    source, blob = blob_in(proxy, "candidates")
    target = Repository(proxy.host, "releases/mounted")
    promoter.copy_blob(source, target, blob)
    assert promoter.mount(target, blob, source)
    assert proxy.up() == 0
    assert [each.status for each in proxy.asked("POST", "mount=")] == [401, 201, 201]


def test_what_may_not_be_read_is_named(proxy: Faulty, promoter: Registry) -> None:
    source, blob = blob_in(proxy, "secret")
    with pytest.raises(RegistryRefused, match=f"secret/app@{blob.digest}.*asked as `robot"):
        promoter.mount(Repository(proxy.host, "releases/refused"), blob, source)
    assert proxy.up() == 0


def test_what_is_not_there_is_told(proxy: Faulty, promoter: Registry) -> None:
    source, blob = blob_in(proxy, "candidates")
    absent = Descriptor(blob.media_type, Digest.of(b"absent"), SIZE)
    assert not promoter.mount(Repository(proxy.host, "releases/absent"), absent, source)
    with pytest.raises(NotThere):
        promoter.copy_blob(source, Repository(proxy.host, "releases/absent"), absent)


@pytest.mark.parametrize("kind", [Kind.RESET, Kind.CUT, Kind.LOSE])
def test_a_blob_that_cannot_be_mounted_is_streamed(
    proxy: Faulty, promoter: Registry, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setattr(uploads, "PART", PART)
    source, blob = blob_in(proxy, "candidates")
    target = Repository(proxy.host, f"releases/{kind.name.lower()}")
    refused = Fault(kind=Kind.ANSWER, status=404, path="mount=", times=9)
    proxy.expect(refused, Fault(kind=kind, method="PATCH", at=2))
    promoter.copy_blob(source, target, blob)
    assert len(promoter.blob(target, blob)) == SIZE


def test_a_full_project_is_told_as_one(harbor: Double, proxy: Faulty, promoter: Registry) -> None:
    source, blob = blob_in(proxy, "candidates")
    with harbor.state.lock:
        harbor.state.add_project("full", {"public": "false"}, limit=1000)
    own = client(harbor.robot("full", candidates=PULL, full=WRITE))
    for copy in (own.mount, lambda target, blob, source: own.copy_blob(source, target, blob)):
        with pytest.raises(RegistryRefused, match="configured upper limit") as caught:
            copy(Repository(proxy.host, "full/app"), blob, source)
        assert "quota" in caught.value.hint
    assert proxy.up() == 0


def test_a_frozen_tag_stays_and_its_rule_is_named(harbor: Double, proxy: Faulty, promoter: Registry) -> None:
    repository = Repository(proxy.host, "releases/frozen")
    with harbor.state.lock:
        harbor.state.projects["releases"].rules.append({**RULE, "id": 1, "disabled": False})
    first, second = (image_in(promoter, repository, name) for name in (b"first", b"second"))
    assert promoter.create_tag(repository, "v2.6.3", first) == first.digest
    with pytest.raises(TagConflict, match="configured as immutable"):
        promoter.move_tag(repository, "v2.6.3", second, expected=first.digest)
    promoter.move_tag(repository, "v2.6", first, expected=None)
    promoter.move_tag(repository, "v2.6", second, expected=first.digest)
    assert promoter.resolve(repository.tag("v2.6")) == second.digest
    proxy.expect(Fault(kind=Kind.LOSE, method="PUT"))
    assert promoter.create_tag(repository, "v2.6.4", second) == second.digest


def image_in(client: Registry, repository: Repository, content: bytes) -> Manifest:
    config, layer = client.upload(repository, b"{}"), client.upload(repository, content)
    entries = [f'{{"mediaType":"text/plain","digest":"{each.digest}","size":{each.size}}}' for each in (config, layer)]
    text = f'{{"schemaVersion":2,"mediaType":"{OCI_MANIFEST}","config":{entries[0]},"layers":[{entries[1]}]}}'
    return client.manifest(client.put_manifest(repository, text.encode(), OCI_MANIFEST))
