"""What the loader finds: every library resolves, none from a second CUDA, and no driver is baked in.

Where GPUs are, a driver is there too, mounted by the container runtime; only there is seen what a convolution really loads.
"""

import ctypes
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

ELF = b"\x7fELF"
FROM_THE_DRIVER = re.compile(r"lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvsdm)\.so(?:\..*)?|libnvidia-.*")
"""The container toolkit makes `libcuda.so` too, a link beside `libcuda.so.1`, and the loader's cache lists both."""
OPTIONAL = re.compile(r"libsox\.so|libav[a-z]+\.so\.\d+|lib(?:sw[a-z]+|postproc)\.so\.\d+")
"""torchaudio brings bindings for three versions of FFmpeg and for SoX, and does without them."""
GPU_LIBRARY = re.compile(r"lib(?:cu(?:blas|blasLt|dnn|fft|rand|solver|sparse|sparseLt|dart|pti|da)|nccl|nv[A-Za-z])[^/]*\.so\b.*")
DRIVER_FILES = re.compile(r"libcuda\.so.*|libnvidia-.*\.so.*|nvidia-smi")
KERNEL = ("/dev", "/proc", "/sys")


@pytest.fixture(scope="module")
def libraries():
    return tuple(path for path in Path(sys.prefix).rglob("*.so*") if path.is_file() and is_elf(path))


def test_every_library_finds_what_it_needs(libraries):
    import_module("torch")
    with ThreadPoolExecutor(4) as pool:
        missing = {name: path for path, names in zip(libraries, pool.map(not_found, libraries), strict=True) for name in names}
    absent = missing.keys() - {path.name for path in libraries}
    wanted = [name for name in absent if not (FROM_THE_DRIVER.fullmatch(name) or OPTIONAL.fullmatch(name) or is_loaded(name))]
    assert not wanted, "; ".join(f"{missing[name]} needs {name}, which is not found" for name in sorted(wanted))


def test_the_loader_knows_no_gpu_library_but_a_mounted_driver_s(lane):
    done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=300, check=True)
    known = [line.strip() for line in done.stdout.splitlines() if GPU_LIBRARY.match(line.strip())]
    ours = [line for line in known if lane == "cpu" or not FROM_THE_DRIVER.fullmatch(line.split()[0])]
    assert not ours, ours


def test_no_variable_sends_the_loader_elsewhere():
    variables = [f"{name}={text}" for name, text in os.environ.items() if name.startswith("LD_")]
    assert not variables, variables


def test_neither_a_driver_nor_a_stub_of_it_is_in_the_image(lane):
    if lane == "gpu":
        pytest.skip("the machine's own driver is mounted here; the lane `cpu` looks for one")
    found = [f"{folder}/{name}" for folder, names in everything() for name in names if DRIVER_FILES.fullmatch(name)]
    assert not found, found


def test_what_a_convolution_loads_comes_from_one_place(lane):
    torch = import_module("torch")
    device = "cuda" if lane == "gpu" else "cpu"
    torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8, device=device), torch.ones(4, 3, 3, 3, device=device)).cpu()
    mapped = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if line.count("/")}
    loaded = {Path(path.strip()) for path in mapped if GPU_LIBRARY.match(Path(path.strip()).name)}
    assert loaded
    ours = [one for one in loaded if lane == "cpu" or not FROM_THE_DRIVER.fullmatch(one.name)]
    strange = [str(one) for one in ours if not one.is_relative_to(sys.prefix)]
    assert not strange, strange


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == ELF


def not_found(path):
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, timeout=300, check=False)
    return set(re.findall(r"(\S+) => not found", done.stdout))


def everything():
    for folder, folders, names in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if f"/{name}" not in KERNEL]
        yield folder, names


def is_loaded(name):
    """Whether the loader knows `name` now that torch is imported: a renamed library still answers to its old name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
