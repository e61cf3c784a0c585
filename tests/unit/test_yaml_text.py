"""YAML is read strictly: what a reader and YAML see differently stays text, and faults have lines."""

import pytest

from pipeline.yaml_text import Unquoted, dotted, read


def faults(text: str) -> list[str]:
    return [str(problem) for problem in read("f", text.encode()).problems]


@pytest.mark.parametrize(
    "raw", ["2.10", "1.0e+3", "010", "0x10", "1_000", "1:30", "2025-01-29", "yes", "No", "on", ".inf", "+1", "True"]
)
def test_what_is_no_plain_number_or_truth_stays_as_it_was_written(raw: str) -> None:
    assert read("f", f"a: {raw}".encode()).value == {"a": Unquoted(raw)}


def test_plain_values_are_themselves() -> None:
    assert read("f", b"a: 1\nb: -2\nc: true\nd: [x, {y: '2.10'}]\ne: !!str 2.10\n").value == {
        "a": 1,
        "b": -2,
        "c": True,
        "d": ("x", {"y": "2.10"}),
        "e": "2.10",
    }


def test_a_number_of_many_digits_is_no_number() -> None:
    assert read("f", b"a: " + b"9" * 5000).value == {"a": Unquoted("9" * 5000)}


def test_merged_keys_may_be_overridden_and_the_first_merge_wins() -> None:
    assert read("f", b"a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\n").value["c"] == {"x": 3, "y": 1, "z": 2}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3: duplicate key `a`: it stands in line 1 already"),
        ("a: {<<: 3}\n", "f:1: `<<` takes a mapping, or a list of them"),
        ("a: &a {<<: *a}\n", "f:1: nested too deeply"),
        ("a: &a [*a]\n", "f:1: nested too deeply"),
        ("a: " + "[" * 900 + "]" * 900, "f:1: nested too deeply"),
        ("a:\nb: 1\n", "f:1: `a` is empty: give it a value, or remove it"),
        ("a: [x, ~]\n", "f:1: `a[1]` is empty: give it a value, or remove it"),
        ("1: x\n", "f:1: a key must be text, not `1`: quote it"),
        ("? [x]\n: y\n", "f:1: a key must be text, not a list or mapping: quote it"),
        ("x: 1\ny: \x01\n", "f:2: not YAML: control characters are not allowed"),
        ("", "f:1: the file must hold a mapping of keys to values"),
    ],
)
def test_faults_have_a_line(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_no_nesting_is_deep_enough_to_crash() -> None:
    assert len(faults("[" * 1_000_000)) == 1


def test_lines_are_those_of_the_keys() -> None:
    document = read("f", b"a: 1\nb:\n  c:\n    - x\n    - y\n")
    assert [document.mark(path).line for path in [("a",), ("b",), ("b", "c"), ("b", "c", 1), ("b", "c", 9), ("z",)]] == [
        1,
        2,
        3,
        5,
        3,
        1,
    ]
    assert dotted(("b", "c", 1)) == "b.c[1]"
