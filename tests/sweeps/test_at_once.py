"""Twenty release managers at once."""

from tests.integration.conftest import Stack
from tests.integration.test_promote_harbor import Site, many_at_once, site

__all__ = ["site"]


def test_of_twenty_on_a_harbor_one_wins_and_nineteen_are_told(site: Site, stack: Stack) -> None:
    many_at_once(site.place(stack), 20)
