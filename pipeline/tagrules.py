"""What a Harbor's project does to tags by itself: its immutable rules and its retention, judged as Harbor judges them.

Rules: Harbor 2.15, `pkg/immutable/match/rule` (the first selector of each kind counts, templates are not looked at) and
`pkg/retention`; patterns are those of the `doublestar` library, where an empty one matches everything.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, Self

from pipeline.errors import InputError

_EXCLUDING = {"excludes", "repoExcludes"}
_NOT_ESCAPED = re.compile(r"(?:\\.|[^\\])")


@dataclass(frozen=True, kw_only=True)
class Selector:
    """One condition: `decoration` is `matches`, `excludes`, `repoMatches` or `repoExcludes`."""

    decoration: str
    pattern: str

    def selects(self, text: str) -> bool:
        """Whether a tag, or a repository's path without its project, fulfils it; raises `InputError` on a bad pattern."""
        return matches(self.pattern, text) is not (self.decoration in _EXCLUDING)

    @classmethod
    def read(cls, told: Any) -> tuple[Self, ...]:
        """The selectors in Harbor's JSON; none for null."""
        return tuple(cls(decoration=str(each.get("decoration", "")), pattern=str(each.get("pattern", ""))) for each in told or ())


@dataclass(frozen=True, kw_only=True)
class ImmutableRule:
    """One rule of a project that freezes tags."""

    number: int
    tags: tuple[Selector, ...]
    repositories: tuple[Selector, ...]
    disabled: bool = False

    def __str__(self) -> str:
        told = (f"tags {_told(self.tags)}" if self.tags else "no tags", f"repositories {_told(self.repositories)}")
        return f"rule {self.number} ({', '.join(told)}{', disabled' if self.disabled else ''})"

    @property
    def empty(self) -> bool:
        """Whether a pattern that counts is empty, which freezes more than anybody meant."""
        return any(not each.pattern for each in (*self.tags[:1], *self.repositories[:1]))

    @property
    def inert(self) -> bool:
        """Whether it can never freeze anything, for want of a selector."""
        return not self.tags or not self.repositories

    def freezes(self, repository: str, tag: str) -> bool:
        """Whether the tag may not be moved or deleted once it is there; raises `InputError` on a bad pattern."""
        return not (self.disabled or self.inert) and self.repositories[0].selects(repository) and self.tags[0].selects(tag)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """A rule in Harbor's JSON."""
        return cls(
            number=int(told["id"]),
            tags=Selector.read(told.get("tag_selectors")),
            repositories=Selector.read((told.get("scope_selectors") or {}).get("repository")),
            disabled=bool(told.get("disabled")),
        )


@dataclass(frozen=True, kw_only=True)
class RetentionRule:
    """What one rule of a retention policy keeps; only `always` keeps whatever comes later."""

    template: str
    tags: tuple[Selector, ...]
    repositories: tuple[Selector, ...]
    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The policy by which a project deletes artifacts, with all their tags and all that refers to them."""

    rules: tuple[RetentionRule, ...]
    scheduled: bool
    """Whether it runs by itself."""

    def deletes(self, repository: str, tag: str) -> bool:
        """Whether it may some day delete the artifact that has only this tag, immutable rules left aside.

        A repository that no rule selects is left alone; in any other, what no rule keeps goes.
        """
        here = [each for each in self.rules if not each.disabled and all(one.selects(repository) for one in each.repositories)]
        return bool(here) and not any(each.template == "always" and all(one.selects(tag) for one in each.tags) for each in here)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """A policy in Harbor's JSON."""
        rules = tuple(
            RetentionRule(
                template=str(each.get("template", "")),
                tags=Selector.read(each.get("tag_selectors")),
                repositories=Selector.read((each.get("scope_selectors") or {}).get("repository")),
                disabled=bool(each.get("disabled")),
            )
            for each in told.get("rules") or ()
        )
        cron = ((told.get("trigger") or {}).get("settings") or {}).get("cron")
        return cls(rules=rules, scheduled=bool(cron))


def frozen_by(rules: Sequence[ImmutableRule], repository: str, tag: str) -> ImmutableRule | None:
    """The first rule that freezes the tag; the repository's path is without its project."""
    return next((rule for rule in rules if rule.freezes(repository, tag)), None)


def matches(pattern: str, text: str) -> bool:
    """Whether `text` is one that a doublestar pattern means; raises `InputError` when the pattern cannot be read."""
    return not pattern or _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    spelled = ""
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            spelled += ".+" if last else "(?:[^/]+/)*"
        else:
            spelled += "".join(_expression(part, pattern)) + ("" if last else "/")
    return re.compile(spelled, re.DOTALL)


def _expression(part: str, pattern: str) -> Iterator[str]:
    """A regular expression for what stands between two slashes."""
    depth, place = 0, 0
    while place < len(part):
        sign = part[place]
        if sign == "[":
            text, place = _class(part, place, pattern)
            yield text
            continue
        if sign == "\\":
            place += 1
            yield re.escape(part[place : place + 1] or _bad(pattern))
        elif sign in "{}," and (sign == "{" or depth):
            depth += {"{": 1, "}": -1, ",": 0}[sign]
            yield {"{": "(?:", "}": ")", ",": "|"}[sign]
        else:
            yield {"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
        place += 1
    if depth:
        _bad(pattern)


def _class(part: str, start: int, pattern: str) -> tuple[str, int]:
    """A character class, and where it ends."""
    end = start + 1
    while end < len(part) and part[end] != "]":
        end += 2 if part[end] == "\\" else 1
    inner = part[start + 1 : end]
    body = inner.removeprefix("^")
    if end >= len(part) or not body or body[0] == "-" or body[-1] == "-":
        _bad(pattern)
    signs = "".join(each if each == "-" or len(each) > 1 else re.escape(each) for each in _NOT_ESCAPED.findall(body))
    return f"[{'^' if inner != body else ''}{signs}]", end + 1


def _bad(pattern: str) -> NoReturn:
    raise InputError(f"the pattern `{pattern}` cannot be read", hint="mend the rule: a bracket or a brace has no end")


def _told(selectors: Sequence[Selector]) -> str:
    first = f"{'all but ' if selectors[0].decoration in _EXCLUDING else ''}`{selectors[0].pattern}`" if selectors else "none"
    return first + (f" (the other {len(selectors) - 1} are ignored)" if len(selectors) > 1 else "")
