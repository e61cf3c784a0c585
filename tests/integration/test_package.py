"""The wheel holds all that the pipeline needs, and runs away from its checkout."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from pipeline.sessions import VERBS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def stack() -> None:
    """Nothing: a wheel needs none of the tools, which may take minutes to get."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_code_data_licence_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "pipeline"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert set(tracked) <= names
    assert {name.split("/")[0] for name in names} == {"pipeline", f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info"}
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert not [name for name in names if "__pycache__" in name]


def test_the_installed_command_runs_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python, pipeline = tmp_path / "venv/bin/python", tmp_path / "venv/bin/pipeline"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements/pipeline.lock")], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    subprocess.run([str(python), "-m", "pip", "check"], check=True, capture_output=True)
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PIPELINE_ROOT")}
    told = subprocess.run([pipeline, "--help"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "build" in told.stdout
    version = subprocess.run([pipeline, "--version"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert version.stdout.split()[-1] == wheel.name.split("-")[1]
    written = subprocess.run([pipeline, "init", "new"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "nox -s update build test" in written.stderr
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"images", "policies", "noxfile.py", ".gitignore"}
    subprocess.run([*pip, f"nox=={metadata.version('nox')}"], check=True)
    nox = [str(python), "-m", "nox", "--list"]
    listed = subprocess.run(nox, cwd=tmp_path / "new", env=environment, check=True, capture_output=True, text=True)
    assert set(re.findall(r"^[-*] (\S+) ->", listed.stdout, re.MULTILINE)) == set(VERBS)
    planned = subprocess.run([pipeline, "plan"], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert planned.returncode == 2, planned.stderr
    assert "--root" in planned.stderr


def test_the_lowest_versions_that_are_named_are_enough(tmp_path: Path) -> None:
    python, uv = tmp_path / "low/bin/python", [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "low")], check=True)
    into = [*uv, "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*into, "--resolution", "lowest-direct", "-r", "pyproject.toml"], cwd=ROOT, check=True)
    subprocess.run([*into, *(f"{name}=={metadata.version(name)}" for name in ("nox", "kubernetes-validate"))], check=True)
    tests = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit", "tests/edges/test_debian.py"]
    ran = subprocess.run(tests, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:]
