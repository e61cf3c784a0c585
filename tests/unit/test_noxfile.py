"""The sessions: what they hand to the verbs, and what they hand back."""

from typing import Any, cast

import nox

import noxfile


class Recorded:
    def __init__(self) -> None:
        self.wanted: dict[str, Any] = {}

    def run(self, *argv: str, **wanted: Any) -> None:
        self.wanted = wanted


def test_the_story_stays_out_of_the_data_on_stdout() -> None:
    session = Recorded()
    noxfile.run(cast(nox.Session, session), "true")
    assert session.wanted["stderr"] is None
