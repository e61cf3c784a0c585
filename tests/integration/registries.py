"""Registries of our own: real ones, started for a test and ended by it."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from pipeline import daemons, names, toolchain
from pipeline.command import Runner, spawn
from pipeline.install import get, workshop
from pipeline.story import Silent
from pipeline.toolchain import Host
from tests.ports import free_port

RUN = Runner(os.environ)
STARTS_WITHIN = 300.0


@dataclass(frozen=True, kw_only=True)
class Running:
    """A registry on loopback."""

    host: str
    pid: int


def tool(name: str) -> Path:
    """A tool of the user's cache, or got now."""
    host, cache = Host.here(os.environ), user_cache_path(names.DISTRIBUTION, appauthor=False)
    if not toolchain.find(name, host=host, cache=cache, run=RUN).tool:
        with workshop(cache=cache, host=host, run=RUN, story=Silent()) as shop:
            get(name, shop)
    found = toolchain.find(name, host=host, cache=cache, run=RUN).tool
    assert found is not None
    return found.path


@contextmanager
def registry(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Running]:
    """The distribution project's registry with its files in `folder`, and more `settings` if some are given."""
    host = f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}}
    configuration = {"version": 0.1, "storage": storage, "http": {"addr": host}, **(settings or {})}
    (folder / "config.yml").write_text(json.dumps(configuration))
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    pid = spawn(tool("registry"), "serve", folder / "config.yml", log=folder / "log", env=environment)
    try:
        _until_it_answers(host, pid, folder / "log")
        yield Running(host=host, pid=pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _until_it_answers(host: str, pid: int, log: Path) -> None:
    name, _, port = host.partition(":")
    end = time.monotonic() + STARTS_WITHIN
    while daemons.ask((name, int(port)), "/v2/", host=host) is None:
        assert daemons.birth(pid), log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
