"""Issues about what is released: one for each image with which something is wrong, closed when nothing is any longer; pure.

The texts are for GitHub: its robot's own issues alone count, since anybody may open one with the same title.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pipeline.catalog import ImageName
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.policy import Judged

ROBOT = "github-actions[bot]"
"""Who writes with the token of a job."""
AGEING = ("scan", "vulnerabilities", "end-of-life")
"""Rules that an image breaks by the passing of time alone."""
SOUND = ("policy", "unreadable", "crowd", "future", "signature")
"""Rules without which nobody knows whether a newer look-up says something else."""
LONGEST = 60_000
"""Characters of an issue; GitHub takes 65,536."""
DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})(?![0-9a-f])")


class Notice(BaseModel):
    """What is known of one released image; nothing in both texts where nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: ImageName
    subject: Annotated[str, Field(pattern=r"\A\S+@sha256:[0-9a-f]{64}\z")]
    """The released digest, as a reference."""
    text: str = ""
    """What is wrong, or will be, as Markdown."""
    clear: str = ""
    """Why nothing is wrong, as one sentence."""


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One that is open."""

    number: int
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of GitHub's API; `path` is below that of the repository."""

    method: str
    path: str
    body: Mapping[str, str]


class _Author(BaseModel):
    login: str


class _Listed(BaseModel):
    number: int
    title: str
    body: str | None = None
    user: _Author | None = None
    pull_request: Any = None


_PAGES = TypeAdapter(list[list[_Listed]])


def parse(name: str, content: bytes) -> Notice:
    """What `verify --issues` wrote; raises `InputError` for anything else."""
    try:
        return Notice.model_validate_json(content)
    except ValidationError as error:
        raise InputError(
            f"`{name}` is no file of `verify --issues`: {error.errors()[0]['msg']}", hint="give the files of this run alone"
        ) from error


def issues(content: bytes) -> tuple[Issue, ...]:
    """The robot's own issues among pages of open ones, as GitHub lists them; raises `InputError` for anything else."""
    try:
        pages = _PAGES.validate_json(content)
    except ValidationError as error:
        raise InputError(
            f"these are no pages of issues: {error.errors()[0]['msg']}",
            hint='`gh api --paginate --slurp "repos/OWNER/NAME/issues?state=open&per_page=100"` writes them',
        ) from error
    own = (one for page in pages for one in page if one.user and one.user.login == ROBOT and one.pull_request is None)
    return tuple(Issue(number=one.number, title=one.title, body=one.body or "") for one in own)


def requests(notices: Sequence[Notice], there: Sequence[Issue]) -> Iterator[Request]:
    """What is to be written so that each image has one open issue while something is wrong with it, and none afterwards.

    Of an image that nobody knows enough of, or that has no notice, everything stays as it is. Twice the same asks for nothing.
    """
    for notice in notices:
        own = sorted((one for one in there if one.title == _title(notice.image)), key=lambda one: one.number)
        if notice.text:
            yield from _told(notice, own)
        elif notice.clear:
            yield from (request for one in own for request in _closed(notice, one))


def markdown(notices: Sequence[Notice], there: Sequence[Issue]) -> str:
    """What became of each image, for a summary in CI; issues of which nothing was told are named, since they stay open."""
    rows = [f"| {one.image} | {_state(one)} |" for one in notices]
    titles = {_title(one.image) for one in notices if one.text or one.clear}
    left = [f"#{one.number}" for one in there if one.title.endswith(_title("")) and one.title not in titles]
    stay = ["", f"Left open, since nobody could say anything of their images: {', '.join(left)}"] if left else []
    return "\n".join(["| image | |", "| --- | --- |", *rows, *stay]) + "\n"


def clear(judged: "Judged") -> str:
    """Why time has made nothing wrong with an image, as one sentence; empty where it has, and where that is not known."""
    rules = {one.code: one for one in judged.rules}
    ageing = [rules[code] for code in AGEING]
    if not all(rules[code].held for code in SOUND) or not all(one.held or one.waived for one in ageing):
        return ""
    excepted = sorted({f"`{name}`" for one in ageing for name in one.exceptions})
    said = f"all that is known of it is excepted: {', '.join(excepted)}" if excepted else "nothing that it asks about has a fix"
    return f"Judged {judged.at:%Y-%m-%d %H:%M} UTC by the policy `{judged.policy}`: {said}."


def _title(image: str) -> str:
    return f"{image}: vulnerabilities in what is released"


def _told(notice: Notice, own: Sequence[Issue]) -> Iterator[Request]:
    body = _fitting(notice.text)
    if not own:
        yield Request(method="POST", path="issues", body={"title": _title(notice.image), "body": body})
    elif own[0].body.split() != body.split():
        yield Request(method="PATCH", path=f"issues/{own[0].number}", body={"body": body})


def _closed(notice: Notice, issue: Issue) -> Iterator[Request]:
    """Closed first: whatever fails between the two, no night says it twice."""
    yield Request(method="PATCH", path=f"issues/{issue.number}", body={"state": "closed", "state_reason": "completed"})
    yield Request(method="POST", path=f"issues/{issue.number}/comments", body={"body": _why(notice, issue)})


def _why(notice: Notice, issue: Issue) -> str:
    was = DIGEST.search(issue.body)
    if was is None or notice.subject.endswith(was[1]):
        return f"`{notice.subject}`: {notice.clear}"
    gone = f"`{was[1]}`, which this was about, was superseded, rolled back or withdrawn"
    return f"{gone}: users get `{notice.subject}` now. {notice.clear}"


def _fitting(text: str) -> str:
    """As many lines as an issue takes, and how many are left out."""
    lines, kept, length = text.splitlines(), 0, 0
    while kept < len(lines) and (length := length + len(lines[kept]) + 1) <= LONGEST:
        kept += 1
    left = len(lines) - kept
    return "\n".join([*lines[:kept], *([f"\n{left} lines more are in the run's summary."] if left else [])]) + "\n"


def _state(notice: Notice) -> str:
    return "something is wrong, or will be" if notice.text else "nothing is wrong" if notice.clear else "nobody knows"
