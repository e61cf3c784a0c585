"""One request to Harbor's API, and what its refusals mean."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from pipeline.credentials import Credential
from pipeline.errors import NotThere, PipelineError, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.oci import Repository
from pipeline.redaction import redact
from pipeline.registry import answers, session
from pipeline.registry.challenge import Challenge, choose
from pipeline.registry.session import Connections, Session
from pipeline.registry.trust import Trust

PAGE = 100
"""Entries of one page; Harbor refuses more."""
PAGES = 100
LIMIT = 16 * 2**20
"""Bytes of one answer."""
FULL = "of storage resource"
"""How Harbor's text tells that a project has no room left."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What Harbor answered; `body` is JSON, None when it was none."""

    status: int
    body: Any
    codes: frozenset[str]
    reason: str
    request: str
    """By what Harbor's own log knows it; empty when it has no name."""
    challenge: Challenge | None
    """The authentication that it asks for."""

    @property
    def busy(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status == 429 or self.status >= 500

    @property
    def absent(self) -> bool:
        """Whether Harbor itself, and nothing in between, says that there is no such thing."""
        return self.status == 404 and "NOT_FOUND" in self.codes

    @property
    def read_only(self) -> bool:
        """Whether it refuses because nothing may be written for now."""
        return self.status == 403 and "DENIED" in self.codes and answers.READ_ONLY in self.reason


class Api:
    """Requests to one Harbor with Basic authentication, without cookies; may be used by several threads."""

    def __init__(self, host: str, login: Credential | None, trust: Trust) -> None:
        """No connection is made yet; two threads never use one at the same time."""
        self.host, self._login, self._connections = host, login, Connections(trust)
        self._hidden = (login.secret, login.basic) if login else ()
        self._local = threading.local()

    @property
    def user(self) -> str:
        """Who we are; empty: nobody."""
        return self._login.user if self._login else ""

    def ask(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Any = None) -> Reply:
        """The answer to one request; raises when there is none."""
        headers = {"Accept": "application/json", "X-Is-Resource-Name": "true"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._login:
            headers["Authorization"] = f"Basic {self._login.basic}"
        with answers.sent(
            self._session(),
            method,
            f"{session.base(self.host)}{path}",
            host=self.host,
            headers=headers,
            params=params,
            body=None if body is None else json.dumps(body).encode(),
            redirects=False,
            hidden=self._hidden,
        ) as answer:
            return self._reply(answer, path)

    def pages(self, path: str, what: str, right: str, project: str) -> Iterator[Mapping[str, Any]]:
        """Each entry of a list; raises `ToolFailed` when it does not end."""
        for page in range(1, PAGES + 1):
            reply = self.ask("GET", path, params={"page": str(page), "page_size": str(PAGE), "sort": "id"})
            if reply.status != 200 or not isinstance(reply.body, list):
                raise self.failure(reply, f"{what} cannot be read", right, project)
            yield from reply.body
            if len(reply.body) < PAGE:
                return
        raise ToolFailed(f"{what} cannot be read: there are more than {PAGE * PAGES}")

    def failure(self, reply: Reply, what: str, right: str = "", project: str = "") -> PipelineError:
        """What an answer other than the wanted one means; `right` is the one that the request takes, in `project`."""
        text = redact(f"{what}: `{self.host}` answered {reply.status}, {reply.reason}", self._hidden)
        if reply.status in (401, 403):
            return RegistryRefused(f"{text} ({self._who()})", hint=self._remedy(reply, right, project.partition("/")[0]))
        if reply.status in (409, 412):
            return TagConflict(text)
        if reply.busy:
            logged = f"; an administrator finds the cause in Harbor's log by `{reply.request}`" if reply.request else ""
            return Temporary(text, hint=f"run the same command later{logged}")
        return NotThere(text) if reply.absent else ToolFailed(text)

    def _remedy(self, reply: Reply, right: str, project: str) -> str:
        if reply.read_only:
            return "wait until an administrator has ended the read-only mode (Administration, Configuration, System Settings)"
        if FULL in reply.reason:
            return f"an administrator raises the quota of `{project}`, or somebody deletes artifacts there"
        if reply.status == 403 and right:
            where = f" in project `{project}`" if project else ""
            return f"an administrator gives `{self.user}` the right `{right}`{where}, if there is such a project"
        return f"`docker login {self.host}` with an account that has the right; single-quote a `$` in the name of a robot"

    def _who(self) -> str:
        return f"asked as `{self.user}`" if self.user else "asked without a login"

    def _reply(self, answer: requests.Response, path: str) -> Reply:
        wrong = answer.status_code >= 400
        return Reply(
            status=answer.status_code,
            body=None if wrong else _json(answers.body(answer, f"`{self.host}{path}`", LIMIT)),
            codes=frozenset(answers.codes(answer)) if wrong else frozenset(),
            reason=answers.reason(answer) if wrong else str(answer.reason),
            request=answer.headers.get("X-Request-Id", ""),
            challenge=choose(answer.headers.get("WWW-Authenticate", "")),
        )

    def _session(self) -> Session:
        opened: Session | None = getattr(self._local, "session", None)
        if opened is None:
            opened = self._connections.opened(self.host, loopback=Repository(self.host, "x").loopback)
            self._local.session = opened
        return opened


def artifacts(repository: Repository) -> str:
    """Where the artifacts of a repository are; its slashes are encoded twice, since what stands before Harbor decodes once."""
    project, _, path = repository.path.partition("/")
    if not path:
        raise ToolFailed(f"`{repository}` is in no project", hint=f"a Harbor wants `{repository.host}/PROJECT/…`")
    return f"/api/v2.0/projects/{project}/repositories/{quote(quote(path, safe=''), safe='')}/artifacts"


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
