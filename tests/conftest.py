"""What all tests start from."""

import gc
import signal


def pytest_configure() -> None:
    """Whoever starts the tests in the background ignores SIGINT, and children would inherit that; the pipeline never does.

    Thousands of small tests leave little garbage and would be searched for it thousands of times.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(100_000, 20, 20)
