"""`pip install` on top of the image: works for any user, and never replaces what the image holds. Needs no network."""

import os
import re
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from sysconfig import get_path
from zipfile import ZipFile

import pytest

FORBIDDEN = ["numpy", "torch", "triton"]


@pytest.fixture
def wheel(tmp_path):
    def make(name, version, *requirements):
        info = f"{name}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {one}\n" for one in requirements)
        files = {
            f"{name}.py": f"__version__ = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: check\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        with ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for path, text in {**files, f"{info}/RECORD": "".join(f"{path},,\n" for path in files)}.items():
                archive.writestr(path, text)

    return make


@pytest.fixture
def pip(tmp_path):
    def run(*words):
        offline = ("--no-index", "--find-links", str(tmp_path), "--no-cache-dir", "--disable-pip-version-check")
        return subprocess.run(
            [sys.executable, "-m", "pip", *words, *offline], capture_output=True, text=True, timeout=300, check=False
        )

    return run


def test_a_user_installs_a_package_and_imports_it(pip, wheel):
    wheel("added_on_top", "1.0")
    done = pip("install", "added_on_top")
    assert done.returncode == 0, done.stderr
    show = [sys.executable, "-c", "import added_on_top as it; print(it.__file__)"]
    found = subprocess.run(show, capture_output=True, text=True, timeout=300, check=True)
    assert Path(found.stdout.strip()).is_relative_to(site.getuserbase())


@pytest.mark.parametrize("name", FORBIDDEN)
def test_another_version_is_refused(name, pip, wheel):
    wheel(name, "99.0")
    done = pip("install", "--upgrade", f"{name}==99.0")
    assert done.returncode != 0
    assert "constraint" in done.stderr + done.stdout
    assert metadata.version(name) != "99.0"


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_package_that_needs_another_version_is_refused(name, pip, wheel):
    wheel(name, "99.0")
    wheel("needs_newer", "1.0", f"{name}>=99")
    done = pip("install", "needs_newer")
    assert done.returncode != 0
    assert "constraint" in done.stderr + done.stdout


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_package_of_the_user_does_not_hide_the_image_s(name):
    hiding = Path(site.getusersitepackages()) / f"{name}.py"
    hiding.parent.mkdir(parents=True, exist_ok=True)
    hiding.touch()
    show = [sys.executable, "-c", f"from importlib.util import find_spec; print(find_spec({name!r}).origin)"]
    found = subprocess.run(show, capture_output=True, text=True, timeout=300, check=True)
    hiding.unlink()
    assert Path(found.stdout.strip()).is_relative_to(sys.prefix)


def test_the_constraints_name_all_that_is_installed():
    files = os.environ["PIP_CONSTRAINT"].split()
    assert files == os.environ["UV_CONSTRAINT"].split()
    held = {line.split(" ")[0] for file in files for line in Path(file).read_text().splitlines()}
    ours = metadata.distributions(path=[get_path("purelib")])
    there = {f"{re.sub('[-_.]+', '-', one.metadata['Name']).lower()}=={one.version}" for one in ours}
    assert held == there, f"held only: {sorted(held - there)}; installed only: {sorted(there - held)}"
