"""What all tests start from."""

import signal


def pytest_configure() -> None:
    """Whoever starts the tests in the background ignores SIGINT, and children would inherit that; the pipeline never does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
