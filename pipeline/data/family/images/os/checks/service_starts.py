"""The image starts as its users start it. `service_*.py` run outside; `test_*.py` run inside, where the image has Python."""

from typing import Any


def test_a_program_starts_as_the_user(start: Any) -> None:
    """`start` starts the image, and stops it at the end of the test."""
    program = start("id", "-un", user="user")
    assert program.wait(300).code == 0
    assert program.log().strip() == "user"
