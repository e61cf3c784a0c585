"""Every error that the pipeline raises on purpose, with its exit code.

One class an exit code; what needs a name of its own derives from one of them and keeps its code. Anything that is not
a `PipelineError` is a bug and ends with a traceback and exit code 1.
"""

import errno
from collections.abc import Sequence
from typing import ClassVar

from pipeline import names


class PipelineError(Exception):
    """Base of all errors; `message` is lower case and names the thing in backticks, `hint` can be acted on."""

    exit_code: ClassVar[int]

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class InputError(PipelineError):
    """The catalog, the command line or a name is wrong."""

    exit_code = 2


class CatalogError(InputError):
    """The catalog, or `what` is read beside it, has faults; `problems` lists all of them as `file:line: text`."""

    def __init__(self, problems: Sequence[str], *, what: str = "the catalog", hint: str = "") -> None:
        self.problems = tuple(problems)
        count = f"{len(problems)} faults" if len(problems) != 1 else "1 fault"
        super().__init__(f"{what} has {count}\n" + "\n".join(f"  {p}" for p in problems), hint=hint)


class DockerfileError(InputError):
    """A Dockerfile says something that BuildKit would refuse, in `line`."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


class NothingSelected(PipelineError):
    """The words on the command line select nothing."""

    exit_code = 3


class ToolUnfit(PipelineError):
    """A tool is missing, too old or forbidden."""

    exit_code = 4


class ToolFailed(PipelineError):
    """A tool ran and failed, or what it left cannot be read."""

    exit_code = 5


class NotThere(ToolFailed):
    """The registry says that it does not hold the content asked for."""


class TooLarge(ToolFailed):
    """Content that is larger than the caller wants to read; nothing of it was believed."""


class CheckFailed(PipelineError):
    """A check of an image failed; its record was written first."""

    exit_code = 6


class PromotionRefused(PipelineError):
    """The policy does not allow it."""

    exit_code = 7


class TagConflict(PipelineError):
    """A tag names something else than was planned, or may not move."""

    exit_code = 8


class RegistryRefused(PipelineError):
    """The registry refused credentials or rights."""

    exit_code = 9


class Temporary(PipelineError):
    """The machine, the network or a registry is at fault for now: try again, perhaps elsewhere."""

    exit_code = 75


class Interrupted(PipelineError):
    """The user, or the system, stopped the run by a signal."""

    exit_code = 130


class Terminated(PipelineError):
    """The run was asked to end by SIGTERM."""

    exit_code = 143


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def of_the_machine(error: OSError) -> PipelineError | None:
    """A full disk, a right that lacks, a file where a folder must be: for callers that meet what no edge has translated.

    `None` when it is a bug.
    """
    if error.errno in _FULL:
        return Temporary(f"the disk is full: {error}", hint="free some space, then run the same command again")
    if error.errno in _FORBIDDEN and error.filename:
        path = error.filename2 or error.filename
        return InputError(
            f"`{path}` cannot be used: {error.strerror}",
            hint=f"make it yours, or name another folder (of the cache: {names.ENV_CACHE})",
        )
    return None


SEVERITY = (1, 9, 8, 5, 6, 7, 75)
"""Of several images' exit codes, the first of these that occurred is the run's."""


def worst(codes: Sequence[int]) -> int:
    """The exit code of a run over several images; 0 when all are 0."""
    occurred = set(codes) - {0}
    for code in SEVERITY:
        if code in occurred:
            return code
    return max(occurred, default=0)
