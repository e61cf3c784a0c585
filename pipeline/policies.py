"""A policy as it lies in a folder, with its exceptions and keys: its digest, and whether all of it is as committed."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline import keys, policy
from pipeline.command import Run
from pipeline.cosign import Cosign
from pipeline.errors import InputError
from pipeline.gather import Keys
from pipeline.policy import Checkout, Exceptions, Policy
from pipeline.yaml_text import Problem

EXCEPTIONS = "exceptions.yaml"
GIT_SECONDS = 60.0
TOGETHER = "a policy, `exceptions.yaml` and `keys/` lie in one folder"
KEY = "put the public key there, or take its entry off the policy's `keys:`"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A policy, and all that counts with it."""

    policy: Policy
    exceptions: Exceptions
    keys: Keys
    checkout: Checkout


def load(
    path: Path, *, pinned: str | None, cache: Path, cosign: Callable[[], Cosign], run: Run, environment: Mapping[str, str]
) -> Loaded:
    """The policy in the file `path`, the exceptions and keys beside it; raises `InputError` with all faults.

    `cosign` is asked for only where a key lies in a service.
    """
    folder = path.parent
    contents = {path.name: _bytes(folder, path.name), EXCEPTIONS: _bytes(folder, EXCEPTIONS)}
    found = policy.parse(contents[path.name], str(path))
    files = {one.file: _bytes(folder, one.file, KEY) for one in found.keys if one.file}
    return Loaded(
        policy=found,
        exceptions=policy.parse_exceptions(contents[EXCEPTIONS], str(folder / EXCEPTIONS)),
        keys=keys.listed(found.keys, files, cache=cache, cosign=cosign, environment=environment),
        checkout=_checkout(folder, policy.digest({**contents, **files}), pinned, run),
    )


def idle(folder: Path, images: Collection[str], now: datetime) -> tuple[Problem, ...]:
    """The exceptions in a folder of policies that cannot count now in a catalog of `images`; none where there is no file of them.

    Raises `InputError` with all faults of the file.
    """
    path = folder / EXCEPTIONS
    return policy.idle_exceptions(_bytes(folder, EXCEPTIONS), str(path), images, now) if path.exists() else ()


def _checkout(folder: Path, digest: str, pinned: str | None, run: Run) -> Checkout:
    """Outside git, or where git cannot tell or was told not to look (`assume-unchanged`), nothing is as committed."""
    status = ("status", "--porcelain", "--untracked-files=all", "--ignored", "--ignore-submodules=none", "--", ".")
    asked = (("rev-parse", "HEAD"), status, ("ls-files", "-v", "--", "."))
    head, changed, files = told = [run("git", "-C", folder, *words, timeout=GIT_SECONDS, check=False) for words in asked]
    looked_at = all(line.startswith("H ") for line in files.stdout.splitlines())
    clean = all(one.code == 0 for one in told) and not changed.stdout and looked_at
    commit = head.stdout.strip() if head.code == 0 else None
    return Checkout(clean=clean, commit=commit, policy=digest, pinned=pinned)


def _bytes(folder: Path, name: str, hint: str = TOGETHER) -> bytes:
    """A file that is in the folder itself: of a link, git would tell only that the link is as committed."""
    path = folder / name
    if path.resolve() != folder.resolve() / name:
        raise InputError(f"`{path}` is a link", hint="put the file itself there")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}", hint=hint) from error
