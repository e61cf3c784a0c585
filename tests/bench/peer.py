"""The usual way: everything in one layer, loaded into the engine, sent by `docker push`."""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pipeline import context, setup, surroundings, toolchain
from pipeline.command import Runner
from pipeline.readiness import Need
from pipeline.settings import Settings
from pipeline.story import Silent
from tests.bench.family import Family

DISK = 40_000_000_000
"""Bytes: the layer uncompressed in BuildKit, twice in the engine while it loads, and as gzip in the registry."""
DOCKERFILE = """\
FROM {tools} AS all
ARG SOURCE_DATE_EPOCH
RUN --mount=type=secret,id=ca --mount=type=secret,id=index-url --mount=type=cache,target=/root/.cache/uv \\
    --mount=type=bind,source=requirements,target=/requirements \\
    echo {token} && layer venv && cat /requirements/*.lock >/lock && layer install /lock
FROM {ground}
COPY --from=all /layer/ /
"""


def seconds(family: Family, tools: str, ground: str, image: str) -> float:
    """From warm downloads to `image` in the registry: one step on `tools`, one layer on `ground`."""
    toolchain.require_space("one layer in an engine", DISK, family.cache, remedy="free some space, and name the part again")
    name = f"{family.host}/bench/peer"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(family.root / "images" / image / "requirements", Path(folder) / "requirements")
        text = DOCKERFILE.format(tools=tools, ground=ground, token=secrets.token_hex(8))
        (Path(folder) / "Dockerfile").write_text(text)
        argv, environment = _build(family, Path(folder), name)
        started = time.monotonic()
        with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as building:
            subprocess.run(["docker", "load", "--quiet"], stdin=building.stdout, stdout=subprocess.DEVNULL, check=True)
        assert building.returncode == 0
        subprocess.run(["docker", "push", "--quiet", name], stdout=subprocess.DEVNULL, check=True)
        took = time.monotonic() - started
    subprocess.run(["docker", "image", "rm", name], stdout=subprocess.DEVNULL, check=True)
    return took


def _build(family: Family, folder: Path, name: str) -> tuple[list[str], Mapping[str, str]]:
    settings = Settings(root=family.root, cache=family.cache)
    around = surroundings.read(os.environ)
    ready = setup.ensure(
        frozenset({Need.BUILDER, Need.ENGINE, Need.CLI}),
        settings=settings,
        registry_host=context.load(settings).candidate_repository,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    assert ready.builder is not None
    argv = [*ready.builder.command, "--builder", ready.builder.name, "build", str(folder), "--build-arg", "SOURCE_DATE_EPOCH=0"]
    argv += [
        "--secret",
        "id=index-url,env=INDEX_URL",
        "--output",
        f"type=docker,name={name},compression=uncompressed,force-compression=true,dest=-",
    ]
    if around.certificates:
        argv += ["--secret", f"id=ca,src={around.certificates}"]
    return argv, {**os.environ, **ready.builder.environment, "INDEX_URL": around.index_url}
