"""Harbor's API v2.0, as far as a promoter and a doctor touch it."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from tests.harbor import tags
from tests.harbor.callers import Caller, Tokens, project_for, refusal
from tests.harbor.state import Fault, Project, Robot, State, not_found, now
from tests.harbor.web import Answer, Request, listed, told

VERSION = "v2.15.2-080b0220"
PREFIX = "/api/v2.0"
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
SECRET = "Abcdefgh1234"

Route = Callable[..., Answer]


class Api:
    """Answers everything below `/api/` and `/service/`."""

    def __init__(self, state: State, tokens: Tokens) -> None:
        self.state, self.tokens = state, tokens
        project, repository = r"/projects/(?P<project>[^/]+)", r"/repositories/(?P<repository>[^/]+)"
        artifact = project + repository + r"/artifacts/(?P<reference>[^/]+)"
        self.tags = tags.Tags(state)
        self.routes: list[tuple[str, dict[str, Route]]] = [
            (r"/ping", {"GET": lambda _: Answer(200, b"Pong", {"Content-Type": "text/plain"})}),
            (r"/health", {"GET": lambda _: told({"status": "healthy", "components": [{"name": "core", "status": "healthy"}]})}),
            (r"/systeminfo", {"GET": self.systeminfo}),
            (r"/users/current", {"GET": self.current}),
            (r"/permissions", {"GET": self.permissions}),
            (r"/configurations", {"PUT": self.configure}),
            (r"/projects", {"GET": self.projects, "HEAD": self.project_exists, "POST": self.create_project}),
            (project, {"GET": self.project, "PUT": self.change_project, "DELETE": self.delete_project}),
            (project + r"/summary", {"GET": self.summary}),
            (project + r"/immutabletagrules", {"GET": self.rules, "POST": self.add_rule}),
            (project + r"/immutabletagrules/(?P<number>[0-9]+)", {"PUT": self.change_rule, "DELETE": self.delete_rule}),
            (r"/quotas", {"GET": self.quotas}),
            (r"/quotas/(?P<number>[0-9]+)", {"PUT": self.change_quota}),
            (r"/retentions", {"POST": self.add_retention}),
            (r"/retentions/(?P<number>[0-9]+)", {"GET": self.retention}),
            (r"/robots", {"GET": self.robots, "POST": self.add_robot}),
            (r"/robots/(?P<number>[0-9]+)", {"PUT": self.change_robot, "DELETE": self.delete_robot}),
            (r"/system/gc/schedule", {"GET": self.gc, "POST": self.collect}),
            (project + r"/repositories", {"GET": self.tags.repositories}),
            (project + repository, {"GET": self.tags.repository, "DELETE": self.tags.delete_repository}),
            (project + repository + r"/artifacts", {"GET": self.tags.artifacts}),
            (artifact, {"GET": self.tags.artifact, "DELETE": self.tags.delete_artifact}),
            (artifact + r"/tags", {"GET": self.tags.listing, "POST": self.tags.create}),
            (artifact + r"/tags/(?P<tag>[^/]+)", {"DELETE": self.tags.delete}),
            (artifact + r"/accessories", {"GET": self.tags.accessories}),
        ]

    def answer(self, request: Request) -> Answer:
        if request.path == "/service/token":
            return self.token(request)
        if request.path == "/api/version":
            return told({"version": "v2.0"}, headers={"Content-Type": "text/plain; charset=utf-8"})
        path = request.path.removeprefix(PREFIX)
        for pattern, methods in self.routes:
            if match := re.fullmatch(pattern, path):
                return self._routed(request, methods, {name: unquote(part) for name, part in match.groupdict().items()})
        raise not_found(f"path {request.path} was not found")

    def _routed(self, request: Request, methods: dict[str, Route], parts: dict[str, str]) -> Answer:
        if request.method not in methods:
            message = f"method {request.method} is not allowed, but [{','.join(sorted(methods))}] are"
            raise Fault(405, "METHOD_NOT_ALLOWED", message)
        if "project" in parts and request.caller.token is not None:
            request.caller = Caller(tried=True)
        return methods[request.method](request, **parts)

    def token(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(405, b"Method Not Allowed\n", {"Content-Type": "text/plain; charset=utf-8"})
        if (service := request.one("service")) != "harbor-registry":
            return Answer(400, f"Unable to handle service: {service}".encode(), {"Content-Type": "text/plain; charset=utf-8"})
        scopes = [scope for each in request.query.get("scope", []) for scope in each.split(" ")]
        if not scopes and request.caller.nobody:
            return Answer(401)
        return told(self.tokens.issue(self.state, request.caller, scopes))

    def systeminfo(self, request: Request) -> Answer:
        told_to_all = {
            "auth_mode": "db_auth",
            "banner_message": "",
            "oidc_provider_name": "",
            "primary_auth_mode": False,
            "self_registration": False,
        }
        if request.caller.nobody:
            return told(told_to_all)
        more = {
            "current_time": now(),
            "external_url": f"http://{request.host}",
            "harbor_version": VERSION,
            "has_ca_root": False,
            "notification_enable": True,
            "project_creation_restriction": "everyone",
            "read_only": self.state.read_only,
            "registry_storage_provider_name": "filesystem",
            "registry_url": request.host,
        }
        return told({**told_to_all, **more})

    def current(self, request: Request) -> Answer:
        if request.caller.robot:
            raise Fault(412, "PRECONDITION", "get current user not available for security context: robot")
        if request.caller.nobody:
            raise refusal(request.caller)
        return told({"username": request.caller.user, "sysadmin_flag": request.caller.admin})

    def permissions(self, request: Request) -> Answer:
        if not request.caller.admin:
            raise Fault(403, "FORBIDDEN", "forbidden: only admins(system and project) can access permissions")
        return told({"project": [], "system": []})

    def configure(self, request: Request) -> Answer:
        self._admin(request)
        self.state.read_only = bool(request.json("configurations").get("read_only", self.state.read_only))
        return Answer(200)

    def projects(self, request: Request) -> Answer:
        seen = [
            each for each in self.state.projects.values() if request.caller.robot or request.caller.may(each, "project", "read")
        ]
        named = [each for each in seen if request.one("name") in each.name]
        return listed(request, [_project(each) for each in named])

    def project_exists(self, request: Request) -> Answer:
        if request.caller.nobody:
            raise refusal(request.caller)
        return Answer(200 if request.one("project_name") in self.state.projects else 404)

    def create_project(self, request: Request) -> Answer:
        wanted, caller = request.json("project"), request.caller
        if caller.nobody:
            raise refusal(caller)
        if caller.robot and not _creates_projects(caller.robot):
            raise Fault(
                403, "FORBIDDEN", "Only system level robot can create project" if caller.robot.level == "project" else "forbidden"
            )
        name = wanted.get("project_name", "")
        if not NAME.fullmatch(name):
            raise Fault(400, "BAD_REQUEST", "project name is not in lower case or contains illegal characters")
        if name in self.state.projects:
            raise Fault(409, "CONFLICT", f"The project named {name} already exists")
        made = self.state.add_project(name, wanted.get("metadata") or {"public": "false"}, wanted.get("storage_limit") or -1)
        by_name = request.headers.get("X-Resource-Name-In-Location") == "true"
        return Answer(201, headers={"Location": f"{PREFIX}/projects/{name if by_name else made.number}"})

    def project(self, request: Request, project: str) -> Answer:
        numeric = request.headers.get("X-Is-Resource-Name") != "true"
        return told(_project(project_for(self.state, request.caller, project, "project", "read", numeric=numeric)))

    def change_project(self, request: Request, project: str) -> Answer:
        found = project_for(self.state, request.caller, project, "project", "update")
        found.metadata.update(request.json("project").get("metadata") or {})
        return Answer(200)

    def delete_project(self, request: Request, project: str) -> Answer:
        found = project_for(self.state, request.caller, project, "project", "delete")
        if found.repos:
            raise Fault(412, "PRECONDITION", "precondition failed: the project contains repositories, can not be deleted")
        del self.state.projects[found.name]
        return Answer(200)

    def summary(self, request: Request, project: str) -> Answer:
        found = project_for(self.state, request.caller, project, "project", "read")
        quota = {"hard": {"storage": found.limit}, "used": {"storage": found.used}}
        seen = {"quota": quota} if request.caller.may(found, "quota", "read") else {}
        return told({**seen, "repo_count": len(found.repos)})

    def rules(self, request: Request, project: str) -> Answer:
        return listed(request, project_for(self.state, request.caller, project, "immutable-tag", "list").rules)

    def add_rule(self, request: Request, project: str) -> Answer:
        wanted = request.json("ImmutableRule")
        found = project_for(self.state, request.caller, project, "immutable-tag", "create")
        rule = {**_rule(wanted), "id": self.state.number("rule")}
        if any({**each, "id": rule["id"]} == rule for each in found.rules):
            raise Fault(409, "CONFLICT", "immutable rule already exists")
        found.rules.append(rule)
        return Answer(201, headers={"Location": f"{PREFIX}/projects/{project}/immutabletagrules/{rule['id']}"})

    def change_rule(self, request: Request, project: str, number: str) -> Answer:
        wanted = request.json("ImmutableRule")
        found = project_for(self.state, request.caller, project, "immutable-tag", "update")
        if int(wanted.get("id", number)) != int(number):
            message = "bad request: the immutable_rule_id doesn't match the id in the payload body of ImmutableRule"
            raise Fault(400, "BAD_REQUEST", message)
        old = _numbered(found, number)
        found.rules[found.rules.index(old)] = {
            **_rule(wanted),
            "id": int(number),
            **({"disabled": True} if wanted.get("disabled") else {}),
        }
        return Answer(200)

    def delete_rule(self, request: Request, project: str, number: str) -> Answer:
        found = project_for(self.state, request.caller, project, "immutable-tag", "delete")
        found.rules.remove(_numbered(found, number))
        return Answer(200)

    def quotas(self, request: Request) -> Answer:
        self._admin(request)
        wanted = request.one("reference_id")
        return listed(request, [_quota(each) for each in self.state.projects.values() if wanted in ("", str(each.number))])

    def change_quota(self, request: Request, number: str) -> Answer:
        self._admin(request)
        value = request.json("hard")["hard"]["storage"]
        if value < -1:
            raise Fault(400, "BAD_REQUEST", f"invalid non-positive value for quota limit, value={value}")
        next(each for each in self.state.projects.values() if each.number == int(number)).limit = value
        return Answer(200)

    def add_retention(self, request: Request) -> Answer:
        policy = request.json("policy")
        found = next(each for each in self.state.projects.values() if each.number == policy["scope"]["ref"])
        project_for(self.state, request.caller, found.name, "tag-retention", "create")
        if "retention_id" in found.metadata:
            raise Fault(
                400, "BAD_REQUEST", f"project {found.number} already has retention policy {found.metadata['retention_id']}"
            )
        number = self.state.number("retention")
        self.state.retentions[number] = {**policy, "id": number}
        found.metadata["retention_id"] = str(number)
        return Answer(201, headers={"Location": f"{PREFIX}/retentions/{number}"})

    def retention(self, request: Request, number: str) -> Answer:
        if int(number) not in self.state.retentions:
            raise not_found(f"retention policy {number} not found")
        policy = self.state.retentions[int(number)]
        found = next(each for each in self.state.projects.values() if each.number == policy["scope"]["ref"])
        project_for(self.state, request.caller, found.name, "tag-retention", "read")
        return told(policy)

    def robots(self, request: Request) -> Answer:
        self._admin(request)
        return listed(request, [{"id": each.number, "name": each.name} for each in self.state.robots.values()])

    def add_robot(self, request: Request) -> Answer:
        wanted = request.json("robot")
        self._admin(request)
        self._check_robot(wanted)
        made = self.state.add_robot(wanted["name"], wanted["level"], wanted["permissions"], f"{SECRET}{len(self.state.robots)}")
        body = {"creation_time": made.created, "expires_at": -1, "id": made.number, "name": made.name, "secret": made.secret}
        return told(body, 201, {"Location": f"{PREFIX}/robots/{made.number}"})

    def change_robot(self, request: Request, number: str) -> Answer:
        self._admin(request)
        self._robot(number).disabled = bool(request.json("robot").get("disable"))
        return Answer(200)

    def delete_robot(self, request: Request, number: str) -> Answer:
        self._admin(request)
        del self.state.robots[self._robot(number).name]
        return Answer(200)

    def gc(self, request: Request) -> Answer:
        self._admin(request)
        return told(self.state.gc)

    def collect(self, request: Request) -> Answer:
        """Collects at once when that is asked for; of the schedule it only takes note."""
        wanted = request.json("schedule")
        self._admin(request)
        parameters, when = wanted.get("parameters") or {}, wanted.get("schedule") or {}
        if when.get("type") == "Manual":
            for project in self.state.projects.values():
                _collect(project, bool(parameters.get("delete_untagged", True)))
        else:
            untagged = str(parameters.get("delete_untagged", True)).lower()
            self.state.gc = {"job_parameters": f'{{"delete_untagged":{untagged}}}', "schedule": when}
        return Answer(201, headers={"Location": f"{PREFIX}/system/gc/{self.state.number('gc')}"})

    def _admin(self, request: Request) -> None:
        if not request.caller.admin:
            raise Fault(403, "FORBIDDEN", request.caller.name) if not request.caller.nobody else refusal(request.caller)

    def _robot(self, number: str) -> Any:
        for each in self.state.robots.values():
            if each.number == int(number):
                return each
        raise not_found(f"robot {number} not found")

    def _check_robot(self, wanted: dict[str, Any]) -> None:
        if not NAME.fullmatch(wanted.get("name", "")):
            raise Fault(400, "BAD_REQUEST", "robot name is not in lower case or contains illegal characters")
        permissions = wanted.get("permissions") or []
        if any(not each.get("access") for each in permissions):
            raise Fault(400, "BAD_REQUEST", "bad request empty access")
        if wanted["level"] == "project" and len(permissions) != 1:
            raise Fault(400, "BAD_REQUEST", "bad request permission")
        for each in permissions:
            if each["kind"] == "project" and each["namespace"] != "*" and each["namespace"] not in self.state.projects:
                raise not_found(f"project {each['namespace']} not found")
        scope = permissions[0]["namespace"] + "+" if wanted["level"] == "project" else ""
        if f"robot${scope}{wanted['name']}" in self.state.robots:
            number = self.state.projects[permissions[0]["namespace"]].number if scope else 0
            raise Fault(409, "CONFLICT", f"robot account {number}:{scope}{wanted['name']} already exists")
        if wanted.get("duration", -1) == 0:
            message = "bad request error duration input: 0, duration must be either -1(Never) or a positive integer"
            raise Fault(400, "BAD_REQUEST", message)


def _creates_projects(robot: Robot) -> bool:
    wanted = {"resource": "project", "action": "create"}
    held = [access for each in robot.permissions if each["kind"] == "system" for access in each["access"]]
    return robot.level == "system" and wanted in held


def _collect(project: Project, untagged: bool) -> None:
    for repo in project.repos.values() if untagged else ():
        for each in list(repo.artifacts.values()):
            there = each.digest in repo.artifacts
            if there and not each.subject and not repo.tags_of(each) and not repo.parents(each.digest):
                repo.remove(each)


def _numbered(project: Project, number: str) -> dict[str, Any]:
    for rule in project.rules:
        if rule["id"] == int(number):
            return rule
    raise not_found(f"immutable rule {number} not found")


def _rule(wanted: dict[str, Any]) -> dict[str, Any]:
    """As the list shows it: what is empty is left out, `disabled` at creation is not heard."""

    def shown(selector: dict[str, Any]) -> dict[str, Any]:
        return {key: selector[key] for key in ("decoration", "kind", "pattern") if selector.get(key)}

    rule: dict[str, Any] = {"action": wanted.get("action", "")}
    if scopes := wanted.get("scope_selectors"):
        rule["scope_selectors"] = {key: [shown(each) for each in value] for key, value in scopes.items()}
    rule["tag_selectors"] = [shown(each) for each in wanted.get("tag_selectors") or ()] or None
    if template := wanted.get("template"):
        rule["template"] = template
    return rule


def _project(project: Project) -> dict[str, Any]:
    return {
        "creation_time": project.created,
        "metadata": project.metadata,
        "name": project.name,
        "owner_id": 1,
        "owner_name": "admin",
        "project_id": project.number,
        "repo_count": len(project.repos),
        "update_time": project.created,
    }


def _quota(project: Project) -> dict[str, Any]:
    return {
        "id": project.number,
        "hard": {"storage": project.limit},
        "used": {"storage": project.used},
        "ref": {"id": project.number, "name": project.name, "owner_name": ""},
    }
