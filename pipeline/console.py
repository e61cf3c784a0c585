"""How the pipeline talks to people: the story on stderr, data on stdout.

Colour and live progress only on a terminal and without `NO_COLOR`; in CI, plain lines and the provider's folds.
"""

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console as Rich
from rich.console import RenderableType
from rich.markup import escape
from rich.segment import Segment, Segments

from pipeline.errors import PipelineError
from pipeline.story import Task

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

HEARTBEAT = 30.0
"""Seconds between signs of life of a long task where nothing can be drawn live."""
NOTE_WIDTH = 60
_COMMAND = re.compile(r"^(\s*)(::|##(?=\[))", re.MULTILINE)
"""How a line begins that GitHub Actions takes for a command."""


class Console:
    """The `Story` of a person at a terminal, or of a CI log."""

    def __init__(self, *, stderr: TextIO, environment: Mapping[str, str]) -> None:
        """Write to `stderr`; `environment` tells colour and CI."""
        self._provider = _provider(environment)
        self._rich = _Rich(file=stderr, stderr=True, highlight=False, soft_wrap=True, width=_width(environment, stderr))
        self._live: Progress | None = None
        self._users = 0
        self._lock = threading.RLock()

    def say(self, text: str) -> None:
        """One line."""
        self._print(escape(self._inert(text)))

    def warn(self, text: str) -> None:
        """One line that the user should not miss; an annotation in GitHub Actions."""
        if self._provider == "github":
            self._print(f"::warning::{escape(_one_line(text))}")
        else:
            self._print(f"[yellow]warning:[/] {escape(text)}")

    def show(self, what: RenderableType) -> None:
        """A table or other rendering; texts in it may come from images and registries."""
        with self._lock:
            told = self._rich.render(what, self._rich.options.update(no_wrap=True, overflow="ignore"))
            kept = [each if each.control else Segment(self._inert(each.text), each.style) for each in told]
            self._rich.print(Segments(kept), end="")

    def error(self, error: PipelineError) -> None:
        """An error as users see it: what, and what to do."""
        self._print(f"[bold red]error:[/] {escape(self._inert(error.message))}")
        if error.hint:
            self._print(f"\n[bold]hint:[/] {escape(self._inert(error.hint))}")

    @contextmanager
    def fold(self, title: str) -> Iterator[None]:
        """A part of the log that CI can fold away."""
        if self._provider == "github":
            self._print(f"::group::{escape(title)}")
        try:
            yield
        finally:
            if self._provider == "github":
                self._print("::endgroup::")

    @contextmanager
    def task(self, title: str, total: int | None = None, unit: str = "bytes") -> Iterator[Task]:
        """Work with a progress display, and a line with its seconds at the end."""
        started = time.monotonic()
        task: _Bar | _Heartbeat
        try:
            if self._rich.is_terminal and self._provider is None:
                with self._bar(title, total, unit) as task:
                    yield task
            else:
                with self._heart(title, total) as task:
                    yield task
        except BaseException:
            self._ended(title, started, failed=True)
            raise
        self._ended(title, started, failed=task.failed)

    def _ended(self, title: str, started: float, *, failed: bool) -> None:
        mark = "[red]✗[/]" if failed else "[green]✓[/]"
        self._print(f"{mark} {escape(title)} [dim]{_seconds(time.monotonic() - started)}[/]")

    @contextmanager
    def _bar(self, title: str, total: int | None, unit: str) -> Iterator["_Bar"]:
        with self._lock:
            self._users += 1
            if self._live is None:
                self._live = _progress(self._rich)
                self._live.start()
            live = self._live
        row = live.add_task(escape(title), total=total, note="", unit=unit)
        try:
            yield _Bar(live, row)
        finally:
            live.remove_task(row)
            with self._lock:
                self._users -= 1
                if not self._users:
                    live.stop()
                    self._live = None

    @contextmanager
    def _heart(self, title: str, total: int | None) -> Iterator["_Heartbeat"]:
        beat = _Heartbeat(self, title, total)
        beat.start()
        try:
            yield beat
        finally:
            beat.end()

    def _inert(self, text: str) -> str:
        """`inert`; and where GitHub reads along, no line of others' that it would take for a command."""
        return _COMMAND.sub(r"\1\2 ", inert(text)) if self._provider == "github" else inert(text)

    def _print(self, markup: str) -> None:
        with self._lock:
            self._rich.print(inert(markup))


class _Rich(Rich):
    def on_broken_pipe(self) -> None:
        """Whoever read the story is gone; the work goes on to its own end and exit code."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class _Judged:
    failed = False

    def fail(self) -> None:
        self.failed = True


class _Bar(_Judged):
    def __init__(self, live: "Progress", row: "TaskID") -> None:
        self._live, self._row = live, row

    def advance(self, amount: int) -> None:
        self._live.advance(self._row, amount)

    def note(self, text: str) -> None:
        self._live.update(self._row, note=escape(text.strip()[:NOTE_WIDTH]))


class _Heartbeat(_Judged, threading.Thread):
    """Tells every `HEARTBEAT` seconds that the task still runs."""

    def __init__(self, console: Console, title: str, total: int | None) -> None:
        super().__init__(daemon=True)
        self._console, self._title, self._total = console, title, total
        self._done, self._note, self._over = 0, "", threading.Event()

    def advance(self, amount: int) -> None:
        self._done += amount

    def note(self, text: str) -> None:
        self._note = text.strip()[:NOTE_WIDTH]

    def run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(HEARTBEAT):
            share = f" {self._done * 100 // self._total} %" if self._total else ""
            note = f": {self._note}" if self._note else ""
            self._console.say(f"… {self._title}{share}, {_seconds(time.monotonic() - started)}{note}")

    def end(self) -> None:
        self._over.set()


def inert(text: str) -> str:
    """`text` with nothing that a terminal would act upon: an image's own words could wipe out what was said of it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _progress(rich: Rich) -> "Progress":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    return Progress(*columns, console=rich, transient=True)


def _provider(environment: Mapping[str, str]) -> str | None:
    if environment.get("GITHUB_ACTIONS"):
        return "github"
    return "other" if environment.get("CI") else None


def _one_line(text: str) -> str:
    """`text` as a workflow command takes it: GitHub reads a new line as the end of the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _width(environment: Mapping[str, str], stream: TextIO) -> int | None:
    return None if stream.isatty() else int(environment.get("COLUMNS") or 160)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"
