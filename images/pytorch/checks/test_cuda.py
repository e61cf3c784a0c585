"""One CUDA, and the libraries that run are those that are installed. Needs no GPU."""

import re
import sys
from collections import defaultdict
from importlib import import_module, metadata
from pathlib import Path

import torch

CUDA_RUNTIME = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|nvrtc)(?:[.-][0-9a-f]{8})?\.so\.(\d+)[\d.]*")
"""A library, and its major version; wheels that bring one of their own put a hash into its name."""


def test_torch_is_built_for_the_claimed_cuda(claims):
    assert torch.version.cuda == claims["cuda"]


def test_torchvision_and_torchaudio_are_built_for_the_same_cuda(claims):
    # Here, not above: torchaudio refuses to load beside a torch of another CUDA.
    torchaudio, torchvision = import_module("torchaudio"), import_module("torchvision")
    major, minor = claims["cuda"].split(".")
    number = int(major) * 1000 + int(minor) * 10
    assert torchvision.extension._check_cuda_version() == number
    assert torchaudio.lib._torchaudio.cuda_version() == number


def test_cudnn_runs_in_the_version_that_is_installed(claims):
    major, minor, patch = torch._C._cudnn.getCompileVersion()
    assert torch.backends.cudnn.version() == major * 10000 + minor * 100 + patch
    assert claims["nvidia-cudnn-cu12"].startswith(f"{major}.{minor}.{patch}.")


def test_nccl_runs_in_the_version_that_is_installed(claims):
    assert ".".join(map(str, torch.cuda.nccl.version())) == claims["nvidia-nccl-cu12"]


def test_there_is_one_major_version_of_cuda(claims):
    major = claims["cuda"].partition(".")[0]
    names = [one.metadata["Name"] for one in metadata.distributions()]
    others = [name for name in names if (match := re.fullmatch(r"nvidia-.*-cu(\d+)", name)) and match[1] != major]
    assert not others, f"for another CUDA than {major}: {others}"


def test_every_cuda_library_is_there_in_one_major_version(claims):
    majors = defaultdict(set)
    for path in cuda_libraries():
        library, major = CUDA_RUNTIME.fullmatch(path.name).groups()
        majors[library].add(major)
    assert majors["cudart"] == {claims["cuda"].partition(".")[0]}, f"libcudart.so in versions {sorted(majors['cudart'])}"
    several = [f"lib{library}.so in versions {sorted(found)}" for library, found in majors.items() if len(found) > 1]
    assert not several, several


def test_every_cuda_library_lies_with_the_python_packages():
    strange = [str(path) for path in cuda_libraries() if not path.is_relative_to(sys.prefix)]
    assert not strange, strange


def cuda_libraries():
    roots = [Path(sys.prefix), Path("/usr/lib"), Path("/usr/local"), Path("/opt")]
    return {path for root in roots for path in root.rglob("lib*.so.*") if CUDA_RUNTIME.fullmatch(path.name)}
