"""`lint`: faults of the images' Dockerfiles that a build would not show, or would show late; and exceptions that do nothing.

Locks that are older than their sources are faults of the catalog, which reports them whenever it is read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from pipeline import policies
from pipeline.additions import CONTEXT
from pipeline.catalog import Catalog, Image
from pipeline.command import Run
from pipeline.context import dockerfile_text
from pipeline.dockerfile import External, external_images, final_base, proxies
from pipeline.errors import DockerfileError, ToolFailed
from pipeline.installs import Outside, outside, outside_words
from pipeline.instructions import Dockerfile, Instruction, parse
from pipeline.oci import Pinned
from pipeline.settings import Settings

TIMEOUT = 120.0
"""Seconds for hadolint over all Dockerfiles of a family."""
OFF: Mapping[str, str] = {
    "DL3003": "`WORKDIR` is an ordinary step, `cd` in a `RUN` adds none",
    "DL3006": "names of contexts (`base`) have no tag; images from outside are judged by `unpinned-image`",
    "DL3007": "judged by `unpinned-image`",
    "DL3008": "judged by `outside-lock`",
    "DL3013": "judged by `outside-lock`",
    "DL3016": "judged by `outside-lock`",
    "DL3018": "judged by `outside-lock`",
    "DL3022": "contexts are copied from by name; images from outside are judged by `unpinned-image`",
    "DL3028": "judged by `outside-lock`",
    "DL3033": "judged by `outside-lock`",
    "DL3037": "judged by `outside-lock`",
    "DL3041": "judged by `outside-lock`",
    "DL3042": "downloads are kept in a cache mount, which no layer holds",
    "DL3059": "several `RUN` are several layers, which travel and survive alone",
    "DL3062": "judged by `outside-lock`",
    "DL3064": "judged by `baked-secret`",
}
"""hadolint's rules that contradict how images are built here, or that are judged better, and why."""
LEVELS: Mapping[str, Literal["error", "warning"]] = {"error": "error", "warning": "error", "info": "warning", "style": "warning"}
"""hadolint's levels as ours."""
SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:apikey|auth|credentials?|key|password|passwd|pword|secret|token|pat)(?:_|$)")
"""Names of variables that hold secrets; after BuildKit's check `SecretsUsedInArgOrEnv`."""
HARMLESS_NAME = re.compile(r"(?i)(?:^|_)(?:public|file|path|dir)(?:_|$)")
"""Names that tell of a secret's place, or of its public half."""
SECRET_VALUE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:gh[opsu]_|github_pat_|glpat-|hf_|AKIA|xox[bp]-)[A-Za-z0-9_-]{12,}")
"""Beginnings of well-known keys."""


@dataclass(frozen=True, order=True, kw_only=True)
class Finding:
    """One fault; `path` is relative to the root, `line` counts from 1."""

    path: str
    line: int
    rule: str
    text: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        hint = f" → {self.hint}" if self.hint else ""
        return f"{self.severity}: {self.path}:{self.line}: {self.text} ({self.rule}){hint}"

    @property
    def fatal(self) -> bool:
        """Whether the image may not stay as it is."""
        return self.severity == "error"


def lint(names: Sequence[str], *, settings: Settings, catalog: Catalog, hadolint: Path, run: Run) -> tuple[Finding, ...]:
    """Every fault in the Dockerfiles of `names`; raises `ToolFailed` when hadolint's answer cannot be read."""
    files = {name: settings.images / name / "Dockerfile" for name in names if catalog.images[name].rootfs is None}
    texts = {name: dockerfile_text(path.parent) for name, path in files.items()}
    found = [x for name, text in texts.items() for x in examine(catalog, catalog.images[name], text)]
    if files:
        found += _hadolint([path.relative_to(settings.root) for path in files.values()], settings, hadolint, run)
    return tuple(sorted(set(found)))


def exceptions(settings: Settings, catalog: Catalog, now: datetime) -> tuple[Finding, ...]:
    """Exceptions from the policies that cannot count; raises `InputError` when their file has faults."""
    idle = policies.idle(settings.root / "policies", catalog.images, now)
    return tuple(
        Finding(path=str(Path(one.file).relative_to(settings.root)), line=one.line, rule="idle-exception", text=one.text)
        for one in idle
    )


def examine(catalog: Catalog, image: Image, text: str) -> Iterator[Finding]:
    """Our own rules on one Dockerfile."""
    path = f"images/{image.name}/Dockerfile"
    try:
        file = parse(text)
        yield from _outside_images(catalog, image, text, path)
        yield from _base(image, text, path)
        yield from _unused(image, file, path)
    except DockerfileError as error:
        yield Finding(path=path, line=error.line, rule="dockerfile", text=error.message)
        return
    yield from _proxies(file, path)
    lines = text.split("\n")
    for instruction in _all(file):
        yield from _installs(image, instruction, lines, path)
        yield from _secrets(instruction, path)
        yield from _downloads(instruction, path)


def _all(file: Dockerfile) -> Iterator[Instruction]:
    for instruction in file.instructions:
        yield instruction.trigger or instruction


def _outside_images(catalog: Catalog, image: Image, text: str, path: str) -> Iterator[Finding]:
    contexts = (*(["base"] if image.parent else []), *([CONTEXT] if image.packages else []), *image.uses)
    system, _, machine = catalog.platform.partition("/")
    variables = {"TARGETPLATFORM": catalog.platform, "TARGETOS": system, "TARGETARCH": machine.partition("/")[0]}
    for external in external_images(text, contexts, variables):
        if external.fault:
            yield Finding(path=path, line=external.line, rule="unread-image", text=f"`{external.text}`: {external.fault}")
        elif not isinstance(external.reference, Pinned):
            hint = _pin(catalog, external)
            yield Finding(
                path=path, line=external.line, rule="unpinned-image", text=f"`{external.text}` has no digest", hint=hint
            )


def _pin(catalog: Catalog, external: External) -> str:
    if external.text in catalog.images:
        return f"to start from the family's own image, add `{external.text}` to `uses:` in `image.yaml`"
    if external.text == CONTEXT:
        return "name the Debian packages that it adds as `packages:` in `image.yaml`"
    if external.text == "base":
        return "name the image that it stands on as `parent:` in `image.yaml`"
    return f"write its digest behind it: `docker buildx imagetools inspect {external.reference}` tells it"


def _base(image: Image, text: str, path: str) -> Iterator[Finding]:
    base, line = final_base(text)
    if image.parent and base != "base":
        told = f"the final stage stands on `{base}`, not on the parent `{image.parent}`"
        yield Finding(path=path, line=line, rule="not-on-parent", text=told, hint="begin the final stage with `FROM base`")


def _unused(image: Image, file: Dockerfile, path: str) -> Iterator[Finding]:
    steps = [instruction for instruction in _all(file) if instruction.keyword == "RUN"]
    if image.packages and not any(mount.get("from") == CONTEXT for step in steps for mount in step.mounts):
        told = "installs none of the `packages` that `image.yaml` names"
        step = f"RUN --mount=type=bind,from={CONTEXT},target=/{CONTEXT} --network=none"
        hint = f'as user 0, `{step} ["/bin/sh", "/{CONTEXT}/install.sh"]`'
        yield Finding(path=path, line=1, rule="unused-packages", text=told, hint=hint)


def _installs(image: Image, instruction: Instruction, lines: Sequence[str], path: str) -> Iterator[Finding]:
    if instruction.keyword != "RUN":
        return
    found = outside_words(instruction.words) if instruction.json else outside(instruction.script)
    for one in found:
        line = _line_of(one, instruction, lines)
        if one.piped:
            text, hint = f"runs `{one.what}` unseen", "load it with `ADD --checksum=sha256:…`, then run the file"
            yield Finding(path=path, line=line, rule="piped-script", text=text, hint=hint)
        else:
            hint = f"name it in `requirements/` or in `packages:` of `image.yaml`, then `nox -s update -- {image.name}`"
            yield Finding(path=path, line=line, rule="outside-lock", text=f"installs `{one.what}` outside the lock", hint=hint)


def _line_of(one: Outside, instruction: Instruction, lines: Sequence[str]) -> int:
    """The first line of the instruction that names both, or the package, or the program."""
    span = range(instruction.line, instruction.end + 1)
    for wanted in ((one.tool, one.what), (one.what,), (one.tool,)):
        for number in span:
            if all(word in lines[number - 1] for word in wanted):
                return number
    return instruction.line


def _secrets(instruction: Instruction, path: str) -> Iterator[Finding]:
    if instruction.keyword not in ("ARG", "ENV"):
        return
    for name, value in instruction.pairs:
        empty = instruction.keyword == "ENV" and not value  # says only that whoever starts the image may give it
        if (SECRET_NAME.search(name) and not HARMLESS_NAME.search(name) and not empty) or SECRET_VALUE.search(value):
            text = f"`{name}` stays readable in the image's configuration or history"
            hint = "hand secrets to a step with `RUN --mount=type=secret,id=…`"
            yield Finding(path=path, line=instruction.line, rule="baked-secret", text=text, hint=hint)


def _proxies(file: Dockerfile, path: str) -> Iterator[Finding]:
    for line, name in proxies(file):
        text = f"`ARG {name}` writes the proxy of whoever builds into the image, its password too"
        yield Finding(path=path, line=line, rule="baked-proxy", text=text, hint="remove it: steps have the proxy without it")


def _downloads(instruction: Instruction, path: str) -> Iterator[Finding]:
    if instruction.keyword != "ADD" or instruction.flag("checksum"):
        return
    for source in instruction.words[:-1]:
        if re.match(r"(?:https?|git|ssh)://|git@", source):
            text, hint = f"adds `{source}` without a checksum", "write `ADD --checksum=sha256:…`"
            yield Finding(path=path, line=instruction.line, rule="unpinned-download", text=text, hint=hint)


def _hadolint(files: Sequence[Path], settings: Settings, hadolint: Path, run: Run) -> Iterator[Finding]:
    ignored = [word for rule in OFF for word in ("--ignore", rule)]
    argv: tuple[str | Path, ...] = (
        hadolint,
        "--config",
        "/dev/null",
        "--no-color",
        "--no-fail",
        "--format",
        "json",
        *ignored,
        "--",
        *files,
    )
    told = run(*argv, timeout=TIMEOUT, cwd=settings.root)
    try:
        for one in TypeAdapter(list[dict[str, Any]]).validate_json(told.stdout):
            yield Finding(
                path=one["file"],
                line=one["line"],
                rule=one["code"],
                text=one["message"],
                hint=f"https://github.com/hadolint/hadolint/wiki/{one['code']}" if one["code"].startswith("DL") else "",
                severity=LEVELS[one["level"]],
            )
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(f"what `hadolint` said cannot be read: {error!r}") from error
