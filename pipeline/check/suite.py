"""Which check files a lane of an image has: its own and its ancestors', which are inherited and run again."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from pipeline.catalog import Catalog, Image
from pipeline.errors import InputError, ToolUnfit
from pipeline.statements import Lane

Kind = Literal["test", "service"]

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "Pygments")
"""The distributions that pytest needs everywhere."""
LEXERS = ("__init__.py", "_mapping.py", "diff.py", "python.py")
"""What pytest uses of Pygments' languages, most of whose bytes the others are."""
OLDER_PYTHON = ("exceptiongroup", "typing_extensions")
"""Those that it needs besides under Python 3.10."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A check that the catalog lists: `all-reduce` is `<image>/test_all_reduce.py`, as pytest calls it."""

    image: str
    name: str
    kind: Kind

    @property
    def file(self) -> str:
        """The file, relative to the suite's folder."""
        return f"{self.image}/{self.kind}_{self.name.replace('-', '_')}.py"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The checks of one lane in the order in which they run, and all files that they may use."""

    lane: Lane
    checks: tuple[Listed, ...]
    files: Mapping[str, bytes]
    claims: Mapping[str, str]

    @property
    def hash(self) -> str:
        """64 hex digits over the names and bytes of all files."""
        told = {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()}
        return hashlib.sha256(json.dumps([self.lane, told], sort_keys=True).encode()).hexdigest()

    @property
    def folders(self) -> tuple[str, ...]:
        """The images whose files it holds, the nearest first."""
        return tuple(dict.fromkeys(check.image for check in reversed(self.checks)))

    def of(self, kind: Kind) -> tuple[Listed, ...]:
        """The checks of one kind."""
        return tuple(check for check in self.checks if check.kind == kind)


def lineage(catalog: Catalog, image: str) -> tuple[Image, ...]:
    """An image and its ancestors, the oldest first."""
    this = catalog.images[image]
    return (*lineage(catalog, this.parent), this) if this.parent else (this,)


def read(catalog: Catalog, image: str, lane: Lane, images: Path) -> Suite:
    """The suite of one lane, from the folder of images; files beside the checks come along, other lanes' checks do not."""
    family = lineage(catalog, image)
    checks = [_listed(member.name, name, images) for member in family for name in getattr(member.checks, lane)]
    files: dict[str, bytes] = {}
    for member in dict.fromkeys(check.image for check in checks):
        files |= _folder(images / member / "checks", {check.file for check in checks})
    claims = {name: value for member in family for name, value in member.claims.items()}
    return Suite(lane=lane, checks=tuple(checks), files=files, claims=claims)


def packed(suite: Suite) -> bytes:
    """The suite as a tar archive: `suite/`, and `out/` that anyone may write to."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder in ("out", "home"):
            _add_folder(archive, folder, mode=0o1777)
        _add(archive, "pytest.ini", b"[pytest]\n")
        for path, data in suite.files.items():
            _add(archive, f"suite/{path}", data)
    return content.getvalue()


def library() -> bytes:
    """pytest and what it needs, from this environment, as a tar archive of `lib/`; raises `ToolUnfit` when it is not whole."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in PYTEST + OLDER_PYTHON:
            _add_distribution(archive, name, needed=name in PYTEST)
        for program in ("lane_start.py", "lane_plugin.py", "lane_fixtures.py"):
            archive.add(Path(__file__).parent.parent / "data" / program, program, filter=_anyones)
    return content.getvalue()


def _listed(image: str, name: str, images: Path) -> Listed:
    kinds: tuple[Kind, ...] = ("test", "service")
    for kind in kinds:
        check = Listed(image=image, name=name, kind=kind)
        if (images / image / "checks" / Path(check.file).name).is_file():
            return check
    raise InputError(
        f"image `{image}` lists the check `{name}`, and there is no file for it", hint="`nox -s lint` lists all faults"
    )


def _folder(folder: Path, wanted: set[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = f"{folder.parent.name}/{path.relative_to(folder).as_posix()}"
        is_check = path.parent == folder and path.name.startswith(("test_", "service_")) and path.suffix == ".py"
        if path.is_file() and "__pycache__" not in path.parts and (not is_check or name in wanted):
            found[name] = path.read_bytes()
    return found


def _add_distribution(archive: tarfile.TarFile, name: str, *, needed: bool) -> None:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        if needed:
            raise ToolUnfit(f"`{name}` is not installed beside the pipeline", hint="install the pipeline again") from error
        return
    if "Root-Is-Purelib: true" not in (distribution.read_text("WHEEL") or ""):
        raise ToolUnfit(f"`{name}` is not pure Python here, and images may have another Python")
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if file.parts[:2] == ("pygments", "lexers") and file.name not in LEXERS:
            continue
        if ".." not in file.parts and file.suffix in (".py", ".typed", "") and path.is_file() and "__pycache__" not in file.parts:
            archive.add(path, f"lib/{file.as_posix()}", filter=_anyones)


def _anyones(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode, entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0o644, 0, 0, "", "", 0
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _anyones(tarfile.TarInfo(name))
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str, *, mode: int) -> None:
    entry = _anyones(tarfile.TarInfo(name))
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)
