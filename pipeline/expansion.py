"""Words and variables of Dockerfiles, read as BuildKit reads them.

Source of the rules: `frontend/dockerfile/shell/lex.go` of BuildKit 0.34. Patterns (`${x#…}`, `${x%…}`, `${x/…/…}`) are
recognised, but not evaluated.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A word after its variables were replaced; `unset` names those that had no value and no default."""

    text: str
    unset: tuple[str, ...]


def expand(word: str, variables: Mapping[str, str], *, escape: str = "\\") -> Expanded:
    """`word` without its quotes, its variables replaced, unset ones by nothing; raises `InputError` on bad syntax."""
    lexer = _Lexer(word, escape=escape, variables=variables, raw=False)
    return Expanded(text="".join(text for text, _ in lexer.read("")), unset=tuple(lexer.unset))


def split(line: str, *, raw: bool) -> list[str]:
    """The words of `line`, its variables as they are; `raw` keeps quotes and escapes. Raises `InputError` on bad syntax."""
    words, word = [], ""
    for text, splits in _Lexer(line, escape="\\", variables=None, raw=raw).read(""):
        for character in text:
            if not (splits and _is_space(character)):
                word += character
            elif word:
                words.append(word)
                word = ""
    return [*words, word] if word else words


def quoted_words(text: str, escape: str) -> list[str]:
    """The words of `ARG`, `ENV` and `LABEL`: quotes stay, and hold words together."""
    mark = re.escape(escape)
    return re.findall(rf"""(?s)(?:{mark}.|'[^']*(?:'|\Z)|"(?:{mark}.|[^"{mark}])*(?:"|\Z)|[^\s'"])+""", text)


def _is_space(character: str) -> bool:
    """Whether Go's `unicode.IsSpace` holds; Python's adds the four separators of ASCII."""
    return character.isspace() and character not in "\x1c\x1d\x1e\x1f"


def take_flags(text: str, escape: str) -> tuple[tuple[str, ...], str]:
    """The leading `--flags` of `text` without quotes and escapes, and what follows them."""
    flags: list[str] = []
    rest = text.lstrip()
    while rest.startswith("--"):
        word, rest = _flag(rest, escape)
        if word == "--":
            break
        flags.append(word)
        rest = rest.lstrip()
    return tuple(flags), rest.strip()


def _flag(text: str, escape: str) -> tuple[str, str]:
    """The first word of `text` without quotes and escapes, and what follows."""
    word, quote, position = "", "", 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == escape:
            word += text[position : position + 1]
            position += 1
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "'\"":
            quote = character
        elif _is_space(character):
            return word, text[position:]
        else:
            word += character
    return word, ""


class _Lexer:
    """One pass over `text`; `variables` of `None` keeps every variable as it is written."""

    def __init__(self, text: str, *, escape: str, variables: Mapping[str, str] | None, raw: bool) -> None:
        self.text = text
        self.position = 0
        self.escape = escape
        self.variables = variables
        self.raw = raw
        self.unset: list[str] = []

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def next(self) -> str:
        character = self.peek()
        self.position += len(character)
        return character

    def read(self, stop: str) -> list[tuple[str, bool]]:
        """Pieces up to `stop` or the end, and whether white space in them separates words."""
        pieces: list[tuple[str, bool]] = []
        while self.peek():
            if self.peek() == stop:
                self.next()
                return pieces
            pieces.append(self.piece())
        if stop:
            raise InputError(f"`{self.text}` lacks a `{stop}`")
        return pieces

    def piece(self) -> tuple[str, bool]:
        match self.peek():
            case "'":
                return self.single_quoted(), False
            case '"':
                return self.double_quoted(), False
            case "$":
                return self.variable(), True
            case "<":
                return self.heredoc_mark(), False
            case self.escape:
                kept = self.next() if self.raw else self.next()[:0]
                return kept + self.next(), False
            case _:
                return self.next(), True

    def single_quoted(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise InputError(f"`{self.text}` lacks a closing `'`")
        whole = self.text[self.position : end + 1]
        self.position = end + 1
        return whole if self.raw else whole[1:-1]

    def double_quoted(self) -> str:
        quote = self.next() if self.raw else self.next()[:0]
        inside = ""
        while (character := self.peek()) != '"':
            if not character:
                raise InputError(f'`{self.text}` lacks a closing `"`')
            inside += self.variable() if character == "$" else self.double_quoted_character()
        self.next()
        return quote + inside + quote

    def double_quoted_character(self) -> str:
        character = self.next()
        if character != self.escape:
            return character
        if self.peek() in ('"', "$", self.escape):
            return (character if self.raw else "") + self.next()
        return character if self.peek() else ""

    def heredoc_mark(self) -> str:
        mark = self.next()
        if self.peek() != "<":
            return mark
        mark += self.next()
        while self.peek() and self.peek() in " \t\r\n":
            mark += self.next()
        return mark

    def variable(self) -> str:
        start = self.position
        self.next()
        if self.peek() == "{":
            self.next()
            return self.braced(start)
        name = self.name()
        return self.plain(name, start) if name else "$"

    def braced(self, start: int) -> str:
        if not self.peek() or self.peek() in "{}:":
            raise InputError(f"`{self.text}` has a bad substitution")
        name, operator = self.name(), self.next()
        if operator == "}":
            return self.plain(name, start)
        if operator == ":":
            operator += self.next()
        if not operator or operator[0] not in ":+-?#%/" or operator in (":#", ":%"):
            raise InputError(f"`{self.text}` has a substitution with `{operator}`, which BuildKit does not know")
        word = self.operand(operator)
        return self.text[start : self.position] if self.variables is None else self.substituted(name, operator, word)

    def operand(self, operator: str) -> str:
        if operator == "/":
            if self.peek() == "/":
                self.next()
            self.read("/")
        return "".join(text for text, _ in self.read("}"))

    def plain(self, name: str, start: int) -> str:
        if self.variables is None:
            return self.text[start : self.position]
        if name not in self.variables:
            self.unset.append(name)
        return self.variables.get(name, "")

    def substituted(self, name: str, operator: str, word: str) -> str:
        value = (self.variables or {}).get(name)
        missing = not value if operator.startswith(":") else value is None
        match operator[-1]:
            case "-":
                return word if missing else value or ""
            case "+":
                return "" if missing else word
            case "?" if not missing:
                return value or ""
            case "?":
                raise InputError(f"`{name}`: {word or 'must be set'}")
        raise InputError(f"`{self.text}` changes `{name}` by a pattern, which only BuildKit evaluates")

    def name(self) -> str:
        start = self.position
        if self.peek().isdecimal():
            while self.peek().isdecimal():
                self.next()
        elif self.peek() and self.peek() in "@*#?-$!":
            self.next()
        else:
            while self.peek().isalnum() or self.peek() == "_":
                self.next()
        return self.text[start : self.position]
