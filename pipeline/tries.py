"""First tries that a machine is to blame for: what is tried again, where not, and which machine is to blame how often; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.catalog import ImageName
from pipeline.errors import InputError

Machine = Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\z")]


class Try(BaseModel):
    """A job that ended with exit code 75, and so says nothing of its images."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: Annotated[tuple[ImageName, ...], Field(min_length=1)]
    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    """The names of the machine, and its GPUs' UUIDs: none of them may try it again."""
    reason: Annotated[str, Field(max_length=2000)]
    cause: Annotated[str, Field(max_length=100)] = ""
    """The row of `failures.yaml` that knows it."""


def parse(name: str, content: bytes) -> Try:
    """What `test --later` wrote; raises `InputError` for anything else."""
    try:
        return Try.model_validate_json(content)
    except ValidationError as error:
        raise InputError(
            f"`{name}` is no file of `test --later`: {error.errors()[0]['msg']}", hint="give the files of this run alone"
        ) from error


def markdown(tries: Mapping[str, Try]) -> str:
    """The causes of each machine, counted, for a summary in CI."""
    if not tries:
        return "Nothing is tried again.\n"
    counted = Counter((one.machines[0], one.cause or _inert(one.reason)) for one in tries.values())
    rows = [f"| `{machine}` | {cause} | {count} |" for (machine, cause), count in sorted(counted.items())]
    jobs = [f"- `{job}` is tried once more, on another machine: {', '.join(one.images)}" for job, one in sorted(tries.items())]
    return "\n".join(["| machine | cause | jobs |", "| --- | --- | --- |", *rows, "", *jobs]) + "\n"


def suspected(here: Sequence[str], avoid: Sequence[str]) -> Sequence[str]:
    """What of this machine is among those to avoid."""
    return [one for one in here if one in set(avoid)]


def _inert(text: str) -> str:
    line = text.partition("\n")[0][:200]
    return line.replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(").replace("\r", " ")
