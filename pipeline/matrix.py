"""What a CI has to do, as data that its workflows only hand on: images by stage, and jobs on GPU runners; pure.

The limits are those of GitHub Actions: 256 jobs of one matrix, a megabyte in one output.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pipeline.catalog import Catalog
from pipeline.errors import InputError

MOST_JOBS = 256
LARGEST = 400_000
"""Characters of all jobs as JSON; the platform counts two bytes for each."""
SHOWN = 8
"""Reasons of one image that a summary lists."""
STAGES = {"build": "IMAGES", "check": "CHECK", "scan": "SCAN", "sign": "IMAGES", "verify": "SCAN"}
"""Jobs of a child pipeline, and the images without which there is none."""
CHANGE = {"change": "IMAGES"}
MINUTES, MINUTES_AN_IMAGE = 30, 60
"""What a job may take: to find its tools, and to bring and check one image."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job on a GPU runner."""

    id: str
    """`<runner>-<number>`."""
    labels: tuple[str, ...]
    """Of the runner, from the catalog."""
    images: str
    """Names with spaces between."""
    minutes: int
    avoid: str = ""
    """Machines and GPUs that may not take it, with spaces between."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done: each a list of images, parents first."""

    build: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    scan: tuple[str, ...] = ()
    why: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Image → what changed in it, or what lacks."""
    gpu: tuple[Job, ...] = ()


def work(catalog: Catalog, *, build: Sequence[str], check: Sequence[str], why: Mapping[str, Sequence[str]]) -> Work:
    """The work on the images that are built and on those that are only checked; raises `InputError` beyond the limits."""
    order = tuple(name for name in catalog.images if name in {*build, *check})
    checked = tuple(name for name in order if lanes(catalog, name))
    return Work(
        build=tuple(name for name in order if name in set(build)),
        check=checked,
        scan=tuple(name for name in order if catalog.images[name].release),
        why={name: tuple(why.get(name, ())) for name in order},
        gpu=jobs(catalog, [name for name in checked if "gpu" in lanes(catalog, name)]),
    )


def lanes(catalog: Catalog, name: str) -> tuple[str, ...]:
    """The lanes for which the image, or one that it stands on, lists a check."""
    image = catalog.images[name]
    family = (image, *catalog.ancestors(image))
    return tuple(lane for lane in ("cpu", "gpu") if any(getattr(one.checks, lane) for one in family))


def jobs(catalog: Catalog, images: Sequence[str]) -> tuple[Job, ...]:
    """Jobs for `images` on each kind of runner that the catalog names for them: one image each, more where that is too many."""
    wanted = {runner: sorted(name for name in images if _runs_on(catalog, name, runner)) for runner in sorted(catalog.runners)}
    size = _batch(list(map(len, wanted.values())))
    found = tuple(job for runner, names in wanted.items() for job in _batched(catalog, runner, names, size))
    if (length := len(compact(found))) > LARGEST:
        raise InputError(
            f"the jobs of {len(images)} images on GPUs are {length} characters of JSON, and {LARGEST} is the most",
            hint="name fewer kinds of runners in `runners:`, or shorten the images' names",
        )
    return found


def again(catalog: Catalog, tries: Mapping[str, Sequence[str]], avoid: Mapping[str, Sequence[str]]) -> tuple[Job, ...]:
    """A second try of jobs, `id` → images, away from the machines that failed them.

    Raises `InputError` for a job or an image that the catalog does not have.
    """
    found = []
    for job, images in sorted(tries.items()):
        runner, _, number = job.rpartition("-")
        if runner not in catalog.runners or not number.isdecimal() or not images or set(images) - catalog.images.keys():
            raise InputError(f"`{job}` is no job of this catalog", hint="give the files that `test --later` wrote in this run")
        found.append(_job(catalog, runner, number, images, " ".join(sorted(set(avoid[job])))))
    return tuple(found)


def compact(value: object) -> str:
    """JSON on one line, of ASCII alone: whatever hands it on cannot break it."""
    return json.dumps(value, default=asdict, separators=(",", ":"), ensure_ascii=True)


def outputs(found: Work) -> Mapping[str, str]:
    """The outputs of a job in GitHub Actions: names with spaces between, and the matrix of GPU jobs; empty where none is."""
    lists = {"build": found.build, "check": found.check, "scan": found.scan, "images": tuple(found.why)}
    return {**{name: " ".join(images) for name, images in lists.items()}, "gpu": include(found.gpu)}


def include(found: Sequence[Job]) -> str:
    """A matrix of these jobs; empty text where there is none, since an empty matrix is an error there."""
    return compact({"include": list(found)}) if found else ""


def markdown(found: Work) -> str:
    """What is done and why, for a summary in CI."""
    if not found.why:
        return "No image changes: nothing is built.\n"
    done = {name: "build" if name in found.build else "check" for name in found.why}
    rows = [f"| {name} | {done[name]} | {_reasons(reasons)} |" for name, reasons in found.why.items()]
    return "\n".join(["| image | | why |", "| --- | --- | --- |", *rows]) + "\n"


def child_pipeline(found: Work, *, change: bool) -> Mapping[str, object]:
    """A child pipeline for GitLab: which jobs of `deploy/gitlab/child.yml` there are, how many on GPUs, and of what.

    A `change` that is not merged yet is built and checked in one job, whose registry ends with it; nothing is signed.
    """
    wanted = {"IMAGES": tuple(found.why), "CHECK": found.check, "SCAN": found.scan}
    jobs = {name: {"extends": f".{name}"} for name, needed in (CHANGE if change else STAGES).items() if wanted[needed]}
    return {
        "include": [{"local": "deploy/gitlab/child.yml"}],
        "workflow": {"rules": [{"when": "always"}]},
        "variables": {name: " ".join(images) for name, images in wanted.items()},
        **(jobs or {"nothing": {"extends": ".nothing"}}),
        **dict(pair for job in found.gpu if not change for pair in _gpu_jobs(job)),
    }


def _gpu_jobs(job: Job) -> Iterator[tuple[str, object]]:
    """A lane, and the job that signs what it found: two lanes of one image must not meet in one folder."""
    name, images = f"gpu {job.id}", {"IMAGES": job.images}
    yield name, {"extends": ".gpu", "tags": job.labels, "timeout": f"{job.minutes} minutes", "variables": images}
    yield f"sign {name}", {"extends": ".sign-gpu", "needs": [{"job": name}, {"job": "sign"}], "variables": images}


def _reasons(reasons: Sequence[str]) -> str:
    text = ", ".join(reasons[:SHOWN]) + (f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else "")
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("](", "]\\(")


def _runs_on(catalog: Catalog, name: str, runner: str) -> bool:
    return runner in (catalog.images[name].runners or tuple(catalog.runners))


def _batch(counts: Sequence[int]) -> int:
    """The fewest images a job with which all fit into one matrix."""
    size = 1
    while sum(-(-count // size) for count in counts) > MOST_JOBS:
        if size > max(counts):
            raise InputError(f"there are more than {MOST_JOBS} kinds of runners", hint="name fewer in `runners:`")
        size += 1
    return size


def _batched(catalog: Catalog, runner: str, names: Sequence[str], size: int) -> Iterator[Job]:
    for number, start in enumerate(range(0, len(names), size), 1):
        yield _job(catalog, runner, str(number), names[start : start + size], "")


def _job(catalog: Catalog, runner: str, number: str, images: Sequence[str], avoid: str) -> Job:
    return Job(
        id=f"{runner}-{number}",
        labels=catalog.runners[runner],
        images=" ".join(images),
        minutes=MINUTES + MINUTES_AN_IMAGE * len(images),
        avoid=avoid,
    )
