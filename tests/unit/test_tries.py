"""Exit code 75 is put off for another machine; nothing else is, and a suspected machine refuses itself."""

import argparse
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline import statements, tries
from pipeline.call import Call
from pipeline.errors import CheckFailed, InputError, NothingSelected, Temporary
from pipeline.settings import Settings
from pipeline.statements import Outcome
from pipeline.verbs.tries import put_off, refuse_suspected
from tests.cases import gpu, passed


class Said:
    def warn(self, text: str) -> None:
        self.text = text


def call(file: Path, *images: str) -> Call:
    return Call(
        arguments=argparse.Namespace(later=file, images=list(images)),
        settings=Settings(root=file.parent, cache=file.parent),
        environment={},
        run=cast(Any, None),
        console=cast(Any, Said()),
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        run_id="17",
    )


def ended(code: int, *tested: statements.Tested) -> Callable[[], tuple[int, Sequence[statements.Tested]]]:
    return lambda: (code, tested)


def test_a_lane_that_the_machine_is_to_blame_for_is_written_with_the_machine_and_its_gpus(tmp_path: Path) -> None:
    file = tmp_path / "later" / "h100-1.json"
    sick = passed("gpu", outcome=Outcome.INFRASTRUCTURE, reason="Xid 79", cause="fallen-off", gpus=[gpu("NVIDIA H100", 0)])
    assert put_off(call(file, "nlp lab"), ended(75, passed("cpu"), sick)) == 0
    found = tries.parse(file.name, file.read_bytes())
    assert (found.images, found.reason, found.cause) == (("nlp",), "Xid 79", "fallen-off")
    assert platform.node() in found.machines
    assert gpu("NVIDIA H100", 0).uuid in found.machines


def test_a_machine_that_could_not_begin_is_written_with_all_images(tmp_path: Path) -> None:
    def broken() -> tuple[int, Sequence[statements.Tested]]:
        raise Temporary("the engine does not answer")

    file = tmp_path / "h100-1.json"
    assert put_off(call(file, "nlp lab"), broken) == 0
    found = tries.parse(file.name, file.read_bytes())
    assert (found.images, found.reason) == (("nlp", "lab"), "the engine does not answer")


@pytest.mark.parametrize("code", [0, 1, 5, 6, 7, 8, 9])
def test_every_other_end_stays_as_it_is(tmp_path: Path, code: int) -> None:
    file = tmp_path / "h100-1.json"
    assert put_off(call(file, "nlp"), ended(code, passed("gpu"))) == code
    assert not file.exists()


def test_every_other_error_goes_through(tmp_path: Path) -> None:
    def failing() -> tuple[int, Sequence[statements.Tested]]:
        raise CheckFailed("matmul")

    with pytest.raises(CheckFailed):
        put_off(call(tmp_path / "h100-1.json", "nlp"), failing)


def test_what_is_put_off_names_its_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is about the images of one job"):
        put_off(call(tmp_path / "h100-1.json"), ended(75))


@pytest.mark.parametrize("words", [[""], [" "], ["nlp", ""]])
def test_an_empty_word_never_means_all_images(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(NothingSelected, match="an empty word"):
        _ = call(tmp_path / "x", *words).images


def test_several_images_in_one_word_are_several(tmp_path: Path) -> None:
    assert call(tmp_path / "x", "nlp lab", "os").images == ["nlp", "lab", "os"]


def engine(host: str, *, here: bool = True) -> Any:
    return SimpleNamespace(facts=SimpleNamespace(machine={"host": host}), here=here)


def hardware(*gpus: Any) -> Any:
    return SimpleNamespace(examine=lambda _: SimpleNamespace(gpus=gpus))


@pytest.mark.parametrize("avoid", [["node-7"], [platform.node()], ["GPU-x", gpu("NVIDIA H100", 0).uuid]])
def test_a_suspected_machine_refuses_itself_by_name_or_by_its_gpus(avoid: list[str]) -> None:
    with pytest.raises(Temporary, match="is what the first try suspects"):
        refuse_suspected(avoid, engine("node-7"), hardware(gpu("NVIDIA H100", 0)))


def test_another_machine_takes_it() -> None:
    refuse_suspected(["node-9", "GPU-other"], engine("node-7"), hardware(gpu("NVIDIA H100", 0)))
    refuse_suspected([], engine("node-7"), hardware(gpu("NVIDIA H100", 0)))
