"""The folders of images: the catalog in them, their build contexts, and the input hashes of both.

What `stage` copies for a build is what `read` hashed: the folder as it is on disk, without `checks/`, `image.yaml` and what
`.dockerignore` leaves out; of the mode the executable bit alone. Dockerfile and `packages.lock` are always part of it, the
ignore files never are: they act through what they leave out.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pipeline import additions, catalog_text, inputs, plan
from pipeline.catalog import Catalog, Image
from pipeline.catalog_locks import PACKAGES_LOCK
from pipeline.errors import InputError, Temporary
from pipeline.failures import NONE, Failures
from pipeline.failures import parse as parse_failures
from pipeline.ignore import FILES as IGNORE_FILES
from pipeline.ignore import ignores
from pipeline.inputs import ContextFile, InputHash
from pipeline.locks import overlay_name, parse_packages
from pipeline.oci import Repository
from pipeline.settings import Settings
from pipeline.sources import Folder

_NEVER_SENT = frozenset({"image.yaml", "checks", *IGNORE_FILES})
_ALWAYS_SENT = frozenset({"Dockerfile", PACKAGES_LOCK})
_EXECUTABLE, _PLAIN = 0o755, 0o644


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Something in a folder: where its bytes are, and under which path they count."""

    path: str
    at: str
    """Text, since a family has thousands and `Path` is slow to make."""
    kind: Literal["file", "link", "other"]
    executable: bool


def load(settings: Settings, *, with_locks: bool = True) -> Catalog:
    """The catalog of `settings.root`, with the repositories that the user chose in place of its own.

    Raises `CatalogError` with every fault, `InputError` when a file cannot be read. Without `with_locks` the locks are not
    looked at: for those who are about to write them.
    """
    shared, folders = read_folders(settings)
    catalog = catalog_text.parse(shared, folders, with_locks=with_locks)
    chosen = {key: text for key in ("candidates", "releases") if (text := getattr(settings, key)) is not None}
    for key, text in chosen.items():
        place(text, catalog, f"`--{key}` or `PIPELINE_{key.upper()}`")
    return catalog.model_copy(update=chosen)


def place(text: str, catalog: Catalog, told: str) -> Repository:
    """The catalog's repository at the place that the user chose; raises `InputError`, which names the choice as `told`."""
    try:
        return Repository.parse(f"{text}/{catalog.repository}")
    except InputError as error:
        raise InputError(
            f"{told} names no registry and project: {error.message}",
            hint="write `host[:port]/project`, lower case, as in `harbor.example.com/ml`",
        ) from error


def read_folders(settings: Settings) -> tuple[bytes, Mapping[str, Folder]]:
    """`images/catalog.yaml`, and every folder beside it by name, as `catalog_text.parse` takes them."""
    shared = settings.images / "catalog.yaml"
    if not shared.is_file():
        raise InputError(f"there is no `{shared}`", hint="name the folder that holds `images/` with `--root`")
    with _readable(settings.images), os.scandir(settings.images) as found:
        names = sorted(entry.name for entry in found if entry.is_dir() and not entry.name.startswith((".", "__")))
    return _bytes(shared), {name: _folder(settings.images / name) for name in names}


def failures(settings: Settings) -> Failures:
    """`images/failures.yaml`; no rows where there is none. Raises `CatalogError` with every fault."""
    path = settings.images / "failures.yaml"
    return parse_failures(_bytes(path), f"images/{path.name}") if path.exists() else NONE


def hashes(settings: Settings, catalog: Catalog, names: Sequence[str] = ()) -> Mapping[str, InputHash]:
    """The input hashes of the images named (all when none is) and of those that they are built from."""
    found: dict[str, InputHash] = {}
    installer = additions.installer()
    for name in plan.selected(catalog, names):
        image = catalog.images[name]
        needs = {need: found[need].value for need in image.needs}
        found[name] = inputs.compute(catalog, image, read(settings, catalog, image), needs, installer=installer)
    return found


def read(settings: Settings, catalog: Catalog, image: Image) -> tuple[ContextFile, ...]:
    """The build context of `image`, hashed; raises `InputError` for what no context can hold."""
    return tuple(_hashed(source) for source in _sources(settings, catalog, image))


def texts(folder: Path) -> Mapping[str, str]:
    """Path → text of every file in `folder`, in UTF-8."""
    return {source.path: _bytes(source.at).decode() for source in _walk(str(folder)) if source.kind == "file"}


def dockerfile_text(folder: Path) -> str:
    """The text of the Dockerfile in `folder`, its lines as BuildKit takes them; raises `InputError` where it is no text."""
    path = folder / "Dockerfile"
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` cannot be read: {error}", hint="write it in UTF-8") from error


def stage(settings: Settings, catalog: Catalog, image: Image, folder: Path, expected: InputHash) -> None:
    """Copy the build context of `image` into the empty `folder`, with plain modes and the catalog's epoch as every time.

    Raises `Temporary` when the copy is not what `expected` was made from: somebody edits the image.
    """
    with writing(folder):
        copies = [_copied(source, folder) for source in _sources(settings, catalog, image)]
        _settle(folder, catalog.epoch.timestamp())
    if inputs.file_parts(copies) != {name: part for name, part in expected.parts.items() if name.startswith("file:")}:
        raise Temporary(f"the folder of `{image.name}` was changed since it was hashed", hint="run the same command again")


def overlay(settings: Settings, catalog: Catalog, image: Image) -> Path | None:
    """The lock in the cache that stands in for the image's `packages.lock`; only towards candidates on loopback."""
    lock = settings.images / image.name / PACKAGES_LOCK
    if not image.has_packages or not catalog.candidate_repository.loopback or not lock.is_file():
        return None
    path = settings.cache / "overlays" / overlay_name(image.name, _bytes(lock))
    return path if path.is_file() else None


def packages_lock(settings: Settings, catalog: Catalog, image: Image) -> Path:
    """The lock that a build of `image` uses: its own, or the one that stands in for it."""
    return overlay(settings, catalog, image) or settings.images / image.name / PACKAGES_LOCK


def packages_below(settings: Settings, catalog: Catalog, image: Image) -> Mapping[str, str]:
    """Name → version of the Debian packages that `image` finds in its parent, by the locks that builds use."""
    holders = [one for one in catalog.ancestors(image) if one.has_packages]
    texts = [_bytes(packages_lock(settings, catalog, holder)).decode() for holder in holders]
    return {package.name: package.version for text in texts for package in parse_packages(text).packages}


def _sources(settings: Settings, catalog: Catalog, image: Image) -> Iterator[_Source]:
    home = settings.images / image.name
    found = {source.path: source for source in _walk(str(home))}
    ignored = next((ignores(_bytes(found[name].at).decode(errors="replace")) for name in IGNORE_FILES if name in found), None)
    stand_in = overlay(settings, catalog, image)
    for path, source in sorted(found.items()):
        if path.partition("/")[0] in _NEVER_SENT or (ignored and path not in _ALWAYS_SENT and ignored(path)):
            continue
        if source.kind == "other":
            raise InputError(
                f"`{inputs.shown(source.at)}` is neither a file, a folder nor a link",
                hint="remove it, or name it in `.dockerignore`",
            )
        if source.kind == "link":
            _refuse_leaving(source, home, image)
        yield replace(source, at=str(stand_in)) if stand_in and path == PACKAGES_LOCK else source


def _refuse_leaving(source: _Source, home: Path, image: Image) -> None:
    """A link below `rootfs/` of a root file system may be absolute: it is one of the image's own files."""
    target = _target(source.at)
    if image.rootfs and source.path.startswith("rootfs/") and target.startswith("/"):
        return
    inside = os.path.realpath(home)
    if target.startswith("/") or os.path.commonpath([inside, os.path.realpath(source.at)]) != inside:
        raise InputError(
            f"`{inputs.shown(source.at)}` leads out of its image's folder, where no build follows: `{inputs.shown(target)}`",
            hint="put a copy in its place",
        )


def _walk(folder: str, below: str = "") -> Iterator[_Source]:
    with _readable(folder), os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        path = below + _path(entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, path + "/")
        else:
            with _readable(entry.path):
                executable = entry.is_file(follow_symlinks=False) and bool(entry.stat().st_mode & stat.S_IXUSR)
            yield _Source(path=path, at=entry.path, kind=_kind(entry), executable=executable)


def _path(name: str) -> str:
    """The bytes of a file's name as UTF-8, which is not what this machine's locale makes of them everywhere."""
    return name if name.isascii() else os.fsencode(name).decode(errors="surrogateescape")


def _kind(entry: os.DirEntry[str]) -> Literal["file", "link", "other"]:
    if entry.is_symlink():
        return "link"
    return "file" if entry.is_file() else "other"


def _folder(home: Path) -> Folder:
    found = {source.path: source for source in _walk(str(home)) if source.kind != "other"}
    groups = [path for path in found if path.startswith("requirements/") and path.count("/") == 1]
    locks = [path for path in groups if path.endswith(".lock")] + [path for path in found if path == PACKAGES_LOCK]
    return Folder(
        text=_bytes(found["image.yaml"].at) if "image.yaml" in found else None,
        paths=tuple(sorted(found)),
        locks={path: _bytes(found[path].at).decode(errors="replace") for path in locks},
        inputs={path: _bytes(found[path].at) for path in groups if path.endswith(".in")},
    )


def _hashed(source: _Source) -> ContextFile:
    if source.kind == "link":
        digest = hashlib.sha256(os.fsencode(_target(source.at))).hexdigest()
        return ContextFile(path=source.path, kind="link", executable=False, digest=digest)
    with _readable(source.at), open(source.at, "rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ContextFile(path=source.path, kind="file", executable=source.executable, digest=digest)


def _copied(source: _Source, folder: Path) -> ContextFile:
    copy = folder / os.fsdecode(source.path.encode(errors="surrogateescape"))
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.at, copy, follow_symlinks=False)
    if source.kind == "file":
        copy.chmod(_EXECUTABLE if source.executable else _PLAIN)
    return _hashed(replace(source, at=str(copy)))


def _settle(folder: Path, moment: float) -> None:
    """Modes and times that no layer can tell apart, from the leaves up."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            os.utime(Path(parent, name), (moment, moment), follow_symlinks=False)
        Path(parent).chmod(_EXECUTABLE)


def _target(link: str) -> str:
    with _readable(link):
        return os.readlink(link)  # noqa: PTH115 (`Path.readlink` rewrites `./x` as `x`)


def _bytes(path: str | Path) -> bytes:
    with _readable(path), open(path, "rb") as file:
        return file.read()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns what the system refuses into `Temporary` where the disk is full, else `InputError`."""
    try:
        yield
    except OSError as error:
        text = f"`{inputs.shown(str(error.filename or folder))}` cannot be copied or written: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Temporary(text, hint=f"free some space for `{folder}`") from error
        raise InputError(text, hint=f"check that you may write to `{folder}`") from error


@contextmanager
def _readable(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"`{path}` cannot be read: {error.strerror}", hint="check that it exists and that you may read it"
        ) from error
