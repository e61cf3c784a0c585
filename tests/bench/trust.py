"""What it takes to look into an image, against the scanner by itself, on the project's own candidates."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import context, names, setup
from pipeline.command import Runner
from pipeline.oci import Digest, Pinned, Repository
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.scan.trivy import parallel
from pipeline.settings import Settings
from pipeline.story import Silent
from tests.bench.build import IMAGE, Figure
from tests.bench.family import ROOT
from tests.vulnerabilities import PIP, Advisory, database, metadata, push

ADVISORIES = (
    Advisory(source="debian 12", package="openssl", id="CVE-2099-0001", fixed="99.0"),
    Advisory(source=PIP, package="torch", id="CVE-2099-0002", fixed="99.0", vulnerable="< 99.0"),
)


def scan(settings: Settings) -> Iterator[Figure]:
    """A scan against bare Trivy with the same scanners, and a look through the list of packages that it left."""
    with tempfile.TemporaryDirectory() as folder:
        pinned, environment = _candidate(settings), _with_database(settings)
        _read_once(pinned)
        bare = _bare(settings, pinned, Path(folder), environment)
        ours, found = _verb(environment, Path(folder), "scan", str(pinned))
        yield Figure(f"scan of {IMAGE} by Trivy alone", bare, "s")
        yield Figure(f"scan of {IMAGE} by us", ours, "s")
        yield Figure("  as long", ours / bare, "x", at_most=1.1)
        bom = Path(folder) / pinned.digest.hex / "bom.json"
        again, looked = _verb(environment, Path(folder), "scan", str(pinned), "--from-sbom", str(bom))
        yield Figure("rescan from its list of packages", again, "s")
        yield Figure("  as long as the scan", again / ours, "x", at_most=0.05)
        same = found["scanned"]["vulnerabilities"] == looked["scanned"]["vulnerabilities"]
        yield Figure("  vulnerabilities found by both", len(found["scanned"]["vulnerabilities"]) if same else 0, "", at_least=2.0)


def _candidate(settings: Settings) -> Pinned:
    plan = [sys.executable, "-m", "pipeline", "plan", IMAGE, "--json"]
    steps = json.loads(subprocess.run(plan, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    digest = next(step["digest"] for step in steps if step["image"] == IMAGE)
    assert digest, f"build {IMAGE} first"
    return context.load(settings).candidate_repository.at(Digest(digest))


def _with_database(settings: Settings) -> Mapping[str, str]:
    host = context.load(settings).candidate_repository.host
    mirror = Repository(host, "bench/trivy-db").tag("2")
    push(mirror, database(ADVISORIES), metadata(datetime.now(UTC)))
    least = {names.ENV_DATABASE: str(mirror), names.ENV_LEAST_DATABASE: "1"}
    return {**os.environ, **least}


def _read_once(pinned: Pinned) -> None:
    """So that neither scan finds the registry's files warmer than the other."""
    registry = Registry()
    for layer in registry.manifest(pinned).layers:
        for _ in registry.stream(pinned.repository, layer):
            pass


def _bare(settings: Settings, pinned: Pinned, folder: Path, environment: Mapping[str, str]) -> float:
    ready = setup.ensure(
        frozenset({Need.TRIVY}),
        settings=settings,
        registry_host=pinned.repository,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    trivy, cache = str(ready.tools["trivy"].path), str(folder / "bare")
    mirror = environment[names.ENV_DATABASE]
    quiet = ("--quiet", "--cache-dir", cache, "--db-repository", mirror)
    subprocess.run([trivy, "image", *quiet, "--download-db-only"], check=True)
    shape = ("--scanners", "vuln,secret,license", "--format", "json", "--output", str(folder / "bare.json"))
    how = ("--image-src", "remote", "--timeout", "1h", "--parallel", str(parallel()), "--skip-db-update", "--offline-scan")
    started = time.monotonic()
    subprocess.run([trivy, "image", *quiet, *shape, *how, str(pinned)], cwd=folder, check=True)
    return time.monotonic() - started


def _verb(environment: Mapping[str, str], folder: Path, *words: str) -> tuple[float, Mapping[str, Any]]:
    argv = [sys.executable, "-m", "pipeline", *words, "--json", "--statements", str(folder)]
    started = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    (result,) = json.loads(done.stdout)
    return time.monotonic() - started, result


PARTS: Mapping[str, Callable[[Settings], Iterator[Figure]]] = {"scan": scan}
