"""`lint` on the real hadolint."""

import os
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from pipeline import context, names, setup
from pipeline.command import Runner
from pipeline.lint import lint
from pipeline.readiness import Need
from pipeline.settings import Settings
from pipeline.story import Silent

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hadolint() -> Path:
    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    settings = Settings(root=ROOT, cache=cache)
    ready = setup.ensure(
        frozenset({Need.HADOLINT}),
        settings=settings,
        registry_host=context.load(settings).candidate_repository,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    return ready.tools["hadolint"].path


def family(root: Path, dockerfile: str) -> Settings:
    """The project's catalog with one image of its own."""
    (root / "images" / "one").mkdir(parents=True)
    (root / "images" / "catalog.yaml").write_bytes((ROOT / "images" / "catalog.yaml").read_bytes())
    (root / "images" / "one" / "image.yaml").write_text("description: one\n")
    (root / "images" / "one" / "Dockerfile").write_text(dockerfile)
    return Settings(root=root, cache=root / "cache")


def found(settings: Settings, hadolint: Path) -> list[tuple[str, int, str]]:
    catalog = context.load(settings)
    findings = lint(list(catalog.images), settings=settings, catalog=catalog, hadolint=hadolint, run=Runner(os.environ))
    return [(finding.path, finding.line, finding.rule) for finding in findings]


def test_the_projects_own_images_are_clean(hadolint: Path) -> None:
    assert found(Settings(root=ROOT, cache=ROOT), hadolint) == []


def test_hadolint_and_our_rules_are_told_together_in_the_order_of_lines(hadolint: Path, tmp_path: Path) -> None:
    text = "FROM scratch\nMAINTAINER somebody\nRUN pip install foo\nRUN cd $HOME && ls\n"
    assert found(family(tmp_path, text), hadolint) == [
        ("images/one/Dockerfile", 2, "DL4000"),
        ("images/one/Dockerfile", 3, "outside-lock"),
        ("images/one/Dockerfile", 4, "SC2086"),
    ]


def test_a_users_own_configuration_of_hadolint_changes_nothing(hadolint: Path, tmp_path: Path) -> None:
    settings = family(tmp_path, "FROM scratch\nMAINTAINER somebody\n")
    (tmp_path / ".hadolint.yaml").write_text("ignored: [DL4000]\n")
    assert found(settings, hadolint) == [("images/one/Dockerfile", 2, "DL4000")]


def test_what_hadolint_cannot_read_is_a_finding(hadolint: Path, tmp_path: Path) -> None:
    assert ("images/one/Dockerfile", 2, "dockerfile") in found(family(tmp_path, "FROM scratch\nRUNN x\n"), hadolint)
