"""The registry's part: Harbor's own answers in front of a real registry that holds the content."""

import hashlib
import http.client
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from tests.harbor.callers import SERVICE
from tests.harbor.state import Artifact, Fault, Project, Repo, State, not_found
from tests.harbor.tags import TAG, Tags
from tests.harbor.web import Answer, Request, told

CHUNK = 2**20
INDEX = "application/vnd.oci.image.index.v1+json"
PATH = re.compile(r"/v2/(?P<name>.+?)/(?P<kind>manifests|blobs|referrers|tags)/(?P<rest>.+)")
WRITES = {"POST", "PUT", "PATCH"}
PASSED = ("Accept", "Content-Type", "Content-Length", "Content-Range", "Range", "If-None-Match", "X-Forwarded-Proto")
_DROPPED = {"connection", "transfer-encoding", "date", "server", "content-length", "docker-distribution-api-version"}


class V2:
    """Answers everything below `/v2/`."""

    def __init__(self, state: State, registry: str) -> None:
        self.state, self.registry, self.tags = state, registry, Tags(state)
        self._local = threading.local()

    def close(self) -> None:
        """Hang up this thread's connection to the registry."""
        if upstream := getattr(self._local, "upstream", None):
            upstream.close()
            self._local.upstream = None

    def answer(self, request: Request) -> Answer:
        if request.path == "/v2/":
            return self.greet(request)
        if not (match := PATH.fullmatch(request.path)):
            raise not_found(f"path {request.path} was not found")
        name, kind, rest = match["name"], match["kind"], match["rest"]
        self._authorize(request, name, "push" if request.method in WRITES else "delete" if request.method == "DELETE" else "pull")
        return {"manifests": self.manifest, "blobs": self.blob, "referrers": self.referrers, "tags": self.tag_list}[kind](
            request, name, rest
        )

    def greet(self, request: Request) -> Answer:
        caller = request.caller
        if caller.nobody and caller.token is None:
            raise self._unauthorized(request, [], "unauthorized: unauthorized")
        return told({})

    def manifest(self, request: Request, name: str, reference: str) -> Answer:
        if request.method == "PUT":
            return self._put_manifest(request, name, reference)
        with self.state.lock:
            if request.method == "DELETE":
                return self._delete_manifest(name, reference)
            project, repo = self._project(name), self.state.repo(name)
            artifact = repo.find(reference)
            self._trusted(request, project, repo, artifact)
        if request.headers.get("If-None-Match", "").strip('"') == artifact.digest:
            return Answer(304)
        return self._passed(request, f"/v2/{name}/manifests/{artifact.digest}")

    def blob(self, request: Request, name: str, rest: str) -> Answer:
        mounted = request.one("mount") if request.one("from") else ""
        if mounted:
            self._authorize(request, request.one("from"), "pull")
        if request.method == "POST":
            with self.state.lock:
                self._room(name, mounted)
        if request.method in ("PATCH", "PUT"):
            return self._uploaded(request, name, rest.removeprefix("uploads/"))
        answer = self._passed(request, request.target)
        if request.method == "POST" and answer.status == 201:
            with self.state.lock:
                self._project(name).blobs.setdefault(mounted, self._size(mounted))
        return answer

    def referrers(self, request: Request, name: str, digest: str) -> Answer:
        if not digest.startswith("sha256:"):
            raise Fault(400, "BAD_REQUEST", f"unsupported digest {digest}: invalid checksum digest format")
        with self.state.lock:
            repo = self._project(name).repos.get(name) or Repo(0, name)
            found = [_entry(each) for each in repo.accessories(digest)]
        headers, wanted = {"X-Total-Count": str(len(found)), "Content-Type": INDEX}, request.one("artifactType")
        if wanted:
            headers["OCI-Filters-Applied"] = "artifactType"
            found = [each for each in found if each["artifactType"] == wanted]
        return told({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}, headers=headers)

    def tag_list(self, request: Request, name: str, rest: str) -> Answer:
        with self.state.lock:
            names = sorted(self.state.repo(name).tags)
        after = [each for each in names if each > request.one("last")]
        count = int(request.one("n") or len(after))
        more = {"Link": f'</v2/{name}/tags/list?last={after[count - 1]}&n={count}>; rel="next"'} if count < len(after) else {}
        return told({"name": name, "tags": after[:count]}, headers=more)

    def _put_manifest(self, request: Request, name: str, reference: str) -> Answer:
        content, tag = request.body(), "" if reference.startswith("sha256:") else reference
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        with self.state.lock:
            project = self._project(name)
            if tag and not TAG.fullmatch(tag):
                raise Fault(400, "BAD_REQUEST", f"bad request: invalid tag name: {unquote(tag)}")
            repo = project.repos.get(name) or Repo(0, name)
            if tag in repo.tags and project.frozen(repo, tag):
                message = f"Failed to process request due to '{repo.path}:{tag}' configured as immutable."
                raise Fault(412, "PRECONDITION", message)
            if digest not in project.blobs:
                project.make_room(len(content))
        answer = self._passed(request, f"/v2/{name}/manifests/{digest if tag else reference}", content)
        if answer.status != 201:
            return answer
        with self.state.lock:
            artifact = self.state.push(name, content, digest, request.headers.get("Content-Type", ""), tag)
        subject = (artifact.manifest.get("subject") or {}).get("digest")
        answer.headers.pop("Oci-Subject", None)
        return Answer(201, b"", {**answer.headers, **({"Oci-Subject": subject} if subject else {})})

    def _delete_manifest(self, name: str, reference: str) -> Answer:
        if not reference.startswith("sha256:"):
            raise Fault(400, "UNSUPPORTED", f"unsupported digest {reference}: invalid checksum digest format")
        repo = self.state.repo(name)
        self.tags.remove(self._project(name), repo, repo.find(reference))
        return Answer(202)

    def _room(self, name: str, mounted: str) -> None:
        """Whether the quota lets an upload begin, or a blob be mounted that the project does not have."""
        project = self._project(name)
        if not mounted:
            project.make_room(0, probe=True)
        elif mounted not in project.blobs:
            project.make_room(self._size(mounted))

    def _uploaded(self, request: Request, name: str, upload: str) -> Answer:
        """A part of a blob, or its end, which is when the quota is looked at."""
        counted, digest = _Counted(request), request.one("digest")
        with self.state.lock:
            before = self.state.uploads.get(upload, 0)
            if request.method == "PUT" and digest not in self._project(name).blobs:
                self._project(name).make_room(before + int(request.headers.get("Content-Length") or 0))
        answer = self._passed(request, request.target, counted)
        with self.state.lock:
            self.state.uploads[upload] = before + counted.size
            if request.method == "PUT" and answer.status == 201:
                self._project(name).blobs.setdefault(digest, self.state.uploads.pop(upload))
        return answer

    def _project(self, name: str) -> Project:
        return self.state.projects[name.partition("/")[0]]

    def _size(self, digest: str) -> int:
        return next((each.blobs[digest] for each in self.state.projects.values() if digest in each.blobs), 0)

    def _trusted(self, request: Request, project: Project, repo: Repo, artifact: Artifact) -> None:
        """Content trust: what has no signature cannot be pulled, signatures can."""
        if project.metadata.get("enable_content_trust_cosign") != "true" or repo.signed(artifact):
            return
        if artifact.subject and repo.kind(artifact) in ("signature.cosign", "signature.notation"):
            return
        pushes = request.caller.token is not None and request.caller.may(project, "repository", "push")
        if not (pushes and re.search("cosign|notation", request.headers.get("User-Agent", ""))):
            raise Fault(412, "PROJECTPOLICYVIOLATION", "The image is not signed by cosign.")

    def _authorize(self, request: Request, name: str, action: str) -> None:
        project_name, slash, _ = name.partition("/")
        if not slash:
            raise Fault(400, "BAD_REQUEST", f"bad request: invalid repository name: {name}")
        project, caller = self.state.projects.get(project_name), request.caller
        if project is None:
            message = f"project {project_name} not found: project {project_name} not found"
            raise Fault(401, "UNAUTHORIZED", message, Www_Authenticate="")
        actions = {"push": "pull,push", "pull": "pull", "delete": "delete"}[action]
        scopes = [f"repository:{name}:{actions}"]
        if source := request.one("from") if request.one("mount") else "":
            scopes.append(f"repository:{source}:pull")
        if not caller.tried and action == "pull":
            told_twice = "authorize header needed to send HEAD to repository"
            raise self._unauthorized(request, scopes, f"{told_twice}: {told_twice}")
        if not caller.may(project, "repository", action):
            message = f"unauthorized to access repository: {name}, action: {action}"
            raise self._unauthorized(request, scopes, f"{message}: {message}")

    def _unauthorized(self, request: Request, scopes: list[str], message: str) -> Fault:
        if request.caller.tried:
            return Fault(401, "UNAUTHORIZED", message, Www_Authenticate='Basic realm="harbor"')
        scope = f',scope="{" ".join(scopes)}"' if scopes else ""
        challenge = f'Bearer realm="http://{request.host}/service/token",service="{SERVICE}"{scope}'
        return Fault(401, "UNAUTHORIZED", message, Www_Authenticate=challenge)

    def _passed(self, request: Request, target: str, body: Any = None) -> Answer:
        """The registry's own answer; its addresses name us, since it is told our name."""
        headers = {name: request.headers[name] for name in PASSED if name in request.headers} | {"Host": request.host}
        if body is not None and "Content-Length" not in headers:
            headers["Transfer-Encoding"] = "chunked"
        upstream: http.client.HTTPConnection | None = getattr(self._local, "upstream", None)
        if upstream is None:
            upstream = self._local.upstream = http.client.HTTPConnection(self.registry, timeout=900)
        try:
            upstream.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body, encode_chunked="Transfer-Encoding" in headers)
            return self._relayed(request, upstream.getresponse())
        except BaseException:
            self.close()
            raise

    def _relayed(self, request: Request, answer: http.client.HTTPResponse) -> Answer:
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _DROPPED}
        length = answer.getheader("Content-Length") or ""
        if request.method == "HEAD" or int(length or 0) <= CHUNK:
            return Answer(answer.status, answer.read(), headers, length=length)

        def pieces() -> Iterator[bytes]:
            while piece := answer.read(CHUNK):
                yield piece

        return Answer(answer.status, b"", headers, pieces=pieces, length=length)


class _Counted:
    """A request's body, counted while it is sent on."""

    def __init__(self, request: Request) -> None:
        self._pieces, self.size = request.chunks(), 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece


def _entry(artifact: Artifact) -> dict[str, Any]:
    named = artifact.manifest.get("annotations")
    return {
        "mediaType": artifact.media_type,
        "digest": artifact.digest,
        "size": artifact.length,
        **({"annotations": named} if named else {}),
        "artifactType": artifact.artifact_type,
    }
