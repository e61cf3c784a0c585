"""`test --render kubernetes` and `test --collect`: lanes as Jobs of a cluster, and what their logs say."""

import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import context, plan, records
from pipeline.call import Call, hand_out, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, NothingSelected
from pipeline.oci import Pinned

if TYPE_CHECKING:
    from pipeline.check import Job, Subject, Suite, Ticket
    from pipeline.statements import Lane


def render(call: Call, subjects: "Sequence[Subject]", catalog: Catalog) -> int:
    """Print the manifests of a Job per lane, and keep here what their logs are judged by."""
    import yaml

    from pipeline import check

    if catalog.candidate_repository.loopback:
        call.console.warn(
            f"the cluster is told to pull from `{catalog.candidate_repository}`: `--candidates` names another place"
        )
    jobs = [job for subject in subjects for lane in _lanes(call) for job in _jobs(call, catalog, subject, lane)]
    if not jobs:
        raise NothingSelected("no lane can be rendered", hint="`--lane` and images whose lane lists `test_*.py`")
    for job in jobs:
        records.write_text(_ticket(call, job.ticket.nonce), job.ticket.model_dump_json(indent=1))
        call.console.say(f"{job.name}: `{job.subject.pinned}`")
    sys.stdout.write(yaml.safe_dump_all(check.manifests(jobs), sort_keys=False))
    call.console.say("next: `kubectl apply --server-side -f FILE`, then `kubectl logs job/NAME -c run | … test --collect -`")
    return 0


def collect_verb(call: Call) -> int:
    """Judge the logs of Jobs, as lanes that ran here are, and keep their unsigned statements."""
    from pipeline import check, report
    from pipeline.statements import tested_statement

    catalog, failures = context.load(call.settings), context.failures(call.settings)
    plan.selected(catalog, ())
    tested, subjects = [], []
    for source in call.arguments.collect:
        log = _log(source)
        ticket = _kept(call, check.nonce(log))
        suite = check.read(catalog, plan.require(catalog, ticket.image).name, ticket.lane, call.settings.images)
        one = check.collect(log, ticket, suite, failures, now=call.now())
        pinned = Pinned.parse(one.subject)
        records.write(call.settings, pinned.digest, f"tested-{one.lane}", tested_statement(one))
        tested.append(one)
        subjects.append(check.Subject(image=one.image, pinned=pinned, tag=pinned.digest.hex[:12]))
    hand_out(call, report.lanes_json(tested, subjects), report.lanes_junit(tested))
    call.console.show(report.lanes_table(tested, subjects))
    summarise(call, report.lanes_markdown(tested, subjects))
    return check.exit_code(tested, require_gpu=call.arguments.require_gpu)


def _lanes(call: Call) -> "Sequence[Lane]":
    if call.arguments.select or call.arguments.keep:
        raise InputError("a lane is rendered as a whole", hint="leave `-k` and `--keep` out")
    return tuple(dict.fromkeys(call.arguments.lane or ("gpu",)))


def _jobs(call: Call, catalog: Catalog, subject: "Subject", lane: "Lane") -> "Iterator[Job]":
    """The Job of one lane; none where it lists no checks, or such as only a machine with an engine can run."""
    from pipeline import check

    suite = check.read(catalog, subject.image, lane, call.settings.images)
    if not suite.checks:
        return
    if outside := suite.of("service"):
        call.console.warn(f"{subject.image}, {lane}: left out, a pod starts no containers, as `{outside[0].file}` does")
        return
    yield check.Job(
        subject=subject,
        suite=suite,
        config=call.registry.config(subject.pinned),
        ticket=_asked(call, subject, suite),
        queue=call.arguments.queue or "",
    )


def _asked(call: Call, subject: "Subject", suite: "Suite") -> "Ticket":
    from pipeline.check import Limits, Ticket

    return Ticket(
        nonce=secrets.token_hex(16),
        image=subject.image,
        subject=str(subject.pinned),
        lane=suite.lane,
        suite=suite.hash,
        gpus=_gpus(call) if suite.lane == "gpu" else 0,
        seconds=Limits().lane,
        run=call.run_id,
    )


def _gpus(call: Call) -> int:
    """How many GPUs a pod asks for; a cluster has no `all`."""
    wanted = call.arguments.gpus
    if wanted == "all":
        return 1
    if not wanted.isdecimal() or not int(wanted):
        raise InputError(f"`--gpus {wanted}`: a pod asks for a number of GPUs", hint="`--gpus 2`")
    return int(wanted)


def _ticket(call: Call, nonce: str) -> Path:
    return call.settings.work / "jobs" / f"{nonce}.json"


def _kept(call: Call, nonce: str) -> "Ticket":
    from pipeline.check import Ticket

    try:
        return Ticket.model_validate_json(_ticket(call, nonce).read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"nothing is known here of the job `{nonce}`",
            hint="collect where it was rendered, or bring `.pipeline/jobs` from there",
        ) from error


def _log(source: Path) -> str:
    if str(source) == "-":
        return sys.stdin.buffer.read().decode(errors="replace")
    try:
        return source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"`{source}` cannot be read: {error.strerror}", hint="name a pod's log, or `-`") from error
