"""Whether a machine may still be given GPU work: three proved faults of its own in a row, and it refuses more.

Only what was proved to be the machine's counts: its own report, or a known-good image that failed on it. Words of the
image that was checked prove nothing, so a bad image cannot take a machine out of service. A passed lane begins the count
anew; once three are reached only a person lifts the refusal, so that a sick machine does not eat the queue of jobs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, unquote

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.errors import ToolUnfit
from pipeline.records import write_text

LIMIT = 3
"""Strikes in a row."""
KEPT = 10
"""Strikes that are remembered: lanes that ran side by side may add some after the third."""
LOCK_SECONDS = 120.0
"""Longest wait for another process that reads or writes the state, which takes milliseconds."""
CLEAR = "`nox -s doctor -- --clear`"


class Strike(BaseModel):
    """One fault that was proved to be the machine's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    run: str
    at: datetime


class Strikes(BaseModel):
    """The content of a machine's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    strikes: tuple[Strike, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether the machine is quarantined."""
        return len(self.strikes) >= LIMIT


@dataclass(frozen=True)
class Quarantine:
    """The strikes of the machine `host`, in a file of `folder`; several processes may use it at once."""

    folder: Path
    host: str

    @property
    def path(self) -> Path:
        """The machine's file; there is none while it has no strikes."""
        return self.folder / f"{quote(self.host, safe='')}.json"

    def refusal(self) -> str:
        """Why GPU work is refused, since when, and what lifts it; empty when it is not.

        A state that cannot be read or kept refuses too.
        """
        try:
            with self._locked():
                state = self._read()
        except ToolUnfit as error:
            return f"{error.message}, so GPU work is refused; {error.hint}"
        if not state.enough:
            return ""
        since, last = state.strikes[LIMIT - 1].at.isoformat(timespec="seconds"), state.strikes[-1]
        return (
            f"`{self.host}` is quarantined since {since}, after {len(state.strikes)} faults of its own in a row, "
            f"the last in run {last.run}: {last.reason}; mend it, then {CLEAR}"
        )

    def strike(self, reason: str, *, run: str, at: datetime) -> None:
        """Count a fault that was proved to be the machine's. Raises `ToolUnfit` when it cannot be kept."""
        with self._locked():
            strikes = (*self._read().strikes, Strike(reason=reason, run=run, at=at))
            state = Strikes(strikes=(*strikes[:LIMIT], *strikes[LIMIT:][-(KEPT - LIMIT) :]))
            write_text(self.path, state.model_dump_json(indent=1))

    def passed(self) -> None:
        """A lane passed: the strikes are forgotten, unless the machine is quarantined by now. Raises `ToolUnfit`."""
        with self._locked():
            if not self._read().enough:
                self.path.unlink(missing_ok=True)

    def clear(self) -> bool:
        """Lift the quarantine and forget all strikes, also unreadable ones; whether there were any. Raises `ToolUnfit`."""
        with self._locked():
            there = self.path.exists()
            self.path.unlink(missing_ok=True)
            return there

    def _read(self) -> Strikes:
        try:
            return Strikes.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return Strikes()
        except (ValidationError, ValueError) as error:
            raise ToolUnfit(f"`{self.path}` holds no strikes that can be read", hint=f"{CLEAR} removes it") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock"), timeout=LOCK_SECONDS):
                yield
        except OSError as error:
            told = error.strerror or "another process holds its lock"
            hint = f"make `{self.folder}` yours, or name another cache with PIPELINE_CACHE"
            raise ToolUnfit(f"the strikes of `{self.host}` cannot be kept in `{self.folder}`: {told}", hint=hint) from error


def recorded(folder: Path) -> tuple[Quarantine, ...]:
    """The machines that have strikes in `folder`."""
    return tuple(Quarantine(folder, unquote(path.stem)) for path in sorted(folder.glob("*.json")))
