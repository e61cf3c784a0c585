"""What the image claims is what is installed, and what is installed says so when it runs."""

import subprocess
import sys
from collections import Counter
from importlib import import_module, metadata
from importlib.metadata import PackageNotFoundError
from sysconfig import get_path

import pytest

OTHER_CHECKS_PROVE = {"architectures", "cuda", "driver", "python"}


def installed(name):
    try:
        return metadata.version(name)
    except PackageNotFoundError:
        return None


def test_every_claimed_distribution_is_installed_in_the_claimed_version(claims):
    found = {name: installed(name) for name in claims if name not in OTHER_CHECKS_PROVE}
    versions = {name: version for name, version in found.items() if version is not None}
    wrong = [f"{name} is {version}, claimed is {claims[name]}" for name, version in versions.items() if version != claims[name]]
    assert not wrong, "; ".join(wrong)
    assert versions.keys() >= {"numpy", "nvidia-cudnn-cu12", "nvidia-nccl-cu12", "torch", "torchaudio", "torchvision", "triton"}


@pytest.mark.parametrize("name", ["numpy", "torch", "torchaudio", "torchvision", "triton"])
def test_a_module_runs_in_the_claimed_version(name, claims):
    module = import_module(name)
    assert module.__version__.partition("+")[0] == claims[name], f"{name} is {module.__version__}, claimed is {claims[name]}"


def test_no_distribution_is_there_twice():
    names = Counter(one.metadata["Name"].lower().replace("_", "-") for one in metadata.distributions(path=[get_path("purelib")]))
    twice = [name for name, count in names.items() if count > 1]
    assert not twice, twice


def test_every_distribution_has_what_it_requires():
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
