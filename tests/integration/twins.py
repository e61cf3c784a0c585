"""Candidates that differ in nothing but their digest, each with evidence of its own: for those who release at the same time."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import dsse, names, statements
from pipeline.evidence import Key
from pipeline.oci import Digest, Pinned, Repository
from pipeline.registry import Registry
from tests import cases
from tests.integration.releasing import Releases
from tests.integration.signing import Signer, signature_of


class Team:
    """A key with all roles, and the policy `policies/team.yaml` that lists it and asks for little, on any registry."""

    def __init__(self, releases: Releases, cosign: Path) -> None:
        root = releases.family.root
        key = Key(name="team", roles=frozenset({"ci", "gpu", "release"}))
        self.signer = Signer(key=key, folder=root, cosign=cosign).keep()
        local = (root / "policies" / "local.yaml").read_text()
        (root / "policies" / "keys").mkdir(exist_ok=True)
        (root / "policies" / "keys" / "team.pub").write_bytes(self.signer.pub.read_bytes())
        head, _, tail = local.partition("keys:\n")
        listed = "keys:\n  - {name: team, roles: [ci, gpu, release], file: keys/team.pub}\n"
        text = head.replace("registry: loopback", "registry: any") + listed + tail[tail.index("signed:") :]
        (root / "policies" / "team.yaml").write_text(text)
        self.releases = releases

    @property
    def environment(self) -> dict[str, Any]:
        """The variables by which the verbs use key and policy."""
        key = str(self.signer.folder / "team.key")
        told = {names.ENV_KEY["ci"]: key, names.ENV_KEY["release"]: key, names.ENV_PASSWORD: ""}
        return {**told, names.ENV_POLICY: str(self.releases.family.root / "policies" / "team.yaml")}

    def twin(
        self,
        number: int,
        image: str = "core",
        *,
        into: Repository | None = None,
        registry: Registry | None = None,
        known: Sequence[str] | None = None,
    ) -> Digest:
        """Candidate `number` of an image, in `into`, with the least evidence that allows a release.

        With `known`, a scan of today that found these vulnerabilities.
        """
        source, client = self.releases.family.repository, registry or Registry()
        digest = next(Digest(step["digest"]) for step in self.releases.call("plan", "--json").data if step["image"] == image)
        body = json.loads(Registry().raw_manifest(source.at(digest))[0])
        body["annotations"] = {**body.get("annotations", {}), "twin": str(number)}
        content = json.dumps(body).encode()
        target = (into or source).at(Digest.of(content))
        for blob in (body["config"], *body["layers"]):
            client.upload(target.repository, Registry().content(source, Digest(blob["digest"])))
        client.put_manifest(target.repository, content, body["mediaType"])
        built = self._built(digest).model_copy(update={"subject": str(target)})
        for statement in (statements.built_statement(built), signature_of(target.digest)):
            self._attach(target, statement, client)
        if known is not None:
            self.scan(target, known)
        return target.digest

    def scan(self, target: Pinned, known: Sequence[str]) -> None:
        """Attach a scan of now that found these vulnerabilities, all with a fix in the same package."""
        now = datetime.now(UTC)
        found = cases.scanned(now, subject=str(target), vulnerabilities=[cases.weakness(id=name) for name in known])
        self._attach(target, statements.scanned_statement(found), Registry())

    def _built(self, digest: Digest) -> statements.Built:
        path = self.releases.family.root / ".pipeline" / "statements" / digest.hex / "built.json"
        found = statements.read(json.loads(path.read_bytes()))
        assert isinstance(found, statements.Built)
        return found

    def _attach(self, target: Pinned, statement: Mapping[str, Any], client: Registry) -> None:
        told = {dsse.PREDICATE_ANNOTATION: str(statement["predicateType"]), dsse.CONTENT_ANNOTATION: "dsse-envelope"}
        client.attach(target, dsse.BUNDLE_TYPE, self.signer(statement), dsse.BUNDLE_TYPE, told)
