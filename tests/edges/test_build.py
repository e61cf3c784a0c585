"""The build stage over a registry in memory and a builder that is played."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock

from pipeline import context, debian, names, records
from pipeline.build import BuildResult, Workshop, build, definition, one
from pipeline.build import run as stage_run
from pipeline.builders import Builder
from pipeline.debian import Mirror, PackagesGone
from pipeline.errors import CheckFailed, InputError, Interrupted, PipelineError, TagConflict, Temporary, ToolFailed, worst
from pipeline.locks import format_packages, parse_packages
from pipeline.oci import Digest, Repository
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.story import Silent
from pipeline.surroundings import Surroundings
from pipeline.survey import Survey, survey
from tests.archive import NOW, Archive, deb, served
from tests.fakes import FakeBuildx, FakeRegistry, fake_registry

DATA = Path(__file__).parent.parent / "data" / "buildkit"
LINKS = "FROM base\nCOPY --link --from=base /x /\n"
STEPS = 'FROM base\nRUN ["/x"]\n'


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


class Family:
    """A catalog on disk with a root `os`, its child `app`, and `lab` and `other` on `app`."""

    def __init__(self, root: Path, registry: FakeRegistry) -> None:
        self.buildx, self.registry, self.story = FakeBuildx(registry), registry, Heard()
        self.settings = Settings(root=root, cache=root / "cache")
        self.write(
            "catalog.yaml", f"line: '1.0'\nrepository: family\ncandidates: {registry.host}/team\nreleases: {registry.host}/out\n"
        )
        shared = "platform: linux/amd64\nepoch: 2025-01-29T00:00:00Z\ncompression-level: 7\n"
        self.write("catalog.yaml", (self.settings.images / "catalog.yaml").read_text() + shared)
        self.image("os", "release: false\n", "FROM scratch\nCOPY --link x /\n")
        self.image("app", "parent: os\nclaims: {thing: '1.5'}\n", LINKS)
        self.image("lab", "parent: app\nvariant: lab\n", STEPS)
        self.image("other", "parent: app\nvariant: other\n", LINKS)

    def write(self, path: str, text: str) -> None:
        file = self.settings.images / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def image(self, name: str, rest: str, dockerfile: str) -> None:
        self.write(f"{name}/image.yaml", f"description: {name}\n{rest}")
        self.write(f"{name}/Dockerfile", dockerfile)

    def survey(self, *selection: str, rebuild: bool = False) -> Survey:
        catalog = context.load(self.settings)
        return survey(self.settings, catalog, Registry(), selection, rebuild=rebuild, story=self.story)

    @property
    def shop(self) -> Workshop:
        return Workshop(
            settings=self.settings,
            registry=Registry(),
            run=self.buildx,
            story=self.story,
            builder=Builder(command=("buildx",), name="b"),
            around=Surroundings(),
            mirror=Mirror(),
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            run_id="run-1",
        )

    def build(self, *selection: str, rebuild: bool = False, twice: bool = False) -> Mapping[str, BuildResult]:
        results = build(lambda: self.survey(*selection, rebuild=rebuild), self.shop, twice=twice)
        return {result.image: result for result in results}

    def states(self, results: Mapping[str, BuildResult]) -> dict[str, str]:
        return {name: result.state for name, result in results.items()}

    @property
    def repository(self) -> Repository:
        return self.registry.repository("team/family")

    @property
    def tags(self) -> set[str]:
        return set(Registry().tags(self.repository))


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with fake_registry() as registry:
        yield Family(tmp_path, registry)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one, "APART", 0)


def test_no_two_contexts_have_one_name_since_builders_keep_them_by_it(family: Family) -> None:
    family.build()
    family.write("os/Dockerfile", "FROM scratch\nCOPY --link y /\n")
    family.build()
    sent = [Path(target["context"]).name for target in family.buildx.baked]
    assert len(sent) == len(set(sent)) == 8


def test_a_family_is_built_parents_first_each_on_the_digest_of_its_parent(family: Family) -> None:
    results = family.build()
    assert family.states(results) == dict.fromkeys(("os", "app", "lab", "other"), "built")
    order = [target["name"] for target in family.buildx.baked]
    assert order[:2] == ["os", "app"]
    assert set(order[2:]) == {"lab", "other"}
    bases = {target["name"]: target["contexts"].get("base") for target in family.buildx.baked}
    assert bases["app"] == f"docker-image://{results['os'].pinned}"
    assert bases["lab"] == bases["other"] == f"docker-image://{results['app'].pinned}"


def test_every_image_gets_its_candidate_tag_and_the_hash_as_a_label(family: Family) -> None:
    results = family.build("app")
    step = family.survey("app").steps[0]
    assert step.action == "reuse"
    assert Registry().resolve(family.repository.tag(step.tag)) == results["app"].pinned.digest  # type: ignore[union-attr]
    labels = Registry().config(results["app"].pinned).labels  # type: ignore[arg-type]
    assert labels[names.LABEL_INPUT_HASH] == step.input_hash
    assert labels[f"{names.LABEL_CLAIM}thing"] == "1.5"
    assert "file:Dockerfile" in json.loads(labels[names.LABEL_INPUTS])


def test_a_second_build_builds_nothing(family: Family) -> None:
    first = family.build()
    family.buildx.baked.clear()
    second = family.build()
    assert family.states(second) == dict.fromkeys(first, "reused")
    assert {r.pinned for r in second.values()} == {r.pinned for r in first.values()}
    assert family.buildx.baked == []


def test_the_size_is_what_all_layers_take_in_the_registry(family: Family) -> None:
    family.buildx.layers = {"os": [b"12345"], "app": [b"123"]}
    assert [result.size for result in family.build("app").values()] == [5, 8]


def test_images_of_links_carry_a_cache_and_are_not_rewritten(family: Family) -> None:
    family.build()
    targets = {target["name"]: target for target in family.buildx.baked}
    assert "rewrite-timestamp" not in targets["app"]["output"][0]
    assert targets["app"]["cache-from"] == [f"type=registry,ref={family.repository}:buildcache-v1.0-zstd7"]
    assert "rewrite-timestamp=true" in targets["lab"]["output"][0]
    assert "cache-from" not in targets["lab"]
    assert sorted(family.buildx.cached) == ["app", "os", "other"]


def test_a_record_of_the_build_is_kept_under_the_digest(family: Family) -> None:
    pinned = family.build("app")["app"].pinned
    assert pinned is not None
    folder = family.settings.work / "statements" / pinned.digest.hex
    predicate = json.loads((folder / "built.json").read_text())["predicate"]
    internal = predicate["buildDefinition"]["internalParameters"]
    assert internal["parent"].startswith(f"{family.repository}@sha256:")
    assert internal["commit"] is None
    assert predicate["runDetails"]["metadata"]["invocationId"] == "run-1"


def test_a_record_that_cannot_be_written_leaves_no_candidate_without_one(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise PermissionError(13, "Permission denied", "/statements")

    monkeypatch.setattr(records, "write", refuse)
    result = family.build("os")["os"]
    assert (result.exit_code, result.reason) == (2, "`/statements` cannot be used: Permission denied")
    assert family.tags == set()


def test_a_failed_image_stops_its_descendants_and_not_its_siblings(family: Family) -> None:
    family.image("leaf", "parent: lab\nvariant: leaf\n", LINKS)
    family.buildx.streams = {"lab": DATA / "run-fails.jsonl"}
    results = family.build()
    assert family.states(results) == {"os": "built", "app": "built", "lab": "failed", "other": "built", "leaf": "aborted"}
    assert results["lab"].exit_code == 5
    assert "[root 2/2] RUN" in results["lab"].reason
    assert results["leaf"].reason == "`lab` failed"
    assert worst([result.exit_code for result in results.values()]) == 5
    assert not [tag for tag in family.tags if "lab" in tag or "leaf" in tag]


def test_the_last_descendant_is_told_who_failed(family: Family) -> None:
    family.buildx.streams = {"os": DATA / "disk-full.jsonl"}
    results = family.build()
    assert {result.reason for name, result in results.items() if name != "os"} == {"`os` failed"}
    assert {result.exit_code for result in results.values()} == {75}


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"created": "2025-01-30T00:00:00Z"}, "not at the catalog's epoch"),
        ({"created": "yesterday"}, "not at the catalog's epoch"),
        ({"platform": "linux/arm64"}, "it is for `linux/arm64`"),
        ({"layers": (b"x", b"app")}, "first layers are not its parent's"),
        ({"labels": {}}, "lacks labels"),
        ({"kind": "application/vnd.oci.image.layer.v1.tar"}, "not compressed by zstd"),
    ],
)
def test_an_image_that_is_not_what_was_asked_for_gets_no_tag(family: Family, facts: dict[str, object], complaint: str) -> None:
    family.buildx.facts = {"app": facts}
    results = family.build("app")
    assert results["app"].state == "failed"
    assert results["app"].exit_code == ToolFailed.exit_code
    assert complaint in results["app"].reason
    assert len(family.tags) == 1


def test_a_rewrite_that_buildkit_only_warned_about_is_noticed(family: Family) -> None:
    family.buildx.facts = {"lab": {"rewritten": False}}
    assert "did not clamp the times" in family.build("lab")["lab"].reason


def material(uri: str, digest: str) -> list[dict[str, object]]:
    return [{"uri": uri, "digest": {"sha256": digest}}]


def test_a_base_that_is_not_pinned_is_refused_with_its_digest(family: Family) -> None:
    family.buildx.materials = {"os": material("pkg:docker/debian@12?platform=linux%2Famd64", "a" * 64)}
    reason = family.build("os")["os"].reason
    assert "`pkg:docker/debian@12?platform=linux%2Famd64`, which is not pinned" in reason
    assert f"@sha256:{'a' * 64}" in reason


def test_a_base_that_nobody_named_is_refused(family: Family) -> None:
    digest = "a" * 64
    family.buildx.materials = {"os": material(f"pkg:docker/debian@12?digest=sha256:{digest}", digest)}
    assert "neither the catalog nor its Dockerfile names" in family.build("os")["os"].reason
    family.write("os/Dockerfile", f"FROM debian:12@sha256:{digest}\nRUN x\n")
    assert family.build("os")["os"].state == "built"


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        ("# syntax=docker/dockerfile:1\nFROM scratch", "line 1: the frontend `docker/dockerfile:1` is not pinned"),
        ("#!/x\n# syntax=docker/dockerfile@sha256:1\nFROM scratch", "line 2: the frontend"),
        ("ARG HTTPS_PROXY\nFROM scratch", "line 1: `ARG HTTPS_PROXY` would write this machine's proxy"),
        ("FROM scratch\nARG A=1 no_proxy=x", "line 2: `ARG no_proxy`"),
        ("FROM scratch\nONBUILD ARG All_Proxy", "line 2: `ARG All_Proxy`"),
    ],
)
def test_what_no_hash_covers_and_buildkit_does_not_tell_is_refused_before(family: Family, head: str, complaint: str) -> None:
    family.write("os/Dockerfile", f"{head}\nCOPY --link x /\n")
    result = family.build("os")["os"]
    assert complaint in result.reason
    assert result.exit_code == InputError.exit_code
    assert family.buildx.baked == []


def test_a_pinned_frontend_is_used(family: Family) -> None:
    family.write("os/Dockerfile", f"# syntax=docker/dockerfile:1@sha256:{'a' * 64}\nFROM scratch\nCOPY --link x /\n")
    assert family.build("os")["os"].state == "built"


def test_a_dockerfile_that_is_no_text_fails_its_image(family: Family) -> None:
    (family.settings.images / "os" / "Dockerfile").write_bytes(b"FROM scratch\n# caf\xe9\n")
    result = family.build("os")["os"]
    assert (result.state, result.exit_code) == ("failed", InputError.exit_code)
    assert "write it in UTF-8" in result.hint


def test_a_download_is_refused_unless_the_dockerfile_holds_its_digest(family: Family) -> None:
    digest = "a" * 64
    family.buildx.materials = {"os": material("https://example.com/x", digest)}
    assert f"write `ADD --checksum=sha256:{digest}`" in family.build("os")["os"].reason
    family.write("os/Dockerfile", f"FROM scratch\nADD --checksum=sha256:{digest} https://example.com/x /\n")
    assert family.build("os")["os"].state == "built"


def test_a_git_repository_is_refused_unless_the_dockerfile_holds_its_commit(family: Family) -> None:
    commit = "b" * 40
    family.buildx.materials = {"os": [{"uri": "https://example.com/x.git#main", "digest": {"sha1": commit}}]}
    assert f"write `ADD --checksum={commit}`" in family.build("os")["os"].reason
    family.write("os/Dockerfile", f"FROM scratch\nADD --checksum={commit} https://example.com/x.git#main /\n")
    assert family.build("os")["os"].state == "built"


def test_what_a_parent_adds_in_its_children_may_be_pinned_by_the_parent(family: Family) -> None:
    digest = "a" * 64
    family.buildx.materials = {"app": material("https://example.com/x", digest)}
    assert "not pinned" in family.build("app")["app"].reason
    family.write(
        "os/Dockerfile", f"FROM scratch\nCOPY --link x /\nONBUILD ADD --checksum=sha256:{digest} https://example.com/x /\n"
    )
    assert family.build("app")["app"].state == "built"


def test_an_image_over_its_size_limit_fails_as_a_check_does(family: Family) -> None:
    family.image("app", "parent: os\nsize-limit: 1 kB\n", LINKS)
    family.buildx.layers = {"app": [bytes(2000)]}
    result = family.build("app")["app"]
    assert result.exit_code == CheckFailed.exit_code
    assert "more than its `size-limit`" in result.reason


def test_a_rebuild_that_gives_the_same_bytes_is_built(family: Family) -> None:
    first = family.build("app")
    again = family.build("app", rebuild=True)
    assert family.states(again) == {"os": "reused", "app": "built"}
    assert again["app"].pinned == first["app"].pinned


def test_a_rebuild_that_gives_other_bytes_is_a_conflict_and_says_where(family: Family) -> None:
    family.build("app")
    family.buildx.layers = {"app": [b"other bytes"]}
    result = family.build("app", rebuild=True)["app"]
    assert result.exit_code == TagConflict.exit_code
    assert "layer 2 of 2 (`step 1`) has other content" in result.reason


def test_twice_builds_without_cache_and_records_that_it_is_reproducible(family: Family) -> None:
    results = family.build("app", rebuild=True, twice=True)
    assert [target["no-cache"] for target in family.buildx.baked if target["name"] == "app"] == [True, True]
    assert results["app"].state == "built"
    pinned = results["app"].pinned
    assert pinned is not None
    statement = json.loads((family.settings.work / "statements" / pinned.digest.hex / "built.json").read_text())
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["reproduced"] is True


def test_twice_with_two_results_fails_names_the_layer_and_makes_no_tag(family: Family) -> None:
    family.buildx.layers = {"os": [b"once", b"again"]}
    result = family.build("os", twice=True)["os"]
    assert result.exit_code == CheckFailed.exit_code
    assert "not reproducible" in result.reason
    assert "layer 1 of 1 (`step 0`) has other content" in result.reason
    assert family.tags == set()


def test_what_another_run_built_while_this_one_planned_is_used(family: Family) -> None:
    planned = family.survey("app")
    first = family.build("app")
    family.buildx.baked.clear()
    results = build(lambda: planned, family.shop)
    assert [(r.state, r.reason) for r in results] == [("reused", "built by another run meanwhile")] * 2
    assert [r.pinned for r in results] == [r.pinned for r in first.values()]
    assert family.buildx.baked == []


def race(family: Family, input_hash: str | None = None) -> Callable[[str], None]:
    """Another machine creates the tag of `os` while it is baked here."""
    step = family.survey("os").steps[0]
    labels = {names.LABEL_INPUT_HASH: input_hash or step.input_hash}
    return lambda _: None if step.tag in family.tags else void(family.registry, family.repository, labels, step.tag)


def void(registry: FakeRegistry, repository: Repository, labels: Mapping[str, str], tag: str) -> None:
    registry.put_image(repository, layers=(b"the winner's",), labels=labels, tag=tag)


def test_the_loser_of_a_race_goes_on_with_the_winners(family: Family) -> None:
    family.buildx.before = race(family)
    results = family.build("app")
    assert results["os"].state == "reused"
    assert results["os"].reason == "another run was faster"
    assert len(list(family.settings.work.glob("statements/*/built.json"))) == 1, "what was dropped has no record"
    assert family.buildx.baked[1]["contexts"]["base"] == f"docker-image://{results['os'].pinned}"
    assert any("layer 1 of 1" in line for line in family.story.lines)


def test_neither_the_loser_of_a_race_nor_a_failed_image_writes_a_cache(family: Family) -> None:
    family.buildx.before = race(family)
    family.buildx.streams = {"app": DATA / "run-fails.jsonl"}
    family.build("app")
    assert family.buildx.cached == []


def test_where_no_step_ran_the_cache_that_is_there_is_left_alone(family: Family) -> None:
    cache = family.repository.tag("buildcache-v1.0-os-zstd7")
    family.registry.put_image(family.repository, tag=cache.name)
    family.build("app")
    assert family.buildx.cached == ["app"], "there is none of `app` yet"


def test_a_tag_of_other_inputs_is_a_conflict(family: Family) -> None:
    family.buildx.before = race(family, "0" * 64)
    assert family.build("os")["os"].exit_code == TagConflict.exit_code


def test_two_runs_at_once_give_one_candidate(family: Family) -> None:
    results: list[Mapping[str, BuildResult]] = []
    threads = [threading.Thread(target=lambda: results.append(family.build("app"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0]["app"].pinned == results[1]["app"].pinned
    assert [target["name"] for target in family.buildx.baked] == ["os", "app"]


def test_nothing_temporary_is_left(family: Family) -> None:
    family.buildx.streams = {"app": DATA / "run-fails.jsonl"}
    family.build()
    assert list((family.settings.cache / "stage").iterdir()) == []


def test_what_a_killed_run_left_is_swept(family: Family) -> None:
    left = family.settings.cache / "stage" / "127.0.0.1_1_team_family_v1.0-os-0123456789ab"
    (left / "context").mkdir(parents=True)
    family.build("os")
    assert not left.exists()


def test_what_another_run_works_on_is_not_swept(family: Family) -> None:
    live = family.settings.cache / "stage" / "x"
    live.mkdir(parents=True)
    (family.settings.cache / "locks").mkdir(parents=True)
    with FileLock(family.settings.cache / "locks" / "x.lock"):
        family.build("os")
    assert live.exists()


def test_an_interrupt_ends_the_run_and_leaves_neither_tag_nor_folder(family: Family) -> None:
    def interrupt(name: str) -> None:
        if name == "app":
            raise Interrupted("interrupted")

    family.buildx.before = interrupt
    with pytest.raises(Interrupted):
        family.build()
    assert len(family.tags) == 1
    assert list((family.settings.cache / "stage").iterdir()) == []


def test_an_interrupt_reaches_an_image_that_waits_for_another_run(family: Family) -> None:
    tag = family.survey("other").steps[-1].tag
    lock = family.settings.cache / "locks" / f"{family.repository.host.replace(':', '_')}_team_family_{tag}.lock"
    waits = threading.Event()
    family.story.say = lambda text: waits.set() if "waiting" in text else None  # type: ignore[method-assign]

    def interrupt(name: str) -> None:
        if name == "lab":
            waits.wait(300)
            raise Interrupted("interrupted")

    family.buildx.before = interrupt
    lock.parent.mkdir(parents=True)
    with FileLock(lock), pytest.raises(Interrupted):
        family.build()
    assert waits.is_set()


def test_a_bug_is_not_reported_as_a_failed_image(family: Family) -> None:
    def crash(_: str) -> None:
        raise ZeroDivisionError

    family.buildx.before = crash
    with pytest.raises(ZeroDivisionError):
        family.build()


def test_a_full_disk_on_this_side_is_temporary(family: Family) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    family.buildx.before = full
    assert family.build("os")["os"].exit_code == Temporary.exit_code


def packages(
    family: Family, monkeypatch: pytest.MonkeyPatch, answers: list[PipelineError | None], unsolved: PipelineError | None = None
) -> list[str]:
    """A root file system whose packages are fetched with `answers`; returns what was called."""
    called: list[str] = []
    real = family.survey("os")
    root = real.catalog.images["os"].model_copy(update={"rootfs": object()})
    catalog = real.catalog.model_copy(update={"images": {**real.catalog.images, "os": root}})

    def fetch(*_: object) -> Mapping[str, Path]:
        called.append("fetch")
        if answer := answers.pop(0):
            raise answer
        return {}

    def resolve(*_: object) -> None:
        called.append("resolve")
        if unsolved:
            raise unsolved

    def again() -> Survey:
        called.append("survey")
        return replace(real, catalog=catalog)

    monkeypatch.setattr(stage_run, "_download", fetch)
    monkeypatch.setattr(stage_run, "_resolve", resolve)
    monkeypatch.setattr(stage_run, "_walk", lambda found, shop, ready, twice: called.extend(map(str, ready.failed)))
    build(again, family.shop)
    return called


def test_packages_that_are_gone_are_solved_anew_before_anything_is_built(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    called = packages(family, monkeypatch, [PackagesGone("os", ["bash"]), None])
    assert called == ["survey", "fetch", "resolve", "survey", "fetch"]


def test_packages_that_stay_gone_fail_the_image(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    called = packages(family, monkeypatch, [PackagesGone("os", ["bash"]), PackagesGone("os", ["bash"])])
    assert called == ["survey", "fetch", "resolve", "survey", "fetch", "os"]


def test_packages_that_cannot_be_solved_anew_fail_the_image_alone(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    called = packages(family, monkeypatch, [PackagesGone("os", ["bash"])], Temporary("the mirror is down"))
    assert called == ["survey", "fetch", "resolve", "os"]


def test_a_mirror_that_is_down_fails_the_image_alone(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages(family, monkeypatch, [Temporary("the mirror is down")]) == ["survey", "fetch", "os"]


class Adding(Family):
    """A root file system `os` with the package `base`, and `app` on it, which adds `tool`; both from `archive`."""

    def __init__(self, root: Path, registry: FakeRegistry, archive: Archive) -> None:
        super().__init__(root, registry)
        self.archive = archive
        for name, fields in (("base", "Essential: yes"), ("tool", "Depends: base")):
            archive.add("stable", name, "1", fields, deb(f"Package: {name}\nVersion: 1\n{fields}\n", {"./x": "x"}))
        archive.publish()
        (self.settings.images / "os" / "Dockerfile").unlink()
        self.write("os/image.yaml", "description: os\nrelease: false\nrootfs: {suite: stable, packages: [base]}\n")
        self.image("app", "parent: os\npackages: [tool]\n", STEPS)
        self.lock("os", ["base"], None)
        self.lock("app", ["tool"], {"base": "1"})

    def lock(self, image: str, packages: list[str], below: Mapping[str, str] | None) -> None:
        shop = self.shop
        lock = debian.solve(
            "stable",
            packages,
            below=below,
            architecture="amd64",
            mirror=shop.mirror,
            cache=shop.settings.cache,
            now=NOW,
            story=Silent(),
        )
        self.write(f"{image}/packages.lock", format_packages(lock))

    def newer(self, name: str, fields: str) -> None:
        """The archive drops version 1 of a package for version 2."""
        self.archive.suites["stable"] = [one for one in self.archive.suites["stable"] if f"Package: {name}\n" not in one]
        self.archive.files = {path: content for path, content in self.archive.files.items() if f"/{name}_1_" not in path}
        self.archive.add("stable", name, "2", fields, deb(f"Package: {name}\nVersion: 2\n{fields}\n", {"./x": "x"}))
        self.archive.publish()
        for file in (self.settings.cache / "downloads" / "debs").glob("*.deb"):
            file.unlink()

    @property
    def shop(self) -> Workshop:
        return replace(super().shop, mirror=self.archive.mirror(self.settings.root), now=lambda: NOW)


@pytest.fixture
def adding(tmp_path: Path) -> Iterator[Adding]:
    with fake_registry() as registry, served(Archive()) as archive:
        yield Adding(tmp_path, registry, archive)


def sent_packages(family: Family) -> dict[str, list[str]]:
    """What each image's build finds in the folder `packages`, looked at while it is built."""
    sent: dict[str, list[str]] = {}

    def look(name: str) -> None:
        if folder := family.buildx.baked[-1]["contexts"].get("packages"):
            sent[name] = sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())

    family.buildx.before = look
    return sent


def test_added_packages_are_sent_as_a_folder_named_by_the_hash(adding: Adding) -> None:
    sent = sent_packages(adding)
    assert adding.states(adding.build("app")) == {"os": "built", "app": "built"}
    assert sent == {"app": ["debs/tool.deb", "epoch", "install.sh"]}
    target = adding.buildx.baked[-1]
    assert Path(target["contexts"]["packages"]).name == adding.survey("app").hashes["app"].value
    assert "rewrite-timestamp=true" in target["output"][0]


def test_a_package_that_is_not_the_locked_one_fails_the_image(adding: Adding) -> None:
    path = next(path for path in adding.archive.files if "/tool_1_" in path)
    adding.archive.files[path] = b"X" * len(adding.archive.files[path])
    results = adding.build("app")
    assert adding.states(results) == {"os": "built", "app": "failed"}
    assert "is not the wanted file" in results["app"].reason


def test_added_packages_that_are_gone_are_solved_anew_on_what_is_below(adding: Adding) -> None:
    committed = (adding.settings.images / "app" / "packages.lock").read_text()
    adding.newer("tool", "Depends: base")
    assert adding.states(adding.build("app")) == {"os": "built", "app": "built"}
    assert (adding.settings.images / "app" / "packages.lock").read_text() == committed
    assert [line for line in adding.story.lines if "dropped the locked versions of `tool`; `app` is built from" in line]
    assert adding.survey("app").steps[0].action == "reuse"


def test_packages_are_solved_anew_where_an_overlay_takes_the_place_of_those_below(adding: Adding) -> None:
    adding.newer("base", "Essential: yes")
    adding.newer("tool", "Depends: base (= 2)")
    assert adding.states(adding.build("app")) == {"os": "built", "app": "built"}
    catalog = context.load(adding.settings)
    assert context.packages_below(adding.settings, catalog, catalog.images["app"]) == {"base": "2"}
    lock = parse_packages(context.packages_lock(adding.settings, catalog, catalog.images["app"]).read_text())
    assert [package.version for package in lock.packages] == ["2"]
    assert [line for line in adding.story.lines if "are locked on other ones than `os` has now; `app` is built from" in line]
    assert {step.action for step in adding.survey("app").steps} == {"reuse"}


def test_the_definition_for_people_stands_on_what_is_there(family: Family) -> None:
    pinned = family.build("os")["os"].pinned
    found = family.survey("lab")
    printed = definition(found, family.settings, Surroundings(proxies={"HTTP_PROXY": "http://me:s3cret@proxy"}))
    assert printed["group"]["default"]["targets"] == ["app", "lab"]
    assert printed["target"]["app"]["contexts"] == {"base": f"docker-image://{pinned}"}
    tag = next(step.tag for step in found.steps if step.image == "app")
    assert printed["target"]["lab"]["contexts"] == {"base": f"docker-image://{family.repository}:{tag}"}
    assert printed["target"]["lab"]["context"] == str(family.settings.images / "lab")
    assert "s3cret" not in json.dumps(printed)


def test_a_digest_is_64_hex_digits_in_the_name_of_a_record(family: Family) -> None:
    pinned = family.build("os")["os"].pinned
    assert pinned is not None
    assert (family.settings.work / "statements" / Digest(str(pinned.digest)).hex).is_dir()


def test_a_costly_plan_says_before_it_starts_what_it_may_take(family: Family) -> None:
    family.image("app", "parent: os\nsize-limit: 2.4 GB\n", LINKS)
    family.image("other", "parent: app\nvariant: other\nsize-limit: 2.6 GB\n", LINKS)
    family.build()
    assert "building takes up to 26 GB of disk and 5 min on two cores; what is cached takes nothing" in family.story.lines


def test_a_small_plan_is_not_announced(family: Family) -> None:
    family.build()
    assert not any("takes up to" in line for line in family.story.lines)
