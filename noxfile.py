"""The pipeline's verbs and the project's own checks, one session each: `nox -s build test`, `nox -s selftest`.

Words after `--` go to the session: `nox -s test -- nlp -k bert --keep`. nox flattens exit codes to 1; whoever needs
the pipeline's own calls `.nox/pipeline/bin/python -m pipeline VERB`.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from pipeline.sessions import register, run  # noqa: E402

nox.options.sessions = []
nox.options.default_venv_backend = "none"


def environment(session: nox.Session, lock: str) -> str:
    """The Python of the environment that `requirements/<lock>.lock` describes, made anew when it or we changed."""
    folder = ROOT / ".nox" / lock
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = hashlib.sha256((ROOT / "requirements" / f"{lock}.lock").read_bytes()).hexdigest()
    stamp = folder / "installed"
    if not (stamp.is_file() and stamp.read_text() == wanted):
        run(session, sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(folder))
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
        run(session, *pip, "--require-hashes", "-r", f"requirements/{lock}.lock")
        stamp.write_text(wanted)
    return str(python)


register(python=lambda session: environment(session, "pipeline"), without=("lint",))


def own(check: Callable[[nox.Session, str], None]) -> None:
    """A session that checks the project's own code."""

    def session(session: nox.Session) -> None:
        check(session, environment(session, "dev"))

    session.__doc__ = check.__doc__
    nox.session(name=check.__name__)(session)


@own
def lint(session: nox.Session, python: str) -> None:
    """Lint the images (the verb) and the code (ruff)."""
    run(session, python, "-m", "pipeline", "lint", *session.posargs)
    run(session, python, "-m", "ruff", "check", ".")
    run(session, python, "-m", "ruff", "format", "--check", ".")


@own
def types(session: nox.Session, python: str) -> None:
    """Check the types, strictly."""
    run(session, python, "-m", "mypy")


@own
def unit(session: nox.Session, python: str) -> None:
    """Run the unit tests: no network, no Docker."""
    run(session, python, "-m", "pytest", "tests/unit", "-n", "auto", *session.posargs)


@own
def integration(session: nox.Session, python: str) -> None:
    """Run the tests of the edges on loopback and processes, then those on the real tools, which are found, got or started."""
    if not session.posargs:
        run(session, python, "-m", "pytest", "tests/edges", "-n", "auto")
    run(session, python, "-m", "pytest", "tests/integration", "tests/harbor", *session.posargs)


@own
def faults(session: nox.Session, python: str) -> None:
    """Let every fault happen at every request of a promotion; minutes."""
    run(session, python, "-m", "pytest", "tests/sweeps", *session.posargs)


@own
def workflows(session: nox.Session, python: str) -> None:
    """Run the workflows whole on a change of `nlp`, by act; five minutes, and with `-- --with-lab` eleven."""
    run(session, python, "-m", "pytest", "tests/workflows", *session.posargs)


@own
def bench(session: nox.Session, python: str) -> None:
    """Measure speed, bytes and memory against peers in one run: `-- build`."""
    run(session, python, "-m", "tests.bench", *session.posargs)


@own
def relock(session: nox.Session, python: str) -> None:
    """Solve the locks of the pipeline's own environments again: `-- [--upgrade]`."""
    run(session, python, "-m", "tests.relock", *session.posargs)


@nox.session
def selftest(session: nox.Session) -> None:
    """Lint, types, unit and integration tests."""
    for name in ("lint", "types", "unit", "integration"):
        session.notify(name, [])
