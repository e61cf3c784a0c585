"""The build stage on a real BuildKit and a real registry, with images from nothing that take a second."""

import json
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import context
from pipeline.build import BuildResult, Workshop, build, definition
from pipeline.command import Runner
from pipeline.debian import Mirror
from pipeline.errors import Interrupted
from pipeline.oci import Config, Digest, Manifest, Pinned, Repository
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.story import Silent
from pipeline.surroundings import Surroundings
from pipeline.survey import Survey, survey
from tests.archive import Archive, served
from tests.faults import Faulty, faulty
from tests.integration.conftest import Stack

LINKS = "FROM scratch AS layer\nCOPY data /layer/\nFROM base\nCOPY --link --from=layer /layer/ /\n"


class Family:
    """Images of a catalog on disk, as `image: (rest of image.yaml, Dockerfile, files)`."""

    def __init__(self, root: Path, stack: Stack, candidates: str = "") -> None:
        self.stack, self.settings = stack, Settings(root=root, cache=root / "cache")
        self.around, self.environment = Surroundings(), dict[str, str]()
        self.write(
            "catalog.yaml",
            f"line: '1.0'\nrepository: family\ncandidates: {candidates or stack.candidates}/{secrets.token_hex(4)}\n"
            f"releases: {stack.host}/releases\nplatform: linux/amd64\nepoch: 2025-01-29T00:00:00Z\ncompression-level: 3\n",
        )

    def write(self, path: str, content: bytes | str) -> None:
        file = self.settings.images / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def image(self, name: str, rest: str, dockerfile: str, **files: bytes) -> None:
        self.write(f"{name}/image.yaml", f"description: {name}\n{rest}")
        self.write(f"{name}/Dockerfile", dockerfile)
        for path, content in files.items():
            self.write(f"{name}/{path}", content)

    def survey(self, *, rebuild: bool = False) -> Survey:
        return survey(self.settings, context.load(self.settings), Registry(), rebuild=rebuild, story=Silent())

    def build(self, *, rebuild: bool = False, twice: bool = False, run: Runner | None = None) -> Mapping[str, BuildResult]:
        shop = Workshop(
            settings=self.settings,
            registry=Registry(),
            run=run or Runner({**self.stack.environment, **self.environment}),
            story=Silent(),
            builder=self.stack.builder,
            around=self.around,
            mirror=Mirror(),
            now=lambda: datetime.now(UTC),
            run_id="integration",
        )
        results = build(lambda: self.survey(rebuild=rebuild), shop, twice=twice)
        print(*results, sep="\n")  # pytest shows it when a test fails
        return {result.image: result for result in results}

    @property
    def repository(self) -> Repository:
        return context.load(self.settings).candidate_repository

    def tags(self) -> list[str]:
        return [tag for tag in Registry().tags(self.repository) if not tag.startswith("buildcache-")]


@pytest.fixture
def family(tmp_path: Path, stack: Stack) -> Family:
    made = Family(tmp_path, stack)
    made.image("os", "release: false\n", "FROM scratch\nCOPY --link data /\n", data=secrets.token_bytes(1000))
    made.image("app", "parent: os\nclaims: {app: '1.0'}\n", LINKS, data=secrets.token_bytes(200_000))
    made.image("lab", "parent: app\nvariant: lab\n", "FROM base\nCOPY data /made/by/hand/\n", data=secrets.token_bytes(1000))
    return made


def image(pinned: Pinned | None) -> tuple[Manifest, Config]:
    assert pinned is not None
    return Registry().manifest(pinned), Registry().config(pinned)


def test_a_family_is_built_each_on_its_parents_layers(family: Family) -> None:
    results = family.build()
    assert {result.state for result in results.values()} == {"built"}
    manifests = {name: image(result.pinned)[0] for name, result in results.items()}
    assert manifests["app"].layers[:1] == manifests["os"].layers
    assert [layer.digest for layer in manifests["lab"].layers[:2]] == [layer.digest for layer in manifests["app"].layers]
    assert {layer.media_type for layer in manifests["lab"].layers} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
    assert image(results["lab"].pinned)[1].created == "2025-01-29T00:00:00Z"


def test_the_record_names_what_buildkit_resolved(family: Family) -> None:
    results = family.build()
    pinned = results["app"].pinned
    assert pinned is not None
    statement = json.loads((family.settings.work / "statements" / pinned.digest.hex / "built.json").read_text())
    (material,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert f"digest={results['os'].pinned.digest}" in material["uri"]  # type: ignore[union-attr]


def test_a_second_build_builds_nothing(family: Family) -> None:
    first, second = family.build(), family.build()
    assert {result.state for result in second.values()} == {"reused"}
    assert [result.pinned for result in second.values()] == [result.pinned for result in first.values()]


@pytest.fixture
def watched(tmp_path: Path, stack: Stack) -> Iterator[tuple[Family, Faulty]]:
    with faulty(stack.host) as traffic:
        made = Family(tmp_path, stack, f"{traffic.host}/integration")
        made.image("os", "release: false\n", "FROM scratch\nCOPY --link data /\n", data=secrets.token_bytes(1000))
        made.image("app", "parent: os\n", LINKS, data=secrets.token_bytes(200_000))
        yield made, traffic


def test_a_new_base_relinks_its_child_without_running_a_step_or_sending_a_layer(watched: tuple[Family, Faulty]) -> None:
    family, traffic = watched
    before = family.build()
    assert 200_000 < traffic.up() < 300_000, "each layer is sent once"
    traffic.expect()
    family.write("os/data", secrets.token_bytes(1000))
    after = family.build()
    assert after["app"].reason.endswith("no step ran")
    old, new = image(before["app"].pinned)[0], image(after["app"].pinned)[0]
    assert new.layers[1:] == old.layers[1:]
    assert new.layers[:1] == image(after["os"].pinned)[0].layers
    assert traffic.up() + traffic.down() < 100_000


def test_a_step_that_fails_stops_its_descendants_and_nobody_else(family: Family) -> None:
    family.image("sick", "parent: os\nvariant: sick\n", 'FROM base\nRUN ["/no/such/program"]\n')
    family.image("child", "parent: sick\nvariant: child\n", LINKS, data=b"x")
    results = family.build()
    states = {name: result.state for name, result in results.items()}
    assert states == {"os": "built", "app": "built", "lab": "built", "sick": "failed", "child": "aborted"}
    assert results["sick"].exit_code == 5
    assert '] RUN ["/no/such/program"]`: exit code: 1' in results["sick"].reason
    assert (family.settings.work / "logs" / "sick.log").read_text().count("/no/such/program") >= 2
    assert len(family.tags()) == 3


def test_two_builds_without_cache_give_one_digest(family: Family) -> None:
    results = family.build(rebuild=True, twice=True)
    assert [result.reason for result in results.values() if result.state != "built"] == []
    assert all(result.reason.endswith("twice, with one digest") for result in results.values())


def test_a_layer_that_carries_the_time_of_its_build_is_found_by_building_twice(family: Family) -> None:
    family.image(
        "late",
        "parent: os\nvariant: late\n",
        "FROM scratch AS a\nCOPY data /layer/made-now/\nFROM base\nCOPY --link --from=a /layer/ /\n",
        data=b"x",
    )
    result = family.build(twice=True)["late"]
    assert result.state == "failed"
    assert "layer 2 of 2 (`COPY /layer/ / # buildkit`) has other content" in result.reason
    assert not [tag for tag in family.tags() if "late" in tag]


def test_a_base_by_tag_is_refused_by_what_buildkit_resolved(family: Family) -> None:
    results = family.build()
    tag = next(tag for tag in family.tags() if "-os-" in tag)
    family.image("loose", "release: false\n", f"FROM {family.repository}:{tag}\n")
    reason = family.build()["loose"].reason
    assert "which is not pinned" in reason
    assert str(results["os"].pinned.digest) in reason  # type: ignore[union-attr]


def test_a_download_is_refused_by_what_buildkit_fetched_until_the_dockerfile_holds_its_digest(family: Family) -> None:
    with served(Archive()) as web:
        web.files["tool"] = b"a tool"
        added = f"{web.root}/tool /\n"
        family.image("loose", "release: false\n", f"FROM scratch\nADD {added}")
        result = family.build()["loose"]
        wanted = f"--checksum={Digest.of(b'a tool')}"
        assert result.state == "failed"
        assert f"`{web.root}/tool`, which is not pinned: write `ADD {wanted}`" in result.reason
        family.image("loose", "release: false\n", f"FROM scratch\nADD {wanted} {added}")
        assert family.build()["loose"].state == "built"


def test_neither_proxies_nor_the_commit_of_a_work_tree_reach_an_image(family: Family) -> None:
    family.around = Surroundings(proxies={"HTTP_PROXY": "http://me:secret@proxy.example.com:3128"})
    family.environment = {"BUILDX_GIT_LABELS": "full"}
    git = ("git", "-C", family.settings.root, "-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    results = family.build()
    assert {result.state for result in results.values()} == {"built"}
    for result in results.values():
        _, config = image(result.pinned)
        assert "org.opencontainers.image.revision" not in config.labels
        assert "secret" not in str(config)


def test_two_runs_at_once_give_one_candidate(family: Family) -> None:
    found: list[Mapping[str, BuildResult]] = []
    threads = [threading.Thread(target=lambda: found.append(family.build())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.pinned for result in found[0].values()] == [result.pinned for result in found[1].values()]
    assert len(family.tags()) == 3


@contextmanager
def silent_server() -> Iterator[tuple[int, threading.Event, threading.Event]]:
    """A port that takes a request and never answers; when somebody asks, and when they hang up."""
    asked, left = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            asked.set()
            while connection.recv(1000):
                pass
            left.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1], asked, left


def test_an_interrupt_ends_the_builders_work_and_leaves_nothing(family: Family) -> None:
    with silent_server() as (port, asked, left):
        family.image("slow", "parent: os\nvariant: slow\n", f"FROM base\nADD http://127.0.0.1:{port}/x /\n")
        run = Runner(family.stack.environment)

        def interrupt() -> None:
            asked.wait(900)
            run.stop(signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(Interrupted):
            family.build(run=run)
        assert asked.is_set()
        assert left.wait(900), "the builder goes on after the interrupt"
    assert not [tag for tag in family.tags() if "slow" in tag]
    assert list((family.settings.cache / "stage").iterdir()) == []


def test_a_push_to_a_registry_that_is_gone_is_temporary(family: Family) -> None:
    with faulty(family.stack.host) as traffic:
        gone = Family(family.settings.root / "gone", family.stack, f"{traffic.host}/integration")
        gone.image("os", "release: false\n", "FROM scratch\nCOPY --link data /\n", data=secrets.token_bytes(10))
        planned = gone.survey()
    gone.survey = lambda **_: planned  # type: ignore[method-assign]
    result = gone.build()["os"]
    assert result.exit_code == 75


def test_buildx_understands_every_key_of_the_definition(family: Family) -> None:
    printed = definition(family.survey(), family.settings, Surroundings(certificates=Path("/etc/hostname")))
    builder = family.stack.builder
    done = Runner(family.stack.environment)(
        *(*builder.command, "bake", "--file", "-", "--print"),
        timeout=900,
        env=builder.environment,
        stdin=json.dumps(printed).encode(),
    )
    understood = json.loads(done.stdout)["target"]
    assert {name: set(target) for name, target in understood.items()} == {
        name: {key for key, value in target.items() if value} for name, target in printed["target"].items()
    }
