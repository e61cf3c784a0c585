"""Requests and answers, as the API and the registry in front share them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.harbor.callers import Caller
from tests.harbor.state import Fault


@dataclass
class Request:
    method: str
    target: str
    """Path and query as they came."""
    headers: Mapping[str, str]
    host: str
    caller: Caller
    stream: BinaryIO
    query: dict[str, list[str]] = field(default_factory=dict)
    _pieces: Iterator[bytes] | None = None
    _content: bytes | None = None

    def __post_init__(self) -> None:
        self.query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def path(self) -> str:
        """Decoded once, as the web server in front of Harbor does."""
        return unquote(urlsplit(self.target).path)

    def one(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[-1]

    def flag(self, name: str, default: bool) -> bool:
        return self.one(name, str(default)).lower() == "true"

    def chunks(self) -> Iterator[bytes]:
        """What is left of the body, in pieces, however it is sent."""
        self._pieces = self._pieces or self._read()
        return self._pieces

    def _read(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self._line().split(b";")[0], 16):
                yield from self._pieces_of(size)
                self._line()
            self._line()
            return
        yield from self._pieces_of(int(self.headers.get("Content-Length") or 0))

    def _pieces_of(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.stream.read(min(size, 2**20))
            if not piece:
                raise ConnectionResetError("the client went away within a body")
            size -= len(piece)
            yield piece

    def _line(self) -> bytes:
        if not (line := self.stream.readline()):
            raise ConnectionResetError("the client went away within a body")
        return line

    def body(self) -> bytes:
        if self._content is None:
            self._content = b"".join(self.chunks())
        return self._content

    def json(self, what: str) -> Any:
        """The body as an object; the API's complaints when it is none."""
        content = self.body()
        if not content:
            raise invalid(f"{what} in body is required")
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if kind != "application/json":
            raise invalid(f'unsupported media type "{kind}", only [application/json] are allowed')
        try:
            return json.loads(content)
        except ValueError:
            raise invalid(
                f'parsing {what} body from "" failed, because invalid character {chr(content[1])!r} looking for beginning of'
                " object key string"
            ) from None


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Callable[[], Any] | None = None
    """A body that is sent in pieces, its length in the headers."""
    length: str = ""
    """What `Content-Length` says where no body is sent."""


def told(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer in JSON."""
    return Answer(
        status, json.dumps(value, separators=(",", ":")).encode() + b"\n", {"Content-Type": "application/json", **(headers or {})}
    )


def wrong(fault: Fault) -> Answer:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    text = json.dumps({"errors": [{"code": fault.code, "message": fault.message}]}, separators=(",", ":"))
    return Answer(fault.status, text.encode() + b"\n", {**kind, **fault.headers})


def invalid(message: str) -> Fault:
    return Fault(422, "UNPROCESSABLE_ENTITY", f"validation failure list:\n{message}")


def listed(request: Request, entries: list[Any]) -> Answer:
    """A page of a list; the entries in the order that Harbor gives them."""
    page, size = (_number(request, name, default) for name, default in (("page", 1), ("page_size", 10)))
    if size > 100:
        raise invalid("page_size in query should be less than or equal to 100")
    if (question := request.one("q")) and any("=" not in each for each in question.split(",")):
        raise Fault(400, "BAD_REQUEST", 'the query string must contain "=" and the key/value cannot be empty')
    if request.one("sort").lstrip("-") == "name":
        entries = sorted(entries, key=lambda each: str(each["name"]), reverse=request.one("sort").startswith("-"))
    first = max(page - 1, 0) * size if size > 0 else 0
    shown = entries[first : first + size] if size > 0 else entries
    links = []
    if page > 1 and first - size < len(entries) and size > 0 and shown:
        links.append(f'<{_place(request, page - 1, size)}>; rel="prev"')
    if size and max(page, 0) * size < len(entries):
        links.append(f'<{_place(request, page + 1, size)}>; rel="next"')
    found = told(shown, headers={"X-Total-Count": str(len(entries))})
    return Answer(found.status, found.body, {**found.headers, **({"Link": " , ".join(links)} if links else {})})


def selected(request: Request, entries: list[Any]) -> list[Any]:
    """What `q` leaves over; a key that Harbor does not know leaves everything."""
    for part in filter(None, request.one("q").split(",")):
        key, _, value = part.partition("=")
        if not entries or key not in entries[0]:
            continue
        fuzzy = value.startswith("~")
        entries = [each for each in entries if (value[1:] in str(each[key]) if fuzzy else str(each[key]) == value)]
    return entries


def _number(request: Request, name: str, default: int) -> int:
    text = request.one(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise invalid(f'{name} in query must be of type int64: "{text}"') from None


def _place(request: Request, page: int, size: int) -> str:
    query = {name: values[-1] for name, values in request.query.items()} | {"page": str(page), "page_size": str(size)}
    return f"{urlsplit(request.target).path}?{unquote(urlencode(sorted(query.items())))}"
