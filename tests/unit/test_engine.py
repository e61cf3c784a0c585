"""What is sent to engines, and whose leftovers are whose."""

import io
import json
import tarfile
from collections.abc import Iterator

import pytest

from pipeline.engine import layout
from pipeline.engine.connection import refuse
from pipeline.engine.owners import Owner, gone
from pipeline.errors import RegistryRefused, Temporary, ToolFailed
from pipeline.oci import Digest
from pipeline.registry import Registry
from pipeline.story import SilentTask
from tests.fakes import FakeRegistry, fake_registry

ME = Owner.current()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


def owner(**changes: object) -> Owner:
    return Owner(**{**vars(ME), **changes})  # type: ignore[arg-type]


def test_a_sent_image_is_an_oci_layout_and_a_docker_archive_over_the_same_blobs(registry: FakeRegistry) -> None:
    pinned = registry.put_image(registry.repository(), layers=(b"one", b"two", b"one"))
    manifest = Registry().manifest(pinned)
    whole = b"".join(layout.stream(pinned, manifest, Registry(), SilentTask()))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}  # type: ignore[union-attr]
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/sha256/")}
    assert all(Digest.of(content).hex == name.rpartition("/")[2] for name, content in blobs.items())
    assert json.loads(files["index.json"])["manifests"][0]["digest"] == str(pinned.digest)
    (image,) = json.loads(files["manifest.json"])
    assert [files[name] for name in image["Layers"]] == [b"one", b"two", b"one"]
    assert files[image["Config"]] == registry.blobs[str(manifest.config.digest)]


def test_an_owner_is_read_from_its_label_and_nothing_else_is() -> None:
    assert Owner.parse(str(ME)) == ME
    assert Owner.parse("somebody") is None
    assert Owner.parse("a/b/c/d/e") is None


@pytest.mark.parametrize(
    ("other", "running", "dead"),
    [
        (owner(), True, False),
        (owner(pid=2**22 + 1), True, True),
        (owner(started="1"), True, True),
        (owner(pid=2**22 + 1, host="elsewhere"), False, False),
        (owner(pid=2**22 + 1, namespace="1"), False, False),
        (owner(boot="before"), False, True),
        (owner(boot="before"), True, False),
    ],
    ids=["me", "ended", "another-process-with-its-id", "another-machine", "another-container", "before-a-reboot", "a-namesake"],
)
def test_only_what_surely_ended_is_gone(other: Owner, running: bool, dead: bool) -> None:
    assert gone(other, me=ME, running=running) is dead


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", Temporary),
        ("Get http://localhost:1/v2/: dial tcp: connect: connection refused", Temporary),
        ("pull access denied for x", RegistryRefused),
        ("unauthorized: authentication required", RegistryRefused),
        ("archive/tar: invalid tar header", ToolFailed),
    ],
)
def test_the_engines_words_become_our_errors(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="the engine failed at pulling"):
        refuse("pulling", text)
