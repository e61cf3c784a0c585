"""Writing: content by its digest, tags that do not exist yet. A tag that exists is never moved here."""

from http import HTTPStatus
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from pipeline.errors import TagConflict, Temporary, ToolFailed
from pipeline.oci import Descriptor, Digest, Manifest, Repository
from pipeline.registry import reading, session
from pipeline.registry.wire import PUSH, Wire, address

UPLOADS = 3
"""How often an upload that breaks off is begun."""
BLOB_TYPE = "application/octet-stream"
_TAG_REFUSED = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


def exists(wire: Wire, repository: Repository, digest: Digest) -> bool:
    """Whether the repository holds this blob."""
    with wire.ask("HEAD", repository, f"blobs/{digest}") as answer:
        if answer.status_code not in (200, 404):
            wire.fail(answer, f"`{repository}@{digest}` cannot be looked for", repository)
        return answer.status_code == 200


def upload(wire: Wire, repository: Repository, content: bytes, kind: str = BLOB_TYPE) -> Descriptor:
    """Bring a blob into the repository, unless it is there; what breaks off is begun anew, a few times."""
    wanted = Descriptor(kind, Digest.of(content), len(content))
    for attempt in range(1, UPLOADS + 1):
        try:
            if not exists(wire, repository, wanted.digest):
                _send(wire, repository, content, wanted.digest)
            return wanted
        except Temporary:
            if attempt == UPLOADS:
                raise
    raise AssertionError


def put_manifest(wire: Wire, repository: Repository, content: bytes, media_type: str, name: str) -> requests.Response:
    """Write a manifest under a tag or its digest; returns the closed answer, whose headers tell what became of `subject`.

    Raises `TagConflict` when the registry does not let the tag be written.
    """
    path, kind = f"manifests/{name}", {"Content-Type": media_type}
    with wire.ask("PUT", repository, path, rights=PUSH, body=content, headers=kind) as answer:
        if answer.status_code in _TAG_REFUSED:
            raise TagConflict(f"`{repository}:{name}` cannot be created: {wire.reason(answer)}")
        if answer.status_code != HTTPStatus.CREATED:
            wire.fail(answer, f"`{repository}:{name}` cannot be created", repository)
    told = answer.headers.get("Docker-Content-Digest")
    if told and told != str(Digest.of(content)):
        raise ToolFailed(f"`{repository.host}` took `{Digest.of(content)}` and says that it is `{told}`")
    return answer


def create_tag(wire: Wire, repository: Repository, name: str, manifest: Manifest) -> Digest:
    """Create a tag for content that is there; returns what it names afterwards, which another may have decided."""
    tagged = repository.tag(name)
    if (existing := reading.tagged_manifest(wire, tagged)) is not None:
        return Digest.of(existing)
    put_manifest(wire, repository, manifest.body, manifest.media_type, name)
    if (created := reading.tagged_manifest(wire, tagged)) is None:
        raise ToolFailed(f"`{tagged}` was accepted by the registry, which then did not know it")
    return Digest.of(created)


def _send(wire: Wire, repository: Repository, content: bytes, digest: Digest) -> None:
    what = f"`{repository}@{digest}`"
    place = _opened(wire, repository, what)
    kind = {"Content-Type": BLOB_TYPE}
    with wire.ask("PUT", repository, _with_digest(place, digest), rights=PUSH, body=content, headers=kind) as answer:
        if answer.status_code == HTTPStatus.CREATED:
            return
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            raise Temporary(f"the upload of {what} was lost by `{repository.host}`", hint="run the same command again")
        wire.fail(answer, f"{what} cannot be written", repository)


def _opened(wire: Wire, repository: Repository, what: str) -> str:
    """The address that the registry gave for an upload."""
    with wire.ask("POST", repository, "blobs/uploads/", rights=PUSH, body=b"") as answer:
        place = answer.headers.get("Location")
        if answer.status_code != HTTPStatus.ACCEPTED or not place:
            wire.fail(answer, f"{what} cannot be written", repository)
    place = urljoin(answer.url, place)
    session.refuse_downgrade(address(repository), place)
    return place


def _with_digest(place: str, digest: Digest) -> str:
    """The registry's own query stays as it is."""
    joint = "&" if urlsplit(place).query else "?"
    return f"{place}{joint}{urlencode({'digest': str(digest)})}"
