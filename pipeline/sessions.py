"""The verbs as nox sessions: two lines in a project's `noxfile.py` give it all of them.

    from pipeline.sessions import register

    register()

Words after `--` go to the verb: `nox -s test -- app --keep`. nox flattens exit codes to 1; whoever needs the pipeline's own
calls `python -m pipeline VERB`. Needs nox beside the pipeline, and nothing else that the pipeline needs.
"""

import sys
from collections.abc import Callable, Collection, Mapping

import nox

NOX = ">=2024.10.9"
"""The versions of nox that know sessions which run only when they are named."""
VERBS: Mapping[str, str] = {
    "setup": "Find or get the tools, start what is missing; `-- --stop` stops what was started, `-- --prune` makes room.",
    "doctor": "Say what is wrong with this machine, and the remedy.",
    "init": "Write a new family of images that already builds: `-- [DIR]`.",
    "new": "Write the folder of a new image: `-- NAME --parent P`.",
    "lint": "Find faults in Dockerfiles and locks: `-- [IMAGE…]`.",
    "plan": "Say for each image whether it is built or reused, and why.",
    "explain": "List what an image's input hash is made of, and what changed: `-- IMAGE`.",
    "build": "Build what has no candidate yet, parents first.",
    "test": "Check the candidates: `-- [IMAGE…] [-k WORDS] [--keep]`.",
    "retry": "Say what is tried a second time, on another machine: `-- DIR` of what `test --later` wrote.",
    "scan": "List what is in candidates, and what is known to be wrong with it: `-- [IMAGE…] [--require-database]`.",
    "sign": "Sign what is known of candidates, and attach it to them: `-- [IMAGE…] [--role ROLE] [--run ID]`.",
    "verify": "Say what is proved of images, and whether they may be released: `-- [IMAGE…] [--policy FILE]`.",
    "promote": "Release candidates: `-- IMAGE… [--number N] [--dry-run]`.",
    "rollback": "Let the floating tag name an older release, and hold it there: `-- IMAGE --to 2.6.2 --reason TEXT`.",
    "withdraw": "Mark a release as bad for good: `-- TAG --reason TEXT`.",
    "history": "List the releases of an image: `-- IMAGE`.",
    "summary": "Say what a change changes against the last release: `-- DIR`.",
    "released": "List what the floating tags name: `-- [IMAGE…]`.",
    "issues": "Say what is to be written into GitHub's issues: `-- DIR --there FILE` of what `verify --issues` wrote.",
    "run": "Start an image as its users do: `-- IMAGE [COMMAND…]`.",
    "update": "Solve the locks again and say what moved: `-- [IMAGE…]`.",
}
"""Each verb, and what `nox -l` says of it."""
ENDING, KILLING = 80.0, 20.0
"""Seconds after Ctrl-C in which a verb stops what it started, and more before it is killed."""


def register(*, python: Callable[[nox.Session], str] = lambda _: sys.executable, without: Collection[str] = ()) -> None:
    """Make each verb a session, but those of `without`; none runs unless it is named, and the first failure ends a call of nox.

    A verb runs under the Python that `python` returns: by default the one that runs nox, where this file was imported from.
    """
    nox.needs_version = NOX
    nox.options.stop_on_first_error = True
    for name, summary in VERBS.items():
        if name not in without:
            _verb(name, summary, python)


def run(session: nox.Session, *argv: str) -> None:
    """Run a program, its stdout and stderr apart; Ctrl-C gives it time to stop what it started."""
    session.run(*argv, external=True, stderr=None, interrupt_timeout=ENDING, terminate_timeout=KILLING)


def _verb(name: str, summary: str, python: Callable[[nox.Session], str]) -> None:
    def session(session: nox.Session) -> None:
        run(session, python(session), "-m", "pipeline", name, *session.posargs)

    session.__doc__ = summary
    nox.session(name=name, venv_backend="none", default=False)(session)
