"""The only OCI HTTP: read manifests and blobs by digest, list tags, create a tag. Never moves one.

Protocol: OCI distribution specification 1.1. What arrives is hashed before it is believed, and a manifest's bytes are
never written anew. A 404 means "not there" only when the registry says so in its own error format: an error page of
something in between is an error.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NoReturn
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.response import BaseHTTPResponse
from urllib3.util.retry import Retry

from pipeline import names
from pipeline.errors import PipelineError, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.oci import MANIFEST_TYPES, Config, Descriptor, Digest, Manifest, Pinned, Repository, Tagged

CONNECT_SECONDS, READ_SECONDS = 5, 60
MANIFEST_LIMIT = 4 * 2**20
"""Bytes; what the distribution specification asks registries to support."""
TAGS_LIMIT = 16 * 2**20
"""Largest page of a list of tags."""
BLOB_LIMIT = 64 * 2**20
"""Bytes of a blob that is held in memory; larger ones are streamed."""
PATIENCE = 60
"""Seconds that a `Retry-After` may ask for; more is told to the user instead."""
CHUNK = 2**20

_ABSENT = {"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"}
"""Error codes of a true 404; `NOT_FOUND` is Harbor's."""
_ACCEPT = ", ".join(MANIFEST_TYPES)


class _WaitTooLongError(Exception):
    """The registry asks for more patience than we have."""


class _Patience(Retry):
    """Retries with backoff, and as the registry's `Retry-After` says, unless that is too long."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        seconds = super().get_retry_after(response)
        if seconds and seconds > PATIENCE:
            raise _WaitTooLongError(f"asks to wait {seconds:.0f} s")
        return seconds


_RETRIES = _Patience(
    total=4,
    connect=2,
    backoff_factor=0.5,
    status_forcelist=(429, *range(500, 600)),
    allowed_methods=("GET", "HEAD", "PUT"),
    raise_on_status=False,
)


class _Session(requests.Session):
    """A session that sends no credentials elsewhere, and never leaves https."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Called by requests for each redirect; raises `RegistryRefused` on one from https to http."""
        before, after = urlsplit(response.url), urlsplit(prepared_request.url or "")
        if before.scheme == "https" and after.scheme != "https":
            raise RegistryRefused(f"`{before.netloc}` redirects from https to `{after.scheme}://{after.netloc}`")
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            prepared_request.headers.pop("Authorization", None)


class Registry:
    """A client of OCI registries, http on loopback and https elsewhere; may be used by several threads."""

    def __init__(self) -> None:
        """No connection is made yet; each thread gets its own."""
        self._local = threading.local()

    def ping(self, host: str) -> None:
        """Raises unless a registry that we may read answers at `host`."""
        with closing(self._request("GET", Repository(host, "x"), "")) as answer:
            if answer.status_code != 200:
                self._fail(answer, f"`{host}` is not a registry that we can read")

    def resolve(self, tagged: Tagged) -> Digest | None:
        """What the tag names now; None only when the registry says that it knows no such tag or repository."""
        with closing(self._request("GET", tagged.repository, f"manifests/{tagged.name}")) as answer:
            if answer.status_code == 404 and _codes(answer) & _ABSENT:
                return None
            return Digest.of(self._manifest_bytes(answer, str(tagged)))

    def manifest(self, pinned: Pinned) -> Manifest:
        """The image manifest with this digest, byte for byte."""
        with closing(self._request("GET", pinned.repository, f"manifests/{pinned.digest}")) as answer:
            body = self._manifest_bytes(answer, str(pinned))
        if Digest.of(body) != pinned.digest:
            raise ToolFailed(f"`{pinned.repository.host}` answered `{Digest.of(body)}` where `{pinned}` was asked for")
        return Manifest.parse(body)

    def config(self, pinned: Pinned) -> Config:
        """The configuration of the image with this digest."""
        return Config.parse(self.blob(pinned.repository, self.manifest(pinned).config))

    def blob(self, repository: Repository, descriptor: Descriptor) -> bytes:
        """A verified blob of at most `BLOB_LIMIT` bytes."""
        if descriptor.size > BLOB_LIMIT:
            raise ToolFailed(f"`{repository}@{descriptor.digest}` has {descriptor.size} bytes, more than {BLOB_LIMIT}")
        return b"".join(self.stream(repository, descriptor))

    def stream(self, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob in pieces; raises `ToolFailed` at the end unless size and digest are the descriptor's."""
        what, hashed, size = f"{repository}@{descriptor.digest}", hashlib.sha256(), 0
        with closing(self._request("GET", repository, f"blobs/{descriptor.digest}")) as answer:
            if answer.status_code != 200:
                self._fail(answer, f"`{what}` cannot be read")
            for chunk in self._chunks(answer, f"`{what}`"):
                hashed.update(chunk)
                size += len(chunk)
                if size > descriptor.size:
                    break
                yield chunk
        if size != descriptor.size or hashed.hexdigest() != descriptor.digest.hex:
            raise ToolFailed(f"`{what}` arrived damaged: {size} bytes of {descriptor.size}, or another digest")

    def tags(self, repository: Repository) -> tuple[str, ...]:
        """All tags of a repository, none when the registry does not know it."""
        found: list[str] = []
        path: str | None = "tags/list?n=1000"
        seen: set[str] = set()
        while path is not None:
            if path in seen:
                raise ToolFailed(f"the list of tags of `{repository}` goes in circles")
            seen.add(path)
            with closing(self._request("GET", repository, path)) as answer:
                if answer.status_code == 404 and _codes(answer) & _ABSENT:
                    break
                found += self._tag_page(answer, repository)
                path = _next_page(answer, repository)
        return tuple(found)

    def create_tag(self, repository: Repository, name: str, manifest: Manifest) -> Digest:
        """Create a tag for content that is there; returns what it names afterwards, which another may have decided."""
        tagged = repository.tag(name)
        if (existing := self.resolve(tagged)) is not None:
            return existing
        path, kind = f"manifests/{name}", {"Content-Type": manifest.media_type}
        with closing(self._request("PUT", repository, path, body=manifest.body, headers=kind)) as answer:
            if answer.status_code in (409, 412):
                raise TagConflict(f"`{tagged}` cannot be created: {_reason(answer)}")
            if answer.status_code != 201:
                self._fail(answer, f"`{tagged}` cannot be created")
        if (created := self.resolve(tagged)) is None:
            raise ToolFailed(f"`{tagged}` was accepted by the registry, which then did not know it")
        return created

    def _request(
        self,
        method: str,
        repository: Repository,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        url = f"{_base(repository)}/v2/" + (f"{repository.path}/{path}" if path else "")
        try:
            return self._session(repository.loopback).request(
                method,
                url,
                data=body,
                headers={"Accept": _ACCEPT if "/manifests/" in url else "*/*", "Accept-Encoding": "identity", **(headers or {})},
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                stream=True,
            )
        except _WaitTooLongError as error:
            raise Temporary(f"registry `{repository.host}` {error}", hint="run the same command later") from error
        except requests.RequestException as error:
            raise _unreachable(repository, error) from error

    def _session(self, loopback: bool) -> requests.Session:
        sessions: dict[bool, requests.Session] = self._local.__dict__.setdefault("sessions", {})
        if loopback not in sessions:
            sessions[loopback] = _new_session(proxied=not loopback)
        return sessions[loopback]

    def _manifest_bytes(self, answer: requests.Response, what: str) -> bytes:
        if answer.status_code != 200:
            self._fail(answer, f"`{what}` cannot be read")
        body = self._body(answer, f"the manifest of `{what}`", MANIFEST_LIMIT)
        told = answer.headers.get("Docker-Content-Digest")
        if told and told != str(Digest.of(body)):
            raise ToolFailed(f"the registry says that `{what}` is `{told}`, but sent `{Digest.of(body)}`")
        return body

    def _tag_page(self, answer: requests.Response, repository: Repository) -> list[str]:
        if answer.status_code != 200:
            self._fail(answer, f"the tags of `{repository}` cannot be listed")
        try:
            listed = json.loads(self._body(answer, f"the list of tags of `{repository}`", TAGS_LIMIT))
            return [str(tag) for tag in listed["tags"] or ()]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ToolFailed(f"the list of tags of `{repository}` cannot be read: {error!r}") from error

    def _body(self, answer: requests.Response, what: str, limit: int) -> bytes:
        body = bytearray()
        for chunk in self._chunks(answer, what):
            body += chunk
            if len(body) > limit:
                raise ToolFailed(f"{what} has more than {limit} bytes")
        return bytes(body)

    def _chunks(self, answer: requests.Response, what: str) -> Iterator[bytes]:
        try:
            yield from answer.iter_content(CHUNK)
        except requests.RequestException as error:
            raise Temporary(f"the connection broke while {what} was read: {error}", hint="run the same command again") from error

    def _fail(self, answer: requests.Response, what: str) -> NoReturn:
        host, status = urlsplit(answer.url).netloc, answer.status_code
        text = f"{what}: `{host}` answered {status}, {_reason(answer)}"
        if status in (401, 403):
            raise RegistryRefused(text, hint=f"`docker login {host}` with an account that has the right")
        if status == 429 or status >= 500:
            raise Temporary(text, hint="run the same command later")
        raise ToolFailed(text)


def _new_session(*, proxied: bool) -> requests.Session:
    session = _Session()
    session.trust_env = proxied
    session.auth = lambda request: request  # or requests would look for a password in ~/.netrc
    session.max_redirects = 5
    session.headers["User-Agent"] = names.DISTRIBUTION
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
    return session


def _base(repository: Repository) -> str:
    return f"{'http' if repository.loopback else 'https'}://{repository.host}"


def _next_page(answer: requests.Response, repository: Repository) -> str | None:
    link = answer.links.get("next", {}).get("url")
    if link is None:
        return None
    start, url = f"{_base(repository)}/v2/{repository.path}/", urljoin(answer.url, link)
    if not url.startswith(start):
        raise ToolFailed(f"the list of tags of `{repository}` goes on elsewhere: `{url}`")
    return url.removeprefix(start)


def _codes(answer: requests.Response) -> set[str]:
    return {str(error.get("code")) for error in _errors(answer)}


def _reason(answer: requests.Response) -> str:
    told = "; ".join(str(error.get("message") or error.get("code")) for error in _errors(answer))
    return told or " ".join(_text(answer).split())[:200] or str(answer.reason)


def _errors(answer: requests.Response) -> list[Mapping[str, object]]:
    try:
        listed = json.loads(_text(answer))["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []


def _text(answer: requests.Response) -> str:
    try:
        return answer.content[:MANIFEST_LIMIT].decode(errors="replace")
    except requests.RequestException as error:
        return f"and then broke off: {error}"


def _unreachable(repository: Repository, error: requests.RequestException) -> PipelineError:
    host = repository.host
    if isinstance(error, requests.exceptions.SSLError):
        text = f"the certificate of registry `{host}` is not trusted: {error}"
        return RegistryRefused(text, hint="add its authority to the host's certificate store")
    if isinstance(error, requests.Timeout):
        return Temporary(f"registry `{host}` does not answer in time: {error}", hint="run the same command later")
    hint = "`nox -s setup` starts one" if repository.loopback else "check the name and the network, then run it again"
    return Temporary(f"registry `{host}` cannot be reached: {_cause(error)}", hint=hint)


def _cause(error: BaseException) -> str:
    reason = getattr(error.args[0] if error.args else error, "reason", None) or error
    return str(reason).rpartition(": ")[2] or str(error)
