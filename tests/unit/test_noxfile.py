"""The sessions: what they hand to the verbs, and what they hand back."""

import argparse
import sys
from typing import Any, cast

import nox
import pytest
from nox import registry

import noxfile as noxfile  # registers its sessions
from pipeline import sessions
from pipeline.arguments import parser


class Recorded:
    def __init__(self) -> None:
        self.argv: tuple[str, ...] = ()
        self.wanted: dict[str, Any] = {}
        self.posargs: list[str] = []

    def run(self, *argv: str, **wanted: Any) -> None:
        self.argv, self.wanted = argv, wanted


def test_the_story_stays_out_of_the_data_on_stdout() -> None:
    session = Recorded()
    sessions.run(cast(nox.Session, session), "true")
    assert session.wanted["stderr"] is None


def test_every_verb_is_a_session() -> None:
    (verbs,) = (action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert set(sessions.VERBS) == set(verbs)


def test_two_lines_give_a_project_all_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", {})
    sessions.register()
    assert set(registry._REGISTRY) == set(sessions.VERBS)
    assert not [name for name, made in registry._REGISTRY.items() if made.default], "`nox` alone must not release anything"
    session = Recorded()
    session.posargs = ["app", "--keep"]
    registry._REGISTRY["test"].func(cast(nox.Session, session))
    assert session.argv == (sys.executable, "-m", "pipeline", "test", "app", "--keep")
    assert session.wanted["interrupt_timeout"] > 0


def test_the_locks_are_solved_by_the_words_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noxfile, "environment", lambda *_: "python")
    session = Recorded()
    session.posargs = ["--upgrade"]
    registry._REGISTRY["relock"].func(cast(nox.Session, session))
    assert session.argv == ("python", "-m", "tests.relock", "--upgrade")
