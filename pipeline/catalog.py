"""The catalog: which images there are, what they stand on, what they claim and how they are checked.

These values check what they can see alone; `catalog_text` makes them from YAML and reports every fault at once.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipeline.errors import InputError
from pipeline.oci import Pinned, Repository
from pipeline.releases import candidate_tag, floating_tag


def _kebab(field: str) -> str:
    return field.replace("_", "-")


def _shaped(pattern: str, meaning: str) -> AfterValidator:
    """Text that `pattern` matches whole; a fault says `meaning`."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"is not {meaning}: `{text}`")
        return text

    return AfterValidator(check)


def _accepted(check: Callable[[str], object]) -> AfterValidator:
    """Text that `check` takes; its `InputError` is the fault."""

    def accept(text: str) -> str:
        try:
            check(text)
        except InputError as error:
            raise ValueError(f"is not one: {error.message}") from error
        return text

    return AfterValidator(accept)


def _not_latest(text: str) -> str:
    if text == "latest":
        raise ValueError("may not be `latest`: its tags would be taken for those of the newest release")
    return text


def _not_twelve_hex(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{12}", text):
        raise ValueError(f"may not be twelve hex digits, as input hashes are: `{text}`")
    return text


def _distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({item for item in items if items.count(item) > 1})
    if twice:
        raise ValueError("names twice: " + ", ".join(f"`{item}`" for item in twice))
    return items


def _any(items: tuple[str, ...]) -> tuple[str, ...]:
    if not items:
        raise ValueError("names nothing")
    return items


def _utc(moment: datetime) -> datetime:
    if moment.utcoffset() != timedelta(0) or moment.microsecond or moment.timestamp() < 0:
        raise ValueError("is not whole seconds of UTC since 1970")
    return moment


Line = Annotated[str, _shaped(r"(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})", "a release line like `2.6`")]
ImageName = Annotated[
    str,
    _shaped(
        r"(?!(?:base|packages|scratch)$)(?=.{1,63}$)[a-z][a-z0-9]*(?:-[a-z0-9]+)*",
        "an image's name, `[a-z][a-z0-9-]*` and neither `base` nor `packages`",
    ),
]
Variant = Annotated[
    str,
    _shaped(r"[a-z][a-z0-9]{0,62}", "a variant, `[a-z][a-z0-9]*`"),
    AfterValidator(_not_twelve_hex),
    AfterValidator(_not_latest),
]
CheckName = Annotated[str, _shaped(r"[a-z0-9]+(?:-[a-z0-9]+)*", "a check's name, `[a-z0-9-]*`")]
CheckNames = Annotated[tuple[CheckName, ...], AfterValidator(_distinct)]
Platform = Annotated[str, _shaped(r"linux/[a-z0-9]+(?:/[a-z0-9]+)?", "a platform of Linux, like `linux/amd64`")]
Word = Annotated[str, _shaped(r"\S+", "one word")]
Sentence = Annotated[str, _shaped(r"[^\n]*\S[^\n]*", "one line of text")]
Account = Annotated[str, _shaped(r"[a-z_][a-z0-9_-]{0,31}", "a user's name")]
AbsolutePath = Annotated[str, _shaped(r"(?:/[A-Za-z0-9._-]+)+", "an absolute path")]
Python = Annotated[str, _shaped(r"3\.[1-9][0-9]*", "a Python such as `3.11`")]
Package = Annotated[str, _shaped(r"[a-z0-9][a-z0-9+.-]+", "a Debian package's name")]
PackagePattern = Annotated[
    str, _shaped(r"(?=(?:[^a-z0-9]*[a-z0-9]){3})[a-z0-9*-]+", "a package's name, in which `*` may stand for any text")
]
RepositoryName = Annotated[str, _shaped(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", "the last part of a repository's path")]
RepositoryText = Annotated[str, _accepted(lambda text: Repository.parse(f"{text}/x"))]
PinnedText = Annotated[str, _accepted(Pinned.parse)]
Label = Annotated[str, _shaped(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "a runner's label, `[A-Za-z0-9._-]*`")]
RunnerName = Annotated[str, _shaped(r"[a-z0-9]{1,30}(?:-[a-z0-9]{1,30})?", "a kind of runner, like `h100`")]


class Entry(BaseModel):
    """Base of all catalog values: frozen, and no unknown keys; in YAML, `-` stands for `_`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=_kebab, validate_by_name=True, validate_by_alias=True)


class Checks(Entry):
    """Names of files in the image's `checks/` folder: `imports` is `test_imports.py` or `service_imports.py`."""

    cpu: CheckNames = ()
    gpu: CheckNames = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Those of all lanes, each once."""
        return tuple(dict.fromkeys(self.cpu + self.gpu))


class User(Entry):
    """A user that a root file system gets; `home` belongs to group 0 and is writable for it."""

    name: Account
    uid: Annotated[int, Field(ge=1, le=2**31 - 1)]
    gid: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    home: AbsolutePath
    shell: AbsolutePath = "/bin/bash"


class Rootfs(Entry):
    """A Debian root file system: what `packages.lock` is solved from."""

    suite: Annotated[str, _shaped(r"[a-z][a-z0-9-]*", "a Debian suite's name")]
    packages: Annotated[tuple[Package, ...], AfterValidator(_distinct)]
    users: tuple[User, ...] = ()
    directories: tuple[AbsolutePath, ...] = ()
    """They belong to group 0 and are writable for it."""
    workdir: AbsolutePath | None = None
    """Where containers start: one of `directories`."""


class Image(Entry):
    """One image; `name` is its folder's name."""

    name: ImageName
    description: Sentence
    parent: ImageName | None = None
    uses: Annotated[tuple[ImageName, ...], AfterValidator(_distinct)] = ()
    variant: Variant | None = None
    release: bool = True
    claims: Mapping[Word, Sentence] = Field(default_factory=dict)
    checks: Checks = Checks()
    size_limit: Annotated[int, Field(ge=1)] | None = None
    """Compressed bytes of all layers."""
    revision: Annotated[int, Field(ge=1)] = 1
    rootfs: Rootfs | None = None
    packages: Annotated[tuple[Package, ...], AfterValidator(_distinct)] = ()
    """Debian packages that its Dockerfile adds to those of its parent, from the suite of the root file system below."""
    runners: Annotated[tuple[RunnerName, ...], AfterValidator(_distinct)] = ()
    """The kinds of GPU runners that CI proves it on; all that the catalog names when it does not say."""
    python: Python | None = None
    """The Python that `requirements/*.in` are solved for; an image has its parent's when it does not say."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The images that it is built from: its parent and those its stages start from."""
        return ((self.parent,) if self.parent else ()) + self.uses

    @property
    def has_packages(self) -> bool:
        """Whether it has a `packages.lock`."""
        return bool(self.rootfs or self.packages)

    @property
    def suffix(self) -> str | None:
        """What its tags end with: its variant, its name where it is never released, or nothing."""
        return self.variant if self.release else self.name


class Shared(Entry):
    """What all images share: `images/catalog.yaml`."""

    line: Line
    """The release line: `2.6`."""
    repository: RepositoryName
    """The last part of the repository's path: `pytorch-cuda`."""
    candidates: RepositoryText
    releases: RepositoryText
    platform: Platform
    epoch: Annotated[datetime, AfterValidator(_utc)]
    compression_level: Annotated[int, Field(ge=1, le=22)]
    """Of zstd."""
    reference: PinnedText | None = None
    """An image known to be good, which tells a sick machine from a sick image; without it the last release does."""
    canary: CheckName | None = None
    """The check that it runs, before a GPU lane and after one that failed."""
    runners: Mapping[RunnerName, Annotated[tuple[Label, ...], AfterValidator(_distinct), AfterValidator(_any)]] = Field(
        default_factory=dict
    )
    """Kinds of GPU runners of the CI, and the labels by which it finds one; no part of any input hash."""
    unassessed: Annotated[tuple[PackagePattern, ...], AfterValidator(_distinct)] = ()
    """Names of packages that no advisory is about, because they only wrap what somebody else publishes; `*` is any text."""


class Catalog(Shared):
    """All images, parents first, and what they share."""

    images: Mapping[str, Image]

    @property
    def candidate_repository(self) -> Repository:
        """Where builds write."""
        return Repository.parse(f"{self.candidates}/{self.repository}")

    @property
    def release_repository(self) -> Repository:
        """Where promotions write."""
        return Repository.parse(f"{self.releases}/{self.repository}")

    def ancestors(self, image: Image) -> Iterator[Image]:
        """The images below, its parent first."""
        while image.parent:
            image = self.images[image.parent]
            yield image

    def suite(self, image: Image) -> str:
        """The Debian suite of the root file system that `image` is or stands on; raises `InputError` when there is none."""
        for one in (image, *self.ancestors(image)):
            if one.rootfs:
                return one.rootfs.suite
        raise InputError(f"`{image.name}` stands on no `rootfs`", hint="name the packages in the image that it stands on")

    def floating_tag(self, image: Image) -> str:
        """What its releases of this line are known by, `v2.6-nlp`, and what its candidates' tags begin with."""
        return floating_tag(self.line, image.suffix)

    def candidate_tag(self, image: Image, input_hash: str) -> str:
        """The tag of what is built from these inputs: `v2.6-nlp-<first 12 hex digits>`."""
        return candidate_tag(self.line, image.suffix, input_hash)
