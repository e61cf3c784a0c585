"""What stages say while they work: a protocol, so that they know nothing of terminals.

`console` implements it for people; `Silent` is for tests and library use. Everything here goes to stderr.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """A running piece of work."""

    def advance(self, amount: int) -> None:
        """`amount` more of the total (bytes, or items) is done."""

    def note(self, text: str) -> None:
        """The newest line of output, shown beside the title while it runs and kept for the failure."""

    def fail(self) -> None:
        """It comes to its end, and what it was to find out is bad: the line at its end must not read like a pass."""


class Story(Protocol):
    """Where stages tell what they do."""

    def say(self, text: str) -> None:
        """One line."""

    def warn(self, text: str) -> None:
        """One line that the user should not miss."""

    def task(self, title: str, total: int | None = None, unit: str = "bytes") -> AbstractContextManager[Task]:
        """Work with a progress display (`unit`: `bytes` or `items`); at its end one line with the seconds it took."""


class SilentTask:
    """A task that nobody watches."""

    def advance(self, amount: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def fail(self) -> None:
        """Nothing."""


class Silent:
    """A story that nobody reads."""

    def say(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    @contextmanager
    def task(self, title: str, total: int | None = None, unit: str = "bytes") -> Iterator[Task]:
        """Run the work, say nothing."""
        yield SilentTask()
