"""The Python that runs, and its bytecode: valid as it lies there, or every start of another user compiles it again."""

import os
import subprocess
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

HASH_BASED = 1


def test_python_has_the_claimed_version(claims):
    assert f"{sys.version_info.major}.{sys.version_info.minor}" == claims["python"]


def test_python_is_that_of_the_virtual_environment():
    assert sys.prefix == os.environ["VIRTUAL_ENV"] != sys.base_prefix


def test_a_login_shell_finds_the_same_python():
    done = subprocess.run(
        ["bash", "-lc", "command -v python python3 pip"], capture_output=True, text=True, timeout=300, check=False
    )
    found = done.stdout.split()
    assert found == [f"{sys.prefix}/bin/{name}" for name in ("python", "python3", "pip")], f"a login shell finds {found}"


def test_what_torch_imports_is_compiled_and_needs_no_compiling():
    listing = (
        "import sys, torch; print(*(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=300, check=True)
    sources = [path for path in done.stdout.splitlines() if path.startswith("/") and path.endswith(".py")]
    assert len(sources) > 500
    stale = [source for source in sources if not is_valid(Path(cache_from_source(source)), Path(source))]
    assert not stale, stale


def is_valid(compiled, source):
    if not compiled.is_file():
        return False
    header = compiled.read_bytes()[:16]
    flags, stamp, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if header[:4] != MAGIC_NUMBER:
        return False
    return bool(flags & HASH_BASED) or (stamp, size) == (int(source.stat().st_mtime), source.stat().st_size)
