"""One image: lock, stage, bake, prove, tag, record."""

import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from pipeline import bake, names, records
from pipeline.bake import Baked, Target
from pipeline.build import promises, stage
from pipeline.build.shop import Job, target
from pipeline.context import dockerfile_text
from pipeline.errors import CheckFailed, TagConflict, ToolFailed
from pipeline.oci import Digest, Pinned
from pipeline.statements import Built, built_statement
from pipeline.story import Task
from pipeline.survey import candidate

APART = 1.1
"""Seconds between two builds that are compared: the times in layers are whole seconds."""


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """How one image's part of a build ended."""

    image: str
    state: Literal["built", "reused", "failed", "aborted"]
    reason: str
    pinned: Pinned | None = None
    size: int | None = None
    """Compressed bytes of all layers."""
    seconds: float = 0.0
    exit_code: int = 0
    hint: str = ""


def build_image(job: Job) -> BuildResult:
    """Build, prove and tag the image of `job`, or reuse what another run has built meanwhile; raises `PipelineError`."""
    started = time.monotonic()
    with stage.locked(job):
        if job.step.digest is None and (found := _candidate(job)) is not None:
            return _reused(job, found, "built by another run meanwhile")
        with stage.folder(job) as folder, job.shop.story.task(f"building {job.image.name}") as task:
            begun = job.shop.now()
            wanted = _target(job, folder)
            baked, image = _bake_and_prove(job, replace(wanted, fresh=job.twice), folder, task)
            if job.twice:
                _bake_again(job, wanted, folder, task, image)
            result = _tag(job, image, baked, begun)
            if result.state == "built":
                _save_cache(job, wanted, baked, task)
    return replace(result, seconds=time.monotonic() - started)


def reuse(job: Job) -> BuildResult:
    """The candidate that the plan found."""
    assert job.step.digest is not None
    return _reused(job, job.tagged.repository.at(job.step.digest), job.step.reason)


def _candidate(job: Job) -> Pinned | None:
    digest = candidate(job.shop.registry, job.tagged, job.step.input_hash)
    return job.tagged.repository.at(digest) if digest else None


def _reused(job: Job, pinned: Pinned, reason: str) -> BuildResult:
    size = job.shop.registry.manifest(pinned).size
    return BuildResult(image=job.image.name, state="reused", reason=reason, pinned=pinned, size=size)


def _target(job: Job, folder: Path) -> Target:
    at = stage.context(job, folder)
    dockerfile = dockerfile_text(at)
    references = {name: str(pinned) for name, pinned in job.references.items()}
    folders = stage.folders(job, folder, at)
    return target(job.image, job.survey, context=at, dockerfile=dockerfile, references=references, folders=folders)


def _bake_and_prove(job: Job, wanted: Target, folder: Path, task: Task, log: str = "") -> tuple[Baked, promises.Image]:
    shop = job.shop
    baked = bake.bake(
        wanted,
        shop.bakery,
        metadata=folder / f"metadata{log}.json",
        log=shop.settings.work / "logs" / f"{wanted.name}{log}.log",
        task=task,
    )
    task.note("reading it back from the registry")
    image, parent = _read(job, baked.digest), job.references.get(job.image.parent or "")
    broken = promises.broken(
        image,
        wanted,
        _read(job, parent.digest) if parent else None,
        baked.materials,
        {pinned.digest for pinned in job.references.values()},
        _dockerfiles(job, wanted.context),
    )
    if broken:
        raise ToolFailed(f"`{wanted.name}` was built, but is not what was asked for: {'; '.join(broken)}")
    _within_limit(job, image)
    return baked, image


def _dockerfiles(job: Job, at: Path) -> str:
    """What the image's Dockerfile says, and those of the images that it needs: their `ONBUILD` runs in its build."""
    needed = (job.shop.settings.images / need for need in job.image.needs)
    return "\n".join(dockerfile_text(folder) for folder in (at, *needed) if (folder / "Dockerfile").is_file())


def _within_limit(job: Job, image: promises.Image) -> None:
    size, limit = image.manifest.size, job.image.size_limit
    if limit is not None and size > limit:
        raise CheckFailed(
            f"`{job.image.name}` has {size / 1e6:,.1f} MB compressed, more than its `size-limit` of {limit / 1e6:,.1f} MB",
            hint="leave something out, or raise the limit in its `image.yaml`",
        )


def _bake_again(job: Job, wanted: Target, folder: Path, task: Task, first: promises.Image) -> None:
    time.sleep(APART)
    _, second = _bake_and_prove(job, replace(wanted, fresh=True), folder, task, "-again")
    if second.manifest.digest != first.manifest.digest:
        found = "\n".join(f"  {line}" for line in promises.differences(first, second))
        raise CheckFailed(
            f"`{job.image.name}` is not reproducible: two builds differ in\n{found}",
            hint="`diffoscope` on the two layers shows the files; clamp their times, and make nothing depend on the run",
        )


def _save_cache(job: Job, wanted: Target, baked: Baked, task: Task) -> None:
    """The image stands; a cache that cannot be written only makes a later build slower.

    Where no step ran, the one that is there has it all; a builder that took it from there would run every step to write it.
    """
    shop, log = job.shop, job.shop.settings.work / "logs" / f"{wanted.name}-cache.log"
    if baked.executed == 0 and wanted.cache is not None and shop.registry.resolve(wanted.cache) is not None:
        return
    fault = bake.save_cache(wanted, shop.bakery, log=log, task=task)
    if fault:
        shop.story.warn(f"the build cache of `{wanted.name}` was not written to `{wanted.cache}`: {fault}")


def _read(job: Job, digest: Digest) -> promises.Image:
    registry, repository = job.shop.registry, job.tagged.repository
    manifest = registry.manifest(repository.at(digest))
    return promises.Image(manifest=manifest, config=registry.config(repository.at(digest)))


def _tag(job: Job, image: promises.Image, baked: Baked, begun: datetime) -> BuildResult:
    """The record comes first, so that no run that is cut off leaves a candidate without one."""
    pinned = job.tagged.repository.at(baked.digest)
    statement = built_statement(_built(job, pinned, image, baked, begun))
    record = records.write(job.shop.settings, baked.digest, "built", statement)
    digest = job.shop.registry.create_tag(job.tagged.repository, job.step.tag, image.manifest)
    if digest != baked.digest:
        record.unlink(missing_ok=True)
        return _yield_to(job, digest, image)
    ran = "no step ran" if baked.executed == 0 else f"{baked.executed} step{'s' if baked.executed > 1 else ''} ran"
    return BuildResult(
        image=job.image.name,
        state="built",
        reason=f"{job.step.reason}; {ran}" + ("; twice, with one digest" if job.twice else ""),
        pinned=pinned,
        size=image.manifest.size,
    )


def _yield_to(job: Job, digest: Digest, mine: promises.Image) -> BuildResult:
    """The tag names another digest: the loser of a race goes on with the winner's, a rebuild does not."""
    winner = _candidate(job)
    found = "\n".join(f"  {line}" for line in promises.differences(_read(job, digest), mine))
    if winner is None or job.step.digest is not None:
        raise TagConflict(
            f"`{job.tagged}` names `{digest}`, but the same inputs now give `{mine.manifest.digest}`; they differ in\n{found}",
            hint=_rebuild_hint(job),
        )
    job.shop.story.warn(f"`{job.image.name}` was built by another run with other bytes, which are used; they differ in\n{found}")
    return _reused(job, winner, "another run was faster")


def _rebuild_hint(job: Job) -> str:
    if job.twice:
        return f"two builds agree now, the candidate is another builder's: raise `revision:` of `{job.image.name}` to replace it"
    return f"`{names.COMMAND} build {job.image.name} --twice` tells if it is reproducible; `revision:` gives another tag"


def _built(job: Job, pinned: Pinned, image: promises.Image, baked: Baked, begun: datetime) -> Built:
    parent = job.references.get(job.image.parent or "")
    return Built(
        image=job.image.name,
        subject=str(pinned),
        tag=job.step.tag,
        input_hash=job.step.input_hash,
        inputs=job.survey.hashes[job.image.name].parts,
        parent=str(parent) if parent else None,
        materials=[material.uri if material.pinned else f"{material.uri}#{material.digest}" for material in baked.materials],
        commit=job.commit,
        dirty=job.dirty,
        builder=job.shop.builder.name,
        compression_level=job.survey.catalog.compression_level,
        size=image.manifest.size,
        reproduced=job.twice,
        started=begun,
        finished=job.shop.now(),
        run=job.shop.run_id,
    )
