"""The console: what people and CI logs read on stderr."""

import io

import pytest

from pipeline.console import Console
from pipeline.errors import InputError


def console(**environment: str) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(stderr=stream, environment=environment), stream


def test_an_error_names_the_thing_and_ends_with_what_to_do() -> None:
    made, stream = console()
    made.error(InputError("no image `npl`", hint="did you mean `nlp`?"))
    assert stream.getvalue() == "error: no image `npl`\n\nhint: did you mean `nlp`?\n"


def test_brackets_in_texts_are_not_markup() -> None:
    made, stream = console()
    made.say("tags [red]x[/] and [/nothing]")
    assert stream.getvalue() == "tags [red]x[/] and [/nothing]\n"


def test_a_task_ends_with_a_line_that_has_its_seconds() -> None:
    made, stream = console()
    with made.task("pulling", total=3, unit="items") as task:
        task.advance(3)
        task.note("layer 3")
    assert stream.getvalue() == "✓ pulling 0.0 s\n"


def test_a_task_that_fails_says_so_and_the_error_goes_on() -> None:
    made, stream = console()
    with pytest.raises(InputError), made.task("pulling"):
        raise InputError("no")
    assert stream.getvalue() == "✗ pulling 0.0 s\n"


def test_warnings_and_folds_are_githubs_own_in_github_actions() -> None:
    made, stream = console(GITHUB_ACTIONS="true", CI="true")
    with made.fold("build"):
        made.warn("careful")
    assert stream.getvalue() == "::group::build\n::warning::careful\n::endgroup::\n"


def test_a_newline_in_a_warning_stays_within_its_annotation() -> None:
    made, stream = console(GITHUB_ACTIONS="true")
    made.warn("one\n::error::two")
    assert stream.getvalue() == "::warning::one%0A::error::two\n"


def test_a_long_line_is_not_broken() -> None:
    made, stream = console()
    made.say("x" * 500)
    assert stream.getvalue() == "x" * 500 + "\n"
