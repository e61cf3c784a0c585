"""A Harbor to play with: `python -m tests.harbor [PORT]` serves one until Ctrl-C, and forgets it."""

import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from tests.harbor import double
from tests.harbor.state import ADMIN, PASSWORD

if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory() as folder,
        double.started(Path(folder), int(*sys.argv[1:2] or ("0",))) as harbor,
    ):
        print(f"http://{harbor.host}, administrator `{ADMIN}`, password `{PASSWORD}`", flush=True)
        threading.Event().wait()
