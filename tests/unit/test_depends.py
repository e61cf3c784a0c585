"""Debian's dependency relations."""

import pytest

from pipeline.depends import Universe as _Universe
from pipeline.depends import Unsolvable, add, close

INDEX = """\
Package: base
Version: 1
Essential: yes
Pre-Depends: libc (>= 2.36)
Depends: awk

Package: libc
Version: 2.36-9
Provides: libc-api (= 2.36)

Package: mawk
Version: 1
Priority: required
Provides: awk

Package: gawk
Version: 5
Provides: awk

Package: original
Version: 1
Priority: required

Package: editor
Version: 1
Depends: nano | vim, gawk:any

Package: vim
Version: 1:2
Depends: libc-api (>= 2.30)

Package: nano
Version: 1
"""


def universe(text: str, origin: str = "debian") -> _Universe:
    return _Universe([(origin, text.encode())])


def names(text: str, *wanted: str) -> list[str]:
    return [candidate.name for candidate in close(universe(text), wanted)]


def test_essential_and_required_packages_come_with_what_they_depend_on() -> None:
    assert names(INDEX) == ["base", "libc", "mawk", "original"]


def test_what_comes_with_a_package_brings_its_own() -> None:
    chain = (
        "".join(f"Package: {one}\nVersion: 1\nDepends: {other}\n\n" for one, other in ("ab", "bc", "cd"))
        + "Package: d\nVersion: 1\n"
    )
    assert names(chain, "a") == ["a", "b", "c", "d"]
    assert [candidate.name for candidate in add(universe(chain), ["a"], {"b": "1"})] == ["a"], "what is there has what it needs"


def test_the_first_alternative_wins() -> None:
    assert names(INDEX, "editor") == ["base", "editor", "gawk", "libc", "mawk", "nano", "original"]


def test_an_alternative_that_is_selected_already_wins_over_the_first() -> None:
    assert "nano" not in names(INDEX, "editor", "vim")


def test_an_alternative_that_does_not_exist_is_passed_over() -> None:
    assert "vim" in names(INDEX.replace("nano | vim", "emacs | vim"), "editor")


def test_a_virtual_package_is_met_by_the_provider_that_more_systems_have() -> None:
    text = "Package: a\nVersion: 1\nDepends: mta\n\n"
    text += "".join(
        f"Package: {name}\nVersion: 1\nPriority: {priority}\nProvides: mta\n\n"
        for name, priority in (("exim", "optional"), ("postfix", "standard"), ("courier", "optional"))
    )
    assert names(text, "a") == ["a", "postfix"]


def test_a_provision_meets_a_version_only_if_it_has_one() -> None:
    text = "Package: a\nVersion: 1\nDepends: api (>= 2)\n\nPackage: b\nVersion: 3\nProvides: api{}\n"
    assert names(text.format(" (= 2)"), "a") == ["a", "b"]
    for provision in ("", " (= 1)"):
        with pytest.raises(Unsolvable):
            names(text.format(provision), "a")


@pytest.mark.parametrize(
    ("relation", "met"),
    [
        ("<< 1:2", False),
        ("<= 1:2", True),
        ("= 1:2", True),
        (">= 1:2~rc1", True),
        (">> 1:2", False),
        (">= 3", True),
        (">> 2:0", False),
    ],
)
def test_versions_are_compared_as_debian_does(relation: str, met: bool) -> None:
    text = f"Package: a\nVersion: 1\nDepends: b ({relation})\n\nPackage: b\nVersion: 1:2\n"
    if met:
        assert names(text, "a") == ["a", "b"]
    else:
        with pytest.raises(Unsolvable):
            names(text, "a")


def test_the_newest_version_over_all_indices_counts() -> None:
    stable, security = b"Package: a\nVersion: 1.10-1\n", b"Package: a\nVersion: 1.10-1+deb12u1\n"
    for indices in ([("debian", stable), ("debian-security", security)], [("debian-security", security), ("debian", stable)]):
        (a,) = close(_Universe(indices), ["a"])
        assert (a.version, a.origin) == ("1.10-1+deb12u1", "debian-security")


def test_all_that_is_missing_is_told_at_once_with_the_nearest_name() -> None:
    text = "Package: editor\nVersion: 1\nDepends: missing (>= 2) | gone\n"
    with pytest.raises(Unsolvable) as caught:
        names(text, "edtor", "editor")
    assert caught.value.problems == (
        "no package `edtor`; did you mean `editor`?",
        "`editor` wants `missing (>= 2) | gone`, which the archive does not have",
    )


@pytest.mark.parametrize("field", ["Conflicts", "Breaks"])
def test_packages_that_refuse_each_other_are_not_selected_together(field: str) -> None:
    text = f"Package: a\nVersion: 1\n{field}: b (<< 2)\n\nPackage: b\nVersion: {{}}\n"
    assert names(text.format("2"), "a", "b") == ["a", "b"]
    with pytest.raises(Unsolvable, match=r"`a` conflicts with `b` \(`b \(<< 2\)`\)"):
        names(text.format("1"), "a", "b")


def test_a_package_may_refuse_what_it_provides_itself() -> None:
    assert names("Package: a\nVersion: 1\nProvides: x\nConflicts: x\n", "a") == ["a"]


def test_packages_may_depend_on_each_other() -> None:
    assert names("Package: a\nVersion: 1\nDepends: b\n\nPackage: b\nVersion: 1\nDepends: a\n", "a") == ["a", "b"]


INSTALLED = {"base": "1", "libc": "2.36-9", "mawk": "1"}


def added(text: str, *wanted: str, installed: dict[str, str] | None = None) -> list[str]:
    return [candidate.name for candidate in add(universe(text), wanted, INSTALLED if installed is None else installed)]


def test_what_is_installed_is_not_added_again_nor_what_every_root_file_system_has() -> None:
    assert added(INDEX, "vim") == ["vim"]
    assert added(INDEX, "base", "libc") == []
    assert added(INDEX, "editor", installed={}) == ["editor", "gawk", "nano"]


def test_what_is_installed_meets_dependencies_and_wins_over_the_first_alternative() -> None:
    text = INDEX.replace("nano | vim, gawk:any", "nano | vim, awk")
    assert added(text, "editor", installed=INSTALLED | {"vim": "1:2"}) == ["editor"]


def test_what_is_installed_is_never_replaced_by_the_version_that_is_wanted() -> None:
    text = "Package: a\nVersion: 1\nDepends: b (= 2)\n\nPackage: b\nVersion: 2\n\nPackage: c\nVersion: 1\nConflicts: d\n\n"
    text += "Package: d\nVersion: 1\n"
    with pytest.raises(Unsolvable) as caught:
        added(text, "a", "c", installed={"b": "1", "d": "1"})
    assert caught.value.problems == (
        "`a` wants `b (= 2)`, but `b` 1 is there already",
        "`c` conflicts with `d` (`d`)",
    )
    assert caught.value.held == {"b", "d"}
    assert added(text, "a", installed={"b": "2"}) == ["a"]


def test_another_alternative_is_added_where_what_is_installed_does_not_fit() -> None:
    text = "Package: a\nVersion: 1\nDepends: b (>= 2) | c\n\nPackage: b\nVersion: 2\n\nPackage: c\nVersion: 1\n"
    assert added(text, "a", installed={"b": "1"}) == ["a", "c"]


def test_an_installed_version_has_the_relations_that_an_index_tells_of_it() -> None:
    indices = [("debian", b"Package: b\nVersion: 1\nProvides: api (= 1)\n"), ("security", b"Package: b\nVersion: 2\n")]
    a = ("own", b"Package: a\nVersion: 1\nDepends: api (>= 1)\n")
    assert [one.name for one in add(_Universe([*indices, a]), ["a"], {"b": "1"})] == ["a"]


def test_an_installed_version_that_no_index_has_provides_no_version() -> None:
    text = "Package: a\nVersion: 1\nDepends: api{}\n\nPackage: b\nVersion: 2\nProvides: api (= 2)\n"
    assert added(text.format(""), "a", installed={"b": "1"}) == ["a"]
    with pytest.raises(Unsolvable):
        added(text.format(" (= 2)"), "a", installed={"b": "1"})
    assert added("Package: a\nVersion: 1\nDepends: local\n", "a", installed={"local": "1"}) == ["a"]


def test_installed_packages_that_refuse_each_other_are_not_judged() -> None:
    assert added("Package: a\nVersion: 1\nBreaks: b\n\nPackage: b\nVersion: 1\n", installed={"a": "1", "b": "1"}) == []
