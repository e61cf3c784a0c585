"""`docker buildx bake`: a definition from typed values, one target run, and what BuildKit says that it made.

Unknown keys of a definition are dropped in silence by buildx, and `${…}` in its strings is a template: so nothing but
`definition` writes one. Lists of secrets, caches and outputs are in the string form, which every buildx understands.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from pipeline import names
from pipeline.builders import Builder
from pipeline.buildlog import BuildLog, Failure
from pipeline.command import Run
from pipeline.errors import InputError, RegistryRefused, Temporary, ToolFailed, ToolUnfit
from pipeline.oci import Digest, Repository, Tagged
from pipeline.story import Task
from pipeline.surroundings import Surroundings

TIMEOUT = 4 * 3600.0
"""Seconds that one image may take."""
ATTEMPTS = 3
"""How often a push is tried whose blobs the registry does not know yet: siblings may be sending them too."""
INDEX_URL = "PIPELINE_INDEX_URL"
"""The variable of buildx's environment that the secret `index-url` comes from."""

_ENVIRONMENT = {
    "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",  # one manifest and no index; provenance is ours to sign
    "BUILDX_BAKE_DISABLE_VARS_ENV_LOOKUP": "1",
    "BUILDX_BAKE_ENTITLEMENTS_FS": "0",  # the definition is ours: no question about the paths in it
    "BUILDX_METADATA_PROVENANCE": "min",
    "BUILDX_GIT_INFO": "false",
    "BUILDX_GIT_LABELS": "false",  # no commit of whatever work tree the cache folder is in
}
_NO_SPACE = ("no space left on device", "disk quota exceeded")
_GONE = (
    "connection refused",
    "connection reset",
    "connection error",
    "context deadline exceeded",
    "error reading from server",
    "no such host",
    "i/o timeout",
    "TLS handshake timeout",
    "transport is closing",
    "unexpected EOF",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "Unavailable",
)
_BROKEN = re.compile(r"unexpected status from \w+ request to \S+: (5\d\d [A-Z][A-Za-z ]+)|blob upload (?:invalid|unknown)")
"""What is said when a registry fails inside: where its disk is full, the answer to a second try can be all that is told."""
_RESOLVED = re.compile(r"sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}")
_REFUSED = ("insufficient_scope", "unauthorized", "authorization failed", "denied", "401 Unauthorized", "403 Forbidden")


@dataclass(frozen=True, kw_only=True)
class Target:
    """One image as BuildKit is asked for it."""

    name: str
    repository: Repository
    context: Path
    contexts: Mapping[str, str]
    """Other images, `docker-image://repository@sha256:…`, and folders, by the name that the Dockerfile uses."""
    labels: Mapping[str, str]
    platform: str
    epoch: int
    """Seconds since 1970, of everything in the image."""
    compression_level: int
    """zstd's."""
    rewrite_timestamp: bool
    """Clamp the times of the image's own layers while exporting; wanted unless it only links clamped layers."""
    cache: Tagged | None = None
    """Where BuildKit's cache travels."""
    fresh: bool = False
    """Build without any cache."""


@dataclass(frozen=True, kw_only=True)
class Bakery:
    """What bakes: a builder, what it takes over from the machine, and how programs are run."""

    builder: Builder
    around: Surroundings
    run: Run


@dataclass(frozen=True, kw_only=True)
class Material:
    """Something that BuildKit resolved: a package URL, or an address; `pinned` when that holds the digest."""

    uri: str
    digest: str
    """`sha256:…`; of a git repository `sha1:…`, the commit."""
    image: bool
    pinned: bool


@dataclass(frozen=True, kw_only=True)
class Baked:
    """What BuildKit pushed, from what, and how many lines of the Dockerfile it ran for it."""

    digest: Digest
    materials: tuple[Material, ...]
    executed: int


def definition(targets: Sequence[Target], around: Surroundings) -> dict[str, Any]:
    """The definition of `targets` as JSON for `docker buildx bake`; it writes no cache."""
    return {
        "group": {"default": {"targets": [target.name for target in targets]}},
        "target": {target.name: _target(target, around) for target in targets},
    }


def bake(target: Target, bakery: Bakery, *, metadata: Path, log: Path, task: Task) -> Baked:
    """Build and push `target` by digest; buildx's record goes to the new file `metadata`, the whole log to `log`.

    The machine's authorities and index are the secrets `ca` and `index-url`; its proxies are BuildKit's predefined build
    arguments, which enter neither cache keys nor images. Raises `ToolFailed` when a step fails, `Temporary` when builder,
    registry or disk does, `RegistryRefused` when the push is not allowed.
    """
    wanted, executed = _target(target, bakery.around), 0
    for attempt in range(1, ATTEMPTS + 1):
        code, said = _solve(target.name, wanted, bakery, log, task, "--metadata-file", str(metadata))
        executed += len(said.executed)
        if code == 0:
            return _baked(metadata, target.name, executed)
        if attempt == ATTEMPTS or not _is_passing(said.failure()):
            _raise(said.failure(), target, bakery.builder, log)
    raise AssertionError


def save_cache(target: Target, bakery: Bakery, *, log: Path, task: Task) -> str:
    """Write BuildKit's cache of the `target` that was just built; returns why that was not possible, if so.

    After the image and not beside it: otherwise both send the same layers at the same time, twice the bytes, and registries
    were seen to forget a blob while it arrives a second time.
    """
    if target.cache is None:
        return ""
    wanted = _target(replace(target, cache=None, fresh=False), bakery.around)
    wanted |= {"output": ["type=cacheonly"], "cache-to": [_cache(target, target.cache)]}
    code, said = _solve(target.name, wanted, bakery, log, task)
    return "" if code == 0 else said.failure().error


def _solve(name: str, wanted: Mapping[str, Any], bakery: Bakery, log: Path, task: Task, *more: str) -> tuple[int, BuildLog]:
    builder, around = bakery.builder, bakery.around
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as written:
        said = BuildLog(written, task.note, around.passwords)
        done = bakery.run(
            *(*builder.command, "--builder", builder.name, "bake", "--file", "-", "--progress", "rawjson", *more, name),
            timeout=TIMEOUT,
            env={**builder.environment, **_ENVIRONMENT, INDEX_URL: around.index_url},
            stdin=json.dumps({"target": {name: wanted}}).encode(),
            on_line=said.line,
            secrets=around.passwords,
            check=False,
        )
    if said.fault:
        raise said.fault
    return done.code, said


def _target(target: Target, around: Surroundings) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "context": str(target.context),
        "dockerfile": "Dockerfile",
        "contexts": dict(target.contexts),
        "platforms": [target.platform],
        "args": {"SOURCE_DATE_EPOCH": str(target.epoch), **around.proxies},
        "labels": dict(target.labels),
        "secret": _secrets(around),
        "output": [_output(target)],
    }
    if target.fresh:
        wanted["no-cache"] = True
    elif target.cache:
        wanted["cache-from"] = [f"type=registry,ref={target.cache}"]
    return dict(_escaped(wanted))


def _secrets(around: Surroundings) -> list[str]:
    certificates = [_fields(type="file", id="ca", src=str(around.certificates))] if around.certificates else []
    return [*certificates, _fields(type="env", id="index-url", env=INDEX_URL)]


def _output(target: Target) -> str:
    clamp = {"rewrite-timestamp": "true"} if target.rewrite_timestamp else {}
    exported = {"push-by-digest": "true", "name-canonical": "true", "push": "true", "oci-mediatypes": "true"}
    return _fields(type="image", name=str(target.repository), **exported, **_compression(target), **clamp)


def _cache(target: Target, at: Tagged) -> str:
    """What is linked and nothing else, as an image of its own, so that its layers are the image's."""
    kind = {"mode": "min", "image-manifest": "true", "oci-mediatypes": "true", "ignore-error": "true"}
    return _fields(type="registry", ref=str(at), **kind, **_compression(target))


def _compression(target: Target) -> dict[str, str]:
    """Forced, or BuildKit takes what blobs its cache happens to hold of a layer, of whatever kind, and the digest with them."""
    return {"compression": "zstd", "compression-level": str(target.compression_level), "force-compression": "true"}


def _fields(**values: str) -> str:
    """`key=value,…`, quoted as CSV where a value holds a comma or a quote."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([f"{key}={value}" for key, value in values.items()])
    return line.getvalue()


def _escaped(value: Any) -> Any:
    """Strings of a JSON definition, keys too, are templates: `${` and `%{` are doubled where text is meant."""
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def _baked(metadata: Path, name: str, executed: int) -> Baked:
    try:
        made = json.loads(metadata.read_bytes())[name]
        if "buildx.build.provenance" not in made:
            raise ToolUnfit(
                "buildx does not tell what BuildKit resolved", hint="use buildx 0.14 or newer, and BuildKit 0.13 or newer"
            )
        materials = tuple(_material(item) for item in _resolved(made["buildx.build.provenance"]))
        return Baked(digest=Digest(made["containerimage.digest"]), materials=materials, executed=executed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise ToolFailed(f"buildx left no readable record of `{name}`: {error!r}") from error


def _resolved(provenance: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What a provenance in SLSA's format 1, or 0.2, lists as its sources."""
    if "buildDefinition" in provenance:
        provenance = {"materials": provenance["buildDefinition"].get("resolvedDependencies")}
    return provenance.get("materials") or ()


def _material(data: Mapping[str, Any]) -> Material:
    uri, told = data["uri"], data["digest"]
    kind = "sha256" if "sha256" in told else "sha1"
    if not _RESOLVED.fullmatch(digest := f"{kind}:{told[kind]}"):
        raise ValueError(digest)
    return Material(uri=uri, digest=digest, image=uri.startswith("pkg:docker/"), pinned=told[kind] in uri)


def _raise(failure: Failure, target: Target, builder: Builder, log: Path) -> NoReturn:
    error, said = failure.error, "\n".join((failure.error, *failure.tail)).lower()
    hint = f"the whole log is `{log}`"
    if any(text in said for text in _NO_SPACE):
        remedy = f"free space where builder `{builder.name}` keeps its data: `docker buildx prune --builder {builder.name}`"
        raise Temporary(f"the disk is full: `{target.name}` cannot be built: {error}", hint=f"{remedy}; {hint}")
    if "no builder" in error and "found" in error:
        raise ToolUnfit(f"there is no buildx builder `{builder.name}`", hint="`docker buildx ls` lists those that there are")
    if _is_step(failure):
        lines = "\n".join(f"  {line}" for line in failure.tail)
        raise ToolFailed(f"`{target.name}` failed in `{failure.step}`: {_ending(error)}\n{lines}".rstrip(), hint=hint)
    if failure.step.startswith("exporting"):
        _raise_for_push(failure, target, hint)
    if any(text in error for text in _GONE):
        raise Temporary(
            f"`{target.name}` cannot be built: builder `{builder.name}` or a registry does not answer: {error}",
            hint=f"`{names.COMMAND} doctor` tells which; {hint}",
        )
    raise ToolFailed(f"`{target.name}` cannot be built: {error}", hint=hint)


def _raise_for_push(failure: Failure, target: Target, hint: str) -> None:
    """Raise what the registry's answers tell, the last one and those after which BuildKit tried again."""
    host = target.repository.host
    if any(text in failure.error for text in _REFUSED):
        raise RegistryRefused(f"`{target.name}` cannot be pushed: {failure.error}", hint=f"`docker login {host}`; {hint}")
    if broken := _BROKEN.search("\n".join((failure.error, *failure.tail))):
        raise Temporary(
            f"`{target.name}` cannot be pushed: registry `{host}` answers `{broken[1] or broken[0]}`",
            hint=f"its own log tells why; often its disk is full (`nox -s doctor` looks at this machine's); {hint}",
        )


def _is_passing(failure: Failure) -> bool:
    return failure.step == "exporting to image" and "blob unknown" in failure.error


def _is_step(failure: Failure) -> bool:
    """Whether a command of the Dockerfile failed, not the machinery around it."""
    return "did not complete successfully" in failure.error


def _ending(error: str) -> str:
    return error.rpartition("did not complete successfully: ")[2]
