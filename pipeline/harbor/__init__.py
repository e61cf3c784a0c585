"""Harbor's own API, for what a promoter and the doctor need: tags that are only created, rules, rights, what is left.

Protocol: API v2.0 as Harbor 2.15.2 answers it. Harbor takes a wrong password for nobody, and answers nobody with 200:
so the login is proved first, where it says no. Errors: `RegistryRefused` for logins, rights, read-only mode and quota,
`TagConflict`, `NotThere`, `Temporary` for what may pass, `ToolFailed` for all else; none of them holds a secret.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.credentials import Credential, Credentials
from pipeline.errors import RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.harbor.api import Api, Reply, artifacts
from pipeline.oci import Digest, Repository
from pipeline.registry.trust import CERTIFICATES, Trust
from pipeline.tagrules import ImmutableRule, Retention

UNLIMITED = -1
NOTHING = Digest("sha256:" + 64 * "0")
"""Content that no registry has, for asking what we might do."""

SERVICE = "harbor-registry"
"""Whom every Harbor's tokens are for."""

_SYSTEM = "/api/v2.0/systeminfo"


@dataclass(frozen=True, kw_only=True)
class Project:
    """What Harbor says of a project; a policy that it does not tell is off."""

    name: str
    number: int
    public: bool
    content_trust: bool
    """Whether images without a signature cannot be pulled."""
    prevents_vulnerable: bool
    """Whether images that Harbor has not scanned, or not liked, cannot be pulled."""
    retention: int | None
    """The number of its retention policy."""

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """A project in Harbor's JSON."""
        facts = told.get("metadata") or {}
        trust = ("enable_content_trust", "enable_content_trust_cosign")
        number = str(facts.get("retention_id") or "")
        return cls(
            name=str(told["name"]),
            number=int(told["project_id"]),
            public=facts.get("public") == "true",
            content_trust=any(facts.get(each) == "true" for each in trust),
            prevents_vulnerable=facts.get("prevent_vul") == "true",
            retention=int(number) if number.isdecimal() else None,
        )


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Bytes that a project holds, and may hold."""

    used: int
    limit: int

    @property
    def left(self) -> int | None:
        """Bytes that still fit; None when there is no limit."""
        return None if self.limit == UNLIMITED else self.limit - self.used


class Harbor:
    """A Harbor that has answered, and has taken our login; may be used by several threads."""

    def __init__(self, api: Api, *, version: str) -> None:
        """Use `find`, which asks for the version."""
        self._api, self.version, self.host = api, version, api.host

    @property
    def user(self) -> str:
        """Who we are; empty: nobody."""
        return self._api.user

    def read_only(self) -> bool:
        """Whether nothing may be written for now."""
        return bool(self._object(self._api.ask("GET", _SYSTEM), "its state")["read_only"])

    def project(self, name: str) -> Project | None:
        """A project, None when there is none; raises `RegistryRefused` when we may not know."""
        reply = self._api.ask("GET", f"/api/v2.0/projects/{name}")
        if reply.absent or (reply.status == 403 and not self.exists(name)):
            return None
        return Project.read(self._object(reply, f"project `{name}`", "project:read", name))

    def exists(self, name: str) -> bool:
        """Whether there is a project of this name, which everybody with a login may ask."""
        reply = self._api.ask("HEAD", "/api/v2.0/projects", params={"project_name": name})
        if reply.status not in (200, 404):
            raise self._api.failure(reply, f"project `{name}` cannot be looked for")
        return reply.status == 200

    def tag(self, repository: Repository, tag: str) -> Digest | None:
        """What the tag names now; None only when Harbor says that it knows no such tag or repository."""
        reply = self._api.ask("GET", f"{artifacts(repository)}/{tag}")
        if reply.absent:
            return None
        told = self._object(reply, f"`{repository}:{tag}`", "artifact:read", repository.path)
        return Digest(str(told["digest"]))

    def create_tag(self, repository: Repository, digest: Digest, tag: str) -> bool:
        """Create a tag for content that is there; no tag is ever moved by this.

        True when we created it, False when it was there and names this content. Raises `TagConflict` when it names
        other content: of many who create one tag, Harbor lets one.
        """
        reply = self._api.ask("POST", f"{artifacts(repository)}/{digest}/tags", body={"name": tag})
        if reply.status == 201:
            return True
        if reply.status != 409:
            raise self._api.failure(reply, f"`{repository}:{tag}` cannot be created", "tag:create", repository.path)
        held = self.tag(repository, tag)
        if held is None:
            raise Temporary(f"`{repository}:{tag}` is created and deleted by others just now", hint="run the same command later")
        if held != digest:
            raise TagConflict(f"`{repository}:{tag}` names `{held}`, so it cannot be created for `{digest}`")
        return False

    def immutable_rules(self, project: str) -> tuple[ImmutableRule, ...]:
        """All rules of a project, also the disabled ones."""
        path = f"/api/v2.0/projects/{project}/immutabletagrules"
        listed = self._api.pages(path, f"the immutable rules of `{project}`", "immutable-tag:list", project)
        return tuple(ImmutableRule.read(each) for each in listed)

    def retention(self, project: Project) -> Retention | None:
        """The policy by which a project deletes artifacts; None when it has none."""
        if project.retention is None:
            return None
        reply = self._api.ask("GET", f"/api/v2.0/retentions/{project.retention}")
        return Retention.read(self._object(reply, f"the retention of `{project.name}`", "tag-retention:read", project.name))

    def quota(self, project: str) -> Quota | None:
        """What a project holds and may hold; None when we may not know."""
        reply = self._api.ask("GET", f"/api/v2.0/projects/{project}/summary")
        told = self._object(reply, f"what `{project}` holds", "project:read", project).get("quota")
        if told is None:
            return None
        return Quota(used=int(told["used"]["storage"]), limit=int(told["hard"]["storage"]))

    def collects_untagged(self) -> bool | None:
        """Whether garbage is collected by itself, what has no tag included; None when we may not know."""
        reply = self._api.ask("GET", "/api/v2.0/system/gc/schedule")
        if reply.status in (401, 403):
            return None
        told = self._object(reply, "the schedule of garbage collection")
        parameters = json.loads(told.get("job_parameters") or "{}")
        return bool((told.get("schedule") or {}).get("cron")) and parameters.get("delete_untagged") is not False

    def rights(self, repository: Repository) -> frozenset[str]:
        """What we may do in a project, such as `tag:create`, found by trying it on content that is not there.

        Nothing is written. A right lacks only when Harbor says so: in read-only mode all seem to be held.
        """
        project, asked = repository.path.partition("/")[0], f"{artifacts(repository)}/{NOTHING}"
        tries = {
            "artifact:read": self._api.ask("GET", asked),
            "artifact:list": self._api.ask("GET", artifacts(repository), params={"page_size": "1"}),
            "tag:list": self._api.ask("GET", f"{asked}/tags"),
            "tag:create": self._api.ask("POST", f"{asked}/tags", body={"name": "doctor"}),
            "immutable-tag:list": self._api.ask("GET", f"/api/v2.0/projects/{project}/immutabletagrules"),
            "project:read": self._api.ask("GET", f"/api/v2.0/projects/{project}"),
        }
        summary = self._api.ask("GET", f"/api/v2.0/projects/{project}/summary")
        quota = {"quota:read"} if isinstance(summary.body, dict) and summary.body.get("quota") else set()
        return frozenset(
            {right for right, reply in tries.items() if self._held(reply, right)} | quota | self._granted(repository)
        )

    def create_project(self, name: str) -> None:
        """Make a private project without a limit of its own; one that is there is left as it is."""
        wanted = {"project_name": name, "metadata": {"public": "false"}, "storage_limit": UNLIMITED}
        reply = self._api.ask("POST", "/api/v2.0/projects", body=wanted)
        if reply.status not in (201, 409):
            raise self._api.failure(reply, f"project `{name}` cannot be created", "project:create (of the system)")

    def add_immutable_rule(self, project: str, *, repositories: str, tags: str) -> None:
        """Freeze the tags of a pattern in the repositories of a pattern; a rule that is there is left as it is."""
        rule = {
            "action": "immutable",
            "template": "immutable_template",
            "tag_selectors": [{"kind": "doublestar", "decoration": "matches", "pattern": tags}],
            "scope_selectors": {"repository": [{"kind": "doublestar", "decoration": "repoMatches", "pattern": repositories}]},
        }
        reply = self._api.ask("POST", f"/api/v2.0/projects/{project}/immutabletagrules", body=rule)
        if reply.status not in (201, 409):
            raise self._api.failure(reply, f"`{project}` takes no immutable rule", "immutable-tag:create", project)

    def _held(self, reply: Reply, right: str) -> bool:
        if reply.status in (401, 403):
            return reply.read_only
        if reply.status in (200, 404):
            return True
        raise self._api.failure(reply, f"whether we hold `{right}` cannot be found out")

    def _granted(self, repository: Repository) -> frozenset[str]:
        """What the token service lets us do; the token is read, not used."""
        scope = {"service": SERVICE, "scope": f"repository:{repository.path}:pull,push"}
        told = self._object(self._api.ask("GET", "/service/token", params=scope), "a token")
        try:
            middle = str(told["token"]).split(".")[1]
            payload = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
            actions = {action for each in payload["access"] or () for action in each["actions"] or ()}
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ToolFailed(f"the token of `{self.host}` cannot be read") from error
        return frozenset(f"repository:{action}" for action in actions & {"pull", "push"})

    def _object(self, reply: Reply, what: str, right: str = "", project: str = "") -> Mapping[str, Any]:
        if reply.status != 200:
            raise self._api.failure(reply, f"{what} cannot be read", right, project)
        if not isinstance(reply.body, dict):
            raise ToolFailed(f"{what} cannot be read: `{self.host}` answered no JSON object")
        return reply.body


def find(
    host: str, *, credentials: Credentials, certificates: Path | None = None, certificate_folder: Path = CERTIFICATES
) -> Harbor | None:
    """The Harbor at a host; None when what answers there is another registry.

    Raises `RegistryRefused` when the login is wrong, or when it is a Harbor and there is no login.
    """
    login, trust = credentials.of(host), Trust(certificates, certificate_folder)
    nobody = Api(host, None, trust)
    if login is None or login.identity:
        if _asks_as_harbor(nobody):
            raise _unknown(host, login)
        return None
    api = Api(host, login, trust)
    _prove(api)
    reply = api.ask("GET", _SYSTEM)
    told = reply.body if reply.status == 200 and isinstance(reply.body, dict) else {}
    if told.get("harbor_version"):
        return Harbor(api, version=str(told["harbor_version"]))
    if reply.busy or _asks_as_harbor(nobody):
        raise Temporary(
            f"`{host}` does not tell its version: {reply.status}, {reply.reason}",
            hint="run the same command later; if that stays so, what stands before it does not pass `/api/` on to it",
        )
    return None


def _asks_as_harbor(nobody: Api) -> bool:
    """Whether it sends those without a login to Harbor's token service; an error somewhere else proves nothing."""
    reply = nobody.ask("GET", "/v2/")
    if reply.busy:
        raise nobody.failure(reply, f"whether `{nobody.host}` is a Harbor cannot be found out")
    return reply.challenge is not None and reply.challenge.service == SERVICE


def _prove(api: Api) -> None:
    """Ask where a wrong password is told from none: Harbor and other registries with Basic authentication say 401 there."""
    reply = api.ask("GET", "/v2/")
    if reply.status == 401 and reply.challenge and reply.challenge.scheme == "basic":
        raise RegistryRefused(
            f"`{api.host}` refuses the login of `{api.user}`",
            hint=f"`docker login {api.host}` with the right password; single-quote a `$` in the name of a robot",
        )
    if reply.busy:
        raise api.failure(reply, f"`{api.host}` does not say whether the login is right")


def _unknown(host: str, login: Credential | None) -> RegistryRefused:
    why = "takes no identity tokens" if login else "wants a login"
    return RegistryRefused(f"`{host}` is a Harbor, which {why}", hint=f"`docker login {host}` with a robot's name and secret")
