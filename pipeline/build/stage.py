"""Where an image is prepared: a lock and a folder of its tag's own, and the build context in it."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline import additions, rootfs
from pipeline import context as contexts
from pipeline.build.shop import Job, Workshop
from pipeline.catalog_locks import PACKAGES_LOCK
from pipeline.errors import Interrupted
from pipeline.locks import PackagesLock, parse_packages
from pipeline.oci import Tagged

LOCK_POLL = 0.2
"""Seconds between looks at a lock that another run holds."""


def sweep(shop: Workshop) -> None:
    """Remove the folders of runs that were killed."""
    for folder in _stages(shop).glob("*"):
        lock = FileLock(_locks(shop) / f"{folder.name}.lock")
        try:
            with lock.acquire(timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        except Timeout:
            continue


@contextmanager
def locked(job: Job) -> Iterator[None]:
    """Nobody else on this machine builds for this tag; raises `Interrupted` when the run stops while it waits."""
    lock = FileLock(_locks(job.shop) / f"{_file_name(job.tagged)}.lock")
    waiting = False
    while True:
        try:
            lock.acquire(timeout=LOCK_POLL if waiting else 0)
            break
        except Timeout:
            if job.stopping.is_set():
                raise Interrupted("interrupted") from None
            if not waiting:
                job.shop.story.say(f"another run builds `{job.image.name}`; waiting for it")
            waiting = True
    try:
        yield
    finally:
        lock.release()


@contextmanager
def folder(job: Job) -> Iterator[Path]:
    """An empty folder of the tag's own; what a killed run left in it goes first."""
    at = _stages(job.shop) / _file_name(job.tagged)
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    try:
        yield at
    finally:
        shutil.rmtree(at, ignore_errors=True)


def context(job: Job, folder: Path) -> Path:
    """Prepare the build context below `folder`: the hashed files, or the root file system made from them.

    Its name is the input hash. A builder keeps what it was sent by the last part of its path, and takes a file of the same
    size and time for the one it has; here all times are the epoch.
    """
    catalog, shop, sources = job.survey.catalog, job.shop, folder / "files" / job.step.input_hash
    sources.mkdir(parents=True)
    contexts.stage(shop.settings, catalog, job.image, sources, job.survey.hashes[job.image.name])
    if job.image.rootfs is None:
        return sources
    made = folder / "rootfs" / job.step.input_hash
    made.mkdir(parents=True)
    epoch = int(catalog.epoch.timestamp())
    rootfs.prepare(job.image, _lock(sources), job.debs, overlay=sources / "rootfs", epoch=epoch, folder=made)
    return made


def folders(job: Job, folder: Path, sources: Path) -> Mapping[str, Path]:
    """Prepare, below `folder`, what the Dockerfile of the context `sources` finds by name beside it: the added packages."""
    if not job.image.packages:
        return {}
    made = folder / "packages" / job.step.input_hash
    made.mkdir(parents=True)
    epoch = int(job.survey.catalog.epoch.timestamp())
    additions.prepare(_lock(sources), job.debs, epoch=epoch, folder=made)
    return {additions.CONTEXT: made}


def _lock(sources: Path) -> PackagesLock:
    return parse_packages((sources / PACKAGES_LOCK).read_text(encoding="utf-8"))


def _file_name(tagged: Tagged) -> str:
    return str(tagged).replace("/", "_").replace(":", "_")


def _locks(shop: Workshop) -> Path:
    folder = shop.settings.cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stages(shop: Workshop) -> Path:
    return shop.settings.cache / "stage"
