"""A whole plan: packages first, then images in the order of what they stand on."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from pipeline import context, debian
from pipeline.build.cost import announce
from pipeline.build.one import BuildResult, build_image, reuse
from pipeline.build.shop import Job, Workshop
from pipeline.build.stage import sweep
from pipeline.catalog import Image
from pipeline.catalog_locks import PACKAGES_LOCK
from pipeline.debian import PackagesGone
from pipeline.errors import Interrupted, PipelineError, Terminated, ToolUnfit, of_the_machine
from pipeline.locks import PackagesLock, packages_digest, parse_packages
from pipeline.survey import Survey

PARALLEL = 2
"""Images that are built at once."""


def build(survey: Callable[[], Survey], shop: Workshop, *, twice: bool = False) -> tuple[BuildResult, ...]:
    """Build what `survey` plans; one result an image, in the plan's order.

    `survey` is called again when a locked package is gone and an overlay lock takes its place, which changes hashes. With
    `twice`, every image is built twice without cache and must give one digest. What fails is a result; raises what `survey`
    raises, `Interrupted` and `Terminated`.
    """
    sweep(shop)
    found, resolved = survey(), set[str]()
    while (packages := _fetch(found, shop, resolved)).again:
        found = survey()
    announce(found, shop)
    return _walk(found, shop, packages, twice)


@dataclass(frozen=True, kw_only=True)
class _Packages:
    """Downloaded packages by image, why an image has none, and whether hashes changed meanwhile."""

    debs: Mapping[str, Mapping[str, Path]]
    failed: Mapping[str, PipelineError]
    again: bool = False


def _fetch(survey: Survey, shop: Workshop, resolved: set[str]) -> _Packages:
    debs: dict[str, Mapping[str, Path]] = {}
    failed: dict[str, PipelineError] = {}
    for image in _packaged(survey):
        try:
            found = _fetch_one(image, survey, shop, resolved)
        except (Interrupted, Terminated):
            raise
        except PipelineError as error:
            failed[image.name] = error
            continue
        if found is None:
            return _Packages(debs=debs, failed=failed, again=True)
        debs[image.name] = found
    return _Packages(debs=debs, failed=failed)


def _packaged(survey: Survey) -> list[Image]:
    images = [survey.catalog.images[step.image] for step in survey.steps if step.action == "build"]
    return [image for image in images if image.has_packages]


def _fetch_one(image: Image, survey: Survey, shop: Workshop, resolved: set[str]) -> Mapping[str, Path] | None:
    """The image's packages; None when an overlay lock has taken the place of its own."""
    reason = "" if image.name in resolved else _moved_below(image, survey, shop)
    if not reason:
        try:
            return _download(image, survey, shop)
        except PackagesGone as gone:
            if not survey.catalog.candidate_repository.loopback or image.name in resolved:
                raise
            reason = gone.message
    resolved.add(image.name)
    _resolve(image, reason, survey, shop)
    return None


def _moved_below(image: Image, survey: Survey, shop: Workshop) -> str:
    """Why added packages do not fit any more: an overlay lock below has taken the place of the one they are solved on."""
    if image.rootfs:
        return ""
    lock = _lock(image, survey, shop)
    below = context.packages_below(shop.settings, survey.catalog, image)
    fits = lock.locked_from == packages_digest(lock.suite, image.packages, below)
    return "" if fits else f"the packages of `{image.name}` are locked on other ones than `{image.parent}` has now"


def _download(image: Image, survey: Survey, shop: Workshop) -> Mapping[str, Path]:
    lock = _lock(image, survey, shop)
    return debian.fetch(image.name, lock, mirror=shop.mirror, cache=shop.settings.cache, story=shop.story)


def _lock(image: Image, survey: Survey, shop: Workshop) -> PackagesLock:
    return parse_packages(context.packages_lock(shop.settings, survey.catalog, image).read_text(encoding="utf-8"))


def _resolve(image: Image, reason: str, survey: Survey, shop: Workshop) -> None:
    """Solve the image's packages anew into the cache: candidates stay on this machine, and the tree stays clean."""
    path = debian.resolve_overlay(
        image.name,
        (shop.settings.images / image.name / PACKAGES_LOCK).read_bytes(),
        image.rootfs.packages if image.rootfs else image.packages,
        below=None if image.rootfs else context.packages_below(shop.settings, survey.catalog, image),
        architecture=survey.catalog.platform.split("/")[1],
        mirror=shop.mirror,
        cache=shop.settings.cache,
        now=shop.now(),
        story=shop.story,
    )
    shop.story.warn(f"{reason}; `{image.name}` is built from newer ones, locked in `{path}`")


def _walk(survey: Survey, shop: Workshop, packages: _Packages, twice: bool) -> tuple[BuildResult, ...]:
    commit, dirty = _commit(shop) if any(step.action == "build" for step in survey.steps) else (None, False)
    stopping = threading.Event()
    results: dict[str, BuildResult] = {}

    def do(name: str) -> BuildResult:
        step = next(step for step in survey.steps if step.image == name)
        references = {
            need: done.pinned for need in survey.catalog.images[name].needs if (done := results.get(need)) and done.pinned
        }
        job = Job(
            step=step,
            survey=survey,
            shop=shop,
            references=references,
            debs=packages.debs.get(name, {}),
            commit=commit,
            dirty=dirty,
            twice=twice,
            stopping=stopping,
        )
        return _result(job, packages.failed.get(name), results)

    _in_order(survey, do, results, stopping)
    return tuple(results[step.image] for step in survey.steps)


def _in_order(
    survey: Survey, do: Callable[[str], BuildResult], results: dict[str, BuildResult], stopping: threading.Event
) -> None:
    planned = [step.image for step in survey.steps]
    order = TopologicalSorter({name: {need for need in survey.catalog.images[name].needs if need in planned} for name in planned})
    order.prepare()
    running: dict[Future[BuildResult], str] = {}
    with ThreadPoolExecutor(PARALLEL) as pool:
        try:
            while order.is_active():
                running |= {pool.submit(do, name): name for name in order.get_ready()}
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    results[name] = future.result()
                    order.done(name)
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise


def _result(job: Job, unprepared: PipelineError | None, results: Mapping[str, BuildResult]) -> BuildResult:
    """The image's result; what its parents or its packages lack is a result too."""
    if job.step.action == "reuse":
        return _reported(job, reuse)
    for need in job.image.needs:
        culprit = results[need]
        if culprit.state in ("failed", "aborted"):
            return BuildResult(image=job.image.name, state="aborted", reason=_because(culprit), exit_code=culprit.exit_code)
    if unprepared:
        return _failed(job, unprepared)
    return _reported(job, build_image)


def _reported(job: Job, do: Callable[[Job], BuildResult]) -> BuildResult:
    try:
        return do(job)
    except (Interrupted, Terminated):
        raise
    except OSError as error:
        if (fault := of_the_machine(error)) is None:
            raise
        return _failed(job, fault)
    except PipelineError as error:
        return _failed(job, error)


def _failed(job: Job, error: PipelineError) -> BuildResult:
    job.shop.story.warn(f"`{job.image.name}` failed: {error}")
    return BuildResult(image=job.image.name, state="failed", reason=error.message, hint=error.hint, exit_code=error.exit_code)


def _because(culprit: BuildResult) -> str:
    return f"`{culprit.image}` failed" if culprit.state == "failed" else culprit.reason


def _commit(shop: Workshop) -> tuple[str | None, bool]:
    """The commit of the catalog's folder and whether it was changed since; none outside git."""
    try:
        head = shop.run("git", "-C", shop.settings.root, "rev-parse", "HEAD", timeout=30, check=False)
        status = shop.run("git", "-C", shop.settings.root, "status", "--porcelain", "--", ".", timeout=60, check=False)
    except ToolUnfit:
        return None, False
    if head.code != 0:
        return None, False
    return head.stdout.strip(), status.code != 0 or bool(status.stdout.strip())
