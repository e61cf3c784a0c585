"""A candidate that is built and signed as the project's own are, and may be released under the policy for one's own machine."""

import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from platformdirs import user_cache_path

from pipeline import attest, keys, names, setup
from pipeline.command import Runner
from pipeline.cosign import Cosign
from pipeline.oci import Pinned
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Licence
from pipeline.story import Silent
from tests import cases
from tests.integration.conftest import Stack
from tests.integration.releasing import Releases
from tests.integration.signing import DOCUMENT, found_cosign, stated

IMAGE = "core"


def signed(folder: Path, layers: int) -> Releases:
    """With a build, a scan, findings, a list of packages and the signature of its digest."""
    releases = Releases(folder, _stack(folder))
    files = {f"data{number}": secrets.token_bytes(500_000) for number in range(layers)}
    lines = ["FROM scratch", *(f"COPY --link {name} /" for name in files)]
    releases.family.image(IMAGE, "", "\n".join(lines) + "\n", **files)
    digest = releases.candidates()[IMAGE]
    _attach(releases.family.repository.at(digest), releases.family.cache)
    return releases


def _attach(image: Pinned, cache: Path) -> None:
    cosign = Cosign(path=found_cosign(cache, image.repository.host), run=Runner(os.environ))
    key = keys.private("ci", {}, cache=cache, loopback=True, cosign=cosign, environment=os.environ)
    at, about = datetime.now(UTC) - timedelta(hours=1), {"image": IMAGE, "subject": str(image)}
    licences = [Licence(name="MIT", package=f"package-{number}", category="notice") for number in range(2000)]
    found = [cases.weakness(id=f"CVE-2026-{number}") for number in range(500)]
    listed = [{"name": f"package-{number}", "version": "1", "description": "x" * 400} for number in range(2000)]
    records = (
        cases.scanned(at, vulnerabilities=found, **about),
        cases.findings(licences=licences, **cases.times(at), **about),
        cases.bom(subject=str(image), finished=at, document={**DOCUMENT, "components": listed}),
    )
    for record in records:
        attest.attach(image, stated(record), key, cosign=cosign, registry=Registry())


def _stack(folder: Path) -> Stack:
    """The machine's builder and registry, as the integration tests use them."""
    host = "localhost:5601"
    ready = setup.ensure(
        frozenset({Need.BUILDER, Need.REGISTRY, Need.COSIGN}),
        settings=Settings(root=folder, cache=user_cache_path(names.DISTRIBUTION, appauthor=False)),
        registry_host=host,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    assert ready.builder is not None
    return Stack(builder=ready.builder, candidates=f"{host}/bench/{secrets.token_hex(4)}", environment=os.environ)
