"""BuildKit's progress stream (`--progress=rawjson`): a log that people can read, the newest line, and why it failed.

Format: BuildKit's `client.SolveStatus` as JSON lines, mixed with plain lines of buildx itself.
"""

import base64
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

from pipeline.redaction import redact

TAIL_LINES = 20
"""Lines of a failed step's output that are repeated."""

_STEP = re.compile(r"\[[^\]]*\d+/\d+\] (?!FROM |LINK )")
"""A line of the Dockerfile that is work: not where a stage begins, nor a link of what a `COPY --link` has made."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a build failed: the step, empty when it was none; buildx's words; the end of what was said."""

    step: str
    error: str
    tail: tuple[str, ...]


@dataclass
class _Vertex:
    number: int
    name: str
    state: str = ""
    error: str = ""
    rest: str = ""
    parts: set[str] = field(default_factory=set)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))


class BuildLog:
    """Reads the stream line by line, writes the log, and remembers what a failure is explained by."""

    def __init__(self, log: TextIO, note: Callable[[str], None], secrets: tuple[str, ...] = ()) -> None:
        """`note` gets the newest line; `secrets` are kept out of both."""
        self._log, self._note, self._secrets = log, note, secrets
        self._vertexes: dict[str, _Vertex] = {}
        self._plain: deque[str] = deque(maxlen=TAIL_LINES)
        self.fault: OSError | None = None
        """Why the log could not be written; the stream is read on, or buildx would wait for its reader."""

    def line(self, text: str) -> None:
        """One line of buildx's stderr."""
        try:
            self._take(text, _event(text))
        except (KeyError, TypeError, AttributeError, ValueError):
            self._take(text, None)

    def _take(self, text: str, event: Mapping[str, Any] | None) -> None:
        if event is None:
            self._plain.append(text)
            self._write(text)
            return
        for vertex in event.get("vertexes") or ():
            self._vertex(vertex)
        for status in event.get("statuses") or ():
            self._status(status)
        for output in event.get("logs") or ():
            self._output(output)

    @property
    def executed(self) -> tuple[str, ...]:
        """The Dockerfile's lines that really ran, those from the cache left out."""
        return tuple(vertex.name for vertex in self._vertexes.values() if _STEP.match(vertex.name) and vertex.state == "done")

    def failure(self) -> Failure:
        """What the stream says about a build that failed."""
        error = self._last_words()
        for vertex in reversed(self._vertexes.values()):
            if vertex.error and _explains(vertex, error):
                return Failure(step=vertex.name, error=vertex.error, tail=tuple(vertex.tail))
        return Failure(step="", error=error, tail=tuple(self._plain))

    def _last_words(self) -> str:
        """buildx's `ERROR: …`, which may go on over lines and is the last that it says."""
        said = "\n".join(("", *self._plain)).rpartition("\nERROR: ")
        return said[2].removeprefix("failed to solve: ") if said[1] else ""

    def _vertex(self, data: Mapping[str, Any]) -> None:
        vertex = self._vertexes.setdefault(data["digest"], _Vertex(len(self._vertexes) + 1, data.get("name", "")))
        vertex.error = data.get("error") or vertex.error
        state = _state(data)
        if state == vertex.state or not state:
            return
        self._flush(vertex)
        name = "" if vertex.state == "runs" else f"{vertex.name} "
        vertex.state = state
        self._write(f"#{vertex.number} {name}{_told(state, data)}".rstrip())
        if state == "runs":
            self._note(redact(vertex.name, self._secrets))

    def _status(self, data: Mapping[str, Any]) -> None:
        vertex = self._vertexes.get(data["vertex"])
        if vertex is not None and not data.get("completed"):
            self._note(redact(f"{vertex.name}: {data.get('id', '')}{_progress(data)}", self._secrets))
        elif vertex is not None and data.get("id") not in vertex.parts:
            vertex.parts.add(str(data.get("id")))
            self._write(f"#{vertex.number} {data.get('id')}{_took(data)}")

    def _output(self, data: Mapping[str, Any]) -> None:
        vertex = self._vertexes.get(data["vertex"])
        if vertex is None:
            return
        *lines, vertex.rest = (vertex.rest + base64.b64decode(data.get("data") or "").decode(errors="replace")).split("\n")
        for line in lines:
            self._said(vertex, line)

    def _flush(self, vertex: _Vertex) -> None:
        if vertex.rest:
            self._said(vertex, vertex.rest)
            vertex.rest = ""

    def _said(self, vertex: _Vertex, line: str) -> None:
        shown = redact(line.rstrip("\r").rpartition("\r")[2], self._secrets)
        vertex.tail.append(shown)
        self._write(f"#{vertex.number} | {shown}")
        self._note(shown)

    def _write(self, text: str) -> None:
        if self.fault:
            return
        try:
            self._log.write(redact(text, self._secrets) + "\n")
            self._log.flush()
        except OSError as error:
            self.fault = error


def _event(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _state(data: Mapping[str, Any]) -> str:
    if data.get("error"):
        return "failed"
    if data.get("cached"):
        return "cached"
    if data.get("completed"):
        return "done"
    return "runs" if data.get("started") else ""


def _told(state: str, data: Mapping[str, Any]) -> str:
    if state == "failed":
        return f"failed: {data['error']}"
    return {"runs": "", "cached": "cached"}.get(state, f"done{_took(data)}")


def _took(data: Mapping[str, Any]) -> str:
    started, completed = _moment(data.get("started")), _moment(data.get("completed"))
    return f" ({(completed - started).total_seconds():.1f} s)" if started and completed else ""


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _progress(data: Mapping[str, Any]) -> str:
    current, total = data.get("current") or 0, data.get("total") or 0
    return f" {current / 1e6:.0f} of {total / 1e6:.0f} MB" if total > 1_000_000 else ""


def _explains(vertex: _Vertex, error: str) -> bool:
    return vertex.error in error or (not error and "canceled" not in vertex.error)
