"""Dockerfiles as typed instructions, read as BuildKit reads them: directives, continuations, comments, heredocs, flags.

Source of the rules: `frontend/dockerfile/parser` and `instructions` of BuildKit 0.34.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from pipeline.errors import DockerfileError, InputError
from pipeline.expansion import quoted_words, split, take_flags

STEPS = frozenset(("ADD", "COPY", "FROM", "ONBUILD", "RUN", "WORKDIR"))
METADATA = frozenset(
    ("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER", "VOLUME")
)
"""Instructions that add no layer, now or in a child."""

_MAYBE_JSON = ("ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME")
_SPACES = re.compile(r"[\t\v\f\r ]+")
_HEREDOC = re.compile(r"(\d*)<<(-?)\s*([^<]*)")
_DIRECTIVE = re.compile(r"(#|//)\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*")
_STAGE = re.compile(r"[a-z][a-z0-9-_.]*")


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction, its continuation lines joined; `end` is its last line, heredocs included."""

    keyword: str
    """Upper case."""
    flags: tuple[str, ...]
    """As written, without quotes: `--link`, `--from=build`."""
    arguments: str
    """What follows the flags."""
    words: tuple[str, ...]
    """The items of a JSON array, the pairs of `ARG`, `ENV` and `LABEL` with their quotes, or what white space separates."""
    json: bool
    line: int
    end: int
    heredocs: tuple[str, ...] = ()
    trigger: "Instruction | None" = None
    """The instruction behind `ONBUILD`."""

    def flag(self, name: str) -> tuple[str, ...]:
        """The values of every `--name=value`; `true` for a bare `--name`."""
        pairs = (flag.removeprefix("--").partition("=") for flag in self.flags)
        return tuple(value if equals else "true" for key, equals, value in pairs if key == name)

    @property
    def linked(self) -> bool:
        """Whether its layer stands on its own (`--link`)."""
        return [value.lower() for value in self.flag("link")] == ["true"]

    @property
    def mounts(self) -> tuple[Mapping[str, str], ...]:
        """The fields of every `--mount`, their names in lower case."""
        rows = (row for mount in self.flag("mount") for row in csv.reader([mount]))
        return tuple({key.lower(): value for key, _, value in (cell.partition("=") for cell in row)} for row in rows)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names and values of `ARG`, `ENV` and `LABEL`, quotes kept; of `ENV name value` too."""
        if self.keyword != "ARG" and "=" not in "".join(self.words[:1]):
            name, *value = _SPACES.split(self.arguments, maxsplit=1)
            return ((name, "".join(value)),)
        return tuple((name, value) for name, _, value in (word.partition("=") for word in self.words))

    @property
    def script(self) -> str:
        """All text that runs: the arguments and the bodies of heredocs."""
        return "\n".join((self.arguments, *self.heredocs))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """`FROM base AS name` and what follows; `name` is in lower case, or empty."""

    base: str
    name: str
    line: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, kw_only=True)
class Directive:
    """`# name=value` at the top of the file; `name` is in lower case."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Dockerfile:
    """A whole file; `arguments` are the `ARG` instructions before the first `FROM`."""

    directives: tuple[Directive, ...]
    arguments: tuple[Instruction, ...]
    stages: tuple[Stage, ...]
    escape: str
    """The character that escapes and continues lines."""

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in the order of their lines, without `FROM`."""
        return self.arguments + tuple(instruction for stage in self.stages for instruction in stage.instructions)


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile; raises `DockerfileError` with the line where BuildKit would refuse it."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text.removeprefix("\ufeff"))
    directives = tuple(_directives(lines, "#"))
    escape = next((x.value for x in directives if x.name == "escape"), "\\")
    if escape not in ("\\", "`"):
        raise DockerfileError(1, f"`escape={escape}` is neither a backslash nor a backtick")
    instructions = tuple(_instructions(_Lines(lines), escape))
    arguments = tuple(takewhile(lambda x: x.keyword == "ARG", instructions))
    stages = tuple(_stages(instructions[len(arguments) :]))
    return Dockerfile(directives=directives or _other_syntax(lines), arguments=arguments, stages=stages, escape=escape)


class _Lines:
    """The lines of a file, and how many of them were taken."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.taken = 0

    def __iter__(self) -> Iterator[str]:
        while self.taken < len(self.lines):
            self.taken += 1
            yield self.lines[self.taken - 1]


def _directives(lines: list[str], comment: str) -> Iterator[Directive]:
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if not match or match[1] != comment or (name := match[2].lower()) not in ("syntax", "escape", "check"):
            return
        if name in seen:
            raise DockerfileError(number, f"a second `{name}` directive")
        seen.add(name)
        yield Directive(name=name, value=match[3], line=number)


def _other_syntax(lines: list[str]) -> tuple[Directive, ...]:
    """`// syntax=…`, and either form below a `#!` line: BuildKit takes the frontend from there too."""
    skipped = 1 if lines and lines[0].startswith("#!") else 0
    found = [x for comment in ("#", "//") for x in _directives(lines[skipped:], comment) if x.name == "syntax"]
    return tuple(replace(x, line=x.line + skipped) for x in found)


def _instructions(lines: _Lines, escape: str) -> Iterator[Instruction]:
    mark = re.escape(escape)
    continued = re.compile(rf"([^{mark}]){mark}[ \t]*\Z|^{mark}[ \t]*\Z")
    for raw in lines:
        line = raw.rstrip("\r\n").lstrip()
        if not line or line.startswith("#"):
            continue
        start = lines.taken
        joined = "".join(_continued(line, lines, continued))
        instruction = _instruction(joined, escape, start)
        heredocs = tuple(_body(lines, name, chomp, start) for name, chomp in _heredoc_names(instruction, joined))
        yield replace(instruction, heredocs=heredocs, end=lines.taken)


def _continued(line: str, lines: _Lines, continued: re.Pattern[str]) -> Iterator[str]:
    while True:
        text, count = continued.subn(r"\1", line)
        yield text
        if not count:
            return
        following = (raw.rstrip("\r\n") for raw in lines)
        line = next((x for x in following if x.strip() and not x.lstrip().startswith("#")), "")


def _instruction(text: str, escape: str, line: int) -> Instruction:
    keyword, rest = [*_SPACES.split(text.strip(), maxsplit=1), ""][:2]
    if keyword.upper() not in STEPS | METADATA:
        raise DockerfileError(line, f"unknown instruction `{keyword}`")
    flags, arguments = take_flags(rest, escape)
    items = _json_items(arguments, line) if keyword.upper() in _MAYBE_JSON else None
    return Instruction(
        keyword=keyword.upper(),
        flags=flags,
        arguments=arguments,
        words=items if items is not None else _words(keyword.upper(), arguments, escape),
        json=items is not None,
        line=line,
        end=line,
        trigger=_instruction(arguments, escape, line) if keyword.upper() == "ONBUILD" else None,
    )


def _words(keyword: str, arguments: str, escape: str) -> tuple[str, ...]:
    if keyword in ("ARG", "ENV", "LABEL"):
        return tuple(quoted_words(arguments, escape))
    return tuple(filter(None, _SPACES.split(arguments)))


def _json_items(arguments: str, line: int) -> tuple[str, ...] | None:
    if not arguments.startswith("["):
        return None
    try:
        items = json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(item, str) for item in items):
        raise DockerfileError(line, "a JSON array of something else than texts")
    return tuple(items)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _heredoc_names(instruction: Instruction, line: str) -> Iterator[tuple[str, bool]]:
    holder = instruction.trigger or instruction
    if holder.keyword not in ("ADD", "COPY", "RUN") or holder.json:
        return
    try:
        words = split(line, raw=True)
    except InputError:
        return
    for match in filter(None, map(_HEREDOC.fullmatch, words)):
        names = _plain(match[3], instruction.line)
        if len(names) == 1:
            yield names[0], bool(match[2])


def _plain(word: str, line: int) -> list[str]:
    try:
        return split(word, raw=False)
    except InputError as error:
        raise DockerfileError(line, error.message) from error


def _body(lines: _Lines, name: str, chomp: bool, start: int) -> str:
    body: list[str] = []
    for raw in lines:
        text = raw.rstrip("\r\n")
        if (text.lstrip("\t") if chomp else text) == name:
            return "".join(body)
        body.append(raw)
    raise DockerfileError(start, f"heredoc `{name}` has no end")


def _stages(instructions: tuple[Instruction, ...]) -> Iterator[Stage]:
    if not instructions:
        raise DockerfileError(1, "there is no `FROM`")
    if instructions[0].keyword != "FROM":
        raise DockerfileError(instructions[0].line, f"`{instructions[0].keyword}` before the first `FROM`")
    starts = [index for index, x in enumerate(instructions) if x.keyword == "FROM"]
    for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
        base, name = _from(instructions[start])
        yield Stage(base=base, name=name, line=instructions[start].line, instructions=instructions[start + 1 : end])


def _from(instruction: Instruction) -> tuple[str, str]:
    match instruction.words:
        case (base,):
            return base, ""
        case (base, word, name) if word.lower() == "as":
            if not _STAGE.fullmatch(name.lower()):
                raise DockerfileError(instruction.line, f"`{name}` is not a stage's name")
            return base, name.lower()
    raise DockerfileError(instruction.line, "`FROM` wants an image, or `image AS name`")
