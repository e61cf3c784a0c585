"""BuildKit's progress stream, recorded from the real one."""

import io
from pathlib import Path

from pipeline.buildlog import BuildLog, Failure

DATA = Path(__file__).parent.parent / "data" / "buildkit"


def read(name: str, *, secrets: tuple[str, ...] = ()) -> tuple[BuildLog, str, list[str]]:
    log, notes = io.StringIO(), list[str]()
    said = BuildLog(log, notes.append, secrets)
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        said.line(line)
    return said, log.getvalue(), notes


def test_the_log_shows_each_step_with_its_output_and_the_seconds_it_took() -> None:
    _, log, _ = read("built")
    assert "[root 2/2] RUN " in log
    assert "| one\n" in log
    assert " done (0." in log


def test_a_line_that_was_drawn_over_shows_as_it_ended() -> None:
    _, log, _ = read("built")
    assert "| 100%\n" in log
    assert "20%" not in log.replace("20%%", "")


def test_output_without_a_last_newline_is_kept() -> None:
    _, log, _ = read("built")
    assert "| unfinished\n" in log


def test_the_newest_line_is_noted_while_it_works() -> None:
    _, _, notes = read("built")
    assert "one" in notes
    assert any(note.startswith("exporting to image: pushing layers") for note in notes)


def test_steps_that_ran_are_told_from_those_in_the_cache() -> None:
    assert len(read("built")[0].executed) == 2
    assert read("cached")[0].executed == ()


def test_a_failed_step_is_named_with_the_end_of_its_output() -> None:
    failure = read("run-fails")[0].failure()
    assert failure.step.startswith("[root 2/2] RUN ")
    assert failure.error.endswith("exit code: 3")
    assert failure.tail == ("fetching wheels", "ERROR: no matching distribution")


def test_a_missing_cache_is_never_the_reason() -> None:
    said, log, _ = read("run-fails")
    assert "buildcache-v1.0-app-zstd7: not found" in log
    assert "buildcache" not in said.failure().error


def test_a_failed_push_is_told_apart_from_a_failed_step() -> None:
    failure = read("push-fails")[0].failure()
    assert failure.step == "exporting to image"
    assert failure.error.startswith("failed to push localhost:5799/candidates/family")


def test_what_the_builder_never_started_has_no_step_of_the_dockerfile() -> None:
    assert read("builder-gone")[0].failure() == Failure(
        step="[internal] waiting for connection", error="context deadline exceeded", tail=()
    )


def test_words_of_buildx_itself_are_the_reason_when_there_is_no_vertex() -> None:
    said = BuildLog(io.StringIO(), lambda _: None)
    said.line('ERROR: no builder "x" found')
    assert said.failure() == Failure(step="", error='no builder "x" found', tail=('ERROR: no builder "x" found',))


def test_an_error_that_goes_on_over_lines_is_kept_whole() -> None:
    said = BuildLog(io.StringIO(), lambda _: None)
    for line in ("ERROR: failed to solve: failed to push x: errors:", "blob unknown: blob unknown to registry"):
        said.line(line)
    assert said.failure().error == "failed to push x: errors:\nblob unknown: blob unknown to registry"


def test_lines_that_are_no_events_are_kept_and_stop_nothing() -> None:
    log = io.StringIO()
    said = BuildLog(log, lambda _: None)
    odd = (
        "{",
        "{}",
        "[]",
        '{"vertexes": [{}]}',
        '{"vertexes": 3}',
        '{"logs": [{"vertex": "x"}]}',
        '{"statuses": [{}]}',
        "WARNING: x",
    )
    for line in odd:
        said.line(line)
    assert "WARNING: x" in log.getvalue()
    assert said.fault is None


def test_a_full_disk_does_not_stop_the_reading() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    said = BuildLog(Full(), lambda _: None)
    said.line("one")
    said.line("two")
    assert said.fault is not None
    assert said.failure().tail == ("one", "two")


def test_passwords_are_in_neither_the_log_nor_the_notes() -> None:
    _, log, notes = read("built", secrets=("one",))
    assert "| one" not in log
    assert "one" not in notes
