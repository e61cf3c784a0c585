"""Arguments → one verb → exit code; the only place that reads the environment and the clock."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pipeline import names, runs
from pipeline.command import Runner
from pipeline.console import Console
from pipeline.errors import InputError, Interrupted, PipelineError, Terminated, of_the_machine
from pipeline.settings import Settings


def run() -> NoReturn:
    """The `pipeline` command."""
    _open_what_is_closed()
    sys.exit(main(sys.argv[1:], os.environ))


def _open_what_is_closed() -> None:
    """Give a process that was started without stdin, stdout or stderr an empty one, so that no file of ours gets its number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8"))


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one verb; returns its exit code (design: 0 ok, 1 bug, 2 input, … 130 and 143 interrupted)."""
    arguments = parser().parse_args(argv)
    console = Console(stderr=sys.stderr, environment=environment)
    runner = Runner(environment)
    try:
        with _stopped_by_signals(runner, console):
            code = _call(arguments, environment, runner, console)
        sys.stdout.flush()
    except PipelineError as error:
        console.error(error)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if (fault := of_the_machine(error)) is None:
            raise
        console.error(fault)
        return fault.exit_code
    return code


def _call(arguments: argparse.Namespace, environment: Mapping[str, str], runner: Runner, console: Console) -> int:
    from pipeline import verbs
    from pipeline.call import Call

    call = Call(
        arguments=arguments,
        settings=_settings(arguments, environment),
        environment=dict(environment),
        run=runner,
        console=console,
        now=lambda: datetime.now(UTC),
        run_id=runs.identify(environment, otherwise=secrets.token_hex(6)),
    )
    return verbs.VERBS[arguments.verb](call)


def parser() -> argparse.ArgumentParser:
    """All verbs and their options; no abbreviations."""
    top = argparse.ArgumentParser(prog=names.COMMAND, description=_summary(), allow_abbrev=False)
    top.add_argument("--version", action="version", version=_version())
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    setup = _verb(verbs, "setup", "find or get the tools, start what is missing")
    setup.add_argument("--stop", action="store_true", help="stop the services that the pipeline started")
    doctor = _verb(verbs, "doctor", "say what is wrong with this machine, and the remedy")
    doctor.add_argument("--clear", action="store_true", help="lift the machine's quarantine: GPU work is accepted again")
    doctor.add_argument(
        "--harbor", metavar="HOST/PROJECT", help="look at this Harbor alone, as a place for candidates and releases"
    )
    doctor.add_argument(
        "--apply", action="store_true", help="make the projects and rules that lack in the Harbor, and name its robots"
    )
    init = _verb(verbs, "init", "write a new family of images that already builds")
    init.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="where; by default here")
    new = _verb(verbs, "new", "write the folder of a new image that already builds")
    new.add_argument("name", metavar="NAME")
    new.add_argument("--parent", required=True, metavar="P", help="the image that it stands on")
    new.add_argument("--variant", metavar="V", help="how its tags end; by default its name without hyphens")
    lint = _verb(verbs, "lint", "find faults in Dockerfiles and locks", images=True)
    plan = _verb(verbs, "plan", "say for each image whether it is built or reused, and why", images=True)
    plan.add_argument("--bake", action="store_true", help="print the definition for `docker buildx bake`")
    plan.add_argument(
        "--matrix", action="store_true", help="print all that a CI has to do, as one line of JSON; in Actions, outputs"
    )
    plan.add_argument("--since", metavar="COMMIT", help="with `--matrix`: what differs from this commit, whatever exists")
    plan.add_argument("--child-pipeline", action="store_true", help="with `--matrix`: print a child pipeline for GitLab")
    explain = _verb(verbs, "explain", "list what an image's input hash is made of, and what changed")
    explain.add_argument("image", metavar="IMAGE")
    explain.add_argument("--compatibility", action="store_true", help="say instead which drivers and GPUs it runs on")
    build = _verb(verbs, "build", "build what has no candidate yet, parents first", images=True)
    build.add_argument("--twice", action="store_true", help="build without cache a second time and compare the digests")
    for command in (plan, build):
        command.add_argument("--rebuild", action="store_true", help="build although a candidate exists")
    test = _verb(verbs, "test", "check the candidates", images=True)
    test.add_argument("--lane", choices=("cpu", "gpu"), action="append", help="only this lane (may be given twice)")
    test.add_argument("--require-gpu", action="store_true", help="a GPU lane that cannot run is exit 75")
    test.add_argument("--gpus", default="all", metavar="WHICH", help="all, a number of them, or UUIDs with commas between")
    test.add_argument("-k", dest="select", metavar="WORDS", help="only matching checks; nothing is recorded")
    test.add_argument(
        "--avoid", default="", metavar="WHICH", help="machines and GPUs, with spaces between: on them it is exit 75"
    )
    test.add_argument("--later", type=Path, metavar="FILE", help="write for `retry` what would be exit 75, and exit 0")
    test.add_argument("--keep", action="store_true", help="keep the containers, and say how to enter them")
    retry = _verb(verbs, "retry", "say what is tried a second time, on another machine: what `test --later` wrote, and only that")
    retry.add_argument(
        "folder", type=Path, metavar="DIR", help="where the files `<job>.json` are; none where there is no such folder"
    )
    scan = _verb(verbs, "scan", "list what is in candidates, and what is known to be wrong with it")
    scan.add_argument("images", nargs="*", metavar="IMAGE", help="images of the catalog, or references; all when none is named")
    scan.add_argument("--from-sbom", type=Path, metavar="FILE", help="look only through this list of one image's packages")
    scan.add_argument("--require-database", action="store_true", help="vulnerabilities that cannot be assessed are exit 75")
    sign = _verb(verbs, "sign", "sign what is known of candidates, and attach it to them", images=True)
    sign.add_argument("--role", choices=("ci", "gpu"), action="append", help="sign only in this role (may be given twice)")
    sign.add_argument("--run", metavar="ID", help="refuse statements of any other run")
    verify = _verb(verbs, "verify", "say what is proved of images, and whether a policy allows their release")
    verify.add_argument("images", nargs="*", metavar="IMAGE", help="images of the catalog, or references; all when none is named")
    verify.add_argument(
        "--policy", type=Path, metavar="FILE", help=f"by default policies/local.yaml or release.yaml ({names.ENV_POLICY})"
    )
    verify.add_argument(
        "--keys", type=Path, metavar="DIR", help="show the evidence by these public keys alone: no catalog, no verdict"
    )
    promote = _verb(verbs, "promote", "release candidates: image, evidence, verdict and tags, where users pull from")
    promote.add_argument("images", nargs="+", metavar="IMAGE", help="images of the catalog, or their floating tags")
    promote.add_argument("--number", metavar="N", help="the `N` of `v2.6.N`; by default the next one, in CI it must be given")
    promote.add_argument("--digest", metavar="DIGEST", help="this candidate, in place of the one of this checkout")
    promote.add_argument("--dry-run", action="store_true", help="show decision and plan, write nothing")
    promote.add_argument("--lift-hold", action="store_true", help="release over a rollback; wants `--reason`")
    promote.add_argument("--reason", metavar="TEXT", help="recorded in the verdict")
    rollback = _verb(verbs, "rollback", "let the floating tag name an older release, and hold it there")
    rollback.add_argument("image", metavar="IMAGE")
    rollback.add_argument("--to", required=True, metavar="RELEASE", help="the release, `2.6.2` or `v2.6.2-nlp`")
    withdraw = _verb(verbs, "withdraw", "mark a release as bad for good")
    withdraw.add_argument("tag", metavar="TAG", help="its immutable tag, `v2.6.3-nlp`")
    for command in (rollback, withdraw):
        command.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the verdict")
        command.add_argument("--dry-run", action="store_true", help="show what would be done, write nothing")
    history = _verb(verbs, "history", "list the releases of an image: what, when, who and why")
    history.add_argument("image", metavar="IMAGE")
    for command in (promote, rollback, withdraw, history):
        command.add_argument("--policy", type=Path, metavar="FILE", help=f"as for `verify` ({names.ENV_POLICY})")
    summary = _verb(
        verbs, "summary", "say what a change changes: why, and sizes, packages and vulnerabilities against the last release"
    )
    summary.add_argument(
        "folder", type=Path, metavar="DIR", help="what `plan --matrix`, `build --json` and `scan --json` printed there"
    )
    start = _verb(verbs, "run", "start an image as its users do")
    start.add_argument("image", metavar="IMAGE", help="an image of the catalog, or a reference")
    start.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    update = _verb(verbs, "update", "solve the locks again and say what moved", images=True)

    for command in (doctor, lint, plan, explain, build, test, scan, sign, verify, promote, rollback, withdraw, history, update):
        command.add_argument("--json", action="store_true", help="data on stdout")
    for command in (setup, doctor, build):
        command.add_argument("--builder", metavar="NAME", help=f"a buildx builder of yours ({names.ENV_BUILDER})")
    for command in (build, test):
        command.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    for command in (build, test, scan, sign):
        command.add_argument("--statements", type=Path, metavar="DIR", help="where the unsigned statements are")
    return top


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, *, images: bool = False
) -> argparse.ArgumentParser:
    command = verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    command.add_argument("--root", type=Path, metavar="DIR", help=f"the folder that holds images/ ({names.ENV_ROOT})")
    command.add_argument("--candidates", metavar="REPOSITORY", help=f"where builds write ({names.ENV_CANDIDATES})")
    command.add_argument("--releases", metavar="REPOSITORY", help=f"where promotions write ({names.ENV_RELEASES})")
    if images:
        command.add_argument("images", nargs="*", metavar="IMAGE", help="all when none is named")
    return command


def _settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    root = arguments.root or environment.get(names.ENV_ROOT)
    alone = getattr(arguments, "keys", None) is not None
    if arguments.verb == "init":
        root = _folder(arguments.folder or ".")
    else:
        root = _folder(root) if root else _here() if alone else _find_root(_here())
    return Settings(
        root=root,
        cache=_cache(environment),
        candidates=arguments.candidates or environment.get(names.ENV_CANDIDATES) or None,
        releases=arguments.releases or environment.get(names.ENV_RELEASES) or None,
        builder=getattr(arguments, "builder", None) or environment.get(names.ENV_BUILDER) or None,
        database=_database(environment),
        least_database=_least_database(environment),
        statements=getattr(arguments, "statements", None),
    )


def _database(environment: Mapping[str, str]) -> str | None:
    """A repository with its tag, which Trivy would otherwise choose by itself."""
    chosen = environment.get(names.ENV_DATABASE)
    if chosen and ":" not in chosen.rpartition("/")[2]:
        raise InputError(f"`{names.ENV_DATABASE}` names no tag: `{chosen}`", hint=f"`{chosen}:2`, the schema of the database")
    return chosen or None


def _least_database(environment: Mapping[str, str]) -> int | None:
    chosen = environment.get(names.ENV_LEAST_DATABASE)
    if chosen and not chosen.isdecimal():
        raise InputError(f"`{names.ENV_LEAST_DATABASE}` is no number of bytes: `{chosen}`", hint="write `100000000`")
    return int(chosen) if chosen else None


def _cache(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get(names.ENV_CACHE):
        return _folder(chosen)
    from platformdirs import user_cache_path

    return user_cache_path(names.DISTRIBUTION, appauthor=False)


def _folder(chosen: str | Path) -> Path:
    """A folder that the user named, where no shell may have read the `~`."""
    with suppress(RuntimeError):
        chosen = Path(chosen).expanduser()
    return (Path(chosen) if Path(chosen).is_absolute() else _here() / chosen).resolve()


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InputError("the folder that you stand in is gone", hint="go to another one") from error


def _find_root(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / "images" / "catalog.yaml").is_file():
            return folder
    raise InputError(
        f"there is no `images/catalog.yaml` in `{start}` or above it", hint="go to the project's folder, or name it with `--root`"
    )


@contextmanager
def _stopped_by_signals(runner: Runner, console: Console) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends what runs and raises; those that follow do not cut the cleaning up short."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(signum: int, _: FrameType | None) -> NoReturn:
        for each in signals:
            signal.signal(each, lambda *_: console.say("stopping; what runs is being ended"))
        runner.stop(signum)
        raise Terminated("terminated") if signum == signal.SIGTERM else Interrupted("interrupted")

    before = [signal.signal(each, stop) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _summary() -> str:
    return "Build, prove, sign and promote a family of GPU images."


def _version() -> str:
    try:
        return metadata.version(names.DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "from a checkout"


if __name__ == "__main__":
    run()
