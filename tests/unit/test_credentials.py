"""Logins as docker keeps them."""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.command import Completed
from pipeline.credentials import DockerLogins, of_docker
from pipeline.errors import InputError, PipelineError, ToolFailed, ToolUnfit

HOST = "harbor.example.com:8443"


@dataclass
class Helper:
    """A `Run` that is a credential helper."""

    stdout: str = ""
    code: int = 0
    missing: bool = False
    asked: list[tuple[tuple[str, ...], bytes | None]] = field(default_factory=list)

    def __call__(self, *argv: str | Path, timeout: float, stdin: bytes | None = None, **_: Any) -> Completed:
        words = tuple(str(word) for word in argv)
        self.asked.append((words, stdin))
        if self.missing:
            raise ToolUnfit(f"`{words[0]}` cannot be started: No such file or directory")
        return Completed(argv=words, code=self.code, stdout=self.stdout, stderr="s3cret", seconds=0.0)


def logins(folder: Path, config: object, helper: Helper | None = None) -> DockerLogins:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return DockerLogins(folder, helper or Helper())


def encoded(login: bytes) -> dict[str, str]:
    return {"auth": base64.b64encode(login).decode()}


@pytest.mark.parametrize("password", [b"p:a$s\"'\\ `x`", "pä€ss".encode(), b"\xff\xfe", b"with:colons:"])
def test_a_login_is_sent_with_the_exact_bytes_that_docker_wrote(tmp_path: Path, password: bytes) -> None:
    found = logins(tmp_path, {"auths": {HOST: encoded(b"robot$ci+x:" + password)}}).of(HOST)
    assert found is not None
    assert base64.b64decode(found.basic) == b"robot$ci+x:" + password
    assert found.user == "robot$ci+x"
    assert not found.identity


def test_a_login_shows_no_secret(tmp_path: Path) -> None:
    found = logins(tmp_path, {"auths": {HOST: encoded(b"ci:s3cret")}}).of(HOST)
    assert found is not None
    assert "s3cret" not in repr(found)
    assert found.basic not in repr(found)


@pytest.mark.parametrize(
    "other",
    [
        "harbor.example.com",
        "harbor.example.com:844",
        "harbor.example.com:8443.evil.org",
        "r.example.com:8443",
        "example.com:8443",
    ],
)
def test_a_login_is_for_its_own_host_and_port_alone(tmp_path: Path, other: str) -> None:
    assert logins(tmp_path, {"auths": {HOST: encoded(b"ci:s3cret")}}).of(other) is None


def test_a_key_with_a_path_is_no_login_for_the_whole_host(tmp_path: Path) -> None:
    assert logins(tmp_path, {"auths": {f"{HOST}/team": encoded(b"ci:s3cret")}}).of(HOST) is None


@pytest.mark.parametrize("key", [f"https://{HOST}", f"https://{HOST}/", f"https://{HOST}/v1/", f"http://{HOST}/v2/"])
def test_old_keys_are_addresses(tmp_path: Path, key: str) -> None:
    assert logins(tmp_path, {"auths": {key: encoded(b"ci:s3cret")}}).of(HOST)


def test_docker_hub_has_a_key_of_its_own(tmp_path: Path) -> None:
    found = logins(tmp_path, {"auths": {"https://index.docker.io/v1/": encoded(b"ci:s3cret")}}).of("docker.io")
    assert found is not None
    assert found.user == "ci"


@pytest.mark.parametrize("entry", [{**encoded(b"<token>:"), "identitytoken": "refresh"}, encoded(b"<token>:refresh")])
def test_an_identity_token_is_never_taken_for_a_password(tmp_path: Path, entry: dict[str, str]) -> None:
    found = logins(tmp_path, {"auths": {HOST: entry}}).of(HOST)
    assert found is not None
    assert found.identity
    assert found.secret == "refresh"


def test_a_token_that_cannot_be_used_is_told_rather_than_being_nobody(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="registrytoken") as caught:
        logins(tmp_path, {"auths": {HOST: {"registrytoken": "s3cret"}}}).of(HOST)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("config", ["", "{}", '{"auths": null}', '{"auths": {"harbor.example.com:8443": {}}}'])
def test_where_no_login_is_nobody_is_asked(tmp_path: Path, config: str) -> None:
    if config:
        assert logins(tmp_path, config).of(HOST) is None
    else:
        assert DockerLogins(tmp_path / "nowhere", Helper()).of(HOST) is None


@pytest.mark.parametrize(
    "config",
    [
        '{"auths": {"harbor.example.com:8443": {"auth": "s3cret!"}}}',
        '{"auths": {"harbor.example.com:8443": {"auth": "czNjcmV0"}}}',
        '{"auths": ["s3cret"]}',
        '["s3cret"]',
        '{"auths": s3cret',
        '{"credsStore": "../s3cret"}',
        '{"credsStore": ["s3cret"]}',
    ],
)
def test_a_configuration_that_cannot_be_read_is_named_and_not_shown(tmp_path: Path, config: str) -> None:
    with pytest.raises(InputError, match=r"config\.json") as caught:
        logins(tmp_path, config).of(HOST)
    assert "s3cret" not in str(caught.value)
    assert "czNjcmV0" not in str(caught.value)


def test_a_helper_is_asked_once_for_a_host(tmp_path: Path) -> None:
    helper = Helper(stdout='{"ServerURL": "x", "Username": "ci", "Secret": "s3cret"}')
    found = logins(tmp_path, {"credsStore": "pass"}, helper)
    assert found.of(HOST) == found.of(HOST)
    assert helper.asked == [(("docker-credential-pass", "get"), HOST.encode())]


def test_a_hosts_own_helper_comes_first(tmp_path: Path) -> None:
    helper = Helper(stdout='{"Username": "<token>", "Secret": "refresh"}')
    found = logins(tmp_path, {"credsStore": "pass", "credHelpers": {HOST: "ecr-login"}}, helper).of(HOST)
    assert found is not None
    assert found.identity
    assert helper.asked[0][0][0] == "docker-credential-ecr-login"


def test_docker_hub_has_a_name_of_its_own_for_helpers(tmp_path: Path) -> None:
    helper = Helper(stdout='{"Username": "ci", "Secret": "s3cret"}')
    logins(tmp_path, {"credHelpers": {"https://index.docker.io/v1/": "pass"}}, helper).of("docker.io")
    assert helper.asked == [(("docker-credential-pass", "get"), b"https://index.docker.io/v1/")]


def test_a_helper_that_knows_no_login_makes_us_nobody(tmp_path: Path) -> None:
    helper = Helper(stdout="credentials not found in native keychain\n", code=1)
    assert logins(tmp_path, {"credsStore": "pass"}, helper).of(HOST) is None


@pytest.mark.parametrize(
    ("helper", "error"),
    [
        (Helper(stdout="error: s3cret", code=1), ToolFailed),
        (Helper(stdout="s3cret"), ToolFailed),
        (Helper(stdout='{"Username": "ci", "Secret": ["s3cret"]}'), ToolFailed),
        (Helper(missing=True), ToolUnfit),
    ],
)
def test_a_helper_that_fails_is_named_and_what_it_said_is_not_shown(
    tmp_path: Path, helper: Helper, error: type[PipelineError]
) -> None:
    with pytest.raises(error, match="`docker-credential-pass`") as caught:
        logins(tmp_path, {"credsStore": "pass"}, helper).of(HOST)
    assert "s3cret" not in str(caught.value)
    assert caught.value.hint


def test_the_environment_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    for folder, user in ((tmp_path, "chosen"), (tmp_path / ".docker", "at-home")):
        logins(folder, {"auths": {HOST: encoded(f"{user}:x".encode())}})
    home = {"HOME": str(tmp_path)}
    assert getattr(of_docker(home, Helper()).of(HOST), "user", "") == "at-home"
    assert getattr(of_docker({**home, "DOCKER_CONFIG": str(tmp_path)}, Helper()).of(HOST), "user", "") == "chosen"
    assert of_docker({}, Helper()).of(HOST) is None
