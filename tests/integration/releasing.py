"""A family whose candidates are built and signed, ready to be released; and what its releases look like afterwards."""

import copy
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from pipeline import names, statements
from pipeline.dsse import BUNDLE_TYPE, PREDICATE_ANNOTATION
from pipeline.oci import Digest, Pinned, Repository
from pipeline.registry import Registry
from tests.faults import Faulty
from tests.integration.conftest import Stack
from tests.integration.families import LINKS, PROJECT, Ended, Family

LENIENT = (
    ("cpu: { required: true,", "cpu: { required: false,"),
    ("bom: required", "bom: show"),
    ("secrets: refuse", "secrets: show"),
)
"""What nobody looks at here, so that candidates are made in seconds."""

ALL = {statements.PROVENANCE, statements.SUMMARY, statements.SIGNATURE}
"""The types of what every release has."""


class Releases:
    """Two images that are released, `core` and on it `app`, and the registry that they are released to."""

    def __init__(self, root: Path, stack: Stack, *, releases: str = "", beside: "Releases | None" = None) -> None:
        """`releases` is the host of another registry; who stands `beside` another releases to the same place by the same key."""
        self.family = Family(root, stack)
        path = self.family.repository.path.removesuffix("/family")
        self.repository: Repository = (
            beside.repository if beside else Repository(releases or stack.host, f"{path}/released/family")
        )
        self.family.environment |= {names.ENV_RELEASES: str(self.repository).removesuffix("/family")}
        if beside:
            shutil.copytree(beside.family.cache / "keys", self.family.cache / "keys")
        shutil.copytree(PROJECT / "policies", root / "policies")
        local = root / "policies" / "local.yaml"
        text = local.read_text()
        for before, after in LENIENT:
            assert before in text
            text = text.replace(before, after)
        local.write_text(text)
        self.change()

    def change(self) -> Mapping[str, Digest]:
        """New candidates of both images, built and signed."""
        self.family.image("core", "", "FROM scratch\nCOPY --link data /\n", data=secrets.token_bytes(1000))
        self.family.image("app", "parent: core\nvariant: app\n", LINKS, data=secrets.token_bytes(1000))
        return self.candidates()

    def candidates(self) -> Mapping[str, Digest]:
        """Build and sign what the folders describe."""
        assert self.call("build").code == 0
        assert self.call("sign").code == 0
        return {step["image"]: Digest(step["digest"]) for step in self.call("plan", "--json").data}

    def elsewhere(self, place: str) -> "Releases":
        """The same candidates, released to another place of the same registry."""
        other = copy.copy(self)
        other.repository = Repository(self.repository.host, f"{self.family.repository.path}-{place}/family")
        return other

    def call(self, *words: str, **environment: str) -> Ended:
        return self.family.call(*words, **{**self.to, **environment})

    @property
    def to(self) -> dict[str, Any]:
        """The variable that says where releases go."""
        return {names.ENV_RELEASES: str(self.repository).removesuffix("/family")}

    def tags(self) -> Mapping[str, Digest]:
        """What each tag of the releases names, the lists of referrers left out."""
        found = [tag for tag in Registry().tags(self.repository) if not tag.startswith("sha256-")]
        named = {tag: Registry().resolve(self.repository.tag(tag)) for tag in found}
        return {tag: digest for tag, digest in named.items() if digest}


def through(proxy: Faulty, releases: Releases) -> dict[str, Any]:
    """The variables that send a verb through the proxy."""
    candidates, released = (str(one).removesuffix("/family") for one in (releases.family.repository, releases.repository))
    at = {names.ENV_CANDIDATES: candidates, names.ENV_RELEASES: released}
    return {name: f"{proxy.host}/{text.partition('/')[2]}" for name, text in at.items()}


def proved(pinned: Pinned) -> bool:
    """Whether an image has its evidence, its verdict and its signature listed, and all of it is there."""
    listed = Registry().referrers(pinned, BUNDLE_TYPE)
    kinds = {one.annotations.get(PREDICATE_ANNOTATION) for one in listed}
    for one in listed:
        manifest = Registry().manifest(pinned.repository.at(one.digest))
        Registry().blob(pinned.repository, manifest.layers[0])
    return kinds >= ALL


def delete(repository: Repository, path: str) -> None:
    """What somebody does to a registry who may delete there."""
    assert requests.delete(f"http://{repository.host}/v2/{repository.path}/{path}", timeout=120).status_code < 300
