"""`.dockerignore` as BuildKit reads it: the last pattern that matches a path, or a folder around it, decides.

Grammar: github.com/moby/patternmatcher. The Docker SDK's own reading differs (letter case, `[^a]`, `!` below `**`).
"""

import re
from collections.abc import Callable
from functools import cache
from posixpath import normpath

from pipeline.errors import InputError

FILES = ("Dockerfile.dockerignore", ".dockerignore")
"""Where the patterns stand; the first that exists counts alone."""

_TOKEN = re.compile(r"(?P<deep>\*\*/?)|(?P<any>\*)|(?P<one>\?)|\\(?P<quoted>.)|(?P<set>\[\^?\]?[^\]]*\])|(?P<plain>.)", re.DOTALL)


def ignores(text: str) -> Callable[[str], bool]:
    """Whether the patterns in `text` leave out a path of the context (relative, `/` between the parts).

    Raises `InputError` for a pattern that is none.
    """
    patterns = [_pattern(line.strip()) for line in text.removeprefix("\ufeff").splitlines() if line.strip() and line[0] != "#"]

    @cache
    def matches(path: str) -> tuple[bool, ...]:
        around = path.rpartition("/")[0]
        before = matches(around) if around else (False,) * len(patterns)
        return tuple(hit or bool(regex.fullmatch(path)) for hit, (_, regex) in zip(before, patterns, strict=True))

    def ignored(path: str) -> bool:
        decisions = [leaves_out for hit, (leaves_out, _) in zip(matches(path), patterns, strict=True) if hit]
        return bool(decisions) and decisions[-1]

    return ignored


def _pattern(line: str) -> tuple[bool, re.Pattern[str]]:
    body = line.removeprefix("!").strip()
    tokens = list(_TOKEN.finditer(normpath(body).lstrip("/"))) if body else []
    try:
        if not body:
            raise re.error("it is empty")
        return not line.startswith("!"), re.compile("".join(map(_translated, tokens)), re.DOTALL)
    except re.error as error:
        raise InputError(f"`{line}` in `.dockerignore` is not a pattern: {error}") from error


def _translated(token: re.Match[str]) -> str:
    if token["deep"]:
        return ".*" if token.end() == len(token.string) else "(?:.*/)?"
    if token["any"] or token["one"]:
        return "[^/]*" if token["any"] else "[^/]"
    return token["set"] or re.escape(token["quoted"] or token["plain"])
