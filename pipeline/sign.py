"""The stage that holds keys: unsigned statements are checked against registry and catalog, signed, and attached, each once.

It runs nobody else's code. What a statement says of an image is compared with the image and with this checkout, so that
statements of something else, of other checks or of another run are refused, not signed. Only when all statements on a
digest are in order is any of them signed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pipeline import attest, dsse, names, records, runs, statements
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import InputError
from pipeline.evidence import AHEAD, Key, Role, Signed, collect, role_of
from pipeline.gather import STATEMENT_LIMIT, Keys, found
from pipeline.oci import Config, Digest, Manifest, Pinned
from pipeline.policy import Expected
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.statements import Bom, Built, Findings, Outcome, Scanned, Statable, Statement, Tested
from pipeline.story import Story

KINDS = ("built", "tested-cpu", "tested-gpu", "bom", "scanned", "findings")
"""The statements of one digest, by the names of their files."""
AGAIN = {"built": "nox -s build -- {0} --rebuild", "tested-cpu": "nox -s test -- {0}", "tested-gpu": "nox -s test -- {0}"}
SCAN = "nox -s scan -- {0}"
LARGEST = STATEMENT_LIMIT // 2
"""Bytes of a statement: a bundle holds it in base64, and a larger one would be read by nobody."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A candidate whose statements are to be signed, and what the catalog expects of it."""

    image: str
    pinned: Pinned
    expected: Expected
    rescanned: bool = False
    """Whether it is no candidate of this checkout, and only a newer look-up of its vulnerabilities is signed."""


@dataclass(frozen=True, kw_only=True)
class Signing:
    """What became of one statement, or of the signature of the digest itself."""

    image: str
    kind: str
    ended: Literal["attached", "known", "left"]
    """`known`: it is there already; `left`: there is nothing to say under a signature."""
    text: str = ""
    manifest: Digest | None = None


@dataclass(frozen=True, kw_only=True)
class Desk:
    """All that signing works with; `run` is the only run whose statements are signed, where one is named."""

    settings: Settings
    registry: Registry
    cosign: Cosign
    key: Callable[[Role], PrivateKey]
    roles: Collection[Role]
    """Those that sign; statements of the others are left."""
    now: Callable[[], datetime]
    story: Story
    run: str | None = None
    absent: bool = False
    """Whether there may be no statement about a subject, of which then nothing is signed."""


@dataclass(frozen=True, kw_only=True)
class _Image:
    subject: Subject
    manifest: Manifest
    config: Config
    tag: Digest | None


def sign(subjects: Sequence[Subject], desk: Desk) -> tuple[Signing, ...]:
    """Sign and attach what is known of each subject and not signed yet, then sign its digest.

    Raises `InputError` with every fault of a digest's statements, before anything of it is signed.
    """
    return tuple(signing for subject in subjects for signing in _signed(subject, desk))


def _signed(subject: Subject, desk: Desk) -> Iterator[Signing]:
    unsigned = _read(subject, desk)
    there = [one for one in found(subject.pinned, _publics(desk), desk.registry) if isinstance(one, Signed)]
    if not unsigned and not collect(subject.pinned, there, now=desk.now()).counted:  # others may attach statements of anything
        if desk.absent:
            return
        raise _refusal(subject, [])
    if desk.run is not None and not unsigned:
        desk.story.say(f"`{subject.image}`: nothing of the run `{desk.run}` is here to be signed{_whose(there)}")
    for kind, (statement, record) in unsigned.items():
        yield _attached(subject, kind, statement, record, there, desk)
    if "ci" in desk.roles and not subject.rescanned:
        yield _attached(subject, "signature", attest.signature(subject.pinned), None, there, desk)


def _read(subject: Subject, desk: Desk) -> Mapping[str, tuple[Statement, Statable]]:
    """The unsigned statements of a digest, all of them in order."""
    image = _look(subject, desk.registry)
    read: dict[str, tuple[Statement, Statable]] = {}
    faults: list[str] = []
    for kind in KINDS:
        path = records.path(desk.settings, subject.pinned.digest, kind)
        if not path.is_file():
            continue
        try:
            statement, record = _parsed(path)
            read[kind] = statement, record
            wrong = [*_shape(statement, subject), *_general(kind, record, image, desk), *_particular(record, image)]
        except InputError as error:
            wrong = [error.message]
        again = AGAIN.get(kind, SCAN).format(subject.image)
        faults += [f"`{path}`: {text}; `{again}`" for text in wrong]
    if faults:
        raise _refusal(subject, faults)
    return read


def _parsed(path: Path) -> tuple[Statement, Statable]:
    if path.stat().st_size > LARGEST:
        raise InputError(f"has more than {LARGEST} bytes")
    statement = dsse.statement(path.read_bytes())
    return statement, statements.read(statement)


def _refusal(subject: Subject, faults: Sequence[str]) -> InputError:
    if not faults:
        return InputError(
            f"there are no statements about `{subject.image}`, {subject.pinned.digest}", hint="`nox -s build test scan` first"
        )
    listed = "\n".join(f"  {fault}" for fault in faults)
    return InputError(
        f"statements about `{subject.image}` cannot be signed\n{listed}", hint="nothing was signed; make them again"
    )


def _look(subject: Subject, registry: Registry) -> _Image:
    manifest, config = registry.manifest(subject.pinned), registry.config(subject.pinned)
    tag = registry.resolve(subject.pinned.repository.tag(subject.expected.tag))
    return _Image(subject=subject, manifest=manifest, config=config, tag=tag)


def _shape(statement: Statement, subject: Subject) -> Iterator[str]:
    """Around its predicate a statement says what ours say, and nothing else: others may read it by that alone."""
    about = [{"name": str(subject.pinned.repository), "digest": {"sha256": subject.pinned.digest.hex}}]
    if statement.keys() != {"_type", "subject", "predicateType", "predicate"} or statement["subject"] != about:
        yield "has another subject, or more fields, than ours have"


def _general(kind: str, record: Statable, image: _Image, desk: Desk) -> Iterator[str]:
    """What must hold of every statement."""
    if record.subject != str(image.subject.pinned):
        yield f"is about `{record.subject}`"
    if _kind(record) != kind:
        yield f"is a statement `{_kind(record)}`"
    if record.finished > desk.now() + AHEAD:
        yield f"is dated {record.finished.isoformat()}, which is ahead of this machine's clock"
    if image.subject.rescanned and not isinstance(record, Scanned):
        yield "is more than a newer look-up of its vulnerabilities, which alone is signed of a reference"
    if isinstance(record, Bom):
        return
    if record.image != image.subject.image or image.config.labels.get(names.LABEL_IMAGE) != record.image:
        yield f"is about the image `{record.image}`, and the candidate is `{image.config.labels.get(names.LABEL_IMAGE)}`"
    if desk.run is not None and not runs.belongs(record.run, desk.run):
        yield f"is of the run `{record.run}`, not of `{desk.run}`"


def _particular(record: Statable, image: _Image) -> Iterator[str]:
    """What must hold of a statement of its kind."""
    expected = image.subject.expected
    if isinstance(record, Built):
        yield from _built(record, image)
    if isinstance(record, Tested):
        suite = expected.lanes.get(record.lane)
        if suite is None or record.suite != suite.hash:
            yield "is of other checks than those of this checkout"
        elif record.outcome is Outcome.PASSED and not set(suite.checks) <= {(one.image, one.name) for one in record.checks}:
            yield "lacks checks that the catalog lists"
    if isinstance(record, Scanned) and record.packages < 1:
        yield "looked at no package"
    if isinstance(record, Findings) and record.size != image.manifest.size:
        yield f"says that the image has {record.size} bytes, and it has {image.manifest.size}"


def _built(record: Built, image: _Image) -> Iterator[str]:
    expected = image.subject.expected
    if record.input_hash != expected.input_hash or dict(record.inputs) != dict(expected.inputs):
        yield "is of other inputs than those of this checkout"
    if image.config.labels.get(names.LABEL_INPUT_HASH) != record.input_hash:
        yield "names another input hash than the image's label"
    if (record.tag, image.tag) != (expected.tag, image.subject.pinned.digest):
        yield f"names the tag `{record.tag}`, and `{expected.tag}` is {image.tag or 'not there'}"
    if record.size != image.manifest.size:
        yield f"says that the image has {record.size} bytes, and it has {image.manifest.size}"


def _attached(
    subject: Subject, kind: str, statement: Statement, record: Statable | None, there: Sequence[Signed], desk: Desk
) -> Signing:
    role = _role(record, desk.roles)
    if isinstance(record, Tested) and record.outcome is Outcome.NOT_RUN:
        return Signing(image=subject.image, kind=kind, ended="left", text=f"did not run: {record.reason}")
    if role is None:
        return Signing(image=subject.image, kind=kind, ended="left", text=f"is signed by {' or '.join(sorted(role_of(record)))}")
    if known := attest.known(statement, record, role, there):
        text = f"of the run `{run}`" if (run := _run(known)) else ""
        return Signing(image=subject.image, kind=kind, ended="known", text=text, manifest=known.manifest)
    with desk.story.task(f"signing {subject.image}: {kind}"):
        entry = attest.attach(subject.pinned, statement, desk.key(role), cosign=desk.cosign, registry=desk.registry)
    return Signing(image=subject.image, kind=kind, ended="attached", manifest=entry.digest)


def _whose(there: Sequence[Signed]) -> str:
    """Which runs the statements are of that are attached already, as the rest of a sentence."""
    runs_told = sorted({run for one in there if (run := _run(one))})
    return "; attached already are statements of " + ", ".join(f"`{run}`" for run in runs_told) if runs_told else ""


def _run(signed: Signed) -> str:
    return str(getattr(signed.record, "run", ""))


def _role(record: Statable | None, roles: Collection[Role]) -> Role | None:
    """The digest itself is signed as ours; `release` signs what is released, which is not done here."""
    wanted: Collection[Role] = {"ci"} if record is None else role_of(record)
    return next((role for role in sorted(wanted) if role in roles), None)


def _publics(desk: Desk) -> Keys:
    """The public halves of our keys; one key may have several roles."""
    roles: dict[bytes, set[Role]] = {}
    for role in sorted(desk.roles):
        roles.setdefault(desk.cosign.public(desk.key(role)), set()).add(role)
    return [(Key(name=" ".join(sorted(mine)), roles=frozenset(mine)), dsse.public_key(pem)) for pem, mine in roles.items()]


def _kind(record: Statable) -> str:
    return f"tested-{record.lane}" if isinstance(record, Tested) else type(record).__name__.lower()
