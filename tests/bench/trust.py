"""What it takes to look into an image, against the scanner by itself, and to verify what is signed about one."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import context, dsse, keys, names, setup
from pipeline.command import Runner
from pipeline.cosign import Cosign
from pipeline.oci import Digest, Pinned, Repository
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.scan.trivy import parallel
from pipeline.settings import Settings
from pipeline.statements import Licence, Statement
from pipeline.story import Silent
from tests import cases
from tests.bench.build import IMAGE, Figure
from tests.bench.family import ROOT
from tests.integration.signing import DOCUMENT, entries, found_cosign, hang, image_in, signature_of, stated, written
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


def verify(settings: Settings) -> Iterator[Figure]:
    """Eight statements signed and attached, then what is proved by them, and the verdict, each by a verb from start to end."""
    repository = Repository(context.load(settings).candidate_repository.host, f"bench/{secrets.token_hex(4)}/verified")
    image = image_in(repository, labels={names.LABEL_IMAGE: IMAGE})
    statements, registry = eight(image), Registry()
    with tempfile.TemporaryDirectory() as folder:
        cosign = Cosign(path=found_cosign(Path(folder), repository.host), run=Runner(os.environ))
        key = keys.private("ci", {}, cache=settings.cache, loopback=True, cosign=cosign, environment=os.environ)
        started = time.monotonic()
        for statement in statements:
            registry.attach(image, dsse.BUNDLE_TYPE, cosign.sign(written(statement), key), dsse.BUNDLE_TYPE, {})
        yield Figure("eight statements signed and attached", time.monotonic() - started, "s")
        (Path(folder) / "ci.pub").write_bytes(cosign.public(key))
        (Path(folder) / "gpu.pub").write_bytes(cosign.public(key))
        took, found = _verified(image, "--keys", folder)
        yield Figure("what eight statements prove", took, "s", at_most=2.0)
        yield Figure("  that count", len(found["statements"]) + len(found["signatures"]), "", at_least=8.0)
    took, found = _verified(image)
    yield Figure("verdict on an image with eight statements", took, "s", at_most=2.0)
    yield Figure("  that count", len(found["statements"]), "", at_least=8.0)
    hang(image, [*entries(image), *(os.urandom(100_000) for _ in range(60))])
    took, found = _verified(image)
    yield Figure("the same beside 60 pieces of junk", took, "s", at_most=2.0)
    yield Figure("  that count", len(found["statements"]), "", at_least=8.0)


def eight(image: Pinned) -> Sequence[Statement]:
    """Of the sizes that a large image's have."""
    listed = [{"name": f"package-{number}", "version": "1", "description": "x" * 400} for number in range(2000)]
    records = (
        cases.built(),
        cases.passed("cpu"),
        cases.passed("gpu"),
        cases.passed("gpu", gpus=[cases.gpu("Tesla T4")]),
        cases.scanned(vulnerabilities=[cases.weakness(id=f"CVE-2026-{number}") for number in range(500)]),
        cases.findings(licences=[Licence(name="MIT", package=f"package-{number}", category="notice") for number in range(2000)]),
        cases.bom(document={**DOCUMENT, "components": listed}),
    )
    about = [stated(record.model_copy(update={"subject": str(image)})) for record in records]
    return (*about, signature_of(image.digest))


def _verified(image: Pinned, *words: str) -> tuple[float, Mapping[str, Any]]:
    """The best of three whole processes; without a policy's consent they end with 7."""
    taken = []
    for _ in range(3):
        started = time.monotonic()
        argv = [sys.executable, "-m", "pipeline", "verify", str(image), "--json", *words]
        done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        taken.append(time.monotonic() - started)
    return min(taken), json.loads(done.stdout)[0]


PARTS: Mapping[str, Callable[[Settings], Iterator[Figure]]] = {"scan": scan, "verify": verify}
