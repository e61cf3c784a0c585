"""The part of the API about repositories, artifacts, tags and accessories."""

import re
from typing import Any
from urllib.parse import quote

from tests.harbor.callers import project_for
from tests.harbor.state import IMAGE_CONFIGS, NEVER, Artifact, Fault, Project, Repo, State, Tag, not_found
from tests.harbor.web import Answer, Request, invalid, listed, selected, told

TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")


class Tags:
    def __init__(self, state: State) -> None:
        self.state = state

    def repositories(self, request: Request, project: str) -> Answer:
        found = project_for(self.state, request.caller, project, "repository", "list")
        return listed(request, [_repo(found, each) for each in sorted(found.repos.values(), key=lambda repo: -repo.number)])

    def repository(self, request: Request, project: str, repository: str) -> Answer:
        found = project_for(self.state, request.caller, project, "repository", "read")
        return told(_repo(found, self.state.repo(f"{project}/{repository}")))

    def delete_repository(self, request: Request, project: str, repository: str) -> Answer:
        found = project_for(self.state, request.caller, project, "repository", "delete")
        repo = self.state.repo(f"{project}/{repository}")
        self._melt(found, repo, list(repo.tags.values()))
        del found.repos[repo.name]
        return Answer(200)

    def artifacts(self, request: Request, project: str, repository: str) -> Answer:
        if request.caller.admin and project not in self.state.projects:
            return listed(request, [])
        found = project_for(self.state, request.caller, project, "artifact", "list")
        repo = found.repos.get(f"{project}/{repository}") or Repo(0, f"{project}/{repository}")
        children = "base=*" in request.one("q")
        shown = [
            each
            for each in reversed(list(repo.artifacts.values()))
            if each.subject not in repo.artifacts and (children or repo.tags_of(each) or not repo.parents(each.digest))
        ]
        return listed(request, [self._shown(request, found, repo, each) for each in shown if _wanted(request, repo, each)])

    def artifact(self, request: Request, project: str, repository: str, reference: str) -> Answer:
        found = project_for(self.state, request.caller, project, "artifact", "read")
        repo = self.state.repo(f"{project}/{repository}")
        return told(self._shown(request, found, repo, repo.find(reference)))

    def delete_artifact(self, request: Request, project: str, repository: str, reference: str) -> Answer:
        found = project_for(self.state, request.caller, project, "artifact", "delete")
        repo = self.state.repo(f"{project}/{repository}")
        self.remove(found, repo, repo.find(reference))
        return Answer(200)

    def remove(self, project: Project, repo: Repo, artifact: Artifact) -> None:
        """Delete an artifact as the API and the registry do."""
        self._melt(project, repo, [tag for each in (artifact, *repo.accessories(artifact.digest)) for tag in repo.tags_of(each)])
        if repo.parents(artifact.digest):
            raise Fault(412, "VIOLATE_FOREIGN_KEY_CONSTRAINT", "the deleting artifact is referenced by others")
        repo.remove(artifact)

    def listing(self, request: Request, project: str, repository: str, reference: str) -> Answer:
        found = project_for(self.state, request.caller, project, "tag", "list")
        repo = self._repo_of(project, repository, reference)
        shown = [_tag(found, repo, each, exact=True) for each in repo.tags_of(repo.find(reference))]
        return listed(request, selected(request, shown))

    def create(self, request: Request, project: str, repository: str, reference: str) -> Answer:
        wanted = request.json("tag")
        if not wanted.get("name"):
            raise invalid("validation failure list:\nname in body is required")
        project_for(self.state, request.caller, project, "tag", "create")
        repo = self._repo_of(project, repository, reference)
        artifact, name = repo.find(reference), wanted["name"]
        if not TAG.fullmatch(name):
            raise Fault(400, "BAD_REQUEST", f"bad request: invalid tag name: {name}")
        if name in repo.tags:
            raise Fault(409, "CONFLICT", f"tag {name} already exists under the repository {repo.number}")
        repo.tags[name] = Tag(self.state.number("tag"), name, artifact.digest)
        return Answer(201)

    def delete(self, request: Request, project: str, repository: str, reference: str, tag: str) -> Answer:
        found = project_for(self.state, request.caller, project, "tag", "delete")
        repo = self._repo_of(project, repository, reference)
        artifact = repo.find(reference)
        if getattr(repo.tags.get(tag), "digest", "") != artifact.digest:
            raise not_found(f"tag {tag} attached to artifact {artifact.number} not found")
        self._melt(found, repo, [repo.tags[tag]])
        del repo.tags[tag]
        return Answer(200)

    def accessories(self, request: Request, project: str, repository: str, reference: str) -> Answer:
        project_for(self.state, request.caller, project, "accessory", "list")
        repo = self._repo_of(project, repository, reference)
        artifact = repo.find(reference)
        return listed(
            request, selected(request, [_accessory(repo, artifact, each) for each in repo.accessories(artifact.digest)])
        )

    def _repo_of(self, project: str, repository: str, reference: str) -> Repo:
        """Of an unknown repository the artifact is missed first."""
        try:
            return self.state.repo(f"{project}/{repository}")
        except Fault:
            Repo(0, f"{project}/{repository}").find(reference)
            raise

    def _melt(self, project: Project, repo: Repo, tags: list[Tag]) -> None:
        for tag in tags:
            if project.frozen(repo, tag.name):
                raise Fault(412, "PRECONDITION", f"the tag {tag.name} configured as immutable, cannot be deleted")

    def _shown(self, request: Request, project: Project, repo: Repo, artifact: Artifact) -> dict[str, Any]:
        exact = request.flag("with_immutable_status", False)
        tags = [_tag(project, repo, each, exact=exact) for each in repo.tags_of(artifact)]
        accessories = [_accessory(repo, artifact, each) for each in repo.accessories(artifact.digest)]
        place = f"/api/v2.0/projects/{project.name}/repositories/{quote(quote(repo.path, safe=''), safe='')}"
        return {
            "accessories": accessories if request.flag("with_accessory", False) else None,
            "addition_links": {
                "build_history": {"absolute": False, "href": f"{place}/artifacts/{artifact.digest}/additions/build_history"}
            },
            "artifact_type": artifact.artifact_type,
            "digest": artifact.digest,
            "id": artifact.number,
            "labels": None,
            "manifest_media_type": artifact.media_type,
            "media_type": (artifact.manifest.get("config") or {}).get("mediaType", artifact.media_type),
            "project_id": project.number,
            "pull_time": NEVER,
            "push_time": artifact.pushed,
            "references": [{"child_digest": each, "parent_id": artifact.number} for each in artifact.children] or None,
            "repository_id": repo.number,
            "repository_name": repo.name,
            "size": artifact.size,
            "tags": (tags or None) if request.flag("with_tag", True) else None,
            "type": "IMAGE" if artifact.artifact_type in (None, *IMAGE_CONFIGS) else "UNKNOWN",
        }


def _wanted(request: Request, repo: Repo, artifact: Artifact) -> bool:
    names = [each.name for each in repo.tags_of(artifact)]
    for part in filter(None, request.one("q").split(",")):
        key, _, value = part.partition("=")
        if key == "digest" and value != artifact.digest:
            return False
        kept = {"*": bool(names), "nil": not names}.get(
            value, any(value[1:] in n if value[:1] == "~" else n == value for n in names)
        )
        if key == "tags" and not kept:
            return False
    return True


def _repo(project: Project, repo: Repo) -> dict[str, Any]:
    counted = sum(not each.subject for each in repo.artifacts.values())
    return {
        "artifact_count": counted,
        "creation_time": repo.created,
        "id": repo.number,
        "name": repo.name,
        "project_id": project.number,
        "pull_count": 0,
        "update_time": repo.created,
    }


def _tag(project: Project, repo: Repo, tag: Tag, *, exact: bool) -> dict[str, Any]:
    artifact = repo.artifacts[tag.digest]
    return {
        "artifact_id": artifact.number,
        "id": tag.number,
        "immutable": exact and project.frozen(repo, tag.name),
        "name": tag.name,
        "pull_time": NEVER,
        "push_time": tag.pushed,
        "repository_id": repo.number,
    }


def _accessory(repo: Repo, subject: Artifact, artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact_id": artifact.number,
        "creation_time": artifact.pushed,
        "digest": artifact.digest,
        "id": artifact.number,
        "size": artifact.size,
        "subject_artifact_digest": subject.digest,
        "subject_artifact_id": subject.number,
        "subject_artifact_repo": repo.name,
        "type": repo.kind(artifact),
    }
