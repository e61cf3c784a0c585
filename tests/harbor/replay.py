"""Requests whose answers a real Harbor 2.15.2 gave, sent again, and the answers compared.

A scene is a list of steps. `make` prepares a project, a robot or an image. Any other step sends a request and says what
of the answer matters: status, headers, and those fields of the body that are named. `<name>` stands for what this run
has made, `…` for any text.
"""

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import requests

from pipeline.oci import MANIFEST_TYPES, OCI_EMPTY, OCI_MANIFEST

PATIENCE = 300.0
"""Seconds for what a Harbor does in the background."""
_NAME = re.compile(r"<([a-z0-9][A-Za-z0-9 :]*|[A-Z][0-9](?::[a-z]+)?)>")

Json = Any


@dataclass(frozen=True)
class Site:
    """A Harbor, and its administrator."""

    url: str
    user: str
    password: str


@dataclass
class Run:
    """One scene on one Harbor: what it has made, under which names."""

    site: Site
    salt: str = field(default_factory=lambda: secrets.token_hex(3))
    values: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    logins: dict[str, tuple[str, str]] = field(default_factory=dict)
    undo: list[dict[str, Json]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values |= {"url": self.site.url, "host": self.site.url.partition("://")[2]}
        self.logins |= {"admin": (self.site.user, self.site.password), "wrong": (self.site.user, "wrong")}
        self._session = requests.Session()
        self._session.trust_env = self.site.url.startswith("https")
        self._session.auth = lambda request: request  # or a password would be looked for in ~/.netrc
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def play(self, steps: list[dict[str, Json]]) -> Iterator[str]:
        """What differs, one line each."""
        try:
            for step in steps:
                if "make" in step:
                    getattr(self, f"_{step['make']}")(step)
                else:
                    yield from self._told(step)
        finally:
            for each in self.undo:
                self._send({"as": "admin", **each})
            self._session.close()

    def filled(self, value: Json) -> Json:
        """With the names of this run."""
        if isinstance(value, dict):
            return {self.filled(key): self.filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if isinstance(value, str) and value.endswith(":number>"):
            return int(self.values[value[1:-8]])
        return _NAME.sub(lambda match: self._value(match[1]), value) if isinstance(value, str) else value

    def _value(self, name: str) -> str:
        if name in self.values:
            return self.values[name]
        base, _, form = name.partition(":")
        forms: dict[str, Callable[[str], str]] = {"hex": lambda text: text[7:], "encoded": lambda text: quote(text, safe="")}
        return forms[form](self.values[base]) if form in forms else f"{name}-{self.salt}"

    def _told(self, step: dict[str, Json]) -> Iterator[str]:
        wanted, end = self.filled(step["answer"]), time.monotonic() + PATIENCE
        answer = self._send(step)
        while "until" in step and answer.status_code != wanted["status"] and time.monotonic() < end:
            time.sleep(1)
            answer = self._send(step)
        self._keep(step, answer)
        where = f"{step['as']}: {self.filled(step['send'])} [{step.get('note', '')}]"
        found = {"status": answer.status_code, "headers": dict(answer.headers), "text": answer.text.rstrip("\n")}
        yield from (f"{where}: {fault}" for fault in _faults(wanted, found))
        if "grants" in step:
            granted = {each["name"]: sorted(each["actions"]) for each in _payload(answer)["access"]}
            if granted != (meant := {name: sorted(actions) for name, actions in self.filled(step["grants"]).items()}):
                yield f"{where}: grants {granted}, not {meant}"

    def _send(self, step: dict[str, Json]) -> requests.Response:
        method, _, path = self.filled(step["send"]).partition(" ")
        headers = {"Accept": ", ".join((*MANIFEST_TYPES, "application/json")), **self.filled(step.get("headers", {}))}
        body: bytes | None = step["content"].encode() if "content" in step else None
        if "json" in step:
            body, headers["Content-Type"] = json.dumps(self.filled(step["json"])).encode(), "application/json"
        if "file" in step:
            body = self._file(step["file"])
            headers["Content-Type"] = OCI_MANIFEST
        if header := self._authorization(step["as"]):
            headers["Authorization"] = header
        if "undo" in step:
            self.undo.append(step["undo"])
        return self._session.request(
            method, f"{self.site.url}{path}", data=body, headers=headers, allow_redirects=False, timeout=900
        )

    def _file(self, name: str) -> bytes:
        """A manifest, made longer when a number of bytes follows its name."""
        name, _, size = name.partition("+")
        if not size:
            return self.files[name]
        told = {**json.loads(self.files[name]), "annotations": {"filling": ""}}
        told["annotations"]["filling"] = "x" * (int(size) - len(json.dumps(told)))
        return json.dumps(told).encode()

    def _authorization(self, who: str) -> str:
        if who == "nobody":
            return ""
        if who == "garbage":
            return "Bearer garbage"
        if who.startswith("bearer "):
            _, account, *repositories = self.filled(who).split(" ")
            scopes = "".join(f"&scope=repository:{each}:pull,push" for each in repositories)
            asked = {"as": account, "send": f"GET /service/token?service=harbor-registry{scopes}"}
            return f"Bearer {self._send(asked).json()['token']}"
        user, password = self.logins[who.rstrip("!")]
        return "Basic " + base64.b64encode(f"{user}:{password}{'!' if who.endswith('!') else ''}".encode()).decode()

    def _keep(self, step: dict[str, Json], answer: requests.Response) -> None:
        if "keep" in step:
            self.values[step["keep"]] = answer.headers.get("Location", "").rpartition("/")[2]
        if "keep id" in step:
            self.values[step["keep id"]] = str(answer.json()[0]["id"])

    def _project(self, step: dict[str, Json]) -> None:
        wanted = {"project_name": f"<{step['name']}>", "metadata": {"public": str(step.get("public", False)).lower()}}
        self._must(201, {"send": "POST /api/v2.0/projects", "json": wanted})

    def _robot(self, step: dict[str, Json]) -> None:
        name = step["name"] if step["level"] == "project" else f"{step['name']}-{self.salt}"
        permissions = [
            {"kind": "project", "namespace": f"<{project}>", "access": [_access(right) for right in rights.split()]}
            for project, rights in step["rights"].items()
        ]
        wanted = {"name": name, "level": step["level"], "duration": -1, "permissions": permissions}
        made = self._must(201, {"send": "POST /api/v2.0/robots", "json": wanted}).json()
        self.logins[step["name"]] = (made["name"], made["secret"])

    def _image(self, step: dict[str, Json]) -> None:
        name, config_type = step["digest"], OCI_EMPTY if "type" in step else "application/vnd.oci.image.config.v1+json"
        layer = f"{name} {self.salt} ".encode().ljust(step.get("size", 0), b"x")
        config = (
            b"{}" if "type" in step else json.dumps({"architecture": "amd64", "os": "linux", "of": self.salt + name}).encode()
        )
        for part, content in (("config", config), ("layer", layer)):
            self.values[f"{name}:{part}"] = self._blob(step["in"], content)
        told = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            **({"artifactType": step["type"]} if "type" in step else {}),
            "config": {"mediaType": config_type, "digest": self.values[f"{name}:config"], "size": len(config)},
            "layers": [{"mediaType": step.get("type", "text/plain"), "digest": self.values[f"{name}:layer"], "size": len(layer)}],
            **({"subject": self._described(step["subject"])} if "subject" in step else {}),
            **({"annotations": step["annotations"]} if "annotations" in step else {}),
        }
        self.files[name] = json.dumps(told).encode()
        self.values[name] = _digest(self.files[name])
        if not step.get("hold"):
            self._must(201, {"send": f"PUT /v2/{step['in']}/manifests/{step.get('tag', f'<{name}>')}", "file": name})

    def _described(self, name: str) -> dict[str, Json]:
        return {"mediaType": OCI_MANIFEST, "digest": self.values[name], "size": len(self.files[name])}

    def _blob(self, repository: str, content: bytes) -> str:
        place = self._must(202, {"send": f"POST /v2/{repository}/blobs/uploads/"}).headers["Location"]
        path = place.partition(self.values["host"])[2] if "://" in place else place
        joint, digest = "&" if "?" in path else "?", _digest(content)
        self._must(201, {"send": f"PUT {path}{joint}digest={digest}", "content": content.decode()})
        return digest

    def _must(self, status: int, step: dict[str, Json]) -> requests.Response:
        answer = self._send({"as": "admin", **step})
        assert answer.status_code == status, f"{self.filled(step['send'])}: {answer.status_code} {answer.text}"
        return answer


def _faults(wanted: dict[str, Json], found: dict[str, Json]) -> Iterator[str]:
    if found["status"] != wanted["status"]:
        yield f"status {found['status']}, not {wanted['status']}: {found['text'][:300]}"
    headers = {name.lower(): value for name, value in found["headers"].items()}
    for name, value in wanted.get("headers", {}).items():
        if not _like(value, headers.get(name.lower())):
            yield f"header {name}: {headers.get(name.lower())!r}, not {value!r}"
    if "text" in wanted and not _like(wanted["text"], found["text"]):
        yield f"body {found['text'][:300]!r}, not {wanted['text']!r}"
    if "body" in wanted:
        yield from _body_faults(wanted["body"], found["text"])


def _body_faults(wanted: Json, text: str) -> Iterator[str]:
    try:
        told = json.loads(text)
    except ValueError:
        yield f"body {text[:300]!r}, not JSON"
        return
    yield from _differing(wanted, told, "body")


def _differing(wanted: Json, found: Json, where: str) -> Iterator[str]:
    """Fields that are named and differ; lists must be as long."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from _differing(value, found.get(key), f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for position, (value, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _differing(value, other, f"{where}[{position}]")
    elif not _like(wanted, found):
        yield f"{where} {json.dumps(found)[:300]}, not {json.dumps(wanted)[:300]}"


def _like(wanted: Json, found: Json) -> bool:
    if isinstance(wanted, str) and isinstance(found, str):
        return re.fullmatch(re.escape(wanted).replace("…", ".*"), found, re.DOTALL) is not None
    return bool(wanted == found)


def _payload(answer: requests.Response) -> dict[str, Json]:
    middle = answer.json()["token"].split(".")[1]
    payload: dict[str, Json] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return payload


def _access(right: str) -> dict[str, str]:
    resource, _, action = right.partition(":")
    return {"resource": resource, "action": action}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
