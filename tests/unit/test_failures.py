"""Whose fault a failure is: every row is found by its own texts and by nobody else's, and a faulty table is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import context, failures
from pipeline.errors import CatalogError, InputError
from pipeline.failures import Failures
from pipeline.settings import Settings

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "images" / "failures.yaml").read_bytes()
KNOWN = failures.parse(TABLE, "images/failures.yaml")
RECORDED: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "data" / "failures" / "recorded.yaml").read_bytes())
NAMES = [row.name for row in KNOWN.failures]


def name(known: Failures, said: dict[str, Any]) -> str:
    row = known.find(said["text"], code=said.get("code"), facts=said.get("facts", ()))
    return row.name if row else ""


def without(row: str) -> Failures:
    """The table without one row."""
    return Failures(failures=tuple(one for one in KNOWN.failures if one.name != row))


@pytest.mark.parametrize("said", RECORDED, ids=lambda said: said["row"])
def test_what_was_said_is_known_by_its_row(said: dict[str, Any]) -> None:
    assert name(KNOWN, said) == said["row"]
    whole_log = f"collected 3 items\n\nE   {said['text']}\n\n==== 1 failed in 2.31s ====\n"
    assert name(KNOWN, {**said, "text": whole_log}) == said["row"]


@pytest.mark.parametrize("row", NAMES)
def test_no_row_can_be_missed_and_none_disturbs_another(row: str) -> None:
    rest = without(row)
    own = [said for said in RECORDED if said["row"] == row]
    assert own
    assert [said for said in own if name(rest, said) == row] == []
    assert [said for said in RECORDED if said["row"] != row and name(rest, said) != said["row"]] == []


def test_every_text_and_code_of_a_row_was_heard() -> None:
    for row in KNOWN.failures:
        own = [said for said in RECORDED if said["row"] == row.name]
        for text in row.texts:
            assert any(" ".join(text.split()).casefold() in " ".join(said["text"].split()).casefold() for said in own), text
        assert set(row.codes) <= {said.get("code") for said in own}, row.name


def test_a_row_holds_under_its_conditions_alone() -> None:
    for row in KNOWN.failures:
        for text in row.texts:
            assert KNOWN.find(text, facts=row.when) == row
            assert not row.when or KNOWN.find(text) != row


def test_the_first_row_that_fits_decides_over_texts_and_codes() -> None:
    said = "RuntimeError: DataLoader worker (pid 8) is killed by signal: Bus error. "
    found = KNOWN.find(said, code=137)
    assert found is not None
    assert found.name == "shared-memory"


def test_what_nobody_knows_is_nobodys() -> None:
    assert KNOWN.find("AssertionError: 3 != 4", code=1) is None
    assert KNOWN.find("") is None
    assert failures.NONE.find("no space left on device", code=137) is None


def test_a_table_with_faults_is_refused_with_all_of_them() -> None:
    text = """\
failures:
  - name: first
    texts: [Something Broke here]
    owner: machine
    remedy: mend it
  - name: first
    texts: [before, "something broke  here today"]
    owner: nobody
    remedi: mend it
  - name: third
    texts: ["error"]
    codes: [137, 300, "139"]
    owner: image
    when: [driver-bellow-claim]
    remedy: ""
"""
    with pytest.raises(CatalogError) as caught:
        failures.parse(text.encode(), "f.yaml")
    assert list(caught.value.problems) == [
        "f.yaml:6: `failures[1].remedy` is missing",
        "f.yaml:7: `failures[1].texts[0]` would be found everywhere: give it 8 letters or more",
        "f.yaml:8: `failures[1].owner` must be `image`, `machine`, `reference` or `pipeline`, not `nobody`",
        "f.yaml:9: unknown key `failures[1].remedi`: did you mean `remedy`?",
        "f.yaml:11: `failures[2].texts[0]` would be found everywhere: give it 8 letters or more",
        "f.yaml:12: `failures[2].codes[1]` must be at most 255",
        "f.yaml:12: `failures[2].codes[2]` must be a whole number, not `139`",
        "f.yaml:14: `failures[2].when[0]` must be `driver-below-claim` or `driver-in-image`, not `driver-bellow-claim`",
        "f.yaml:15: `failures[2].remedy` is not one line of text: ``",
    ]


def test_rows_that_cannot_be_reached_are_faults() -> None:
    text = """\
failures:
  - name: first
    texts: [Something Broke]
    codes: [137]
    owner: machine
    remedy: mend it
  - name: second
    texts: ["today  something BROKE"]
    owner: image
    when: [driver-in-image]
    remedy: mend it
  - name: third
    codes: [137]
    owner: image
    remedy: mend it
  - name: first
    owner: image
    remedy: mend it
"""
    with pytest.raises(CatalogError) as caught:
        failures.parse(text.encode(), "f.yaml")
    assert list(caught.value.problems) == [
        "f.yaml:8: `second` is not reached by `today  something BROKE`: `first` is",
        "f.yaml:13: `third` is not reached by 137: `first` is",
        "f.yaml:16: `first` has neither `texts` nor `codes`: nothing would find it",
        "f.yaml:16: there is a row `first` already",
    ]


def test_a_condition_may_stand_before_what_holds_otherwise() -> None:
    text = """\
failures:
  - {name: known, texts: [something broke], owner: machine, when: [driver-below-claim], remedy: mend it}
  - {name: other, texts: [something broke], owner: image, remedy: mend it}
"""
    known = failures.parse(text.encode(), "f.yaml")
    assert [name(known, {"text": "Something broke", "facts": facts}) for facts in ([], ["driver-below-claim"])] == [
        "other",
        "known",
    ]


def test_no_file_is_no_rows_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, cache=tmp_path / "cache")
    assert context.failures(settings) == failures.NONE
    (tmp_path / "images" / "failures.yaml").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be read"):
        context.failures(settings)
    assert context.failures(Settings(root=ROOT, cache=tmp_path)) == KNOWN
