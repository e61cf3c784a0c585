"""What an image must be after its build, and how two builds are told apart."""

from dataclasses import replace

import pytest

from pipeline.bake import Material
from pipeline.build.promises import Image, differences
from pipeline.build.promises import _materials as materials
from pipeline.oci import OCI_MANIFEST, Config, Descriptor, Digest, Manifest

ONE, OTHER = Digest.of(b"one"), Digest.of(b"other")


def image(body: bytes = b"{}", *, layer: Digest = ONE, content: Digest = ONE, history: tuple[str, ...] = ("RUN x",)) -> Image:
    config = Config(
        diff_ids=(content,),
        created="",
        labels={},
        environment=(),
        entrypoint=(),
        command=(),
        user="",
        exposed=(),
        platform="linux/amd64",
        history=history,
    )
    layers = (Descriptor("", layer, 1),)
    return Image(manifest=Manifest(body, OCI_MANIFEST, Descriptor("", Digest.of(body), 1), layers, {}), config=config)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (image(content=OTHER), f"layer 1 of 1 (`RUN x`) has other content: {ONE} against {OTHER}"),
        (image(content=OTHER, layer=OTHER), f"layer 1 of 1 (`RUN x`) has other content: {ONE} against {OTHER}"),
        (image(layer=OTHER), "layer 1 of 1 (`RUN x`) has the same content, compressed differently"),
        (image(b"[]", history=("RUN y",)), f"the configuration: {Digest.of(b'{}')} against {Digest.of(b'[]')}"),
        (image(b"[]"), f"the manifest: {Digest.of(b'{}')} against {Digest.of(b'[]')}"),
    ],
)
def test_two_builds_are_told_apart_by_the_first_thing_that_explains_it(other: Image, told: str) -> None:
    assert differences(image(), other) == (told,)


def test_other_numbers_of_layers_are_told_first() -> None:
    more = image()
    more = replace(more, config=replace(more.config, diff_ids=(ONE, OTHER)))
    assert differences(image(), more) == ("1 layers against 2",)


def test_what_an_image_was_built_from_is_handed_to_it_or_named_by_its_dockerfile() -> None:
    one = Material(uri=f"pkg:docker/x?digest={ONE}", digest=str(ONE), image=True, pinned=True)
    assert len(list(materials([one], [OTHER], ""))) == 1
    assert list(materials([one], [ONE], "")) == []
    assert list(materials([one], [], f"FROM x@{ONE}")) == []
    by_tag = replace(one, pinned=False)
    assert len(list(materials([by_tag], [ONE], f"FROM x@{ONE}"))) == 1, "another time it may be another image"
