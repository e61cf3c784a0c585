"""Requests to one repository of a registry, let in as it wants: what the readers and writers of this package share."""

import threading
from collections.abc import Iterator, Mapping
from typing import NoReturn
from urllib.parse import urljoin

import requests

from pipeline.credentials import Credentials
from pipeline.errors import ToolFailed
from pipeline.oci import MANIFEST_TYPES, Repository
from pipeline.redaction import redact
from pipeline.registry import answers, session
from pipeline.registry.answers import Streamed
from pipeline.registry.authorization import Authorizer
from pipeline.registry.session import Connections, Session
from pipeline.registry.trust import Trust

PAGES = 1000
"""Pages of one list; more of them is no list any more."""
Body = bytes | Streamed
PULL, PUSH = "pull", "pull,push"
ACCEPT = {"Accept": ", ".join(MANIFEST_TYPES)}


class Wire:
    """Connections to registries, http on loopback and https elsewhere; may be used by several threads."""

    def __init__(self, credentials: Credentials, trust: Trust) -> None:
        """No connection is made yet; two threads never use one at the same time."""
        self._authorizer, self._connections = Authorizer(credentials), Connections(trust)
        self._local = threading.local()
        self.unlisted: set[Repository] = set()
        """Where the registry has said that it keeps no lists of referrers."""
        self.undivided: set[str] = set()
        """Hosts that have not taken a blob in parts."""

    def ask(
        self,
        method: str,
        repository: Repository,
        path: str,
        *,
        rights: str = PULL,
        also: Repository | None = None,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """The answer about something in a repository; a path that is an address goes where the registry has sent us.

        The request reads `also`, another repository of the same registry. A streamed body is sent once: who sends it is told
        that a token is not good any more (401), and gets a new one with the next request; redirects are not followed.
        """
        read = f" repository:{also.path}:{PULL}" if also else ""
        return self._asked(
            method,
            urljoin(f"{address(repository)}/", path),
            host=repository.host,
            scope=f"repository:{repository.path}:{rights}{read}",
            body=body,
            headers=headers,
        )

    def greet(self, host: str) -> requests.Response:
        """The answer to `GET /v2/`, with our login when the registry wants one."""
        return self._asked("GET", f"{session.base(host)}/v2/", host=host, scope="")

    def guarded(self, host: str) -> bool:
        """Whether this host has asked who we are."""
        return self._authorizer.guarded(host)

    def fail(self, answer: requests.Response, what: str, repository: Repository) -> NoReturn:
        """Raise what an answer other than the wanted one means, and say who asked when that matters."""
        who = ""
        if answer.status_code in (401, 403):
            login = self._authorizer.login(repository.host)
            who = f" (asked as `{login.user}`)" if login else " (asked without a login)"
        answers.fail(answer, what, self._authorizer.secrets, host=repository.host, who=who)

    def reason(self, answer: requests.Response) -> str:
        """What an answer says for people, without secrets."""
        return redact(answers.reason(answer), self._authorizer.secrets)

    def pages(self, repository: Repository, path: str, what: str) -> Iterator[requests.Response]:
        """Each page of a list; raises `ToolFailed` when it goes in circles, on elsewhere, or does not end."""
        seen: set[str] = set()
        following: str | None = path
        while following is not None:
            if following in seen or len(seen) >= PAGES:
                raise ToolFailed(f"{what} goes in circles, or has more than {PAGES} pages")
            seen.add(following)
            with self.ask("GET", repository, following) as answer:
                yield answer
                following = _next_page(answer, repository, what)

    def _asked(
        self,
        method: str,
        url: str,
        *,
        host: str,
        scope: str,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        client, own = self._session(host), session.origin(url) == session.origin(session.base(host))
        header = self._authorizer.known(host, scope, client) if own else None
        answer = self._sent(client, method, url, host, header, body, headers)
        elsewhere = not own or session.origin(answer.url) != session.origin(url)
        if answer.status_code != 401 or elsewhere or isinstance(body, Streamed):
            return answer
        again = self._again(answer, host, scope, client)
        return self._sent(client, method, url, host, again, body, headers) if again else answer

    def _again(self, refusal: requests.Response, host: str, scope: str, client: Session) -> str | None:
        """The header to try once more with, the refusal then closed; None when the refusal stands."""
        header: str | None = ""
        try:
            header = self._authorizer.answer_to(refusal, host, scope, client)
        finally:
            if header is not None:
                refusal.close()
        return header

    def _sent(
        self,
        client: Session,
        method: str,
        url: str,
        host: str,
        authorization: str | None,
        body: Body | None,
        headers: Mapping[str, str] | None,
    ) -> requests.Response:
        shown = {"Authorization": authorization} if authorization else {}
        return answers.sent(
            client,
            method,
            url,
            host=host,
            headers={**(headers or {}), **shown},
            body=body,
            redirects=not isinstance(body, Streamed),
            hidden=self._authorizer.secrets,
        )

    def _session(self, host: str) -> Session:
        sessions: dict[str, Session] = self._local.__dict__.setdefault("sessions", {})
        if host not in sessions:
            sessions[host] = self._connections.opened(host, loopback=Repository(host, "x").loopback)
        return sessions[host]


def address(repository: Repository) -> str:
    """Where a repository is."""
    return f"{session.base(repository.host)}/v2/{repository.path}"


def _next_page(answer: requests.Response, repository: Repository, what: str) -> str | None:
    link = answer.links.get("next", {}).get("url")
    if link is None:
        return None
    start, url = f"{address(repository)}/", urljoin(answer.url, link)
    if not url.startswith(start):
        raise ToolFailed(f"{what} goes on elsewhere: `{url}`")
    return url.removeprefix(start)
