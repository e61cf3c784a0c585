"""Sending one request and reading its answer; foreign exceptions and refusals become errors of ours, without secrets."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

import requests

from pipeline.errors import NotThere, PipelineError, RegistryRefused, Temporary, TooLarge, ToolFailed
from pipeline.oci import Repository
from pipeline.redaction import redact
from pipeline.registry import session
from pipeline.registry.session import CONNECT_SECONDS, READ_SECONDS, Session, WaitTooLongError

CHUNK = 2**20
REASON_LIMIT = 2**16
"""Bytes of a refusal's text that are looked at."""

_ABSENT = {"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND", "BLOB_UNKNOWN", "TAG_EXPIRED"}
"""Error codes of a true 404; `NOT_FOUND` is Harbor's, `TAG_EXPIRED` Quay's for a tag that was deleted."""
_NO_REPOSITORY = "check the repository's name; not every registry makes one by itself: create it first where it does not"
_NO_CONTENT = "it was deleted, or never there: check repository and digest"
_QUERY = re.compile(r"\?[^\s()<>'\"]+")
READ_ONLY = "read only mode"
"""How Harbor's text tells that it takes nothing for now."""
_FULL = "exceed the configured upper limit"
_SMALL = "whoever administers `{}` lets what stands before it take larger requests (nginx: `client_max_body_size 0`)"


@dataclass(frozen=True)
class Streamed:
    """A body that comes while it is sent, and so cannot be sent twice."""

    size: int
    chunks: Iterator[bytes]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks


def sent(
    client: Session,
    method: str,
    url: str,
    *,
    host: str,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str | Sequence[str]] | None = None,
    body: bytes | Streamed | Mapping[str, str] | None = None,
    redirects: bool = True,
    hidden: Collection[str] = (),
) -> requests.Response:
    """The answer to one request, its body still to be read; raises when there is none."""
    try:
        answer = client.request(
            method,
            url,
            params=params,
            data=body,
            headers={"Accept": "*/*", "Accept-Encoding": "identity", **(headers or {})},
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            stream=True,
            allow_redirects=redirects,
        )
        if method == "HEAD" or answer.headers.get("Content-Length") == "0":
            answer.content  # noqa: B018  # nothing; and the connection is free for the next request
        return answer
    except WaitTooLongError as error:
        raise Temporary(f"registry `{host}` {error}", hint="run the same command later") from error
    except requests.RequestException as error:
        raise _unreachable(host, error, hidden) from None


def absent(answer: requests.Response) -> bool:
    """Whether the registry itself, and nothing in between, says that it does not hold what was asked for."""
    return answer.status_code == 404 and bool(codes(answer) & _ABSENT)


def full(answer: requests.Response) -> bool:
    """Whether the registry refuses because the project has no room left, in Harbor's words."""
    return answer.status_code == 403 and _FULL in reason(answer)


def pause(answer: requests.Response, host: str) -> float:
    """Seconds that the registry asks us to wait, 0 when it does not say; raises `Temporary` when that is too long."""
    try:
        return session.RETRIES.get_retry_after(answer.raw) or 0.0
    except WaitTooLongError as error:
        raise Temporary(f"registry `{host}` {error}", hint="run the same command later") from error


def date(answer: requests.Response) -> datetime | None:
    """When the answer was given, by the clock of who gave it; None when it does not say, or when a cache kept it."""
    try:
        found = parsedate_to_datetime(answer.headers.get("Date", ""))
    except ValueError:
        return None
    return found if found.tzinfo and "Age" not in answer.headers else None


def codes(answer: requests.Response) -> set[str]:
    """The error codes that the registry gave."""
    return {str(error.get("code")) for error in _errors(answer)}


def reason(answer: requests.Response) -> str:
    """What the answer says for people, in one line."""
    told = "; ".join(str(error.get("message") or error.get("code")) for error in _errors(answer))
    return _line(told, 1000) or _line(_text(answer), 200) or str(answer.reason)


def fail(answer: requests.Response, what: str, hidden: Collection[str], *, host: str, who: str = "") -> NoReturn:
    """Raise what an answer other than the wanted one means."""
    status, at = answer.status_code, urlsplit(answer.url).netloc
    text = redact(f"{what}: `{at}` answered {status}, {reason(answer)}{who}", hidden)
    if full(answer):
        raise RegistryRefused(text, hint=f"make room in the project, or have its quota raised by who administers `{host}`")
    if status == 403 and READ_ONLY in reason(answer):
        raise RegistryRefused(text, hint=f"run the same command when who administers `{host}` has ended the read-only mode")
    if status in (401, 403):
        raise RegistryRefused(text, hint=f"`docker login {host}` with an account that has the right")
    if status == 429 or status >= 500:
        raise Temporary(text, hint="run the same command later")
    if absent(answer):
        raise NotThere(text, hint=_NO_REPOSITORY if "NAME_UNKNOWN" in codes(answer) else _NO_CONTENT)
    raise ToolFailed(text, hint=_SMALL.format(host) if status == 413 else "")


def body(answer: requests.Response, what: str, limit: int) -> bytes:
    """All of an answer's body; raises `TooLarge` when that is more than `limit` bytes."""
    whole = bytearray()
    for chunk in chunks(answer, what):
        whole += chunk
        if len(whole) > limit:
            raise TooLarge(f"{what} has more than {limit} bytes")
    return bytes(whole)


def json_object(answer: requests.Response, what: str, limit: int) -> Mapping[str, Any]:
    """The body as a JSON object; raises `ToolFailed` when it is none."""
    try:
        told = json.loads(body(answer, what, limit))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ToolFailed(f"{what} cannot be read: it is no JSON object")
    return told


def chunks(answer: requests.Response, what: str) -> Iterator[bytes]:
    """The body in pieces; raises `Temporary` when the connection breaks."""
    try:
        yield from answer.iter_content(CHUNK)
    except requests.RequestException as error:
        raise Temporary(f"the connection broke while {what} was read: {error}", hint="run the same command again") from error


def _line(text: str, limit: int) -> str:
    """One line: whoever answers must not be able to make up lines of ours."""
    return " ".join(text.split())[:limit]


def _errors(answer: requests.Response) -> list[Mapping[str, object]]:
    try:
        listed = json.loads(_text(answer))["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []


def _text(answer: requests.Response) -> str:
    """The beginning of the body, which may be asked for again."""
    held: str | None = getattr(answer, "beginning", None)
    if held is None:
        held = _beginning(answer)
        answer.beginning = held  # type: ignore[attr-defined]
    return held


def _beginning(answer: requests.Response) -> str:
    read = bytearray()
    try:
        for chunk in answer.iter_content(2**12):
            read += chunk
            if len(read) >= REASON_LIMIT:
                break
    except requests.RequestException as error:
        return f"and then broke off: {error}"
    return read.decode(errors="replace")


def _unreachable(host: str, error: requests.RequestException, hidden: Collection[str]) -> PipelineError:
    if isinstance(error, requests.exceptions.SSLError):
        text = redact(f"the certificate of registry `{host}` is not trusted: {_shown(error)}", hidden)
        where = f"`/etc/docker/certs.d/{host}/ca.crt`"
        return RegistryRefused(text, hint=f"add its authority to the host's certificate store, or put it at {where}")
    if isinstance(error, requests.exceptions.ProxyError):
        text = redact(f"registry `{host}` cannot be reached through the proxy: {_cause(error)}", hidden)
        return Temporary(text, hint=f"check the proxy in HTTPS_PROXY, and whether NO_PROXY should name `{host}`")
    if isinstance(error, requests.Timeout):
        text = redact(f"registry `{host}` does not answer in time: {_shown(error)}", hidden)
        return Temporary(text, hint="run the same command later")
    local = Repository(host, "x").loopback
    ours = "check the port; `nox -s setup` starts the registry that builds write to"
    hint = ours if local else "check the name and the network, then run it again"
    return Temporary(redact(f"registry `{host}` cannot be reached: {_cause(error)}", hidden), hint=hint)


def _shown(error: BaseException) -> str:
    """Without the queries of addresses: storage that a registry sends us to is opened by what stands there."""
    return _QUERY.sub("?…", str(error))


def _cause(error: BaseException) -> str:
    cause = getattr(error.args[0] if error.args else error, "reason", None) or error
    return str(cause).rpartition(": ")[2].rstrip("'\")") or str(error)
