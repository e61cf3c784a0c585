"""Connections: patience with registries, no credentials to others, no cookies, never from https to http."""

import threading
from http import HTTPStatus
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader
from urllib3.response import BaseHTTPResponse
from urllib3.util.retry import Retry

from pipeline import names
from pipeline.errors import RegistryRefused
from pipeline.oci import DOCKER_HUB, Repository
from pipeline.registry.trust import Trust

CONNECT_SECONDS, READ_SECONDS = 10, 120
KEPT = 16
"""Connections to one host that are kept for the next request."""
PATIENCE = 60
"""Seconds that a `Retry-After` may ask for; more is told to the user instead."""

FORWARDED = (
    "whoever administers `{}` tells it that it is reached by https: what stands before it must send "
    "`X-Forwarded-Proto: https` (Harbor: `external_url` in harbor.yml)"
)
"""The remedy where a registry takes itself for one without encryption."""
_USUAL = {"https": ":443", "http": ":80"}
_SERVED_AT = {DOCKER_HUB: f"registry-1.{DOCKER_HUB}"}


class WaitTooLongError(Exception):
    """The registry asks for more patience than we have."""


class _Patience(Retry):
    """Retries with backoff, and as the registry's `Retry-After` says, unless that is too long."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        try:
            seconds = super().get_retry_after(response)
        except InvalidHeader:  # neither seconds nor a date, such as `1.16ms`: our own patience will do
            return None
        if seconds and seconds > PATIENCE:
            raise WaitTooLongError(f"asks to wait {seconds:.0f} s")
        return seconds


RETRIES = _Patience(
    total=4,
    connect=2,
    other=0,
    backoff_factor=0.5,
    status_forcelist=(429, *range(500, 600)),
    allowed_methods=("GET", "HEAD", "PUT", "POST"),
    raise_on_status=False,
)
"""Content is named by its digest, so a PUT can be repeated; a POST only opens an upload, or asks for a token."""


class _Adapter(HTTPAdapter):
    """Connections that trust what `Trust` says, whatever the environment and the library say."""

    def __init__(self, trust: Trust, host: str, *, pair: bool) -> None:
        self._trust, self._host, self._pair = trust, host, pair
        super().__init__(max_retries=RETRIES, pool_maxsize=KEPT)

    def build_connection_pool_key_attributes(self, request: requests.PreparedRequest, verify: Any, cert: Any = None) -> Any:
        host, pool = super().build_connection_pool_key_attributes(request, True, None)
        if host["scheme"] == "https":
            pool["ssl_context"] = self._trust.context(self._host, pair=self._pair)
        return host, pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        conn.cert_reqs = "CERT_REQUIRED"


class Session(requests.Session):
    """A session that sends no credentials elsewhere, and never leaves https."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where what was asked for is; not what 303 names, which is something else: GitHub's page in place of a list."""
        return None if resp.status_code == HTTPStatus.SEE_OTHER else super().get_redirect_target(resp)

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Called by requests for each redirect; raises `RegistryRefused` on one from https to http."""
        after = prepared_request.url or ""
        refuse_downgrade(response.url, after)
        if origin(response.url) != origin(after):
            prepared_request.headers.pop("Authorization", None)


class Connections:
    """What the sessions of several threads share: the connection of a thread that has ended serves the next."""

    def __init__(self, trust: Trust) -> None:
        """No connection is made yet."""
        self._trust, self._adapters, self._lock = trust, dict[tuple[str, bool], _Adapter](), threading.Lock()

    def opened(self, host: str, *, loopback: bool) -> Session:
        """A session for one registry and one thread; that on loopback asks no proxy.

        As with docker, the authorities of its folder are good for all places that it leads to: its token service and its
        storage. A certificate of ours is shown to itself alone.
        """
        session = _patient(loopback)
        special = host if self._trust.special(host) else ""
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._adapter(special, pair=False))
        if special:
            session.mount(f"https://{host}/", self._adapter(host, pair=True))
        return session

    def _adapter(self, host: str, *, pair: bool) -> _Adapter:
        with self._lock:
            if (host, pair) not in self._adapters:
                self._adapters[host, pair] = _Adapter(self._trust, host, pair=pair)
            return self._adapters[host, pair]


def _patient(loopback: bool) -> Session:
    session = Session()
    session.trust_env = not loopback
    session.auth = lambda request: request  # or requests would look for a password in ~/.netrc
    session.max_redirects = 5
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    session.headers["User-Agent"] = names.DISTRIBUTION
    return session


def base(host: str) -> str:
    """The address of a registry: http on loopback, https elsewhere."""
    return f"http://{host}" if Repository(host, "x").loopback else f"https://{_SERVED_AT.get(host, host)}"


def origin(url: str) -> tuple[str, str]:
    """What two addresses share when they are one server's: scheme, and host with port where that is not the usual one."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return parts.scheme, host.removesuffix(_USUAL.get(parts.scheme, ""))


def refuse_downgrade(before: str, after: str) -> None:
    """Raise `RegistryRefused` when a registry leads from https to anything else."""
    (scheme, host), (next_scheme, next_host) = origin(before), origin(after)
    if scheme == "https" and next_scheme != "https":
        raise RegistryRefused(f"`{host}` redirects from https to `{next_scheme}://{next_host}`", hint=FORWARDED.format(host))
