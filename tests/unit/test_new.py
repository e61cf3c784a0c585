"""A new image's folder is a whole one, or there is none."""

import shutil
from pathlib import Path

import pytest

from pipeline import context
from pipeline.dockerfile import links_only
from pipeline.errors import CatalogError, InputError, Temporary
from pipeline.new import TEMPLATE, new
from pipeline.settings import Settings
from tests.bench.generated import catalog_of

OWN = Path(__file__).parents[2] / "images" / TEMPLATE


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root=catalog_of(tmp_path, 2), cache=tmp_path / "cache")


def test_a_new_image_is_in_the_catalog_at_once(settings: Settings) -> None:
    home = new(settings, "text-lab", "image-1")
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()) == [
        "Dockerfile",
        "checks/test_imports.py",
        "image.yaml",
        "requirements/1-packages.in",
        "requirements/1-packages.lock",
    ]
    image = context.load(settings).images["text-lab"]
    assert (image.parent, image.variant, image.checks.cpu) == ("image-1", "textlab", ("imports",))
    assert home.stat().st_mode & 0o777 == 0o755


def test_a_family_says_how_its_images_begin(settings: Settings) -> None:
    template = settings.images / TEMPLATE
    template.mkdir()
    (template / "Dockerfile").write_text("# @NAME@ on @PARENT@\nFROM base\n")
    (template / "checks").mkdir()
    for name in ("service_it_serves.py", "test_imports.py", "shared.py"):
        (template / "checks" / name).write_text("")
    home = new(settings, "lab", "image-1", variant="text")
    assert (home / "Dockerfile").read_text() == "# lab on image-1\nFROM base\n"
    image = context.load(settings).images["lab"]
    assert (image.variant, image.checks.cpu) == ("text", ("imports", "it-serves"))


def test_a_template_without_checks_makes_an_image_without(settings: Settings) -> None:
    (settings.images / TEMPLATE).mkdir()
    (settings.images / TEMPLATE / "Dockerfile").write_text("FROM base\n")
    new(settings, "lab", "image-1")
    assert context.load(settings).images["lab"].checks.cpu == ()


def test_this_familys_template_makes_an_image_of_links_only(settings: Settings) -> None:
    shutil.copytree(OWN, settings.images / TEMPLATE)
    home = new(settings, "lab", "image-1")
    dockerfile = (home / "Dockerfile").read_text()
    assert links_only(dockerfile)
    assert "@" not in dockerfile
    context.load(settings)


@pytest.mark.parametrize(
    ("name", "parent", "variant", "error", "text"),
    [
        ("image-1", "image-0", None, InputError, "exists already"),
        ("lab", "image-9", None, InputError, "no image `image-9`"),
        ("Lab", "image-1", None, CatalogError, "the folder's name is not an image's name"),
        ("base", "image-1", None, CatalogError, "the folder's name is not an image's name"),
        ("../lab", "image-1", None, CatalogError, "the folder's name is not an image's name"),
        ("lab", "image-1", "v1x", CatalogError, "`image-1` has tags that end with `-v1x` already"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    settings: Settings, name: str, parent: str, variant: str | None, error: type[InputError], text: str
) -> None:
    before = sorted(settings.root.rglob("*"))
    with pytest.raises(error, match=text) as caught:
        new(settings, name, parent, variant=variant)
    assert caught.value.hint
    assert sorted(settings.root.rglob("*")) == before


def test_a_write_that_fails_leaves_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    before = sorted(settings.root.rglob("*"))
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(Temporary, match="No space left on device"):
        new(settings, "lab", "image-1")
    assert sorted(settings.root.rglob("*")) == before
