"""Solves the locks of images again: Debian packages and Python distributions, under the locks of what an image stands on.

All lock groups of an image are solved together, so that they agree; each distribution goes into the first group that needs
it. What a parent has is a constraint, and is not locked again. All locks are written, or none.
"""

import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline import debian, locks
from pipeline.catalog import Catalog, Image
from pipeline.catalog_locks import PACKAGES_LOCK
from pipeline.command import Run
from pipeline.debian import Mirror
from pipeline.depends import Unsolvable
from pipeline.errors import InputError, PipelineError, Temporary, ToolFailed
from pipeline.grouping import Solved, assign, read_solution
from pipeline.locks import RequirementsLock
from pipeline.plan import require
from pipeline.settings import Settings
from pipeline.story import Story
from pipeline.surroundings import Surroundings

SOLVE_SECONDS = 900
PLATFORMS = {"linux/amd64": "x86_64-manylinux_2_28", "linux/arm64": "aarch64-manylinux_2_28"}
"""What uv calls an image's platform."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A package whose locked version, or lock, is another one now; None stands for not being there."""

    image: str
    name: str
    before: str | None
    after: str | None
    lock: str
    """The lock that it is in now, or was: `packages.lock`, `requirements/<group>.lock`."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What solving needs of a run; `uv` is the program."""

    settings: Settings
    catalog: Catalog
    uv: Path
    mirror: Mirror
    around: Surroundings
    run: Run
    now: datetime
    story: Story


def update(names: Sequence[str], desk: Desk) -> tuple[Moved, ...]:
    """Solve the locks of the images named (all when none is) and write them; returns what moved, parents first.

    Nothing is written unless everything could be solved. `desk.catalog` may be one that was read without its locks.
    """
    for name in names:
        require(desk.catalog, name)
    images = [image for image in desk.catalog.images.values() if not names or image.name in names]
    texts: dict[Path, str] = {}
    moved: list[Moved] = []
    for image in images:
        solved = _solve(image, desk, texts)
        moved += _moved(image, desk.settings.images / image.name, solved)
        texts |= {desk.settings.images / image.name / lock: text for lock, text in solved.items()}
    _write(texts)
    return tuple(moved)


def _solve(image: Image, desk: Desk, texts: Mapping[Path, str]) -> dict[str, str]:
    """Lock → text of all locks of `image`; `texts` are the locks that are solved but not yet written."""
    solved: dict[str, str] = {}
    if image.has_packages:
        solved[PACKAGES_LOCK] = _solve_packages(image, desk, texts)
    folder = desk.settings.images / image.name / "requirements"
    sources = {path.name: path.read_bytes() for path in sorted(folder.glob("*.in"))}
    if sources:
        solved |= _solve_requirements(image, desk, folder, sources, _inherited(image, desk, texts))
    return solved


def _solve_packages(image: Image, desk: Desk, texts: Mapping[Path, str]) -> str:
    below = None if image.rootfs else _packages_below(image, desk, texts)
    try:
        lock = debian.solve(
            desk.catalog.suite(image),
            image.rootfs.packages if image.rootfs else image.packages,
            below=None if below is None else dict(ChainMap(*below.values())),
            architecture=desk.catalog.platform.split("/")[1],
            mirror=desk.mirror,
            cache=desk.settings.cache,
            now=desk.now,
            story=desk.story,
        )
    except Unsolvable as error:
        holders = [name for name, versions in (below or {}).items() if error.held & versions.keys()]
        if not holders:
            raise
        hint = f"what is below stays as it is locked; `nox -s update -- {' '.join([*holders, image.name])}` moves both"
        raise InputError(f"`{image.name}`: {error.message}", hint=hint) from error
    return locks.format_packages(lock)


def _packages_below(image: Image, desk: Desk, texts: Mapping[Path, str]) -> dict[str, dict[str, str]]:
    """The images below that have Debian packages → name → version."""
    found: dict[str, dict[str, str]] = {}
    for ancestor in desk.catalog.ancestors(image):
        if ancestor.has_packages:
            lock = locks.parse_packages(_lock_text(ancestor, desk.settings.images / ancestor.name / PACKAGES_LOCK, texts))
            found[ancestor.name] = {package.name: package.version for package in lock.packages}
    return found


def _lock_text(image: Image, lock: Path, texts: Mapping[Path, str]) -> str:
    """A lock of an image below, as it will be."""
    if lock not in texts and not lock.is_file():
        raise InputError(f"`{image.name}` has no `{lock.name}` yet", hint=f"`nox -s update -- {image.name}` first")
    return texts.get(lock) or lock.read_text()


def _solve_requirements(
    image: Image, desk: Desk, folder: Path, sources: Mapping[str, bytes], inherited: Mapping[str, str]
) -> dict[str, str]:
    with desk.story.task(f"solving the requirements of {image.name}"):
        solution = read_solution(_compile(image, desk, folder, tuple(sources), inherited))
    return {
        f"requirements/{source.removesuffix('.in')}.lock": _text(sources[source], group)
        for source, group in assign(solution, tuple(sources), inherited.keys()).items()
    }


def _text(source: bytes, group: Mapping[str, Solved]) -> str:
    requirements = {name: solved.requirement for name, solved in group.items()}
    return locks.format_requirements(RequirementsLock(locks.source_digest(source), requirements))


def _compile(image: Image, desk: Desk, folder: Path, sources: Sequence[str], inherited: Mapping[str, str]) -> str:
    platform = PLATFORMS.get(desk.catalog.platform)
    if platform is None:
        raise InputError(f"requirements cannot be solved for `{desk.catalog.platform}`", hint=f"known are {', '.join(PLATFORMS)}")
    with TemporaryDirectory() as temporary:
        constraints = Path(temporary) / "parents.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(inherited.items())))
        options: list[str | Path] = ["--python", sys.executable, "--python-version", _python(image, desk.catalog)]
        options += ["--python-platform", platform, "--constraints", constraints, "--only-binary", ":all:", "--upgrade"]
        options += ["--generate-hashes", "--no-header", "--annotation-style", "split"]
        done = desk.run(
            *(desk.uv, "pip", "compile", *sources, *options),
            timeout=SOLVE_SECONDS,
            cwd=folder,
            env=_environment(desk),
            secrets=desk.around.passwords,
            check=False,
        )
    if done.code != 0:
        raise _unsolved(image, done.code, done.stderr)
    return done.stdout


def _environment(desk: Desk) -> dict[str, str]:
    authorities = {"SSL_CERT_FILE": str(desk.around.certificates)} if desk.around.certificates else {}
    return {
        "UV_CACHE_DIR": str(desk.settings.cache / "uv"),
        "UV_DEFAULT_INDEX": desk.around.index_url,
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        **authorities,
    }


def _unsolved(image: Image, code: int, stderr: str) -> PipelineError:
    """uv exits with 1 when there is no solution, and with 2 when it could not look for one."""
    said = "\n".join(f"  {line}" for line in stderr.splitlines()[-40:])
    if code == 1:
        parent = f" agree with what `{image.parent}` has, and with each other" if image.parent else " agree with each other"
        remedy = f"make them{parent}" if "was not found in" not in stderr else "mend its name, or name an index that carries it"
        return InputError(f"the requirements of `{image.name}` cannot be solved\n{said}", hint=remedy)
    if "Request failed" in stderr or "Failed to fetch" in stderr:
        remedy = "check the network, `PIP_INDEX_URL` and `HTTPS_PROXY`, then run it again"
        return Temporary(f"the Python index does not answer\n{said}", hint=remedy)
    return ToolFailed(f"`uv pip compile` failed for `{image.name}`\n{said}")


def _python(image: Image, catalog: Catalog) -> str:
    for ancestor in (image, *catalog.ancestors(image)):
        if ancestor.python:
            return ancestor.python
    raise InputError(f"nothing says which Python `{image.name}` has", hint='write `python: "3.11"` in its `image.yaml`')


def _inherited(image: Image, desk: Desk, texts: Mapping[Path, str]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for ancestor in desk.catalog.ancestors(image):
        folder = desk.settings.images / ancestor.name / "requirements"
        for source in sorted(folder.glob("*.in")):
            text = _lock_text(ancestor, source.with_suffix(".lock"), texts)
            requirements = locks.parse_requirements(text).requirements
            versions |= {name: requirement.version for name, requirement in requirements.items()}
    return versions


def _moved(image: Image, folder: Path, solved: Mapping[str, str]) -> Iterator[Moved]:
    before = {lock: path.read_text() for lock in solved if (path := folder / lock).is_file()}
    old, new = _versions(before), _versions(solved)
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, (None, "")), new.get(name, (None, ""))
        if was != now:
            yield Moved(image=image.name, name=name, before=was[0], after=now[0], lock=now[1] or was[1])


def _versions(texts: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Name → version and lock; a lock that cannot be read, which is replaced, counts as empty."""
    found: dict[str, tuple[str | None, str]] = {}
    for lock, text in texts.items():
        try:
            if lock == PACKAGES_LOCK:
                found |= {package.name: (package.version, lock) for package in locks.parse_packages(text).packages}
            else:
                found |= {name: (one.version, lock) for name, one in locks.parse_requirements(text).requirements.items()}
        except locks.LockFault:
            continue
    return found


def _write(texts: Mapping[Path, str]) -> None:
    partials = {path: path.with_name(f".{path.name}.part") for path in texts}
    try:
        for path, text in texts.items():
            partials[path].write_text(text)
        for path, partial in partials.items():
            partial.replace(path)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
