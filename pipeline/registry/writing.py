"""Writing: content by its digest, and tags; one that exists is moved by `move_tag` alone, and by who calls `put_manifest`."""

import time
from http import HTTPStatus
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from pipeline.errors import TagConflict, Temporary, ToolFailed
from pipeline.oci import Descriptor, Digest, Manifest, Pinned, Repository, Tagged
from pipeline.registry import answers, reading, session
from pipeline.registry.wire import PUSH, Wire, address

UPLOADS = 3
"""How often an upload that breaks off is begun."""
PAUSE = 0.2
"""Seconds after which a manifest is sent again whose blobs the registry does not see; longer each time."""
BLOB_TYPE = "application/octet-stream"
_UNSEEN = "MANIFEST_BLOB_UNKNOWN"
_FROZEN = "TAG_INVALID"
"""How Amazon's registry says, with 400, that a tag may not be written any more."""
_NO_HEAD = (401, 403, 405)
"""How storage refuses HEAD with a signature that is good for GET alone."""
_TAG_REFUSED = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


def exists(wire: Wire, repository: Repository, digest: Digest) -> bool:
    """Whether the repository holds this blob.

    Storage may let nobody ask so: where the registry leads there, the blob is asked for, and not read.
    """
    with wire.ask("HEAD", repository, f"blobs/{digest}") as answer:
        refused = answer.status_code in _NO_HEAD and answer.history
    if refused:
        answer = wire.ask("GET", repository, f"blobs/{digest}")
    with answer:
        if answer.status_code not in (200, 404):
            wire.fail(answer, f"`{repository}@{digest}` cannot be looked for", repository)
        return answer.status_code == 200


def upload(wire: Wire, repository: Repository, content: bytes, kind: str = BLOB_TYPE) -> Descriptor:
    """Bring a blob into the repository, unless it is there; what breaks off is begun anew, a few times."""
    wanted = Descriptor(kind, Digest.of(content), len(content))
    _bring(wire, repository, content, wanted.digest, look=True)
    return wanted


def send(wire: Wire, repository: Repository, content: bytes, digest: Digest) -> None:
    """Bring a blob that is not there into the repository; what breaks off is begun anew, a few times."""
    _bring(wire, repository, content, digest, look=False)


def delete_manifest(wire: Wire, pinned: Pinned) -> None:
    """Delete a manifest and all tags that name it; one that is gone already is fine."""
    with wire.ask("DELETE", pinned.repository, f"manifests/{pinned.digest}", rights="delete") as answer:
        if answer.status_code not in (HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND):
            wire.fail(answer, f"`{pinned}` cannot be deleted", pinned.repository)


def put_manifest(wire: Wire, repository: Repository, content: bytes, media_type: str, name: str) -> None:
    """Write a manifest under a tag or its digest.

    Raises `TagConflict` when the registry does not let the tag be written, `Temporary` when it does not see a blob of the
    manifest: a file that another writes at the same moment looks empty to some, so it is tried a few times.
    """
    for attempt in range(1, UPLOADS + 1):
        answer = _put(wire, repository, content, media_type, name)
        if answer.status_code == HTTPStatus.CREATED:
            break
        if attempt == UPLOADS:
            text = f"`{repository}:{name}` cannot be written: {wire.reason(answer)}"
            raise Temporary(text, hint="run the same command again; what is there is not sent again")
        time.sleep(PAUSE * attempt)
    told = answer.headers.get("Docker-Content-Digest")
    if told and told != str(Digest.of(content)):
        raise ToolFailed(f"`{repository.host}` took `{Digest.of(content)}` and says that it is `{told}`")


def _put(wire: Wire, repository: Repository, content: bytes, media_type: str, name: str) -> requests.Response:
    """The closed answer: written, or a blob of the manifest is not seen; all else raises."""
    path, kind = f"manifests/{name}", {"Content-Type": media_type}
    with wire.ask("PUT", repository, path, rights=PUSH, body=content, headers=kind) as answer:
        if answer.status_code in _TAG_REFUSED or _FROZEN in answers.codes(answer):
            raise TagConflict(f"`{repository}:{name}` cannot be written: {wire.reason(answer)}")
        if answer.status_code != HTTPStatus.CREATED and _UNSEEN not in answers.codes(answer):
            wire.fail(answer, f"`{repository}:{name}` cannot be written", repository)
    return answer


def create_tag(wire: Wire, repository: Repository, name: str, manifest: Manifest) -> Digest:
    """Create a tag for content that is there; returns what it names afterwards, which another may have decided."""
    tagged = repository.tag(name)
    if (existing := reading.tagged_manifest(wire, tagged)) is not None:
        return Digest.of(existing)
    return _written(wire, tagged, manifest)


def move_tag(wire: Wire, repository: Repository, name: str, manifest: Manifest, *, expected: Digest | None) -> None:
    """Let a tag name content that is there, if it names `expected` right now (None: nothing), or that content already.

    Raises `TagConflict` otherwise, when the registry does not let it move, and when it names something else afterwards.
    No registry can compare and set: another who writes between our look and our write is overwritten, and told so by
    its own look afterwards.
    """
    tagged = repository.tag(name)
    content = reading.tagged_manifest(wire, tagged)
    now = None if content is None else Digest.of(content)
    if now == manifest.digest:
        return
    if now != expected:
        raise _conflict(f"`{tagged}` names {_told(now)} now, and not {_told(expected)} as was planned")
    if (after := _written(wire, tagged, manifest)) != manifest.digest:
        raise _conflict(f"`{tagged}` names `{after}`: another has moved it at the same time")


def _written(wire: Wire, tagged: Tagged, manifest: Manifest) -> Digest:
    """What a tag names after it was written; a refusal stands unless the tag names that already, as after a lost answer."""
    try:
        put_manifest(wire, tagged.repository, manifest.body, manifest.media_type, tagged.name)
    except TagConflict:
        content = reading.tagged_manifest(wire, tagged)
        if content != manifest.body:
            raise
    if (content := reading.tagged_manifest(wire, tagged)) is None:
        raise ToolFailed(f"`{tagged}` was accepted by the registry, which then did not know it")
    return Digest.of(content)


def _conflict(text: str) -> TagConflict:
    return TagConflict(text, hint="look at it (`pipeline history`), then plan again")


def _told(digest: Digest | None) -> str:
    return f"`{digest}`" if digest else "nothing"


def opened(wire: Wire, repository: Repository, what: str) -> str:
    """The address of a new upload."""
    with wire.ask("POST", repository, "blobs/uploads/", rights=PUSH, body=b"") as answer:
        if answer.status_code != HTTPStatus.ACCEPTED or not (place := location(answer, repository)):
            wire.fail(answer, f"{what} cannot be written", repository)
    return place


def location(answer: requests.Response, repository: Repository) -> str:
    """Where the registry wants an upload to go on, empty when it does not say."""
    if not (told := answer.headers.get("Location")):
        return ""
    place = urljoin(answer.url, told)
    session.refuse_downgrade(address(repository), place)
    return place


def with_digest(place: str, digest: Digest) -> str:
    """The address that ends an upload; the registry's own query stays as it is."""
    joint = "&" if urlsplit(place).query else "?"
    return f"{place}{joint}{urlencode({'digest': str(digest)})}"


def _bring(wire: Wire, repository: Repository, content: bytes, digest: Digest, *, look: bool) -> None:
    """In one piece; whether it is there is asked first with `look`, and after what broke off."""
    for attempt in range(1, UPLOADS + 1):
        try:
            if not (look and exists(wire, repository, digest)):
                _send(wire, repository, content, digest)
            return
        except Temporary:
            if attempt == UPLOADS:
                raise
        look = True


def _send(wire: Wire, repository: Repository, content: bytes, digest: Digest) -> None:
    what = f"`{repository}@{digest}`"
    place = opened(wire, repository, what)
    kind = {"Content-Type": BLOB_TYPE}
    with wire.ask("PUT", repository, with_digest(place, digest), rights=PUSH, body=content, headers=kind) as answer:
        if answer.status_code == HTTPStatus.CREATED:
            return
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            raise Temporary(f"the upload of {what} was lost by `{repository.host}`", hint="run the same command again")
        wire.fail(answer, f"{what} cannot be written", repository)
