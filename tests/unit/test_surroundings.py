"""What a build takes over from the machine."""

from pathlib import Path

import pytest

from pipeline import surroundings
from pipeline.errors import InputError
from pipeline.surroundings import PYPI, Surroundings, read


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(surroundings, "_BUNDLES", (str(tmp_path / "none.pem"), str(tmp_path / "bundle.pem")))
    monkeypatch.setattr(surroundings, "_SYSTEM_PIP", tmp_path / "etc-pip.conf")


def test_a_machine_that_says_nothing_uses_pypi(tmp_path: Path) -> None:
    assert read({"HOME": str(tmp_path)}).index_url == PYPI


def test_the_index_is_uvs_then_pips_variable_then_pips_configuration(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text("[global]\nindex-url = https://mirror/%(x)s/simple\n")
    environment = {"HOME": str(tmp_path)}
    assert read(environment).index_url == "https://mirror/%(x)s/simple"
    environment["PIP_INDEX_URL"] = "https://pip/simple"
    assert read(environment).index_url == "https://pip/simple"
    environment["UV_DEFAULT_INDEX"] = "https://uv/simple"
    assert read(environment).index_url == "https://uv/simple"


def test_a_users_pip_configuration_counts_before_the_machines(tmp_path: Path) -> None:
    (tmp_path / "etc-pip.conf").write_text("[global]\nindex-url = https://machine/simple\n")
    assert read({"HOME": str(tmp_path)}).index_url == "https://machine/simple"
    chosen = tmp_path / "chosen.conf"
    chosen.write_text("[global]\nindex-url = https://user/simple\n")
    assert read({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(chosen)}).index_url == "https://user/simple"


def test_a_pip_configuration_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "etc-pip.conf").write_text("index-url = no section\n")
    with pytest.raises(InputError, match="pip's configuration cannot be read"):
        read({"HOME": str(tmp_path)})


def test_the_authorities_are_the_variables_or_the_systems(tmp_path: Path) -> None:
    (tmp_path / "bundle.pem").touch()
    assert read({}).certificates == tmp_path / "bundle.pem"
    own = tmp_path / "own.pem"
    own.touch()
    assert read({"SSL_CERT_FILE": str(own)}).certificates == own


def test_a_bundle_that_is_named_and_missing_is_never_passed_over(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`SSL_CERT_FILE` names"):
        read({"SSL_CERT_FILE": str(tmp_path / "missing.pem")})


def test_proxies_are_found_in_either_case() -> None:
    assert read({"http_proxy": "http://a", "HTTPS_PROXY": "http://b", "NO_PROXY": ""}).proxies == {
        "HTTP_PROXY": "http://a",
        "HTTPS_PROXY": "http://b",
    }


def test_passwords_in_addresses_are_known_as_secrets_in_both_spellings() -> None:
    around = Surroundings(index_url="https://me:p%40ss@index", proxies={"HTTP_PROXY": "http://proxy", "NO_PROXY": "http://[x"})
    assert around.passwords == ("p%40ss", "p@ss")
