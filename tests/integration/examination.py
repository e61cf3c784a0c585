"""Looking at mutants with the checks that they break; the fixtures are for tests of the real images."""

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import context, names, statements
from pipeline.catalog import Catalog, Checks, Image
from pipeline.check import Bench, Limits, Options, Subject, check
from pipeline.command import Runner
from pipeline.engine import Engine, connect, ensure
from pipeline.oci import Pinned
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Outcome
from pipeline.story import Silent
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT
from tests.integration.images import forget
from tests.integration.mutants import Mutant

RUN = f"integration-mutants-{secrets.token_hex(4)}"
BUILDS_WITHIN = 3600.0
"""Seconds, where the candidates are not there yet."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mutant, and what each check that it breaks must say: words of the failing test's name and reason."""

    image: str
    mutant: Mutant
    says: Mapping[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Engine]:
    engine = connect(stack.environment, run=RUN)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return context.load(Settings(root=PROJECT, cache=tmp_path_factory.mktemp("cache")))


@pytest.fixture
def bench(tmp_path: Path, engine: Engine, catalog: Catalog, stack: Stack) -> Bench:
    (tmp_path / "images").symlink_to(PROJECT / "images")
    return Bench(
        catalog=catalog,
        settings=Settings(root=tmp_path, cache=tmp_path / "cache"),
        engine=engine,
        registry=Registry(),
        run=Runner(stack.environment),
        run_id=RUN,
        story=Silent(),
        now=lambda: datetime.now(UTC),
    )


def loaded(images: Sequence[str], stack: Stack, engine: Engine, scratch: Path) -> Mapping[str, Pinned]:
    """The real candidates of these images, built if they are not there, and in the engine."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "build", *images, "--json"],
        cwd=PROJECT,
        env=dict(stack.environment),
        capture_output=True,
        text=True,
        timeout=BUILDS_WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = {one["image"]: Pinned.parse(one["pinned"]) for one in json.loads(done.stdout)}
    found, registry = {image: built[image] for image in images}, Registry()
    for pinned in found.values():
        ensure(pinned, registry.manifest(pinned), engine=engine, registry=registry, story=Silent(), scratch=scratch)
    return found


def narrowed(catalog: Catalog, case: Case) -> Catalog:
    """The catalog with only the checks of a case, and with its claims; an ancestor keeps its first check, and so its files."""

    def left(image: Image) -> Checks:
        return Checks(cpu=tuple(case.says) if image.name == case.image else image.checks.cpu[:1])

    images = {name: image.model_copy(update={"checks": left(image)}) for name, image in catalog.images.items()}
    claims = {**images[case.image].claims, **case.mutant.claims}
    images[case.image] = images[case.image].model_copy(update={"claims": claims})
    return catalog.model_copy(update={"images": images})


def examined(case: Case, pinned: Pinned, bench: Bench, limits: Limits | None = None) -> statements.Tested:
    options = Options(lanes=("cpu",), limits=limits or Limits())
    bench = Bench(**{**vars(bench), "catalog": narrowed(bench.catalog, case)})
    (found,) = check([Subject(image=case.image, pinned=pinned, tag="")], options, bench)
    forget(bench.engine, pinned)
    assert bench.engine.client.containers(all=True, filters={"label": f"{names.LABEL_RUN}={RUN}"}) == []
    return found


def failed(found: statements.Tested, check_name: str) -> list[str]:
    """The failed tests of a check, each with its reason."""
    tests = [one for one in found.checks if one.name.startswith(f"{check_name}::") and one.outcome is Outcome.FAILED]
    return [f"{one.name}: {one.reason}" for one in tests]


def unsaid(case: Case, found: statements.Tested) -> list[tuple[str, str, list[str]]]:
    """What a case wants to be said, and no failed test of its check said; with all that those did say."""
    return [
        (one, words, failed(found, one))
        for one, several in case.says.items()
        for words in several
        if not any(re.search(words, line) for line in failed(found, one))
    ]
