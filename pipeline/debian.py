"""Debian's archive: signed indices in, a lock out; and the packages of a lock, verified, in the cache.

Trust begins at Debian's own keys (`data/debian-archive-keyring.asc`: bookworm, trixie): they sign the digests of the
indices, which hold the digests of the packages. Mirrors and the snapshot service are trusted for nothing.
"""

import lzma
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import requests
from filelock import FileLock

from pipeline import names
from pipeline.depends import Candidate, Universe, add, close
from pipeline.download import GONE, download, get, holds, opened, session, shown
from pipeline.errors import InputError, Temporary, ToolFailed
from pipeline.locks import Package, PackagesLock, format_packages, overlay_name, packages_digest, parse_packages
from pipeline.story import Story, Task

KEYRING = Path(__file__).parent / "data" / "debian-archive-keyring.asc"
PARALLEL = 8
"""Downloads at once."""


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """Where packages come from: `root` holds `debian/` and `debian-security/`."""

    root: str = "https://deb.debian.org"
    snapshot: str = "https://snapshot.debian.org"
    """Debian's archive of everything that it ever published."""
    certificates: Path | None = None
    """The certificate authorities that the host trusts, in place of the library's own."""
    keyring: Path = KEYRING
    """Who may sign its indices."""

    @classmethod
    def chosen(cls, environment: Mapping[str, str], certificates: Path | None) -> Self:
        """The mirror that the environment names, else Debian's own; raises `InputError` for what is no address."""
        root = environment.get(names.ENV_DEBIAN_MIRROR, "").rstrip("/")
        if root and not root.startswith(("http://", "https://")):
            raise InputError(
                f"`{names.ENV_DEBIAN_MIRROR}` is no address: `{root}`",
                hint=f"write `https://…`, which holds `debian/` and `debian-security/` as `{cls.root}` does",
            )
        return cls(root=root or cls.root, certificates=certificates)


class PackagesGone(ToolFailed):
    """Neither the mirror nor the snapshot service has these packages any more."""

    def __init__(self, image: str, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)
        super().__init__(
            f"the mirror has dropped the locked versions of {', '.join(f'`{name}`' for name in packages)}",
            hint=f"`nox -s update -- {image}` locks the versions that it has now",
        )


def solve(
    suite: str,
    packages: Iterable[str],
    *,
    below: Mapping[str, str] | None = None,
    architecture: str,
    mirror: Mirror,
    cache: Path,
    now: datetime,
    story: Story,
) -> PackagesLock:
    """Lock `packages`, the essential and required ones and all that they depend on, at their newest versions.

    With `below`, what the images below have (name → version): lock what `packages` need beside these, and no more.
    Looks at the suite, its updates and its security updates. Raises `ToolFailed` when a signature or digest does not hold,
    `Unsolvable` when the archive cannot give what is wanted, `Temporary` when it cannot be reached.
    """
    packages = tuple(packages)
    with story.task(f"reading the indices of Debian {suite}"):
        universe = Universe(_indices(suite, architecture, mirror, cache / "downloads" / "indices", now))
    selected = close(universe, packages) if below is None else add(universe, packages, below)
    locked_from = packages_digest(suite, packages, below)
    return PackagesLock(locked_from, suite, tuple(sorted(_package(candidate) for candidate in selected)))


def fetch(image: str, lock: PackagesLock, *, mirror: Mirror, cache: Path, story: Story) -> Mapping[str, Path]:
    """The files of all packages of the lock of `image` by name, downloaded where the cache does not hold them, all verified.

    What the mirror has dropped comes from the snapshot service. Raises `PackagesGone` when that does not have it or cannot
    be reached, `Temporary` when the mirror cannot, `ToolFailed` when a file is not the locked one.
    """
    folder = cache / "downloads" / "debs"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {package.name: folder / f"{package.sha256}.deb" for package in lock.packages}
    with FileLock(folder / ".lock"):
        missing = [package for package in lock.packages if not holds(paths[package.name], package.size, package.sha256)]
        if missing and (gone := _download_all(missing, folder, mirror, story)):
            raise PackagesGone(image, gone)
    return paths


def resolve_overlay(
    image: str,
    lock: bytes,
    packages: Iterable[str],
    *,
    below: Mapping[str, str] | None = None,
    architecture: str,
    mirror: Mirror,
    cache: Path,
    now: datetime,
    story: Story,
) -> Path:
    """Solve again what the committed `lock` is solved from, into the cache; returns the overlay's path.

    For candidates that stay on this machine, when the mirror has dropped locked versions, of this image or of one below.
    """
    solved = solve(
        parse_packages(lock.decode()).suite,
        packages,
        below=below,
        architecture=architecture,
        mirror=mirror,
        cache=cache,
        now=now,
        story=story,
    )
    path = cache / "overlays" / overlay_name(image, lock)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(format_packages(solved))
    partial.replace(path)
    return path


def verified(signed: bytes, suite: str, *, keyring: Path, now: datetime) -> Mapping[str, Any]:
    """The fields of an `InRelease` file; raises `ToolFailed` unless one of the keys signed it, for `suite`, and it is valid."""
    import pysequoia
    from debian.deb822 import Release

    keys = pysequoia.Cert.split_bytes(keyring.read_bytes())
    try:
        text = pysequoia.verify(bytes=signed, store=lambda _: keys)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        message = f"the index of `{suite}` is not signed by a key that we trust: {reason}"
        raise ToolFailed(message, hint="try another mirror") from error
    release = Release(text.bytes)
    if not text.valid_sigs or release.get("Codename") != suite:
        raise ToolFailed(f"the mirror answers with the index of `{release.get('Codename')}` where `{suite}` was asked for")
    if "Valid-Until" in release and parsedate_to_datetime(release["Valid-Until"].replace("UTC", "+0000")) < now:
        raise ToolFailed(
            f"the index of `{suite}` was valid until {release['Valid-Until']}",
            hint="the mirror is out of date, or this machine's clock is ahead: try another mirror",
        )
    return release


def _indices(suite: str, architecture: str, mirror: Mirror, folder: Path, now: datetime) -> Iterable[tuple[str, bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    client = session(mirror.certificates, parallel=PARALLEL)
    archives = (("debian", suite), ("debian", f"{suite}-updates"), ("debian-security", f"{suite}-security"))
    for archive, name in archives:
        base = f"{mirror.root}/{archive}/dists/{name}"
        release = verified(get(client, f"{base}/InRelease"), name, keyring=mirror.keyring, now=now)
        wanted = f"main/binary-{architecture}/Packages.xz"
        entry = next((entry for entry in release["SHA256"] if entry["name"] == wanted), None)
        if entry is None:
            raise ToolFailed(f"the index of `{name}` knows no `{wanted}`")
        by_hash = f"main/binary-{architecture}/by-hash/SHA256/{entry['sha256']}"
        path, size = folder / f"{entry['sha256']}.xz", int(entry["size"])
        with FileLock(folder / ".lock"):
            if not holds(path, size, entry["sha256"]):
                url = f"{base}/{by_hash if release.get('Acquire-By-Hash') == 'yes' else wanted}"
                if not download(client, url, path, size, entry["sha256"]):
                    raise Temporary(f"`{shown(url)}` is not there: the mirror is between two versions")
        yield archive, lzma.decompress(path.read_bytes())


def _package(candidate: Candidate) -> Package:
    fields = candidate.fields
    return Package(
        name=candidate.name,
        version=candidate.version,
        architecture=fields["Architecture"],
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
        path=f"{candidate.origin}/{fields['Filename']}",
    )


def _download_all(packages: Sequence[Package], folder: Path, mirror: Mirror, story: Story) -> list[str]:
    """Returns the names of those that nobody has any more."""
    client = session(mirror.certificates, parallel=PARALLEL)
    total = sum(package.size for package in packages)
    with story.task(f"downloading {len(packages)} Debian packages", total) as task, ThreadPoolExecutor(PARALLEL) as pool:
        try:
            found = list(pool.map(lambda package: _from_mirror(client, package, folder, mirror, task), packages))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        gone = [package for package, there in zip(packages, found, strict=True) if not there]
        if not gone:
            return []
        story.say(f"the mirror has dropped {len(gone)} locked packages: asking `{mirror.snapshot}`")
        return _from_snapshot(gone, folder, mirror, story, task)


def _from_mirror(client: requests.Session, package: Package, folder: Path, mirror: Mirror, task: Task) -> bool:
    url = f"{mirror.root}/{quote(package.path, safe='/+~:')}"
    return download(client, url, folder / f"{package.sha256}.deb", package.size, package.sha256, task)


def _from_snapshot(packages: Sequence[Package], folder: Path, mirror: Mirror, story: Story, task: Task) -> list[str]:
    client = session(mirror.certificates, retries=1)
    gone: list[Package] = []
    for number, package in enumerate(packages):
        try:
            url = _snapshot_url(client, package, mirror.snapshot)
            found = url is not None and download(
                client, url, folder / f"{package.sha256}.deb", package.size, package.sha256, task
            )
        except (Temporary, ToolFailed) as error:
            story.warn(f"the snapshot service does not help: {error.message}")
            gone += packages[number:]
            break
        if not found:
            gone.append(package)
    return [package.name for package in gone]


def _snapshot_url(client: requests.Session, package: Package, snapshot: str) -> str | None:
    """The service's address of a binary package's file (its API: `/mr/binary/NAME/VERSION/binfiles`, `/file/SHA1`)."""
    listed = f"{snapshot}/mr/binary/{quote(package.name)}/{quote(package.version, safe=':~+')}/binfiles"
    with closing(opened(client, listed)) as answer:
        if answer.status_code in GONE:
            return None
        try:
            files = {entry["architecture"]: entry["hash"] for entry in answer.json()["result"]}
        except (requests.RequestException, KeyError, TypeError) as error:
            raise ToolFailed(f"`{listed}` cannot be read: {error!r}") from error
    sha1 = files.get(package.architecture)
    return f"{snapshot}/file/{sha1}" if sha1 else None
