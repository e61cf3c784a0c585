"""Who we are at each registry: Basic, or tokens that are fetched once for each scope and kept until they expire.

Protocol: the distribution project's token authentication. A login goes to its own host and to the token service that
this host names over https, to nobody else.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from pipeline import names
from pipeline.credentials import Credential, Credentials
from pipeline.errors import PipelineError, RegistryRefused
from pipeline.registry import answers, session
from pipeline.registry.challenge import Challenge, choose, joined
from pipeline.registry.session import Session

TOKEN_SECONDS = 60
"""How long a token lives that does not say so; the protocol's default."""
LEEWAY = 0.1
"""The last part of a token's life in which it is not used any more."""
TOKEN_LIMIT = 2**20
"""Bytes of a token service's answer."""
_INVALID_GRANT = 400
"""OAuth 2.0's status for an identity token that is not valid (any more)."""


@dataclass(frozen=True)
class _Token:
    text: str
    until: float
    """On the monotonic clock."""


class Authorizer:
    """What to send as `Authorization`; may be used by several threads."""

    def __init__(self, credentials: Credentials) -> None:
        """Nobody is asked yet."""
        self._credentials = credentials
        self._ways: dict[str, Challenge] = {}
        self._tokens: dict[tuple[str, str], _Token] = {}
        self._wider: dict[tuple[str, str], str] = {}
        """What is asked for in place of a scope that was not enough."""
        self._probed: set[str] = set()
        self._lock = threading.RLock()
        self.secrets: tuple[str, ...] = ()
        """All that may not be shown."""

    def known(self, host: str, scope: str, client: Session) -> str | None:
        """The header for a host that has once said what it wants; None before that."""
        with self._lock:
            way = self._ways.get(host)
            return self._header(way, host, scope, client) if way else None

    def answer_to(self, refusal: requests.Response, host: str, scope: str, client: Session) -> str | None:
        """The header with which a refused request is sent once more; None when there is nothing else to try.

        Raises `RegistryRefused` when the login is wrong.
        """
        way = choose(refusal.headers.get("WWW-Authenticate", ""))
        if way is None:
            return None
        with self._lock:
            sent = refusal.request.headers.get("Authorization")
            stale = self._tokens.get((host, scope))
            if stale and sent == f"Bearer {stale.text}":
                del self._tokens[host, scope]
            self._wider[host, scope] = joined(self._wider.get((host, scope), scope), way.parameters.get("scope", ""))
            header = self._header(way, host, scope, client)
            if header:
                self._ways[host] = way
            return header if header != sent else None

    def guarded(self, host: str) -> bool:
        """Whether this host has asked who we are."""
        return host in self._ways

    def login(self, host: str) -> Credential | None:
        """The login for a host, whose secrets are shown nowhere from now on."""
        found = self._credentials.of(host)
        if found:
            self._hide(found.secret, found.basic)
        return found

    def _header(self, way: Challenge, host: str, scope: str, client: Session) -> str | None:
        login = self.login(host)
        if way.scheme == "bearer":
            return f"Bearer {self._token(way, host, scope, login, client)}"
        return f"Basic {login.basic}" if login and not login.identity else None

    def _token(self, way: Challenge, host: str, scope: str, login: Credential | None, client: Session) -> str:
        held = self._tokens.get((host, scope))
        if held is None or time.monotonic() >= held.until:
            self._probe(host, login, client)
            self._tokens[host, scope] = held = self._fetched(way, host, scope, login, client)
            self._hide(held.text)
        return held.text

    def _probe(self, host: str, login: Credential | None, client: Session) -> None:
        """Harbor's token service takes a wrong password for nobody, and gives nobody's rights: ask where it says no."""
        if login is None or login.identity or host in self._probed:
            return
        url, headers = f"{session.base(host)}/v2/", {"Authorization": f"Basic {login.basic}"}
        with answers.sent(client, "GET", url, host=host, headers=headers, redirects=False, hidden=self.secrets) as answer:
            way = choose(answer.headers.get("WWW-Authenticate", ""))
        if answer.status_code == 401 and way and way.scheme == "basic":
            raise _wrong(host, login)
        self._probed.add(host)

    def _fetched(self, way: Challenge, host: str, scope: str, login: Credential | None, client: Session) -> _Token:
        _must_be_safe(way.realm, host)
        started, scope = time.monotonic(), self._wider.get((host, scope), scope)
        fields = {"service": way.service, **({"scope": scope} if scope else {})}
        with self._asked(way.realm, host, fields, login, client) as answer:
            self._judge(answer, way, host, scope, login)
            told = answers.json_object(answer, f"the token of `{host}`", TOKEN_LIMIT)
        text = told.get("token") or told.get("access_token")
        if not isinstance(text, str) or not text.isprintable():
            raise RegistryRefused(f"the token service of `{host}` gave no token", hint=f"`docker login {host}`")
        return _Token(text, started + _life(told) * (1 - LEEWAY))

    def _asked(self, realm: str, host: str, fields: Mapping[str, str], login: Credential | None, client: Session) -> Any:
        if login is not None and login.identity:
            form = {**fields, "grant_type": "refresh_token", "client_id": names.DISTRIBUTION, "refresh_token": login.secret}
            return answers.sent(client, "POST", realm, host=host, body=form, redirects=False, hidden=self.secrets)
        headers = {"Authorization": f"Basic {login.basic}"} if login else {}
        each = {**fields, **({"scope": fields["scope"].split()} if "scope" in fields else {})}
        return answers.sent(client, "GET", realm, host=host, params=each, headers=headers, redirects=False, hidden=self.secrets)

    def _judge(self, answer: requests.Response, way: Challenge, host: str, scope: str, login: Credential | None) -> None:
        if answer.status_code == 200:
            return
        if login and (answer.status_code == 401 or (login.identity and answer.status_code == _INVALID_GRANT)):
            raise _wrong(host, login)
        wanted, who = f" for `{scope}`" if scope else "", f" (asked as `{login.user}`)" if login else ""
        answers.fail(answer, f"the token service of `{host}` gives no token{wanted}", self.secrets, host=host, who=who)

    def _hide(self, *secrets: str) -> None:
        self.secrets = tuple(dict.fromkeys((*self.secrets, *filter(None, secrets))))


def _must_be_safe(realm: str, host: str) -> None:
    """Nobody is asked for a token over http but the registry itself, which is then on loopback."""
    if session.origin(realm)[0] != "https" and session.origin(realm) != session.origin(session.base(host)):
        where = "://".join(session.origin(realm))
        hint = session.FORWARDED.format(host)
        raise RegistryRefused(f"`{host}` wants its tokens fetched from `{where}`, without encryption", hint=hint)


def _life(told: Mapping[str, Any]) -> float:
    seconds = told.get("expires_in")
    return seconds if isinstance(seconds, int) and seconds > 0 else TOKEN_SECONDS


def _wrong(host: str, login: Credential) -> PipelineError:
    return RegistryRefused(f"`{host}` refuses the login of `{login.user}`", hint=f"`docker login {host}` with the right password")
