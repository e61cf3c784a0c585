"""The console: what people and CI logs read on stderr."""

import io
import os
import re

import pytest
from rich.console import Group
from rich.text import Text

from pipeline.console import Console
from pipeline.errors import InputError
from pipeline.report.tables import table


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


def test_a_task_that_found_what_is_bad_does_not_read_like_a_pass() -> None:
    made, stream = console()
    with made.task("checking") as task:
        task.fail()
    assert stream.getvalue() == "✗ checking 0.0 s\n"


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


def test_what_images_and_registries_say_does_not_reach_the_terminal_as_commands() -> None:
    made, stream = console()
    made.show(Group(Text("a\x1b[2J\u202eb\ud800"), table("[x]\x07")))
    made.say("c\x9bd\re")
    assert "a\\x1b[2J\\u202eb\\ud800\n" in stream.getvalue()
    assert stream.getvalue().endswith("c\\x9bd\\re\n")
    assert "\x1b" not in stream.getvalue()


def test_a_table_keeps_its_colours_on_a_terminal() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    Console(stderr=stream, environment={"TERM": "xterm"}).show(Text("failed", style="red"))
    assert stream.getvalue() == "\x1b[31mfailed\x1b[0m\n"


def test_what_others_say_gives_github_no_commands() -> None:
    made, stream = console(GITHUB_ACTIONS="true")
    made.say("a::b\n  ::error::x\n##[error]y")
    told = table("", "")
    told.add_row("a", "b\n::stop-commands::x")
    made.show(told)
    made.warn("ours")
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["a::b", "  :: error::x", "## [error]y"]
    assert [line for line in lines if re.match(r"\s*(::\S|##\[)", line)] == ["::warning::ours"]
    assert any(":: stop-commands" in line for line in lines)


def test_a_story_that_nobody_reads_any_more_ends_nothing() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        made = Console(stderr=stream, environment={})
        made.say("to `head`, which is gone")
        made.error(InputError("no"))
