"""The import order, and what only certain modules may touch.

A new module gets its place in `LAYERS`: it imports only from those before it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pipeline"
GROUND = "names wording errors oci story settings"
CORE = (
    "releases gpus compatibility locks ignore depends grouping yaml_text yaml_models catalog sources catalog_rules catalog_locks"
    " catalog_text inputs plan expansion instructions dockerfile installs failures statements blame dsse evidence policy"
    " tagrules diagnosis pruning promotion runs matrix tries changes notices"
)
EDGES = (
    "redaction conversation command buildinfo buildlog credentials registry harbor download debian rootfs additions toolchain"
    " install daemons dockerhost engine nvidia services ownregistry builders surroundings bake context records survey readiness"
    " cosign gather vouching carry parents keys policies attest quarantine turns harbor_doctor"
)
STAGES = "setup prune doctor build check scan sign promote lint update run new init explain"
FRONT = "report console arguments call verbs __main__ sessions"
LAYERS = {"ground": GROUND, "core": CORE, "edges": EDGES, "stages": STAGES, "front": FRONT}
ORDER = [name for layer in LAYERS.values() for name in layer.split()]

PROCESSES = {"command"}
HTTP = {"registry", "harbor", "download", "debian", "toolchain", "engine"}
SOCKETS = {"daemons", "dockerhost", "engine", "services", "run"}
"""Looks whether somebody listens, beside HTTP."""
ENVIRONMENT = {"__main__"}
TERMINAL = {"console", "call", "verbs", "__main__"}

PURE_FROM = {"asyncio", "concurrent", "docker", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "platform", "random"}
PURE_FROM |= {"secrets", "selectors", "shutil", "signal", "sqlite3", "sys", "tempfile", "threading", "time", "uuid"}
PROCESS_CALLS = r"os\.(?:system|popen|fork\w*|exec\w*|spawn\w*|posix_spawn\w*)"
CLOCKS = r"(?:datetime|date)\.(?:now|utcnow|today)|time\.(?:time|time_ns|localtime|gmtime|ctime|strftime)"
ENVIRONS = r"os\.(?:environ\w*|getenv\w*|putenv|unsetenv|expandvars)|os\.path\.(?:expandvars|expanduser)|Path\.home"


SUSPECT = re.compile(r"\b(?:os|date|datetime|time|home|open|print|input)\b")
"""Without one of these words nothing of the above can stand in a module, and it need not be walked through."""


def unit(path: Path) -> str:
    """The module, or the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer(name: str) -> str:
    return next((each for each, names in LAYERS.items() if name in names.split()), "")


def faults(name: str, source: str) -> list[str]:
    """What module `name` may not do; the rules of this file."""
    tree = ast.parse(source)
    return [*import_faults(name, tree), *(call_faults(name, tree) if SUSPECT.search(source) else ())]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level
        elif isinstance(node, ast.ImportFrom) and node.module == "pipeline":
            yield from (f"pipeline.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def import_faults(name: str, tree: ast.AST) -> Iterator[str]:
    for module in imported(tree):
        top, _, rest = module.partition(".")
        own = rest.partition(".")[0]
        if module.startswith("."):
            yield "imports relatively"
        elif top == "pipeline" and own not in (name, "data"):
            yield from order_faults(name, own)
        if top in ("subprocess", "multiprocessing", "pty") and name not in PROCESSES:
            yield f"imports {top}"
        if (
            top in ("requests", "urllib3", "httpx", "aiohttp") or module in ("http.client", "urllib.request")
        ) and name not in HTTP:
            yield f"imports {module}"
        if top == "nox" and name != "sessions":
            yield "imports nox"
        if name == "sessions" and top not in ("nox", *sys.stdlib_module_names):
            yield f"is read by nox, and imports {module}"
        if top in ("socket", "socketserver") and name not in SOCKETS:
            yield f"imports {top}"
        if layer(name) == "core" and top in PURE_FROM:
            yield f"is core and imports {top}"


def order_faults(name: str, own: str) -> Iterator[str]:
    if own not in ORDER:
        yield f"imports `{own}`, which has no place in the order"
    elif layer(name) == layer(own) == "stages":
        yield f"is a stage and imports the stage `{own}`"
    elif ORDER.index(own) >= ORDER.index(name):
        yield f"imports `{own}`, which comes later"


def dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; of anything else than names with dots only the end."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def call_faults(name: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        text = dotted(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(PROCESS_CALLS, text) and name not in PROCESSES:
            yield f"uses {text}"
        if re.fullmatch(f"(?:[a-z]+\\.)?(?:{CLOCKS})|{ENVIRONS}", text) and name not in ENVIRONMENT:
            yield f"uses {text}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "open" and layer(name) == "core":
                yield "is core and opens a file"
            if node.func.id in ("print", "input") and name not in TERMINAL:
                yield f"uses {node.func.id}"


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if unit(path) not in ("data", "__init__"))


def test_every_module_keeps_to_its_place() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): faults(unit(path), path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_every_module_has_a_place_and_every_place_a_module() -> None:
    assert {unit(path) for path in MODULES} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("oci", "from pipeline.plan import Step", "imports `plan`, which comes later"),
        ("plan", "def f():\n    import pipeline.command", "imports `command`, which comes later"),
        ("catalog", "from pipeline import command", "imports `command`, which comes later"),
        ("build", "from pipeline.check import check", "is a stage and imports the stage `check`"),
        ("check", "from pipeline.build import build", "is a stage and imports the stage `build`"),
        ("build", "from pipeline import helpers", "imports `helpers`, which has no place in the order"),
        ("build", "from . import x", "imports relatively"),
        ("build", "import subprocess", "imports subprocess"),
        ("build", "import os\nos.execvp('x', [])", "uses os.execvp"),
        ("build", "import os\nos.system('x')", "uses os.system"),
        ("build", "import requests", "imports requests"),
        ("command", "from urllib.request import urlopen", "imports urllib.request"),
        ("build", "import socket", "imports socket"),
        ("build", "import nox", "imports nox"),
        ("sessions", "from pipeline import names", "is read by nox, and imports pipeline.names"),
        ("sessions", "import requests", "is read by nox, and imports requests"),
        ("build", "import os\nx = os.environ['HOME']", "uses os.environ"),
        ("build", "import os\nx = os.getenv('HOME')", "uses os.getenv"),
        ("build", "from datetime import datetime\nx = datetime.now()", "uses datetime.now"),
        ("build", "import datetime\nx = datetime.datetime.now()", "uses datetime.datetime.now"),
        ("build", "import time\nx = time.time()", "uses time.time"),
        ("build", "print('x')", "uses print"),
        ("plan", "import os", "is core and imports os"),
        ("plan", "from pathlib import Path", "is core and imports pathlib"),
        ("plan", "open('x')", "is core and opens a file"),
    ],
)
def test_each_rule_finds_its_fault(name: str, source: str, fault: str) -> None:
    assert fault in faults(name, source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("plan", "from pipeline.oci import Digest\nfrom datetime import datetime\nx = datetime.fromisoformat('2025-01-29')"),
        ("command", "import subprocess\nimport os, time\nx = time.monotonic()\nos.execvpe"),
        ("__main__", "import os\nx = os.environ\nfrom datetime import datetime\ndatetime.now()"),
        ("build", "from pipeline.data.x import y\nfrom pipeline.build.one import z\nimport time\ntime.monotonic()"),
    ],
)
def test_no_rule_finds_what_is_allowed(name: str, source: str) -> None:
    assert faults(name, source) == []


def test_every_module_stays_readable_in_one_go() -> None:
    lines = {path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_no_code_of_the_pipeline_knows_an_image() -> None:
    names = {path.name for path in (ROOT / "images").iterdir() if path.is_dir()}
    known = re.compile("|".join(rf"\b{name}\b" for name in sorted(names - {"os"} | {"torch", "transformers"})))
    texts = (
        (path.name, node.value)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    found = [each for each in texts if known.fullmatch(each[1])]
    assert found == []


def test_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, pipeline.__main__ as m; m.parse(['plan']); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"docker", "debian", "zstandard", "pytest", "pysequoia"}.intersection(told.stdout.split())
