"""The package and the environments that it runs in."""

import re
import tomllib

import pytest

from tests.relock import LOCKS, ROOT, sources_digest

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_belongs_to_the_dependencies_of_the_project(name: str) -> None:
    first = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"# locked from: sha256:{sources_digest()}", "run `nox -s relock`"


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_distribution_has_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_both_environments_run_the_same_versions() -> None:
    pipeline, dev = locked("pipeline"), locked("dev")
    assert pipeline.items() <= dev.items()


def test_every_dependency_is_locked() -> None:
    names = {re.match(r"[A-Za-z0-9.-]+", text)[0].lower() for text in PROJECT["project"]["dependencies"]}  # type: ignore[index]
    assert names <= locked("pipeline").keys()


def test_the_licence_is_the_one_that_the_project_names() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "pipeline" / "py.typed").is_file()
