"""Tags are taken apart and put together in one place, and order as numbers do."""

import pytest

from pipeline.releases import Release, candidate_tag, floating_tag, highest, is_candidate


@pytest.mark.parametrize(
    ("tag", "release"),
    [
        ("v2.6.3-nlp", Release(line="2.6", number=3, variant="nlp")),
        ("v2.6.3", Release(line="2.6", number=3)),
        ("v2.10.0", Release(line="2.10", number=0)),
        ("v0.1.12-a1", Release(line="0.1", number=12, variant="a1")),
    ],
)
def test_an_immutable_tag_names_a_release_and_back(tag: str, release: Release) -> None:
    assert Release.parse(tag) == release
    assert str(release) == tag


OTHERS = """\
v2.6 v2.6-nlp 2.6.3 v2.6.03 v02.6.3 v2.6.3- v2.6.3-NLP v2.6.3-nlp-0123456789ab v2.6.3.4 v2.7-rc1 v2.6.3+cu124 latest"""


@pytest.mark.parametrize("tag", [*OTHERS.split(), "v2.6.3\n", ""])
def test_other_tags_are_no_releases(tag: str) -> None:
    assert Release.parse(tag) is None


def test_floating_and_candidate_tags_are_told_apart() -> None:
    assert floating_tag("2.6", None) == "v2.6"
    assert Release(line="2.6", number=3, variant="nlp").floating == "v2.6-nlp"
    assert candidate_tag("2.6", "nlp", "0123456789abcdef") == "v2.6-nlp-0123456789ab"
    assert is_candidate("v2.6-nlp-0123456789ab", "2.6", "nlp")
    assert is_candidate("v2.6-0123456789ab", "2.6", None)
    assert not is_candidate("v2.6-nlp-0123456789ab", "2.6", None)
    assert not is_candidate("v2.6-0123456789ab", "2.6", "nlp")
    assert not is_candidate("v2.6-nlp-0123456789AB", "2.6", "nlp")
    assert not is_candidate("v2.6-nlp", "2.6", "nlp")


def test_the_highest_release_is_of_this_line_and_variant_and_ten_comes_after_nine() -> None:
    tags = ["v2.6.9-nlp", "v2.6.10-nlp", "v2.7.1-nlp", "v2.6.99", "v2.6-nlp", "v2.6.11-lab", "latest"]
    assert highest(tags, "2.6", "nlp") == Release(line="2.6", number=10, variant="nlp")
    assert highest(tags, "2.6", None) == Release(line="2.6", number=99)
    assert highest(tags, "3.0", None) is None
