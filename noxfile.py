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

nox.needs_version = ">=2024.4.15"
nox.options.sessions = []
nox.options.stop_on_first_error = True
nox.options.default_venv_backend = "none"

ROOT = Path(__file__).parent


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


def run(session: nox.Session, *argv: str) -> None:
    """Run a program, its stdout and stderr apart; Ctrl-C gives it time to stop what it started."""
    session.run(*argv, external=True, stderr=None, interrupt_timeout=40.0, terminate_timeout=20.0)


def verb(name: str, summary: str) -> None:
    """A session that is one verb of the pipeline."""

    def session(session: nox.Session) -> None:
        run(session, environment(session, "pipeline"), "-m", "pipeline", name, *session.posargs)

    session.__doc__ = summary
    nox.session(name=name)(session)


verb("setup", "Find or get the tools, start what is missing; `-- --stop` stops what was started.")
verb("doctor", "Say what is wrong with this machine, and the remedy.")
verb("new", "Write the folder of a new image: `-- NAME --parent P`.")
verb("plan", "Say for each image whether it is built or reused, and why.")
verb("explain", "List what an image's input hash is made of, and what changed: `-- IMAGE`.")
verb("build", "Build what has no candidate yet, parents first.")
verb("test", "Check the candidates: `-- [IMAGE…] [-k WORDS] [--keep]`.")
verb("scan", "List what is in candidates, and what is known to be wrong with it: `-- [IMAGE…] [--require-database]`.")
verb("sign", "Sign what is known of candidates, and attach it to them: `-- [IMAGE…] [--role ROLE] [--run ID]`.")
verb("verify", "Say what is proved of images, and whether they may be released: `-- [IMAGE…] [--policy FILE]`.")
verb("promote", "Release candidates: `-- IMAGE… [--number N] [--dry-run]`.")
verb("rollback", "Let the floating tag name an older release, and hold it there: `-- IMAGE --to 2.6.2 --reason TEXT`.")
verb("withdraw", "Mark a release as bad for good: `-- TAG --reason TEXT`.")
verb("history", "List the releases of an image: `-- IMAGE`.")
verb("run", "Start an image as its users do: `-- IMAGE [COMMAND…]`.")
verb("update", "Solve the locks again and say what moved: `-- [IMAGE…]`.")


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
    """Run the tests on the real tools; what they need is found, got or started."""
    run(session, python, "-m", "pytest", "tests/integration", *session.posargs)


@own
def bench(session: nox.Session, python: str) -> None:
    """Measure speed, bytes and memory against peers in one run: `-- build`."""
    run(session, python, "-m", "tests.bench", *session.posargs)


@own
def relock(session: nox.Session, python: str) -> None:
    """Solve the locks of the pipeline's own environments again."""
    run(session, python, "-m", "tests.relock")


@nox.session
def selftest(session: nox.Session) -> None:
    """Lint, types, unit and integration tests."""
    for name in ("lint", "types", "unit", "integration"):
        session.notify(name, [])
