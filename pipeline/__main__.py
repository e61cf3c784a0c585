"""Arguments → one verb → exit code; the only place that reads the environment and the clock."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pipeline import names, runs
from pipeline.arguments import parse
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
    arguments = parse(argv)
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


def _settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    root = arguments.root or environment.get(names.ENV_ROOT)
    alone = getattr(arguments, "keys", None) is not None
    if arguments.verb == "init":
        root = _folder(arguments.folder or ".")
    else:
        root = _folder(root) if root else _here() if alone else _find_root(_here(), arguments.verb)
    return Settings(
        root=root,
        cache=_cache(environment),
        candidates=arguments.candidates or environment.get(names.ENV_CANDIDATES) or None,
        releases=arguments.releases or environment.get(names.ENV_RELEASES) or None,
        parents=environment.get(names.ENV_PARENTS) or None,
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
        folder = _folder(chosen)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = f"name another one in {names.ENV_CACHE}"
            raise of_the_machine(error) or InputError(
                f"`{folder}` cannot be a cache folder: {error.strerror}", hint=hint
            ) from error
        return folder
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


def _find_root(start: Path, verb: str) -> Path:
    for folder in (start, *start.parents):
        if (folder / "images" / "catalog.yaml").is_file():
            return folder
    alone = "; for the evidence alone, name the folder of public keys with `--keys`" if verb == "verify" else ""
    raise InputError(
        f"there is no `images/catalog.yaml` in `{start}` or above it",
        hint=f"go to the project's folder, or name it with `--root`{alone}",
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


if __name__ == "__main__":
    run()
