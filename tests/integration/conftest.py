"""What integration tests stand on: a real builder and a real registry, found or started as the pipeline itself does."""

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from pipeline import names, setup
from pipeline.builders import Builder
from pipeline.command import Runner
from pipeline.oci import Repository
from pipeline.readiness import Need
from pipeline.settings import Settings
from pipeline.story import Silent
from tests.fakes import FakeRegistry, fake_registry


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A builder, and a place in a registry on loopback that nobody else writes to."""

    builder: Builder
    candidates: str
    environment: Mapping[str, str]

    @property
    def host(self) -> str:
        return self.candidates.partition("/")[0]


@pytest.fixture(scope="session", autouse=True)
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Whatever a verb may need, so that no test depends on what ran before; cheap when all is there.

    The pipeline's variables (`PIPELINE_BUILDER`, …) choose others.
    """
    environment = dict(os.environ)
    host = Repository.parse(environment.get(names.ENV_CANDIDATES) or "localhost:5601/candidates").host
    settings = Settings(
        root=tmp_path_factory.mktemp("stack"),
        cache=Path(environment.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False)),
        builder=environment.get(names.ENV_BUILDER) or None,
    )
    ready = setup.ensure(
        frozenset(Need),
        settings=settings,
        registry_host=host,
        run=Runner(environment),
        story=Silent(),
        environment=environment,
    )
    assert ready.builder is not None
    return Stack(builder=ready.builder, candidates=f"{host}/integration/{secrets.token_hex(4)}", environment=environment)


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """A registry that holds what a test puts there."""
    with fake_registry() as registry:
        yield registry
