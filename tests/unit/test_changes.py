"""What a pull request reads: what is different from the last release, and nothing that nobody knows."""

from pipeline import report
from pipeline.changes import SHOWN, Change, Contents

RELEASED = Contents(
    tag="v2.6.3-nlp",
    size=2_440_000_000,
    packages={"numpy": ["1.26.3"], "old": ["1"], "same": ["2"]},
    vulnerabilities={"CVE-1": "HIGH", "CVE-2": "LOW"},
)
NOW = Contents(
    size=2_441_500_000,
    packages={"numpy": ["1.26.4"], "new": ["3"], "same": ["2"]},
    vulnerabilities={"CVE-2": "LOW", "CVE-3": "CRITICAL"},
)


def told(now: Contents = NOW, released: Contents | None = RELEASED) -> str:
    return report.changes_markdown([Change(image="nlp", state="built", reason="no candidate", now=now, released=released)])


def test_size_packages_and_vulnerabilities_are_compared_with_the_last_release() -> None:
    assert told().splitlines() == [
        "### nlp: built",
        "",
        "- no candidate",
        "- size against `v2.6.3-nlp`: 2,441.5 MB, +1.5 MB",
        "- packages: 3 differ",
        "  - + new 3",
        "  - numpy 1.26.3 → 1.26.4",
        "  - - old 1",
        "- vulnerabilities: 1 new, 1 gone",
        "  - + CVE-3 CRITICAL",
        "  - - CVE-1 HIGH",
    ]


def test_what_nobody_knows_is_said_and_never_called_the_same() -> None:
    text = told(Contents(size=1))
    assert "packages are not compared: nobody knows those of this image" in text
    assert "vulnerabilities are not compared: nobody knows those of this image" in text
    assert "nobody knows those of `v2.6.3-nlp`" in told(released=Contents(tag="v2.6.3-nlp"))
    assert "nothing to compare with" in told(released=None)


def test_a_long_list_is_cut_and_counted() -> None:
    many = Contents(size=1, packages={f"p{number:03}": ["1"] for number in range(SHOWN + 5)}, vulnerabilities={})
    assert "and 8 more" in told(many)


def test_nothing_that_an_image_says_acts_in_the_summary() -> None:
    text = told(Contents(packages={"<img src=x>": ["1\n# 2"], "[a](b)": ["1"]}))
    assert "<img" not in text
    assert "\n# 2" not in text
    assert "](b)" not in text.replace("]\\(", "")


def test_where_nothing_was_built_it_says_so() -> None:
    assert report.changes_markdown([]) == "No image was built.\n"
