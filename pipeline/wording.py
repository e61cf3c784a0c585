"""How lists read in a sentence."""

from collections.abc import Sequence


def some(names: Sequence[str], shown: int) -> str:
    """`a, b and 3 more`: the first `shown`, and how many others there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
