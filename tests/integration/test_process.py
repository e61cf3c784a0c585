"""The command line as a process: what a shell, a supervisor or a person does to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.families import PROJECT as FAMILY


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_process_without_its_standard_streams_ends_as_with_them(closed: str, tmp_path: Path) -> None:
    command = f'"$0" -m pipeline plan nowhere --root "$1" {closed}'
    argv = ["sh", "-c", command, sys.executable, str(FAMILY)]
    told = subprocess.run(argv, cwd=FAMILY, env={**os.environ, "PIPELINE_CACHE": str(tmp_path)}, capture_output=True, timeout=900)
    assert told.returncode == 2
    assert b"Traceback" not in told.stderr


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_without_a_traceback(signum: signal.Signals, code: int) -> None:
    program = (
        "import os, sys, pipeline.verbs as verbs\n"
        "from pipeline.__main__ import main\n"
        "def sleep(call):\n"
        "    print('up', flush=True)\n"
        "    call.run('sleep', '3600', timeout=7200)\n"
        "verbs.VERBS = {**verbs.VERBS, 'plan': sleep}\n"
        f"sys.exit(main(['plan', '--root', {str(FAMILY)!r}], os.environ))\n"
    )
    words = [sys.executable, "-c", program]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FAMILY, env={**os.environ})
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.send_signal(signum)
    _, told = child.communicate(timeout=900)
    assert child.returncode == code
    assert "Traceback" not in told
    assert told.startswith("error: ")
