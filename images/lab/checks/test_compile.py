"""`torch.compile` compiles: what it makes agrees with eager mode, and the compiler that the image claims made it."""

import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

MADE_BY = re.compile(rb"GCC: \(Debian (\d+)\.")
"""What GNU compilers leave in the section `.comment` of what they make."""


LEAST = (7, 0)
"""Compute capability that Triton compiles for; torch itself refuses older GPUs."""


@pytest.fixture
def device(lane):
    if lane == "gpu" and (found := torch.cuda.get_device_capability()) < LEAST:
        pytest.skip(f"needs compute capability 7.0 for Triton, this GPU has {found[0]}.{found[1]}")
    return torch.device("cuda" if lane == "gpu" else "cpu")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, so that everything is compiled now."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    torch.compiler.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield tmp_path


@pytest.fixture
def version(claims):
    """The major version of the compiler."""
    name, _, version = claims["compile"].partition(" ")
    assert name == "g++"
    return version


@pytest.mark.parametrize("name", ["g++", "gcc", "c++", "cc"])
def test_the_compilers_are_those_that_are_claimed(name, version):
    assert shutil.which(name)
    done = subprocess.run([name, "-dumpversion"], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == version


def test_a_model_that_is_compiled_agrees_with_eager_mode_forward_and_backward(device, cache, version, measure):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).to(device)
    inputs = torch.randn(16, 64, device=device)
    expected = results(model, model, inputs)
    found = results(model, torch.compile(model, fullgraph=True), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    made = [path for path in cache.rglob("*.so") if version.encode() in MADE_BY.findall(path.read_bytes())]
    measure("libraries compiled", len(made), floor=1)


def test_what_was_compiled_runs_fewer_kernels_than_eager_mode(device, cache):
    def chain(inputs):
        return (inputs.sin() + inputs.cos()).relu().mul(2).sub(1)

    inputs = torch.randn(1024, device=device)
    compiled = torch.compile(chain, fullgraph=True)
    torch.testing.assert_close(compiled(inputs), chain(inputs))
    assert kernels(compiled, inputs) < kernels(chain, inputs)


def results(model, call, inputs):
    """The outputs, and the gradients of all parameters."""
    model.zero_grad()
    outputs = call(inputs)
    outputs.square().mean().backward()
    return [outputs.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


def kernels(function, inputs):
    """How many of PyTorch's own operators a call runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function(inputs)
    return sum(event.count for event in profile.key_averages() if event.key.startswith("aten::"))
