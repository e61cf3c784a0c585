"""The image starts as its users start it."""

from typing import Any


def test_a_program_starts(start: Any) -> None:
    """`start` starts the image, and stops it at the end of the test."""
    assert start("true").wait(300).code == 0
