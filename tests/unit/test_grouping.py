"""Lock groups of one solution."""

import pytest

from pipeline.errors import ToolFailed
from pipeline.grouping import assign, read_solution

HASH = f"--hash=sha256:{'0' * 64}"
SOLUTION = f"""\
filelock==3.1 \\
    {HASH}
    # via torch
numpy==1.26.4 \\
    {HASH} \\
    {HASH}
    # via
    #   -c /tmp/parents.txt
    #   -r 2-vision.in
    #   torchvision
torch==2.6.0 \\
    {HASH}
    # via
    #   -r 1-torch.in
    #   torchvision
torchvision==0.21.0 \\
    {HASH}
    # via -r 2-vision.in
typing-extensions==4.0 \\
    {HASH}
    # via torch
"""
GROUPS = ("1-torch.in", "2-vision.in")


def test_a_solution_says_who_wants_what() -> None:
    solution = read_solution(SOLUTION)
    assert solution["numpy"].by == ("torchvision",)
    assert solution["numpy"].sources == ("2-vision.in",)
    assert (solution["filelock"].by, solution["filelock"].sources) == (("torch",), ())
    assert solution["torch"].requirement.version == "2.6.0"


def test_each_distribution_goes_into_the_first_group_that_needs_it() -> None:
    groups = assign(read_solution(SOLUTION), GROUPS, ())
    assert {group: list(names) for group, names in groups.items()} == {
        "1-torch.in": ["filelock", "torch", "typing-extensions"],
        "2-vision.in": ["numpy", "torchvision"],
    }


def test_what_a_parent_has_is_not_locked_again_but_still_leads_on() -> None:
    groups = assign(read_solution(SOLUTION), ("2-vision.in",), {"torch", "numpy"})
    assert list(groups["2-vision.in"]) == ["filelock", "torchvision", "typing-extensions"]


def test_a_group_that_needs_nothing_of_its_own_is_empty() -> None:
    assert assign(read_solution(""), GROUPS, ()) == {"1-torch.in": {}, "2-vision.in": {}}


def test_a_distribution_that_nothing_wants_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="`numpy`, `torchvision`"):
        assign(read_solution(SOLUTION), ("1-torch.in",), ())
