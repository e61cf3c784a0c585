"""The same builder and registry as the integration tests'; and how much of the family the workflows run on."""

import pytest

from tests.integration.conftest import stack

__all__ = ["stack"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--with-lab", action="store_true", help="the whole family: the checks of `lab` take six minutes more")
