"""The data of the registry that we started on this machine: what a registry does not tell, and what it does not clean up.

Layout: the distribution project's storage, `docker/registry/v2/repositories/NAME/_manifests/…`, the same since version 2.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline import daemons, services
from pipeline.command import Run
from pipeline.errors import InputError, Temporary, ToolFailed
from pipeline.oci import Digest, Repository
from pipeline.story import Story
from pipeline.toolchain import Host, find, missing

SECONDS = 3600.0
"""Deadline of a collection: it reads every manifest and touches every blob."""
_GOES = re.compile(r"^blob eligible for deletion: (sha256:[0-9a-f]{64})$", re.MULTILINE)


def require_ours(repository: Repository, cache: Path) -> None:
    """Raises `InputError` unless a registry that runs from this cache holds the repository."""
    ours = repository.loopback and services.registry_name(repository.host) in daemons.running(services.folder(cache))
    if not ours:
        raise InputError(
            f"`{repository.host}` is no registry that was started from `{cache}`: it is not ours to prune",
            hint="whoever runs it has its own retention",
        )


def manifests(repository: Repository, cache: Path) -> tuple[Digest, ...]:
    """All manifests of a repository, also those that no tag names."""
    folder = _manifests(repository, cache) / "revisions" / "sha256"
    return tuple(Digest(f"sha256:{link.parent.name}") for link in sorted(folder.glob("*/link")))


def written(repository: Repository, tags: Collection[str], cache: Path) -> Mapping[str, float]:
    """When each tag was last written, in seconds since the epoch; those that cannot be told are left out."""
    found = {}
    for tag in tags:
        with suppress(OSError):
            found[tag] = (_manifests(repository, cache) / "tags" / tag / "current" / "link").stat().st_mtime
    return found


@contextmanager
def quiet(cache: Path) -> Iterator[None]:
    """Nobody builds or signs from this cache meanwhile; raises `Temporary` when somebody does."""
    held: list[FileLock] = []
    try:
        for path in sorted((cache / "locks").glob("*.lock")):
            lock = FileLock(path)
            lock.acquire(timeout=0)
            held.append(lock)
        yield
    except Timeout as error:
        raise Temporary("a run that builds or signs goes on", hint="run the same command again after its end") from error
    finally:
        for lock in held:
            lock.release()


def collect(at: str, needed: Collection[Digest], *, host: Host, cache: Path, run: Run, story: Story) -> int:
    """Remove the blobs that no manifest of any repository refers to, while the registry is stopped; returns the bytes freed.

    The registry's own `garbage-collect` does it, never told to look at tags: signed statements have none. It is asked
    first what would go: raises `ToolFailed` when something `needed` would, and then nothing is removed.
    """
    found = find("registry", host=host, cache=cache, run=run)
    if found.tool is None:
        raise missing("registry", found)
    data, config = services.registry_data(at, cache), services.registry_config(at, cache)
    try:
        with daemons.stopped(services.registry_name(at), services.folder(cache)), story.task("removing what nobody needs"):
            before, words = size(data), (found.tool.path, "garbage-collect")
            said = run(*words, "--dry-run", config, timeout=SECONDS, env={"OTEL_TRACES_EXPORTER": "none"}).stdout
            if lost := {str(digest) for digest in needed} & set(_GOES.findall(said)):
                raise ToolFailed(f"the registry would remove {min(lost)}, which is needed; nothing was removed")
            run(*words, config, timeout=SECONDS, env={"OTEL_TRACES_EXPORTER": "none"})
            return before - size(data)
    finally:
        services.start_registry(found.tool.path, at=at, host=host, cache=cache, story=story)


def _manifests(repository: Repository, cache: Path) -> Path:
    data = services.registry_data(repository.host, cache)
    return data / "docker" / "registry" / "v2" / "repositories" / repository.path / "_manifests"


def size(folder: Path) -> int:
    """Bytes on disk below `folder`; what is removed meanwhile, or is not ours to read, counts nothing."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
