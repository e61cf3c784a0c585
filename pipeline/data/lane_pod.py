"""A lane in a pod: lays out what a ConfigMap brought, runs the checks under a deadline, and prints what they left to the log.

Runs under the image's `python3` (3.9 syntax, nothing but its standard library): `prepare` in an init container, `run` in the
main one. What it was told is `pod.json` beside it. It judges nothing: the log is read where the keys are not either.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = Path("/pipeline")
HOME = Path("/pipeline-home")
"""Where the volume that becomes the user's home is, while it is filled."""
RESULT_LIMIT = 16 * 2**20
LINE = 120
"""Characters of a line of the result."""
QUESTION_SECONDS = 60
UNKNOWN = re.compile(r'Field "([^"]+)" is not a valid field to query')
SLICE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")
PARENT = re.compile(r"GPU \d+: .+ \(UUID: (GPU-[^)]+)\)")
NOT_FOUND = 127


def prepare() -> None:
    """Unpack suite and pytest, and give the home the content that the image has there."""
    for name in ("suite.tar.gz", "library.tar.gz"):
        with tarfile.open(HERE / name) as archive:
            archive.extractall(FOLDER)
    home = Path(os.environ["HOME"])
    if HOME.is_dir() and home.is_dir():
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, HOME / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, HOME / entry.name, follow_symlinks=False)


def run() -> None:
    """Look at the GPUs, run the checks, look again, and print all of it between two marks."""
    told = json.loads((HERE / "pod.json").read_text(encoding="utf-8"))
    print(f"-----PIPELINE JOB {told['nonce']}-----", flush=True)
    started, before = time.time(), answers(told["questions"])
    code, timed_out = checks(told["argv"], float(told["seconds"]), gpus(before))
    result = Path(os.environ["PIPELINE_RESULT"])
    content = result.read_bytes() if result.is_file() and result.stat().st_size <= RESULT_LIMIT else None
    left = {
        "result": None if content is None else base64.b64encode(content).decode(),
        "code": code,
        "timed_out": timed_out,
        "before": before,
        "after": answers(told["questions"]),
        "node": os.environ.get("PIPELINE_NODE", ""),
        "started": started,
        "finished": time.time(),
    }
    show(json.dumps(left), told["nonce"])


def checks(argv: Sequence[str], seconds: float, given: Sequence[Mapping[str, Any]]) -> tuple[int, bool]:
    """The exit status of the checks, as a shell tells it, and whether their time was over; what they left running is killed."""
    environment = {**os.environ, "PIPELINE_GPUS": json.dumps(given)}
    process = subprocess.Popen([sys.executable, *argv], env=environment, start_new_session=True)
    code, timed_out = 0, False
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait() if timed_out else code
    return (128 - code if code < 0 else code), timed_out


def show(text: str, nonce: str) -> None:
    """Print the result, with its own digest behind it, so that half of it is never taken for all."""
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    lines = [packed[at : at + LINE] for at in range(0, len(packed), LINE)]
    digest = hashlib.sha256(packed.encode()).hexdigest()
    print(f"-----PIPELINE RESULT {nonce}-----", *lines, f"-----PIPELINE END {nonce} {digest}-----", sep="\n", flush=True)


def answers(questions: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What `nvidia-smi` answers, each with its question; what a driver does not know is left out, and it is asked again."""
    told: list[dict[str, Any]] = []
    for question in questions:
        told.append(answer(list(question)))
        while unknown := UNKNOWN.search(told[-1]["stdout"] + told[-1]["stderr"]):
            asked = told[-1]["argv"][1].partition("=")[2].split(",")
            if unknown[1] not in asked:
                break
            fields = ",".join(field for field in asked if field != unknown[1])
            told.append(answer([question[0], f"--query-gpu={fields}", *question[2:]]))
    return told


def answer(argv: list[str]) -> dict[str, Any]:
    """One answer; a program that is not there, or does not end, is an answer too."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=QUESTION_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"argv": argv, "code": NOT_FOUND, "stdout": "", "stderr": "", "error": str(error)}
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return {"argv": argv, "code": done.returncode, "stdout": out, "stderr": err, "error": ""}


def gpus(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The GPUs for the checks' fixtures; none where an answer cannot be read, so that what needs one does not run."""
    queries = [one for one in told if one["argv"][1].startswith("--query-gpu=") and not one["code"]]
    if not queries:
        return []
    fields = queries[-1]["argv"][1].partition("=")[2].split(",")
    rows = [[part.strip() for part in line.split(",")] for line in queries[-1]["stdout"].splitlines() if line.strip()]
    try:
        return [one for row in rows for one in given(dict(zip(fields, row)), slices(told))]  # noqa: B905 (Python 3.9)
    except (KeyError, ValueError):
        return []


def slices(told: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Profile and UUID of each slice, by the UUID of its GPU."""
    found: dict[str, list[tuple[str, str]]] = {}
    parent = ""
    for line in "".join(one["stdout"] for one in told if one["argv"][1] == "-L").splitlines():
        whole, part = PARENT.match(line), SLICE.match(line)
        parent = whole[1] if whole else parent
        if part:
            found.setdefault(parent, []).append((part[1], part[2]))
    return found


def given(row: Mapping[str, str], parts: Mapping[str, Sequence[tuple[str, str]]]) -> list[dict[str, Any]]:
    """A GPU, or its slices: their profile tells their memory, and what their GPU holds may be hidden from a pod."""
    if row.get("mig.mode.current") != "Enabled":
        return [gpu(row)]
    bare = gpu({**row, "memory.total": "0", "memory.used": "0"})
    return [
        {**bare, "uuid": uuid, "name": f"{row['name']} MIG {profile}", "memory": int(size[1]) * 2**30 if size else 0}
        for profile, uuid in parts.get(row["uuid"], ())
        for size in [re.search(r"(\d+)gb", profile)]
    ]


def gpu(row: Mapping[str, str]) -> dict[str, Any]:
    """One GPU, as the fixture `gpus` has it."""
    clock = row.get("clocks.max.sm", "")
    return {
        "index": int(row["index"]),
        "uuid": row["uuid"],
        "name": row["name"],
        "capability": [int(part) for part in row["compute_cap"].split(".")],
        "memory": int(row["memory.total"]) * 2**20,
        "used": int(row["memory.used"]) * 2**20,
        "clock": int(clock) if clock.isdecimal() else 0,
        "processes": 0,
    }


if __name__ == "__main__":
    {"prepare": prepare, "run": run}[sys.argv[1]]()
