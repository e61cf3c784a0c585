"""Debian's archive: signed indices in, a lock out; and the packages of a lock, verified, in the cache.

Trust begins at Debian's own keys (`data/debian-archive-keyring.asc`: bookworm, trixie): they sign the digests of the
indices, which hold the digests of the packages. Mirrors and the snapshot service are trusted for nothing.
"""

import hashlib
import lzma
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib import resources
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import requests
from filelock import FileLock
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from pipeline import names
from pipeline.depends import Candidate, Universe, close
from pipeline.errors import Temporary, ToolFailed
from pipeline.locks import Package, PackagesLock, format_packages, overlay_name, parse_packages, rootfs_digest
from pipeline.story import Story, Task

PARALLEL = 8
CONNECT_SECONDS, READ_SECONDS = 10, 60
CHUNK = 2**18
GONE = (404, 410)


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """Where packages come from: `root` holds `debian/` and `debian-security/`."""

    root: str = "https://deb.debian.org"
    snapshot: str = "https://snapshot.debian.org"
    """Debian's archive of everything that it ever published."""
    certificates: Path | None = None
    """The certificate authorities that the host trusts, in place of the library's own."""

    @classmethod
    def chosen(cls, environment: Mapping[str, str], certificates: Path | None) -> Self:
        """The mirror that the environment names, else Debian's own."""
        root = environment.get(names.ENV_DEBIAN_MIRROR, "").rstrip("/")
        return cls(root=root or cls.root, certificates=certificates)


class PackagesGone(ToolFailed):
    """Neither the mirror nor the snapshot service has these packages any more."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)
        super().__init__(
            f"the mirror has dropped the locked versions of {', '.join(f'`{name}`' for name in packages)}",
            hint="`nox -s update -- IMAGE` locks the versions that it has now",
        )


def solve(
    suite: str, packages: Iterable[str], *, architecture: str, mirror: Mirror, cache: Path, now: datetime, story: Story
) -> PackagesLock:
    """Lock `packages`, the essential and required ones and all that they depend on, at their newest versions.

    Looks at the suite, its updates and its security updates. Raises `ToolFailed` when a signature or digest does not hold,
    `Unsolvable` when the archive cannot give what is wanted, `Temporary` when it cannot be reached.
    """
    packages = tuple(packages)
    with story.task(f"reading the indices of Debian {suite}"):
        universe = Universe(_indices(suite, architecture, mirror, cache / "downloads" / "indices", now))
    selected = close(universe, packages)
    return PackagesLock(rootfs_digest(suite, packages), suite, tuple(sorted(_package(candidate) for candidate in selected)))


def fetch(lock: PackagesLock, *, mirror: Mirror, cache: Path, story: Story) -> Mapping[str, Path]:
    """The files of all packages of `lock` by name, downloaded where the cache does not hold them, all verified.

    What the mirror has dropped comes from the snapshot service. Raises `PackagesGone` when that does not have it or cannot
    be reached, `Temporary` when the mirror cannot, `ToolFailed` when a file is not the locked one.
    """
    folder = cache / "downloads" / "debs"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {package.name: folder / f"{package.sha256}.deb" for package in lock.packages}
    with FileLock(folder / ".lock"):
        missing = [package for package in lock.packages if not _holds(paths[package.name], package.size, package.sha256)]
        if missing:
            _download_all(missing, folder, mirror, story)
    return paths


def resolve_overlay(
    image: str,
    lock: bytes,
    packages: Iterable[str],
    *,
    architecture: str,
    mirror: Mirror,
    cache: Path,
    now: datetime,
    story: Story,
) -> Path:
    """Solve again what the committed `lock` is solved from, into the cache; returns the overlay's path.

    For candidates that stay on this machine, when the mirror has dropped locked versions.
    """
    solved = solve(
        parse_packages(lock.decode()).suite,
        packages,
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


def verified(signed: bytes, suite: str, now: datetime) -> Mapping[str, Any]:
    """The fields of an `InRelease` file; raises `ToolFailed` unless Debian signed it, for `suite`, and it is still valid."""
    import pysequoia
    from debian.deb822 import Release

    keys = pysequoia.Cert.split_bytes((resources.files("pipeline") / "data" / "debian-archive-keyring.asc").read_bytes())
    try:
        text = pysequoia.verify(bytes=signed, store=lambda _: keys)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ToolFailed(f"the index of `{suite}` is not signed by Debian: {reason}", hint="try another mirror") from error
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
    session = _session(mirror)
    archives = (("debian", suite), ("debian", f"{suite}-updates"), ("debian-security", f"{suite}-security"))
    for archive, name in archives:
        base = f"{mirror.root}/{archive}/dists/{name}"
        release = verified(_get(session, f"{base}/InRelease"), name, now)
        wanted = f"main/binary-{architecture}/Packages.xz"
        entry = next((entry for entry in release["SHA256"] if entry["name"] == wanted), None)
        if entry is None:
            raise ToolFailed(f"the index of `{name}` knows no `{wanted}`")
        by_hash = f"main/binary-{architecture}/by-hash/SHA256/{entry['sha256']}"
        path, size = folder / f"{entry['sha256']}.xz", int(entry["size"])
        with FileLock(folder / ".lock"):
            if not _holds(path, size, entry["sha256"]):
                url = f"{base}/{by_hash if release.get('Acquire-By-Hash') == 'yes' else wanted}"
                if not _download(session, url, path, size, entry["sha256"]):
                    raise Temporary(f"`{url}` is not there: the mirror is between two versions")
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


def _download_all(packages: Sequence[Package], folder: Path, mirror: Mirror, story: Story) -> None:
    session = _session(mirror)
    total = sum(package.size for package in packages)
    with story.task(f"downloading {len(packages)} Debian packages", total) as task, ThreadPoolExecutor(PARALLEL) as pool:
        try:
            found = list(pool.map(lambda package: _from_mirror(session, package, folder, mirror, task), packages))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        gone = [package for package, there in zip(packages, found, strict=True) if not there]
        if gone:
            story.say(f"the mirror has dropped {len(gone)} locked packages: asking `{mirror.snapshot}`")
            _from_snapshot(gone, folder, mirror, task)


def _from_mirror(session: requests.Session, package: Package, folder: Path, mirror: Mirror, task: Task) -> bool:
    url = f"{mirror.root}/{quote(package.path, safe='/%+~:')}"
    return _download(session, url, folder / f"{package.sha256}.deb", package.size, package.sha256, task)


def _from_snapshot(packages: Sequence[Package], folder: Path, mirror: Mirror, task: Task) -> None:
    session = _session(mirror, retries=1)
    gone: list[Package] = []
    for number, package in enumerate(packages):
        try:
            url = _snapshot_url(session, package, mirror.snapshot)
            found = url is not None and _download(
                session, url, folder / f"{package.sha256}.deb", package.size, package.sha256, task
            )
        except Temporary:
            gone += packages[number:]
            break
        if not found:
            gone.append(package)
    if gone:
        raise PackagesGone([package.name for package in gone])


def _snapshot_url(session: requests.Session, package: Package, snapshot: str) -> str | None:
    """The service's address of a binary package's file (its API: `/mr/binary/NAME/VERSION/binfiles`, `/file/SHA1`)."""
    listed = f"{snapshot}/mr/binary/{quote(package.name)}/{quote(package.version, safe=':~+')}/binfiles"
    with closing(_open(session, listed)) as answer:
        if answer.status_code in GONE:
            return None
        try:
            files = {entry["architecture"]: entry["hash"] for entry in answer.json()["result"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ToolFailed(f"`{listed}` cannot be read: {error!r}") from error
    sha1 = files.get(package.architecture)
    return f"{snapshot}/file/{sha1}" if sha1 else None


def _get(session: requests.Session, url: str) -> bytes:
    with closing(_open(session, url)) as answer:
        if answer.status_code in GONE:
            raise ToolFailed(f"`{url}` is not there", hint=f"does the mirror carry this suite? see `{names.ENV_DEBIAN_MIRROR}`")
        try:
            return answer.content
        except requests.RequestException as error:
            raise Temporary(f"`{url}` broke off: {error}") from error


def _download(session: requests.Session, url: str, path: Path, size: int, sha256: str, task: Task | None = None) -> bool:
    """Bring `url` to `path` whole and verified, or not at all; False when the server does not have it."""
    partial, digest, left = path.with_name(f"{path.name}.part"), hashlib.sha256(), size
    try:
        with closing(_open(session, url)) as answer, partial.open("wb") as file:
            if answer.status_code in GONE:
                return False
            for chunk in answer.iter_content(CHUNK):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                file.write(chunk)
                if task:
                    task.advance(len(chunk))
        if left or digest.hexdigest() != sha256:
            raise ToolFailed(f"`{url}` is not the file that is locked: {size - left} bytes, sha256 `{digest.hexdigest()}`")
        partial.replace(path)
    except requests.RequestException as error:
        raise Temporary(f"`{url}` broke off: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return True


def _open(session: requests.Session, url: str) -> requests.Response:
    try:
        answer = session.get(url, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS))
    except requests.RequestException as error:
        raise Temporary(
            f"`{url}` cannot be reached: {error}", hint="a mirror can be named in `PIPELINE_DEBIAN_MIRROR`"
        ) from error
    if answer.status_code >= 500 or answer.status_code == 429:
        answer.close()
        raise Temporary(f"`{url}` answers {answer.status_code}")
    if answer.status_code != 200 and answer.status_code not in GONE:
        answer.close()
        raise ToolFailed(f"`{url}` answers {answer.status_code} {answer.reason}")
    return answer


def _session(mirror: Mirror, retries: int = 4) -> requests.Session:
    session = requests.Session()
    session.verify = str(mirror.certificates) if mirror.certificates else True
    policy = Retry(retries, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=PARALLEL, max_retries=policy))
    return session


def _holds(path: Path, size: int, sha256: str) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
