"""Large blobs between two real registries while requests go wrong: they end right, or with a clear error; never wrong."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pytest

from pipeline.errors import NotThere, PipelineError, RegistryRefused, TagConflict, Temporary, ToolFailed
from pipeline.oci import Descriptor, Repository
from pipeline.registry import Registry, uploads
from tests.faults import Fault, Faulty, Kind, each_fault, faulty
from tests.integration.conftest import Stack
from tests.integration.registries import registry

SIZE = 60_000_000
PART = 8 * 2**20
PARTS = -(-SIZE // PART)
SOURCE = "copying/source"
PATCH, UPLOADS = "PATCH", "/blobs/uploads/"
NUMBERS = count()
COPYING = """
import sys
from pipeline.oci import Descriptor, Digest, Repository
from pipeline.registry import Registry, uploads
source, target, digest, size, part = sys.argv[1:]
uploads.PART = int(part)
Registry().copy_blob(Repository.parse(source), Repository.parse(target), Descriptor("x", Digest(digest), int(size)))
"""
REFUSED = {401: RegistryRefused, 403: RegistryRefused, 404: ToolFailed, 409: ToolFailed, 412: ToolFailed}
"""What may become of an answer that no further try changes."""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """Where the blob is."""
    with registry(tmp_path_factory.mktemp("far")) as running, faulty(running.host) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def near(stack: Stack) -> Iterator[Faulty]:
    """Where it goes."""
    with faulty(stack.host) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def small_parts_and_no_faults(far: Faulty, near: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "PART", PART)
    far.expect()
    near.expect()


@pytest.fixture(scope="module")
def blob(far: Faulty) -> Descriptor:
    return Registry().upload(Repository(far.host, SOURCE), os.urandom(SIZE))


def place(stack: Stack, proxy: Faulty) -> Repository:
    """A repository that nobody has used, behind the proxy."""
    own = Repository.parse(stack.candidates)
    return Repository(proxy.host, f"{own.path}/copied-{next(NUMBERS)}")


def copy(far: Faulty, target: Repository, blob: Descriptor) -> None:
    Registry().copy_blob(Repository(far.host, SOURCE), target, blob)


def refusal(far: Faulty, target: Repository, blob: Descriptor) -> PipelineError | None:
    """The error with which a copy ends, if it does not end well."""
    try:
        copy(far, target, blob)
    except PipelineError as error:
        return error
    return None


def holds(stack: Stack, target: Repository, blob: Descriptor) -> bool:
    """Whether the registry, asked without the proxy, has the blob; what it has must be right."""
    try:
        size = sum(len(chunk) for chunk in Registry().stream(Repository(stack.host, target.path), blob))
    except NotThere:
        return False
    return size == blob.size


def open_uploads(proxy: Faulty) -> int:
    """Uploads that were opened, and neither ended nor cancelled, as far as the client was told."""
    opened = [each for each in proxy.asked("POST", UPLOADS) if each.status == 202]
    ended = [each for each in (*proxy.asked("PUT", UPLOADS), *proxy.asked("DELETE", UPLOADS)) if each.status in (201, 204)]
    return len(opened) - len(ended)


def test_a_blob_takes_one_request_a_part_and_four_more(stack: Stack, far: Faulty, near: Faulty, blob: Descriptor) -> None:
    far.log.clear()
    copy(far, target := place(stack, near), blob)
    assert [each.method for each in near.log] == ["HEAD", "POST", *[PATCH] * PARTS, "PUT"]
    assert near.up() == SIZE
    assert [each.method for each in far.log] == ["GET"]
    assert holds(stack, target, blob)


FAULTS = [fault for at in (1, 2, 4, 3 + PARTS) for fault in each_fault(at)]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_no_fault_at_the_target_leaves_a_wrong_blob(
    stack: Stack, far: Faulty, near: Faulty, blob: Descriptor, fault: Fault
) -> None:
    target = place(stack, near)
    near.expect(fault)
    error = refusal(far, target, blob)
    assert holds(stack, target, blob) or error
    if error:
        assert isinstance(error, REFUSED[fault.status])
        assert str(blob.digest) in error.message


@pytest.mark.parametrize("fault", each_fault(1), ids=str)
def test_no_fault_at_the_source_leaves_a_wrong_blob(
    stack: Stack, far: Faulty, near: Faulty, blob: Descriptor, fault: Fault
) -> None:
    target = place(stack, near)
    far.expect(fault)
    error = refusal(far, target, blob)
    assert holds(stack, target, blob) is not bool(error)
    if error:
        assert isinstance(error, REFUSED[fault.status])
    assert open_uploads(near) == 0
    assert near.up() == (0 if error else SIZE)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=Kind.RESET, method=PATCH, at=4),
        Fault(kind=Kind.RESET, method=PATCH, at=2, times=3),
        Fault(kind=Kind.ANSWER, status=503, method=PATCH, at=PARTS),
        Fault(kind=Kind.ANSWER, status=429, headers={"Retry-After": "1"}, method=PATCH, at=1),
    ],
    ids=str,
)
def test_only_the_rest_is_sent_after_a_break(stack: Stack, far: Faulty, near: Faulty, blob: Descriptor, fault: Fault) -> None:
    target = place(stack, near)
    near.expect(fault)
    copy(far, target, blob)
    assert near.up() == SIZE
    assert [each.status for each in near.asked("GET", UPLOADS)] == [204] * fault.times
    assert holds(stack, target, blob)


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.LOSE])
def test_a_registry_that_forgets_what_broke_off_gets_all_anew(
    stack: Stack, far: Faulty, near: Faulty, blob: Descriptor, kind: Kind
) -> None:
    target = place(stack, near)
    near.expect(Fault(kind=kind, method=PATCH, at=3))
    copy(far, target, blob)
    assert near.up() == SIZE + (2 * PART + PART // 2 if kind is Kind.CUT else 3 * PART)
    assert holds(stack, target, blob)


def test_reading_goes_on_where_it_broke_off(stack: Stack, far: Faulty, near: Faulty, blob: Descriptor) -> None:
    far.expect(Fault(kind=Kind.TRUNCATE, method="GET"))
    copy(far, target := place(stack, near), blob)
    first, second = far.asked("GET")
    assert first.down + second.down < SIZE + 2**21
    assert second.status == 206
    assert holds(stack, target, blob)


def test_a_registry_that_stays_away_is_temporary(stack: Stack, far: Faulty, near: Faulty, blob: Descriptor) -> None:
    target = place(stack, near)
    near.expect(Fault(kind=Kind.RESET, method=PATCH, at=2, times=99))
    with pytest.raises(Temporary, match="does not get through"):
        copy(far, target, blob)
    assert open_uploads(near) == 0
    assert not holds(stack, target, blob)


def test_a_mount_sends_no_bytes(stack: Stack, near: Faulty) -> None:
    source, target, client = place(stack, near), place(stack, near), Registry()
    blobs = [client.upload(source, os.urandom(1000)) for _ in range(10)]
    near.expect()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda each: client.mount(target, each, source), blobs))
    assert (near.up(), [each.status for each in near.log]) == (0, [201] * 10)
    absent = replace(blobs[0], digest=type(blobs[0].digest).of(b"absent"))
    assert not client.mount(target, absent, source)
    assert open_uploads(near) == 0


def test_a_copy_that_is_stopped_leaves_no_upload_open(stack: Stack, far: Faulty, near: Faulty, blob: Descriptor) -> None:
    def stop(amount: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Registry().copy_blob(Repository(far.host, SOURCE), place(stack, near), blob, advance=stop)
    assert len(near.asked(PATCH)) == 1
    assert open_uploads(near) == 0


@pytest.mark.parametrize("number", [2, 4, 3 + PARTS])
def test_a_copy_that_was_killed_is_finished_by_the_next(
    stack: Stack, far: Faulty, near: Faulty, blob: Descriptor, number: int
) -> None:
    target = place(stack, near)
    near.heard = lambda _: started.kill() if len(near.log) == number else None
    words = (f"{far.host}/{SOURCE}", str(target), str(blob.digest), str(blob.size), str(PART))
    started = subprocess.Popen([sys.executable, "-c", COPYING, *words])
    try:
        assert started.wait(900) == -signal.SIGKILL
    finally:
        near.heard = lambda _: None
        started.kill()
    copy(far, target, blob)
    assert holds(stack, target, blob)


def test_a_tag_moves_once_and_the_loser_finds_out(stack: Stack, near: Faulty) -> None:
    repository, client = place(stack, near), Registry()
    empty = client.upload(repository, b"{}")
    made = []
    for name in ("first", "second"):
        layer = client.upload(repository, name.encode())
        entries = [f'{{"mediaType":"text/plain","digest":"{each.digest}","size":{each.size}}}' for each in (empty, layer)]
        kind = "application/vnd.oci.image.manifest.v1+json"
        text = f'{{"schemaVersion":2,"mediaType":"{kind}","config":{entries[0]},"layers":[{entries[1]}]}}'
        made.append(client.manifest(client.put_manifest(repository, text.encode(), kind)))
    first, second = made
    client.move_tag(repository, "v1", first, expected=None)
    client.move_tag(repository, "v1", second, expected=first.digest)
    with pytest.raises(TagConflict, match=f"names `{second.digest}` now"):
        client.move_tag(repository, "v1", first, expected=first.digest)
    near.expect(Fault(kind=Kind.LOSE, method="PUT"))
    client.move_tag(repository, "v1", first, expected=second.digest)
    assert client.resolve(repository.tag("v1")) == first.digest
