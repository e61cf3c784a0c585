"""Strict YAML: text → plain values that know their lines, and every fault at once.

Stricter than YAML 1.1 where it surprises: a key occurs once, nothing is null, `yes` is not true, and numbers that a
reader and YAML see differently (`2.10`, `010`, dates) stay text as it was written, as `Unquoted`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
"""Where a value stands: keys and positions from the top."""

NODE_LIMIT = 20_000
"""Values in one document, aliases counted as often as they are used."""
DEPTH_LIMIT = 32
"""Nested mappings and lists; also ends an alias that contains itself."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, order=True)
class Problem:
    """One fault of a file: `images/nlp/image.yaml:3: unknown key …`."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Unquoted:
    """A number, date or word that YAML takes for something else than text, as it was written."""

    raw: str

    def __str__(self) -> str:
        return self.raw


@dataclass(frozen=True)
class Mark:
    """The line of a value (from 1), and the text of a scalar as it was written."""

    line: int
    raw: str = ""


@dataclass(frozen=True)
class Document:
    """A file's values: dicts, tuples, text, whole numbers, true and false, and `Unquoted`."""

    file: str
    value: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)
    """Where the values stand for which a problem has been reported."""

    def mark(self, path: Path) -> Mark:
        """The mark of the value at `path`, or of the nearest one around it."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1))

    def is_broken(self, key: str) -> bool:
        """Whether something is wrong with the value of `key`, or in it."""
        return any(path[:1] == (key,) for path in self.broken)

    def problem(self, path: Path, text: str) -> Problem:
        """A fault of the value at `path`."""
        return Problem(self.file, self.mark(path).line, text)


def read(file: str, text: bytes) -> Document:
    """The mapping that `text`, YAML in UTF-8, holds; what is wrong with it is in `problems`."""
    document = Document(file)
    try:
        node = yaml.compose(text, Loader=_LOADER)
        if not isinstance(node, yaml.MappingNode):
            raise _Fault("the file must hold a mapping of keys to values", _line(node) if node else 1)
        document.marks[()] = Mark(_line(node))
        document.value.update(_Reader(document).mapping(node, ()))
    except _Fault as fault:
        document.problems.append(Problem(file, fault.line, fault.text))
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        document.problems.append(Problem(file, at.line + 1 if at else 1, _reason(error)))
    except yaml.reader.ReaderError as error:
        document.problems.append(Problem(file, _line_of_position(text, error), f"not YAML: {error.reason}"))
    except RecursionError:
        document.problems.append(Problem(file, 1, "nested too deeply"))
    return document


class _Fault(Exception):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text, self.line = text, line


class _Reader:
    """Walks the nodes of one document and counts them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, line, inner in self._pairs(node, len(path)):
            if (value := self._value(inner, (*path, key), line)) is not None:
                found[key] = value
        return found

    def _pairs(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[str, int, yaml.Node]]:
        own: dict[str, tuple[int, yaml.Node]] = {}
        merged: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                for name, line, inherited in self._merged(value, depth + 1):
                    merged.setdefault(name, (line, inherited))
            elif (text := self._key(key)) in own:
                self._say(_line(key), f"duplicate key `{text}`: it stands in line {own[text][0]} already")
            elif text:
                own[text] = (_line(key), value)
        for name, (line, value) in {**merged, **own}.items():
            yield name, line, value

    def _merged(self, node: yaml.Node, depth: int) -> Iterator[tuple[str, int, yaml.Node]]:
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            yield from self._pairs(node, depth)
        elif isinstance(node, yaml.SequenceNode) and depth < DEPTH_LIMIT:
            for item in node.value:
                yield from self._merged(item, depth + 1)
        else:
            self._say(_line(node), "`<<` takes a mapping, or a list of them")

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str" and node.value:
            return str(node.value)
        shown = f"`{node.value}`" if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        self._say(_line(node), f"a key must be text, not {shown}: quote it")
        return ""

    def _value(self, node: yaml.Node, path: Path, line: int) -> Any:
        self._count(node, len(path))
        self._document.marks[path] = Mark(line, node.value if isinstance(node, yaml.ScalarNode) else "")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return self._items(node, path)
        if isinstance(node, yaml.ScalarNode) and node.tag != f"{_TAG}null":
            return self._scalar(node, path)
        empty = isinstance(node, yaml.ScalarNode)
        self._break(
            path, line, "is empty: give it a value, or remove it" if empty else f"has a tag that is not known: {node.tag}"
        )
        return None

    def _items(self, node: yaml.SequenceNode, path: Path) -> tuple[Any, ...]:
        items: list[Any] = []
        for item in node.value:
            if (value := self._value(item, (*path, len(items)), _line(item))) is not None:
                items.append(value)
        return tuple(items)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind, raw = node.tag.removeprefix(_TAG), node.value
        if kind == "str":
            return raw
        if kind == "int" and _INTEGER.fullmatch(raw):
            return int(raw)
        if kind == "bool" and raw in ("true", "false"):
            return raw == "true"
        if kind in ("int", "float", "bool", "timestamp", "value"):
            return Unquoted(raw)
        self._break(path, _line(node), f"has a tag that is not known: {node.tag}")
        return None

    def _count(self, node: yaml.Node, depth: int) -> None:
        self._nodes += 1
        if depth > DEPTH_LIMIT:
            raise _Fault("nested too deeply", _line(node))
        if self._nodes > NODE_LIMIT:
            raise _Fault(f"more than {NODE_LIMIT} values, aliases expanded", _line(node))

    def _say(self, line: int, text: str) -> None:
        self._document.problems.append(Problem(self._document.file, line, text))

    def _break(self, path: Path, line: int, text: str) -> None:
        self._document.broken.add(path)
        self._say(line, f"`{dotted(path)}` {text}")


def dotted(path: Path) -> str:
    """`path` as people write it: `checks.cpu[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _reason(error: yaml.MarkedYAMLError) -> str:
    return "not YAML: " + ", ".join(filter(None, (error.context, error.problem)))


def _line_of_position(text: bytes, error: yaml.reader.ReaderError) -> int:
    return text[: error.position].count(b"\n") + 1
