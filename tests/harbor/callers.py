"""Who asks, and what they may: users, robots, tokens, and those whose wrong password makes them nobody."""

import base64
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.harbor.state import ADMIN, READING, ROLES, Fault, Project, Robot, State, not_found

LIFE, LEEWAY = 1800, 60
"""Seconds that a token lives, and that clocks may differ."""
SERVICE = "harbor-registry"


@dataclass(frozen=True)
class Caller:
    """One who asks; without user, robot or token: nobody."""

    user: str = ""
    robot: Robot | None = None
    token: Mapping[str, Any] | None = None
    tried: bool = False
    """Whether an `Authorization` came with the request."""

    @property
    def nobody(self) -> bool:
        return not (self.user or self.robot)

    @property
    def name(self) -> str:
        return self.user or (self.robot.name if self.robot else "")

    @property
    def admin(self) -> bool:
        return self.user == ADMIN

    def may(self, project: Project, resource: str, action: str) -> bool:
        if self.token is not None:
            return resource == "repository" and action in _granted(self.token, project)
        if self.admin or (project.public and action in READING and resource != "immutable-tag"):
            return True
        if self.robot:
            return self.robot.may(project.name, resource, action)
        held = ROLES.get(project.members.get(self.user, 0), {})
        return action in held.get(resource, set()) or (bool(held) and (resource, action) == ("project", "read"))


@dataclass
class Tokens:
    """The token service's key, made when it is first needed."""

    key: rsa.RSAPrivateKey | None = field(default=None)

    def sign(self, payload: Mapping[str, Any]) -> str:
        self.key = self.key or rsa.generate_private_key(public_exponent=65537, key_size=2048)
        text = f"{_packed({'alg': 'RS256', 'kid': 'HARB:OR', 'typ': 'JWT'})}.{_packed(payload)}"
        return f"{text}.{_encoded(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def read(self, token: str) -> Mapping[str, Any] | None:
        """The payload of a token of ours that holds now."""
        text, _, signature = token.rpartition(".")
        try:
            if self.key is None:
                return None
            self.key.public_key().verify(_decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
            payload: dict[str, Any] = json.loads(_decoded(text.partition(".")[2]))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is no token
            return None
        fresh = payload["nbf"] - LEEWAY <= time.time() <= payload["exp"] + LEEWAY
        return payload if fresh and payload["aud"] == SERVICE else None

    def issue(self, state: State, caller: Caller, scopes: list[str]) -> dict[str, Any]:
        moment = int(time.time())
        payload = {
            "iss": "harbor-token-issuer",
            **({"sub": caller.name} if caller.name else {}),
            "aud": SERVICE,
            "exp": moment + LIFE,
            "nbf": moment,
            "iat": moment,
            "jti": secrets.token_urlsafe(12),
            "access": [_access(state, caller, scope) for scope in scopes] or None,
        }
        issued = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
        return {"token": self.sign(payload), "access_token": "", "expires_in": LIFE, "issued_at": issued}


def caller_of(state: State, tokens: Tokens, header: str | None) -> Caller:
    """Who sends this `Authorization`; whoever cannot be believed is nobody."""
    if not header:
        return Caller()
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        token = tokens.read(rest)
        return Caller(token=token, tried=True) if token else Caller(tried=True)
    try:
        name, _, password = base64.b64decode(rest).decode().partition(":")
    except ValueError:
        return Caller(tried=True)
    robot = state.robots.get(name)
    if robot and robot.secret == password and not robot.disabled:
        return Caller(robot=robot, tried=True)
    return Caller(user=name, tried=True) if state.users.get(name) == password else Caller(tried=True)


def project_for(state: State, caller: Caller, name: str, resource: str, action: str, *, numeric: bool = False) -> Project:
    """The project, if the caller may do this in it; the API's refusals."""
    project = state.projects.get(name)
    if project is None and numeric and name.isdecimal():
        project = next((each for each in state.projects.values() if each.number == int(name)), None)
    if project and caller.may(project, resource, action):
        return project
    if caller.admin:
        raise not_found(f"project {name} not found")
    raise refusal(caller)


def refusal(caller: Caller) -> Fault:
    return Fault(401, "UNAUTHORIZED", "unauthorized") if caller.nobody else Fault(403, "FORBIDDEN", "forbidden")


def _granted(token: Mapping[str, Any], project: Project) -> set[str]:
    """What a token lets do in a project; the repository in it does not matter, and the last entry counts."""
    if token["iat"] + LEEWAY < project.born:
        return set()
    held = [each["actions"] for each in token["access"] or () if each["name"].partition("/")[0] == project.name]
    return set(held[-1]) if held else set()


def _access(state: State, caller: Caller, scope: str) -> dict[str, Any]:
    kind, _, rest = scope.partition(":")
    name = rest.rpartition(":")[0]
    if kind == "registry":
        return {"type": kind, "name": name, "actions": ["*"] if caller.admin else []}
    project = state.projects.get(name.partition("/")[0]) if "/" in name else None
    actions = ("pull", "push", "delete")
    held = [action for action in actions if project and caller.may(project, "repository", action)]
    return {"type": kind, "name": name, "actions": held}


def _packed(told: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(told).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
