"""One CUDA, and the libraries that run are those that are installed. Needs no GPU."""

import re
import sys
from importlib import metadata
from pathlib import Path

import torch
import torchaudio
import torchvision

CUDA_RUNTIME = re.compile(r"lib(?:cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|nvrtc)\.so\.(\d+)")


def test_torch_is_built_for_the_claimed_cuda(claims):
    assert torch.version.cuda == claims["cuda"]


def test_torchvision_and_torchaudio_are_built_for_the_same_cuda(claims):
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
    assert {match[1] for name in names if (match := re.fullmatch(r"nvidia-.*-cu(\d+)", name))} == {major}


def test_every_cuda_library_lies_with_the_python_packages():
    roots = [Path(sys.prefix), Path("/usr/lib"), Path("/usr/local"), Path("/opt")]
    found = {path for root in roots for path in root.rglob("lib*.so.*") if CUDA_RUNTIME.fullmatch(path.name)}
    assert found
    assert [path for path in found if not path.is_relative_to(sys.prefix)] == []
