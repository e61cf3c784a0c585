"""What a Dockerfile stands on, and whether its image is links only.

A reading for lint and for choosing how to export; what a build really used is what BuildKit says that it resolved.
Source of the rules: `frontend/dockerfile/dockerfile2llb/convert.go` of BuildKit 0.34.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pipeline.errors import DockerfileError, InputError
from pipeline.expansion import expand
from pipeline.instructions import METADATA, Dockerfile, Instruction, Stage, parse
from pipeline.oci import Pinned, Tagged, parse_reference

EMPTY = "scratch"
_PROXY = re.compile(r"(?i)(?:all|ftp|https?|no)_proxy")


@dataclass(frozen=True, kw_only=True)
class External:
    """An image from outside that a Dockerfile names, or the `fault` for which the name cannot be read."""

    line: int
    text: str
    """As written, variables replaced."""
    reference: Pinned | Tagged | None
    fault: str = ""


def links_only(text: str) -> bool:
    """Whether the final image is made of `COPY --link` and metadata alone, and so needs no rewriting of times.

    A link counts when it copies to `/` what already has its time: folders that `COPY` makes itself, and the text of a
    heredoc, carry the time of the build. Raises `DockerfileError` where BuildKit would refuse the file.
    """
    file = parse(text)
    return all(_is_light(instruction) for stage in _final(file) for instruction in stage.instructions)


def external_images(text: str, contexts: Collection[str], variables: Mapping[str, str] | None = None) -> tuple[External, ...]:
    """The images that the file takes from outside, in the order of their lines.

    `contexts` are the names of named contexts; `variables` are build arguments (`TARGETARCH` and its like belong here).
    Raises `DockerfileError` where BuildKit would refuse the file.
    """
    file = parse(text)
    around = _Around(file=file, scope=_scope(file, variables or {}), contexts=frozenset(_contexts(contexts)))
    found = _frontends(file)
    for index, stage in enumerate(file.stages):
        found += filter(None, [_base(around, index)])
        found += filter(None, (_source(around, index, i, name) for i in _all(stage) for name in _sources(i)))
    return tuple(found)


def refuse_untold(text: str) -> None:
    """Raise `DockerfileError` for what changes an image without its input hash, and which BuildKit does not tell of.

    A frontend (`# syntax=`) without digest; and `ARG HTTP_PROXY` and its like, which write the machine's proxy, password and
    all, into the image. The steps have the proxy without them.
    """
    file = parse(text)
    for frontend in _frontends(file):
        if not isinstance(frontend.reference, Pinned):
            told = f"line {frontend.line}: the frontend `{frontend.text}` is not pinned: write `@sha256:…` behind its name"
            raise DockerfileError(frontend.line, told)
    for line, name in proxies(file):
        told = f"line {line}: `ARG {name}` would write this machine's proxy into the image: remove it, steps have it without"
        raise DockerfileError(line, told)


def proxies(file: Dockerfile) -> Iterator[tuple[int, str]]:
    """The lines and names of arguments that BuildKit fills with the machine's proxies, whatever their letter case."""
    for instruction in (instruction.trigger or instruction for instruction in file.instructions):
        if instruction.keyword == "ARG":
            yield from ((instruction.line, name) for name, _ in instruction.pairs if _PROXY.fullmatch(name))


def final_base(text: str) -> tuple[str, int]:
    """What the final image stands on, as written with variables replaced, and the line of that `FROM`."""
    file = parse(text)
    *_, lowest = _final(file)
    return _value(lowest.line, lowest.base, _scope(file, {}), file.escape), lowest.line


@dataclass(frozen=True, kw_only=True)
class _Around:
    """What a name in a Dockerfile can mean beside an image."""

    file: Dockerfile
    scope: Mapping[str, str]
    contexts: frozenset[Pinned | Tagged]

    def below(self, index: int, name: str) -> int | None:
        """The stage that `FROM name` in stage `index` means: letter case counts, as it does for BuildKit."""
        return max((i for i in range(index) if self.file.stages[i].name == name), default=None)


def _is_light(instruction: Instruction) -> bool:
    if instruction.keyword != "COPY":
        return instruction.keyword in METADATA
    plain = not instruction.heredocs and not instruction.flag("parents")
    return instruction.linked and plain and instruction.words[-1:] == ("/",)


def _final(file: Dockerfile) -> Iterator[Stage]:
    """The last stage and the stages that it is `FROM`."""
    around = _Around(file=file, scope=_scope(file, {}), contexts=frozenset())
    index: int | None = len(file.stages) - 1
    while index is not None:
        stage = file.stages[index]
        yield stage
        index = around.below(index, _value(stage.line, stage.base, around.scope, file.escape))


def _scope(file: Dockerfile, variables: Mapping[str, str]) -> Mapping[str, str]:
    """The values that `FROM` may use: the arguments before the first `FROM`, overridden by build arguments."""
    scope = {name: value for name, value in variables.items() if name.startswith(("TARGET", "BUILD"))}
    for instruction in file.arguments:
        for word in instruction.words:
            name, equals, value = word.partition("=")
            if name in variables:
                scope[name] = variables[name]
            elif equals:
                scope[name] = _value(instruction.line, value, scope, file.escape)
    return scope


def _value(line: int, text: str, scope: Mapping[str, str], escape: str) -> str:
    try:
        return expand(text, scope, escape=escape).text
    except InputError as error:
        raise DockerfileError(line, error.message) from error


def _frontends(file: Dockerfile) -> list[External]:
    return [_external(x.line, x.value.split(" ")[0]) for x in file.directives if x.name == "syntax"]


def _contexts(names: Collection[str]) -> Iterator[Pinned | Tagged]:
    """BuildKit compares the names of contexts as references, so `base` is also `base:latest`; some names are none."""
    for name in names:
        with suppress(InputError):
            yield parse_reference(name)


def _base(around: _Around, index: int) -> External | None:
    stage = around.file.stages[index]
    if stage.name and _external(stage.line, stage.name).reference in around.contexts:
        return None
    try:
        base = expand(stage.base, around.scope, escape=around.file.escape)
    except InputError as error:
        return _unread(stage.line, stage.base, error.message)
    if base.unset:
        return _unread(stage.line, stage.base, f"`{base.unset[0]}` has no value before the first `FROM`")
    internal = base.text == EMPTY or around.below(index, base.text) is not None
    return None if internal else _unless_context(around, _external(stage.line, base.text))


def _all(stage: Stage) -> Iterator[Instruction]:
    """The instructions of a stage; of `ONBUILD`, what waits behind it."""
    for instruction in stage.instructions:
        yield instruction.trigger or instruction


def _sources(instruction: Instruction) -> Iterator[str]:
    if instruction.keyword == "COPY":
        yield from filter(None, instruction.flag("from"))
    if instruction.keyword == "RUN":
        yield from (mount["from"] for mount in instruction.mounts if mount.get("from"))


def _source(around: _Around, index: int, instruction: Instruction, name: str) -> External | None:
    if "$" in name:
        return _unread(
            instruction.line, name, "`from=` takes no variables: give a stage `FROM` that image, and copy from the stage"
        )
    stages = [stage.name for stage in around.file.stages]
    numbered = instruction.keyword == "COPY" and name.isdecimal()
    position = int(name) if numbered else _position(stages, name.lower())
    if position is not None and position >= index:
        return _unread(instruction.line, name, f"there is no stage `{name}` before this line")
    internal = position is not None or name.lower() == EMPTY
    return None if internal else _unless_context(around, _external(instruction.line, name))


def _position(stages: list[str], name: str) -> int | None:
    return stages.index(name) if name in stages else None


def _unless_context(around: _Around, external: External) -> External | None:
    return None if external.reference in around.contexts else external


def _external(line: int, name: str) -> External:
    try:
        return External(line=line, text=name, reference=parse_reference(name))
    except InputError as error:
        return _unread(line, name, error.message)


def _unread(line: int, text: str, fault: str) -> External:
    return External(line=line, text=text, reference=None, fault=fault)
