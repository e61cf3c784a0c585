"""The same builder and registry as the integration tests'."""

from tests.integration.conftest import stack

__all__ = ["stack"]
