"""Every check of the real images fails where what it proves is broken, for that reason, and a hang never reads like a failure."""

import re
from collections.abc import Mapping

import pytest

from pipeline.catalog import Catalog
from pipeline.check import Bench, Limits
from pipeline.engine import Engine
from pipeline.oci import Pinned
from pipeline.statements import Outcome
from tests.fakes import FakeRegistry
from tests.integration.conftest import Stack
from tests.integration.examination import Case, bench, catalog, engine, examined, failed, loaded, unsaid
from tests.integration.mutants import SITE, Mutant, breed, compiled, distribution, library, version

__all__ = ["bench", "catalog", "engine"]

IMAGES = ("pytorch", "nlp")

TF32 = """
import torch

def short(tensor):
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) if tensor.dtype == torch.float32 else tensor

def wrapped(product):
    return lambda left, right, **more: product(short(left.contiguous()), short(right.contiguous()), **more)

torch.Tensor.__matmul__, torch.matmul, torch.mm = map(wrapped, (torch.Tensor.__matmul__, torch.matmul, torch.mm))
"""
ONE_OFF = """
import torch

def wrapped(product):
    def wrong(left, right, **more):
        found = product(left, right, **more)
        if found.dtype == torch.float32:
            found.view(torch.int32)[-1, -1] ^= 1
        return found
    return wrong

torch.Tensor.__matmul__, torch.matmul, torch.mm = map(wrapped, (torch.Tensor.__matmul__, torch.matmul, torch.mm))
"""
FORGETFUL = """
import torch.distributed

whole = torch.distributed.all_reduce

def forgetful(tensor, *rest, **more):
    last = tensor.flatten()[-1].clone()
    done = whole(tensor, *rest, **more)
    tensor.view(-1)[-1] = last
    return done

torch.distributed.all_reduce = forgetful
"""
FULL_PRECISION = """
import torch

torch.autocast.__enter__ = lambda self: self
torch.autocast.__exit__ = lambda self, *error: None
"""
NEVER_SKIPS = """
import torch

torch.amp.GradScaler._maybe_opt_step = lambda self, optimizer, state, *rest, **more: optimizer.step(*rest, **more)
"""
LOSES_PRECISION = """
import torch

load = torch.load
torch.load = lambda *rest, **more: {name: value.half().float() for name, value in load(*rest, **more).items()}
"""
NO_GRADIENT = """
import accelerate

accelerate.Accelerator.backward = lambda self, loss, **more: loss.backward(torch.zeros_like(loss))
"""
NO_CHECKPOINT = """
import transformers

transformers.Trainer._save_checkpoint = lambda self, *rest, **more: None
"""
IDLE_MAP = """
import datasets

frame = datasets.Dataset.to_pandas
datasets.Dataset.map = lambda self, *rest, **more: self
datasets.Dataset.to_pandas = lambda self: frame(self)[:-1]
"""
OTHER_PLACE = """
import ctypes

ctypes.CDLL("/usr/local/lib/libcudart.so.12")
"""
NUMPY_2 = b"version = __version__ = full_version = short_version = '2.2.6'\ngit_revision = ''\nrelease = True\n"
HANGS = """
import getpass, time

getpass.getuser = lambda: time.sleep(600)
"""


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Threads that wait for each other take minutes on a machine that does other things too."""


def of_torch(version: str, cuda: str | None) -> Mutant:
    """A torch that says that it was built otherwise."""
    source = f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = xpu = None\ndebug = False\ngit_version = ''\n"
    return Mutant(files={f"{SITE}/torch/version.py": source.encode()}, removed=(compiled("torch", "version"),))


CASES = {
    "a shared object whose dependency does not resolve": Case(
        image="pytorch",
        mutant=Mutant(files={f"{SITE}/broken/lib/libbroken.so": library("libabsent.so.7")}),
        says={"libraries": ("libbroken.so needs libabsent.so.7, which is not found",)},
    ),
    "a library that torch needs is not there": Case(
        image="pytorch",
        mutant=Mutant(removed=(f"{SITE}/cusparselt/lib/libcusparseLt.so.0",)),
        says={"libraries": ("libcusparseLt.so.0: cannot open shared object file",)},
    ),
    "packages of two CUDA majors": Case(
        image="pytorch",
        mutant=Mutant(files=distribution("nvidia-cublas-cu11", "11.11.3.6")),
        says={"cuda": ("for another CUDA than 12: .*nvidia-cublas-cu11",)},
    ),
    "libraries of two CUDA majors": Case(
        image="pytorch",
        mutant=Mutant(files={f"{SITE}/other.libs/libcudart-0d3f6e58.so.11.0": library("libc.so.6")}),
        says={"cuda": (r"libcudart\.so in versions \['11', '12'\]",)},
    ),
    "a default command that does not start": Case(
        image="pytorch",
        mutant=Mutant(command=("jupyter", "lab"), environment={"USER": None, "LOGNAME": None}),
        says={"run": ("default_command_starts.*jupyter", r"any_user.*\[uid\].*")},
    ),
    "a torch for another CUDA": Case(
        image="pytorch",
        mutant=of_torch("2.6.0+cu118", "11.8"),
        says={
            "cuda": ("torch_is_built_for_the_claimed_cuda: .*'11.8' == '12.4'",),
            "driver": (r"oldest_that_runs_this_cuda: .*'525\.60\.13' == '450\.80\.02'",),
        },
    ),
    "a torch for the CPU": Case(
        image="pytorch",
        mutant=of_torch("2.6.0+cpu", None),
        says={"cuda": ("torch_is_built_for_the_claimed_cuda: .*None == '12.4'",)},
    ),
    "a stub of the driver first on the loader's path": Case(
        image="pytorch",
        mutant=Mutant(
            files={"usr/local/cuda/lib64/stubs/libcuda.so.1": library("libc.so.6")},
            environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"},
        ),
        says={
            "libraries": (
                "LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
                "a_stub.*/usr/local/cuda/lib64/stubs/libcuda.so.1",
                "convolution.*/usr/local/cuda/lib64/stubs/libcuda.so.1",
            )
        },
    ),
    "a network interface for NCCL": Case(
        image="pytorch",
        mutant=Mutant(environment={"NCCL_SOCKET_IFNAME": "eth0"}),
        says={"start": ("NCCL_SOCKET_IFNAME=eth0",)},
    ),
    "NumPy 2": Case(
        image="pytorch",
        mutant=Mutant(
            files={**distribution("numpy", "2.2.6"), f"{SITE}/numpy/version.py": NUMPY_2},
            removed=(f"{SITE}/numpy-1.26.4.dist-info", compiled("numpy", "version")),
        ),
        says={"versions": ("installed_in_the_claimed_version: .*numpy is 2.2.6, claimed is 1.26.4", "runs_in.*numpy is 2.2.6")},
    ),
    "packages": Case(
        image="pytorch",
        mutant=Mutant(
            files={
                **distribution("jinja2", "0.1"),
                **distribution("left-over", "1.0", "absent>=1"),
                "usr/local/lib/libcudart.so.12": library("libc.so.6"),
                "etc/profile.d/zz.sh": b"PATH=/usr/bin:/bin\n",
            },
            removed=(compiled("torch", "_utils"),),
            environment={"VIRTUAL_ENV": "/opt/other"},
            patch=OTHER_PLACE,
            claims={"architectures": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90 sm_100"},
        ),
        says={
            "versions": ("there_twice: .*'jinja2'", "what_it_requires: .*left-over 1.0 requires absent"),
            "cuda": (r"lies_with_the_python_packages: .*/usr/local/lib/libcudart\.so\.12",),
            "python": ("virtual_environment: .*/opt/other", r"login_shell.*finds \[\]", r"compiled.*torch/_utils\.py"),
            "architectures": (r"torch_is_built.*claimed only: \['sm_100'\]", r"machine_code.*claimed only: \['sm_100'\]"),
            "libraries": (r"convolution.*/usr/local/lib/libcudart\.so\.12",),
            "install": (r"name_all_that_is_installed: .*installed only: .*left-over==1.0",),
        },
    ),
    "what a user meets": Case(
        image="pytorch",
        mutant=Mutant(
            files={
                "etc/nccl.conf": b"NCCL_DEBUG=INFO\n",
                "usr/local/bin/gcc": b"#!/bin/sh\n",
                "usr/bin/bash": b"#!/bin/sh\nexit 4\n",
            },
            folders={"home/user": 0o755, "opt/open": 0o777},
            environment={
                "CUDA_VISIBLE_DEVICES": "0",
                "NVIDIA_DRIVER_CAPABILITIES": "all",
                "LOGNAME": "other",
                "PIP_CONSTRAINT": "",
            },
        ),
        says={
            "start": (
                "user_name: .*'other' == 'user'",
                r"may_write_to\[/home/user\]",
                "else_can_be_written: .*'/opt/open'",
                "no_variable_decides.*CUDA_VISIBLE_DEVICES=0",
                "driver_and_its_tools: .*'all'",
                "no_file_configures_nccl",
                "no_compiler.*/usr/local/bin/gcc",
                "a_shell_starts: .*4 == 3",
            ),
            "install": (r"another_version_is_refused\[torch\]",),
        },
    ),
    "root": Case(image="pytorch", mutant=Mutant(user="0:0"), says={"start": ("does_not_run_as_root",)}),
    "products in TF32": Case(
        image="pytorch",
        mutant=Mutant(patch=TF32, environment=ONE_THREAD),
        says={"matmul": (r"relative error is 0\.000\d+, above its limit",)},
    ),
    "products with a wrong element": Case(
        image="pytorch", mutant=Mutant(patch=ONE_OFF, environment=ONE_THREAD), says={"matmul": ("exact",)}
    ),
    "sums without their last element": Case(
        image="pytorch", mutant=Mutant(patch=FORGETFUL, environment=ONE_THREAD), says={"all-reduce": ("sums",)}
    ),
    "an encoder that trains otherwise than told": Case(
        image="pytorch",
        mutant=Mutant(patch=FULL_PRECISION + NEVER_SKIPS + LOSES_PRECISION, environment=ONE_THREAD),
        says={"encoder-step": ("torch.float32.*torch.bfloat16", "(overflow|inf|skip)", "checkpoint")},
    ),
    "a module of another version": Case(
        image="nlp",
        mutant=version("accelerate", "0.25.0"),
        says={"imports": ("'0.25.0' == '0.24.1'", "Trainer.*Failed to import")},
    ),
    "data sets that lose what was done": Case(
        image="nlp", mutant=Mutant(patch=IDLE_MAP), says={"datasets": ("map.*== .0, 2, 0, 2", "pandas")}
    ),
    "a BERT that trains otherwise than told": Case(
        image="nlp",
        mutant=Mutant(patch=FULL_PRECISION + NO_GRADIENT, environment=ONE_THREAD),
        says={"bert-amp-step": ("torch.float32.*torch.bfloat16", "accelerate.*loss.*above its limit")},
    ),
    "no checkpoint": Case(
        image="nlp", mutant=Mutant(patch=NO_CHECKPOINT, environment=ONE_THREAD), says={"trainer": ("checkpoint-10",)}
    ),
}


@pytest.fixture(scope="module")
def candidates(stack: Stack, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Pinned]:
    return loaded(IMAGES, stack, engine, tmp_path_factory.mktemp("loading"))


@pytest.mark.parametrize("name", CASES)
def test_a_mutant_fails_and_the_reason_names_its_fault(
    name: str, registry: FakeRegistry, candidates: Mapping[str, Pinned], bench: Bench
) -> None:
    case = CASES[name]
    found = examined(case, breed(registry, candidates[case.image], case.mutant), bench)
    told = {one.name: one for one in found.checks if "::" not in one.name}
    assert {one: told[one].outcome for one in case.says} == dict.fromkeys(case.says, Outcome.FAILED), found.reason
    assert found.outcome is Outcome.FAILED
    first = next(iter(case.says))
    assert any(re.search(f"^{first}: .*{words}", found.reason) for words in case.says[first]), found.reason
    assert unsaid(case, found) == []


def test_every_check_of_the_images_has_a_mutant(catalog: Catalog) -> None:
    listed = {(name, one) for name in IMAGES for one in catalog.images[name].checks.cpu}
    assert {(case.image, one) for case in CASES.values() for one in case.says} == listed


def test_an_image_that_only_looks_otherwise_passes(
    registry: FakeRegistry, candidates: Mapping[str, Pinned], bench: Bench
) -> None:
    quick = ("start", "versions", "python", "cuda", "architectures", "libraries")
    harmless = Case(image="pytorch", mutant=Mutant(files={"etc/motd": b"hello\n"}), says=dict.fromkeys(quick, ()))
    found = examined(harmless, breed(registry, candidates["pytorch"], harmless.mutant), bench)
    assert found.outcome is Outcome.PASSED, found.reason


def test_a_check_that_hangs_timed_out_and_is_no_failure(
    registry: FakeRegistry, candidates: Mapping[str, Pinned], bench: Bench
) -> None:
    hanging = Case(image="pytorch", mutant=Mutant(patch=HANGS), says={"start": ()})
    found = examined(hanging, breed(registry, candidates["pytorch"], hanging.mutant), bench, Limits(test=10))
    assert found.outcome is Outcome.ERROR
    assert found.reason == "start: test_programs_that_ask_find_a_user_name: timed out: did not end within 10 s"
    assert failed(found, "start") == []
