"""What programs say, as lines that hold no secrets."""

import json
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from urllib.parse import quote

LINE_LIMIT = 2**20
"""Bytes of a line that are kept; what follows is left out, and `…` says so."""
_END = re.compile(rb"\r\n|\n|\r")


def redact(text: str, secrets: Collection[str]) -> str:
    """`text` with every secret replaced by `***`, also where it is written as in a URL or in JSON."""
    spelled = {spelling for secret in secrets for spelling in _spellings(secret)}
    for spelling in sorted(spelled, key=len, reverse=True):
        text = text.replace(spelling, "***")
    return text


@lru_cache
def _spellings(secret: str) -> frozenset[str]:
    lines = {line.strip() for line in secret.splitlines()} | {secret}
    written = {each for line in lines for each in (line, quote(line, safe=""), json.dumps(line)[1:-1], _as_go(line))}
    return frozenset(filter(None, written))


def _as_go(text: str) -> str:
    """Go's JSON: other letters as they are, `<`, `>` and `&` by number."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    return re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", escaped)


class Lines:
    """Cuts a stream of bytes into lines without secrets; a carriage return ends a line too, as progress displays use it."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = tuple(secrets)
        self._room = LINE_LIMIT + max((len(each.encode()) for each in secrets), default=0)
        self._open = b""
        self._after_return = False

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that `data` completes."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        *whole, rest = _END.split(data)
        for piece in whole:
            yield self._line(self._open + piece)
            self._open = b""
        self._open = (self._open + rest)[: self._room + 1]

    def end(self) -> Iterator[str]:
        """What no line end completed."""
        if self._open:
            yield self._line(self._open)
            self._open = b""

    def _line(self, raw: bytes) -> str:
        """Secrets go before the line is cut, so that no half of one stays."""
        text = redact(raw[: self._room].decode(errors="replace"), self._secrets)
        return text if len(raw) <= LINE_LIMIT else text[:LINE_LIMIT] + "…"
