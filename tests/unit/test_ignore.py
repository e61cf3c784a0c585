"""`.dockerignore` means here what it means to BuildKit."""

import pytest

from pipeline.errors import InputError
from pipeline.ignore import ignores


@pytest.mark.parametrize(
    ("patterns", "path", "ignored"),
    [
        ("*", "Dockerfile", True),
        ("*.txt", "a.txt", True),
        ("*.txt", "a/b.txt", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "a/b/c.txt", True),
        ("*.TXT", "a.txt", False),
        ("a", "a/b/c", True),
        ("/a/", "a/b", True),
        ("./a/../b", "b", True),
        ("a/*", "a/b/c", True),
        ("a/*", "a", False),
        ("a?", "ab", True),
        ("a?", "a/", False),
        ("[a-c].py", "b.py", True),
        ("[^a-c].py", "b.py", False),
        ("[^a-c].py", "d.py", True),
        (r"\*", "*", True),
        (r"\*", "a", False),
        ("a+(b)$.c", "a+(b)$.c", True),
        ("a**", "abc/d", True),
        ("# a", "# a", False),
        ("", "a", False),
        (".", "a", False),
        ("  a  ", "a", True),
        ("\ufeffa", "a", True),
        ("a\n!a/b", "a/b", False),
        ("a\n!a/b", "a/b/c", False),
        ("a\n!a/b", "a/c", True),
        ("!a\na", "a", True),
        ("a\n!  a/b", "a/b", False),
        ("a\n  \n\n  !a/b  \n", "a/b", False),
        ("  # a", "# a", True),
        ("**/cache\n!x/y/cache/keep", "x/y/cache/keep/z", False),
        ("**/cache\n!x/y/cache/keep", "x/y/cache/other", True),
        ("*.md\n!README*.md\nREADME-secret.md", "README-secret.md", True),
        ("*.md\n!README*.md\nREADME-secret.md", "README.md", False),
        ("a b", "a b", True),
        ("café", "café", True),
        ("a*", "a\nb", True),
    ],
)
def test_the_last_pattern_that_matches_a_path_or_a_folder_around_it_decides(patterns: str, path: str, ignored: bool) -> None:
    assert ignores(patterns)(path) is ignored


@pytest.mark.parametrize("pattern", ["!", "[b-a]"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="is not a pattern"):
        ignores(pattern)
