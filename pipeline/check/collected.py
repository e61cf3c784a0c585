"""What a pod's log says of its lane, judged by the same rules as a lane that ran here.

A log without the whole result, or with two, is never a pass.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline import nvidia
from pipeline.blame import Case, Verdict, judge
from pipeline.check import causes, gates
from pipeline.check.bench import Options
from pipeline.check.pods import Ticket
from pipeline.check.ran import Ran, verdict
from pipeline.check.results import Ending, interpret
from pipeline.check.suite import Suite
from pipeline.command import Completed
from pipeline.compatibility import Claimed
from pipeline.errors import InputError, ToolFailed, ToolUnfit
from pipeline.failures import Failures, Row
from pipeline.gpus import ALL, Host
from pipeline.oci import Pinned
from pipeline.statements import Outcome, Reference, Tested

NONCE = re.compile(r"-----PIPELINE (?:JOB|RESULT) ([0-9a-f]{32})-----")
LINE = re.compile(r"[A-Za-z0-9+/=]+")
NO_REFERENCE = "in a pod no reference image runs"
GRANT = "ask for whole GPUs, and let no other device plugin share them out"
UNREAD = "the kernel's log, which is the node's"
KILLED = 137
CUT = "its log ends before the result: it was killed, evicted or out of time, or the log is not whole"
UNPACKED_LIMIT = 64 * 2**20
"""Bytes of a result."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Answer(_Part):
    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    error: str


class _Left(_Part):
    """What a pod left in its log."""

    result: str | None
    code: int
    timed_out: bool
    before: tuple[_Answer, ...]
    after: tuple[_Answer, ...]
    node: str
    started: float
    finished: float


def nonce(log: str) -> str:
    """The nonce of the job whose log it is; raises `InputError` when there is none, or more than one."""
    found = set(NONCE.findall(log))
    if not found:
        raise InputError(
            "the log is of no jobs of ours",
            hint="give a pod's whole log: `kubectl logs job/NAME -c run`; where none began, "
            "`kubectl describe job/NAME` or `kubectl logs job/NAME -c prepare` says why",
        )
    if len(found) > 1:
        raise InputError(f"the log is of {len(found)} jobs of ours", hint="give one after the other, each its own `--collect`")
    return str(found.pop())


def collect(log: str, ticket: Ticket, suite: Suite, failures: Failures, *, now: datetime) -> Tested:
    """The record of the lane; raises `InputError` when the checks of this checkout are not those that ran."""
    if suite.hash != ticket.suite:
        raise InputError(
            f"`{ticket.image}`: the checks of the lane `{ticket.lane}` are not those that ran",
            hint=f"render it again: `test --render kubernetes {ticket.image}`",
        )
    left = _left(log, ticket)
    ran = _ran(left, ticket, suite, failures) if left else _cut(ticket, suite)
    started, finished = (_moment(left.started), _moment(left.finished)) if left else (now, now)
    return ran.record(ticket.image, Pinned.parse(ticket.subject), suite, started=started, finished=finished, run=ticket.run)


def _left(log: str, ticket: Ticket) -> _Left | None:
    """The result between its marks; each line may have the time or the pod's name in front of it."""
    begin, end = f"-----PIPELINE RESULT {ticket.nonce}-----", f"-----PIPELINE END {ticket.nonce} "
    if log.count(begin) > 1:
        raise InputError("the log holds two results of one job", hint="what runs in the image writes them: look at its log")
    _, _, rest = log.partition(begin)
    packed, found, last = rest.partition(end)
    lines = (line.split()[-1] for line in packed.splitlines() if line.split())
    words = "".join(word for word in lines if LINE.fullmatch(word))
    whole = hashlib.sha256(words.encode()).hexdigest()
    return _unpacked(words) if found and last[:64] == whole else None


def _unpacked(words: str) -> _Left | None:
    try:
        text = zlib.decompressobj().decompress(base64.b64decode(words, validate=True), UNPACKED_LIMIT)
        return _Left.model_validate_json(text)
    except (ValueError, zlib.error, ValidationError):
        return None


def _cut(ticket: Ticket, suite: Suite) -> Ran:
    found = interpret(suite.checks, None, Ending(code=KILLED), nonce=ticket.nonce, suite=suite.hash)
    return Ran(verdict=Verdict(outcome=Outcome.ERROR, reason=CUT), found=found, machine=_machine(""))


def _ran(left: _Left, ticket: Ticket, suite: Suite, failures: Failures) -> Ran:
    if ticket.lane == "gpu":
        return _on_gpus(left, ticket, suite, failures)
    ran, row = _checked(left, ticket, suite, failures, ())
    return replace(ran, verdict=replace(ran.verdict, cause=row.name, remedy=row.remedy)) if row else ran


def _on_gpus(left: _Left, ticket: Ticket, suite: Suite, failures: Failures) -> Ran:
    """As the GPU lane here: gates, checks, and what became worse meanwhile; without a reference image."""
    before, after = _host(left.before, left.node), _host(left.after, left.node)
    chosen, shut = gates.passable(before, suite.claims, ALL)
    if not shut and len(before.gpus) != ticket.gpus:
        reason = f"the pod was given {len(before.gpus)} GPUs, and {ticket.gpus} were asked for"
        shut = Verdict(outcome=Outcome.INFRASTRUCTURE, reason=reason, remedy=GRANT)
    machine = {**_machine(left.node), **gates.told(before)}
    if shut:
        return Ran(verdict=shut, gpus=chosen, machine=machine)
    facts = ("driver-below-claim",) if Claimed.of(suite.claims).driver_refusal(before.driver) else ()
    ran, row = _checked(left, ticket, suite, failures, facts)
    reference, events = Reference(origin=NO_REFERENCE), gates.worse(before, after, chosen)
    case = Case(outcome=ran.verdict.outcome, reason=ran.verdict.reason, reference=reference, row=row, events=events)
    return replace(ran, verdict=judge(case), gpus=chosen, machine=machine, reference=reference, events=events)


def _checked(left: _Left, ticket: Ticket, suite: Suite, failures: Failures, facts: Sequence[str]) -> tuple[Ran, Row | None]:
    """What the result file says, and what is known of a failure."""
    content = None if left.result is None else base64.b64decode(left.result)
    ending = Ending(code=left.code, deadline=ticket.seconds if left.timed_out else None)
    found = interpret(suite.checks, content, ending, nonce=ticket.nonce, suite=suite.hash)
    ran = Ran(verdict=verdict(found, Options()), found=found, machine=_machine(left.node))
    good = ran.verdict.outcome in (Outcome.PASSED, Outcome.NOT_RUN)
    return ran, None if good else causes.of_checks(found, failures, facts)


def _host(answers: Sequence[_Answer], node: str) -> Host:
    """The node as its answers tell, by the code that asks a machine here."""
    known = {answer.argv: answer for answer in answers}

    def ask(argv: Sequence[str]) -> Completed:
        answer = known.get(tuple(argv))
        if answer is None:
            raise ToolFailed(f"the pod was not asked `{' '.join(argv)}`")
        if answer.error:
            raise ToolUnfit(f"`{argv[0]}` cannot be started in the pod: {answer.error}")
        return Completed(argv=answer.argv, code=answer.code, stdout=answer.stdout, stderr=answer.stderr, seconds=0.0)

    found = nvidia.examine(ask=ask, driver="", host=node)
    return found.model_copy(update={"unread": (*found.unread, UNREAD)})


def _machine(node: str) -> Mapping[str, str]:
    return {"engine": "kubernetes", **({"host": node} if node else {})}


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
