"""Harbor's API as a promoter and a doctor use it, against a Harbor for tests."""

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline import credentials
from pipeline.command import Runner
from pipeline.credentials import Anonymous, Credential
from pipeline.errors import NotThere, PipelineError, RegistryRefused, TagConflict, ToolFailed
from pipeline.harbor import Harbor, find
from pipeline.oci import OCI_MANIFEST, Digest, Pinned, Repository
from pipeline.registry import Registry
from tests.faults import Fault, Kind, each_fault, faulty
from tests.harbor import double
from tests.harbor.double import Double
from tests.harbor.state import ADMIN, PASSWORD
from tests.integration.conftest import Stack

ROOT = Path(__file__).parents[2]
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
READER = "repository:pull artifact:read artifact:list tag:list"
PROMOTER = f"{READER} repository:push tag:create immutable-tag:list project:read quota:read"


class Logins:
    """One login, everywhere."""

    def __init__(self, user: str, password: str) -> None:
        self._credential = Credential.of(user.encode(), password.encode())

    def of(self, host: str) -> Credential:
        return self._credential


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with double.started(tmp_path_factory.mktemp("harbor")) as running:
        yield running


@pytest.fixture
def repository(harbor: Double) -> Repository:
    """In a project of its own."""
    project = f"p{secrets.token_hex(4)}"
    harbor.project(project)
    return Repository(harbor.host, f"{project}/team/images")


def admin(harbor: Double) -> Harbor:
    return opened(harbor, ADMIN, PASSWORD)


def opened(harbor: Double, user: str, password: str) -> Harbor:
    found = find(harbor.host, credentials=Logins(user, password))
    assert found is not None
    return found


def robot(harbor: Double, rights: str, repository: Repository) -> Harbor:
    made = harbor.robot(f"r{secrets.token_hex(4)}", **{project_of(repository): rights})
    return opened(harbor, made.name, made.secret)


def project_of(repository: Repository) -> str:
    return repository.path.partition("/")[0]


def client(user: str = ADMIN, password: str = PASSWORD, locks: Path | None = None) -> Registry:
    return Registry(credentials=Logins(user, password), locks=locks)


def image_in(registry: Registry, repository: Repository, content: bytes, tag: str | None = None) -> Pinned:
    config = registry.upload(
        repository, b'{"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}'
    )
    layer = registry.upload(repository, content)
    parts = [
        {"mediaType": f"application/vnd.oci.image.{kind}", "digest": str(each.digest), "size": each.size}
        for kind, each in (("config.v1+json", config), ("layer.v1.tar", layer))
    ]
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts[0], "layers": parts[1:]}
    return registry.put_manifest(repository, json.dumps(manifest).encode(), OCI_MANIFEST, tag)


def test_a_harbor_is_told_apart_from_a_plain_registry(harbor: Double, stack: Stack) -> None:
    assert admin(harbor).version.startswith("v2.15.2")
    assert find(stack.host, credentials=Anonymous()) is None
    assert find(stack.host, credentials=Logins("anybody", "anything")) is None


def test_a_wrong_password_is_refused_although_harbor_answers_it_with_200(harbor: Double) -> None:
    with pytest.raises(RegistryRefused, match="refuses the login of `admin`") as refused:
        find(harbor.host, credentials=Logins(ADMIN, "wrong"))
    assert refused.value.exit_code == 9
    assert "wrong" not in str(refused.value).replace("refuses", "")
    with pytest.raises(RegistryRefused, match="wants a login"):
        find(harbor.host, credentials=Anonymous())
    with pytest.raises(RegistryRefused, match="takes no identity tokens"):
        find(harbor.host, credentials=Logins(credentials.IDENTITY_USER, "token"))


def test_a_tag_is_created_once_and_never_moved(harbor: Double, repository: Repository) -> None:
    one, other = (image_in(client(), repository, text) for text in (b"one", b"other"))
    ours = admin(harbor)
    assert ours.tag(repository, "v2.6.3") is None
    assert ours.create_tag(repository, one.digest, "v2.6.3") is True
    assert ours.create_tag(repository, one.digest, "v2.6.3") is False
    with pytest.raises(TagConflict, match=str(one.digest)):
        ours.create_tag(repository, other.digest, "v2.6.3")
    assert ours.tag(repository, "v2.6.3") == one.digest


def test_of_twenty_who_create_one_tag_one_succeeds_and_nineteen_are_told_who(harbor: Double, repository: Repository) -> None:
    images = [image_in(client(), repository, bytes([number])) for number in range(20)]
    ours = admin(harbor)

    def create(image: Pinned) -> TagConflict | Digest:
        try:
            assert ours.create_tag(repository, image.digest, "v2.6.3-nlp")
        except TagConflict as conflict:
            return conflict
        return image.digest

    with ThreadPoolExecutor(20) as pool:
        ended = list(pool.map(create, images))
    (winner,) = [each for each in ended if isinstance(each, Digest)]
    told = [each.message for each in ended if isinstance(each, TagConflict)]
    assert len(told) == 19
    assert all(str(winner) in message for message in told)
    assert ours.tag(repository, "v2.6.3-nlp") == winner


@pytest.mark.parametrize("at", [1, 2, 3], ids=["proof", "version", "tag"])
def test_whatever_goes_wrong_once_a_tag_is_created_or_an_error_is_told_and_the_same_again_finishes(
    harbor: Double, repository: Repository, at: int
) -> None:
    image = image_in(client(), repository, b"content")
    with faulty(harbor.host) as proxy:
        behind = Repository(proxy.host, repository.path)
        for number, fault in enumerate(each_fault(at)):
            proxy.expect(fault)
            assert ended(behind, image.digest, f"v1.2.{number}") in (0, 5, 8, 9, 75), fault
            proxy.expect()
            create_through(behind, image.digest, f"v1.2.{number}")
            assert admin(harbor).tag(repository, f"v1.2.{number}") == image.digest


def create_through(repository: Repository, digest: Digest, tag: str) -> None:
    """A Harbor is never taken for another registry, whose tags are created otherwise."""
    found = find(repository.host, credentials=Logins(ADMIN, PASSWORD))
    assert found is not None
    found.create_tag(repository, digest, tag)


def test_a_body_that_breaks_off_leaves_nothing_that_waits(harbor: Double, repository: Repository) -> None:
    with faulty(harbor.host, Fault(kind=Kind.CUT, method="PUT", path="/uploads/")) as proxy:
        image_in(client(), Repository(proxy.host, repository.path), b"content" * 1000, "v1")
    assert admin(harbor).tag(repository, "v1") is not None


def ended(repository: Repository, digest: Digest, tag: str) -> int:
    try:
        create_through(repository, digest, tag)
    except PipelineError as error:
        return error.exit_code
    return 0


def test_an_answer_that_is_lost_after_the_tag_was_created_is_no_conflict(harbor: Double, repository: Repository) -> None:
    image = image_in(client(), repository, b"content")
    with faulty(harbor.host, Fault(kind=Kind.LOSE, method="POST", path="/tags$")) as proxy:
        behind = Repository(proxy.host, repository.path)
        found = find(proxy.host, credentials=Logins(ADMIN, PASSWORD))
        assert found is not None
        assert found.create_tag(behind, image.digest, "v1.2.3") is False
    assert admin(harbor).tag(repository, "v1.2.3") == image.digest


def test_content_that_is_not_there_gets_no_tag(harbor: Double, repository: Repository) -> None:
    with pytest.raises(NotThere):
        admin(harbor).create_tag(repository, Digest.of(b"nothing"), "v1.2.3")
    with pytest.raises(ToolFailed, match="is in no project"):
        admin(harbor).tag(Repository(harbor.host, "single"), "v1.2.3")


def test_a_robot_without_a_right_is_told_which(harbor: Double, repository: Repository) -> None:
    image = image_in(client(), repository, b"content")
    reader = robot(harbor, READER, repository)
    for asked, right in (
        (lambda: reader.create_tag(repository, image.digest, "v1.2.3"), "tag:create"),
        (lambda: reader.immutable_rules(project_of(repository)), "immutable-tag:list"),
        (lambda: reader.project(project_of(repository)), "project:read"),
        (lambda: robot(harbor, "repository:pull", repository).tag(repository, "v1"), "artifact:read"),
    ):
        with pytest.raises(RegistryRefused, match=r"robot\$r") as refused:
            asked()
        assert f"`{right}`" in refused.value.hint


def test_what_a_robot_may_is_found_without_writing(harbor: Double, repository: Repository) -> None:
    ours = robot(harbor, PROMOTER, repository)
    assert ours.rights(repository) == frozenset(PROMOTER.split())
    assert robot(harbor, READER, repository).rights(repository) == frozenset(READER.split())
    assert ours.project(f"{project_of(repository)}x") is None
    assert repository.path not in harbor.state.projects[project_of(repository)].repos


def test_facts_of_a_project_are_read(harbor: Double, repository: Repository) -> None:
    name, ours = project_of(repository), admin(harbor)
    with harbor.state.lock:
        harbor.state.projects[name].limit = 5000
        harbor.state.projects[name].metadata["enable_content_trust_cosign"] = "true"
    project, quota = ours.project(name), ours.quota(name)
    assert project is not None
    assert (project.public, project.content_trust, project.retention) == (False, True, None)
    assert quota is not None
    assert quota.left == 5000
    assert ours.retention(project) is None


def test_a_rule_freezes_what_it_names_and_nothing_else(harbor: Double, repository: Repository) -> None:
    ours, name = admin(harbor), project_of(repository)
    ours.add_immutable_rule(name, repositories="team/images", tags="v[0-9]*.[0-9]*.[0-9]*")
    ours.add_immutable_rule(name, repositories="team/images", tags="v[0-9]*.[0-9]*.[0-9]*")
    (rule,) = ours.immutable_rules(name)
    for tag, frozen in (("v2.6.3-nlp", True), ("v2.6-nlp", False), ("v2.6-nlp-0123456789ab", False)):
        first = image_in(client(), repository, b"first", tag)
        assert rule.freezes("team/images", tag) is frozen
        if frozen:
            with pytest.raises(TagConflict, match="configured as immutable"):
                image_in(client(), repository, b"second", tag)
        else:
            image_in(client(), repository, b"second", tag)
        assert (ours.tag(repository, tag) == first.digest) is frozen


def test_evidence_is_listed_as_referring_to_its_image(harbor: Double, repository: Repository, tmp_path: Path) -> None:
    registry = client(locks=tmp_path)
    image = image_in(registry, repository, b"signed")
    kind = {"dev.sigstore.bundle.predicateType": "https://example.com/tested"}
    attached = registry.attach(image, BUNDLE, b"{}", BUNDLE, kind)
    (listed,) = registry.referrers(image, BUNDLE)
    assert listed.digest == attached.digest
    assert listed.annotations == kind


def test_no_cookie_comes_back_and_slashes_are_encoded_twice(harbor: Double, repository: Repository) -> None:
    ours = admin(harbor)
    image = image_in(client(), repository, b"content")
    assert ours.create_tag(repository, image.digest, "v1.2.3")
    project = project_of(repository)
    assert f"POST /api/v2.0/projects/{project}/repositories/team%252Fimages/artifacts/{image.digest}/tags" in harbor.state.log


def test_read_only_mode_and_a_full_project_are_told_with_their_remedy(harbor: Double, repository: Repository) -> None:
    ours = admin(harbor)
    image = image_in(client(), repository, b"content")
    with harbor.state.lock:
        harbor.state.read_only = True
    try:
        assert ours.read_only()
        with pytest.raises(RegistryRefused, match="read only mode") as refused:
            ours.create_tag(repository, image.digest, "v1.2.3")
    finally:
        harbor.state.read_only = False
    assert "ended the read-only mode" in refused.value.hint
    assert not ours.read_only()


def test_dockers_own_login_of_a_robot_with_a_dollar_is_used(harbor: Double, repository: Repository, tmp_path: Path) -> None:
    made = harbor.robot(f"r{secrets.token_hex(4)}", **{project_of(repository): READER})
    login = base64.b64encode(f"{made.name}:{made.secret}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {harbor.host: {"auth": login}}}))
    logins = credentials.of_docker({"DOCKER_CONFIG": str(tmp_path)}, Runner(os.environ))
    found = find(harbor.host, credentials=logins)
    assert found is not None
    assert found.user == made.name


def test_a_revoked_robot_is_refused_and_never_told_that_nothing_is_there(harbor: Double, repository: Repository) -> None:
    made = harbor.robot(f"r{secrets.token_hex(4)}", **{project_of(repository): READER})
    ours = opened(harbor, made.name, made.secret)
    with harbor.state.lock:
        made.disabled = True
    with pytest.raises(PipelineError) as refused:
        ours.tag(repository, "v1.2.3")
    assert refused.value.exit_code == 9


@pytest.fixture
def login(harbor: Double, tmp_path: Path) -> Path:
    """Docker's configuration with the administrator's login."""
    basic = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {harbor.host: {"auth": basic}}}))
    return tmp_path


def doctor(place: str, config: Path, *options: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit code, what the verb found by name, its story."""
    command = [sys.executable, "-m", "pipeline", "doctor", "--harbor", place, "--json", *options]
    environment = {**os.environ, "DOCKER_CONFIG": str(config)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)}, done.stderr


def test_the_doctor_makes_what_lacks_once_and_is_content_then(harbor: Double, login: Path) -> None:
    name = f"p{secrets.token_hex(4)}"
    place = f"{harbor.host}/{name}/team"
    code, found, _ = doctor(place, login)
    assert code == 4
    assert found[f"{name}: project"]["state"] == "fault"
    code, found, story = doctor(place, login, "--apply")
    assert code == 0, found
    assert f"will create the private project `{name}`" in story
    assert "2 changes made" in story
    assert '"name": "release"' in story
    (rule,) = harbor.state.projects[name].rules
    assert rule["tag_selectors"][0]["pattern"] == "v[0-9]*.[0-9]*.[0-9]*"
    code, _, story = doctor(place, login, "--apply")
    assert (code, "nothing to change" in story) == (0, True)
    assert len(harbor.state.projects[name].rules) == 1


def test_the_doctor_finds_each_fault_of_a_harbor_with_its_remedy(harbor: Double, login: Path) -> None:
    name = f"p{secrets.token_hex(4)}"
    harbor.project(name, enable_content_trust_cosign="true", prevent_vul="true")
    admin(harbor).add_immutable_rule(name, repositories="**", tags="")
    with harbor.state.lock:
        harbor.state.projects[name].limit = 1
        harbor.state.projects[name].blobs["sha256:any"] = 1
        everything = [{"decoration": "repoMatches", "pattern": "**"}]
        harbor.state.retentions[number := harbor.state.number("retention")] = {
            "scope": {"ref": harbor.state.projects[name].number},
            "rules": [{"template": "latestPushedK", "scope_selectors": {"repository": everything}}],
            "trigger": {"settings": {"cron": "0 0 0 * * *"}},
        }
        harbor.state.projects[name].metadata["retention_id"] = str(number)
        harbor.state.read_only = True
    try:
        code, found, _ = doctor(f"{harbor.host}/{name}", login)
    finally:
        harbor.state.read_only = False
    faults = {each for each, finding in found.items() if finding["state"] == "fault"}
    parts = ("content trust", "pulling", "quota", "rules")
    assert code == 4
    assert faults == {"harbor read-only mode", *(f"{name}: {part}" for part in parts)}
    assert "which means everything" in found[f"{name}: rules"]["detail"]
    assert all(found[each]["remedy"] for each in faults)


def test_the_doctor_tells_retention_that_would_delete_candidates(harbor: Double, login: Path) -> None:
    name = f"p{secrets.token_hex(4)}"
    harbor.project(name)
    with harbor.state.lock:
        harbor.state.retentions[number := harbor.state.number("retention")] = {
            "scope": {"ref": harbor.state.projects[name].number},
            "rules": [{"template": "latestPushedK"}],
            "trigger": {"settings": {"cron": "0 0 0 * * *"}},
        }
        harbor.state.projects[name].metadata["retention_id"] = str(number)
    _, found, _ = doctor(f"{harbor.host}/{name}", login, "--apply")
    assert found[f"{name}: retention"]["state"] == "fault"
    assert "their evidence" in found[f"{name}: retention"]["detail"]


def test_the_doctor_names_the_rights_that_a_robot_lacks(harbor: Double, repository: Repository, tmp_path: Path) -> None:
    name = project_of(repository)
    made = harbor.robot(f"r{secrets.token_hex(4)}", **{name: READER})
    basic = base64.b64encode(f"{made.name}:{made.secret}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {harbor.host: {"auth": basic}}}))
    code, found, _ = doctor(f"{harbor.host}/{name}/team", tmp_path)
    assert code == 4
    told = found[f"{name}: rights"]
    assert told["state"] == "fault"
    missing = {"repository:push", "tag:create", "immutable-tag:list", "project:read", "quota:read"}
    assert {right for right in PROMOTER.split() if f"`{right}`" in told["remedy"]} == missing
    assert found[f"{name}: rules"]["state"] == "warn"


def test_the_doctor_tells_a_wrong_password_and_another_registry(harbor: Double, stack: Stack, tmp_path: Path) -> None:
    basic = base64.b64encode(f"{ADMIN}:wrong".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {harbor.host: {"auth": basic}}}))
    code, found, _ = doctor(f"{harbor.host}/library", tmp_path)
    assert code == 4
    assert "refuses the login of `admin`" in found["harbor"]["detail"]
    _, found, _ = doctor(f"{stack.host}/library", tmp_path)
    assert "is no Harbor" in found["harbor"]["detail"]
