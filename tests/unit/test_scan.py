"""Scans: recorded reports of Trivy as records, and every report that must not be believed."""

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from filelock import FileLock

from pipeline import report as reporting
from pipeline.command import Completed
from pipeline.errors import PipelineError, RegistryRefused, Temporary, ToolFailed
from pipeline.oci import Config, Descriptor, Digest, Manifest, Pinned, Repository
from pipeline.scan import LEAST_DATABASE, Bench, Result, Subject, exit_code, found, rescan, scan, trivy
from pipeline.scan import bom as boms
from pipeline.scan import report as reports
from pipeline.scan.buckets import roots
from pipeline.scan.found import Places
from pipeline.scan.layers import Layers, passed_over
from pipeline.settings import Settings
from pipeline.statements import Bom, Findings, Licence, Place, Secret, bom_statement, read
from pipeline.story import Silent, SilentTask
from pipeline.surroundings import Surroundings
from tests.vulnerabilities import BRANCH, PAGE, PIP, Advisory, database

DATA = Path(__file__).parents[1] / "data" / "trivy"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOWHERE = Places({})


def known(*sources: str, package: str = "p") -> bytes:
    return database([Advisory(source=source, package=package, id="CVE-2099-0001") for source in sources])


KNOWN = known("debian 12", PIP)


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def image_of(name: str) -> str:
    """The configuration's digest of the image that a recorded report is about."""
    return str(json.loads(recorded(name))["Metadata"]["ImageID"])


IMAGE = Digest(image_of("image.json"))
GROUND, TOP = (Digest(each) for each in json.loads(recorded("image.json"))["Metadata"]["DiffIDs"])
PINNED = Pinned.parse(f"localhost:5601/team/images@sha256:{'a' * 64}")
BELOW = Pinned.parse(f"localhost:5601/team/images@sha256:{'b' * 64}")
SUBJECT = Subject(image="app", pinned=PINNED, lineage=[("os", BELOW)])


def configuration(*layers: Digest, history: Sequence[Mapping[str, Any]] = ()) -> bytes:
    body = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [str(layer) for layer in layers]}}
    return json.dumps({**body, "history": history}).encode()


def config(*layers: Digest) -> Config:
    return Config.parse(configuration(*layers))


class Images:
    """A registry that knows the recorded image, and the one below it."""

    def manifest(self, pinned: Pinned) -> Manifest:
        layers = [{"mediaType": "x", "digest": str(each), "size": 350} for each in (GROUND, TOP)]
        about = {"mediaType": "x", "digest": str(IMAGE), "size": 1}
        return Manifest.parse(json.dumps({"schemaVersion": 2, "config": about, "layers": layers}).encode())

    def config(self, pinned: Pinned) -> Config:
        return config(GROUND) if pinned == BELOW else config(GROUND, TOP)

    def blob(self, repository: Repository, descriptor: Descriptor) -> bytes:
        return configuration(GROUND, TOP)

    def stream(self, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
        raise AssertionError


class Scanner:
    """A `Run` that is Trivy as recorded; `code` is how scans of images end."""

    def __init__(self, *, report: bytes = recorded("image.json"), database: bytes = KNOWN, code: int = 0) -> None:
        self.report, self.database, self.code = report, database, code
        self.calls: list[tuple[Sequence[str], Mapping[str, Any]]] = []

    def __call__(self, *argv: str | Path, **options: Any) -> Completed:
        words = [str(word) for word in argv]
        self.calls.append((words, options))
        return self._answer(words, Path(options["cwd"]))

    def _answer(self, words: Sequence[str], here: Path) -> Completed:
        if "--download-db-only" in words:
            return self._download(Path(words[words.index("--cache-dir") + 1]) / "db")
        answers = {"image": self.report, "sbom": recorded("sbom.json"), "convert": recorded("bom.json")}
        if content := answers.get(words[1]):
            (here / words[words.index("--output") + 1]).write_bytes(content)
        told = recorded("version.json").decode() if words[1] == "version" else ""
        return completed(self.code if words[1] == "image" else 0, stdout=told)

    def _download(self, place: Path) -> Completed:
        if not self.database:
            return completed(1, stderr=recorded("unreachable.txt").decode())
        place.mkdir(exist_ok=True)
        (place / "trivy.db").unlink(missing_ok=True)
        (place / "trivy.db").write_bytes(self.database)
        (place / "metadata.json").write_bytes(b"{}")
        return completed(0)

    def call(self, word: str) -> tuple[Sequence[str], Mapping[str, Any]]:
        return next(call for call in self.calls if word in call[0])


def completed(code: int, *, stdout: str = "", stderr: str = "") -> Completed:
    return Completed(argv=(), code=code, stdout=stdout, stderr=stderr, seconds=0)


def bench(folder: Path, run: Scanner, **environment: str) -> Bench:
    return Bench(
        settings=Settings(root=folder, cache=folder / "cache", database="localhost:5601/mirror/trivy-db:2", least_database=1),
        registry=Images(),
        trivy=Path("/bin/trivy"),
        run=run,
        environment=environment,
        around=Surroundings(proxies={"HTTPS_PROXY": "http://proxy"}),
        story=Silent(),
        now=lambda: NOW,
        run_id="run",
        unassessed=("vendor-*",),
    )


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("statements/*/*.json"))


def parsed(name: str) -> reports.Report:
    return reports.parse(recorded(name), "`app`")


def test_a_recorded_report_gives_each_vulnerability_with_its_place() -> None:
    places = found.places(SUBJECT, config(GROUND, TOP), Images())
    assert [
        (one.id, one.package, one.installed, one.fixed, one.severity, one.place.file, one.place.image)
        for one in found.vulnerabilities(parsed("image.json"), places)
    ] == [
        ("CVE-2099-0001", "shell", "5.2", "5.3", "CRITICAL", "var/lib/dpkg/status", "os"),
        ("CVE-2099-0002", "shell", "5.2", "", "LOW", "var/lib/dpkg/status", "os"),
        (
            "CVE-2099-0004",
            "lib-a",
            "1.5",
            "2.0",
            "MEDIUM",
            "opt/venv/lib/python3.11/site-packages/lib_a-1.5.dist-info/METADATA",
            "app",
        ),
    ]


@pytest.mark.parametrize(
    ("told", "published", "aliases"),
    [
        ({}, None, ()),
        ({"PublishedDate": "0001-01-01T00:00:00Z"}, None, ()),
        ({"PublishedDate": "2026-01-02T03:04:05.123456789Z"}, NOW.replace(microsecond=123456), ()),
        ({"VendorIDs": ["DSA-5343-1"]}, None, ()),
        ({"VendorIDs": ["GHSA-xxxx-yyyy-zzzz", "CVE-2026-24049"]}, None, ("GHSA-xxxx-yyyy-zzzz",)),
    ],
    ids=str,
)
def test_what_nobody_knows_of_a_vulnerability_is_not_made_up_and_its_names_are_those_of_it_alone(
    told: Mapping[str, Any], published: datetime | None, aliases: tuple[str, ...]
) -> None:
    bare = {"VulnerabilityID": "CVE-2026-24049", "PkgName": "wheel", "InstalledVersion": "0.45.1", "Severity": "UNKNOWN"}
    whole = json.loads(recorded("image.json"))
    whole["Results"] = [{"Target": "Python", "Class": "lang-pkgs", "Type": "python-pkg", "Vulnerabilities": [bare | dict(told)]}]
    (one,) = found.vulnerabilities(reports.parse(json.dumps(whole).encode(), "`app`"), NOWHERE)
    assert (one.published, one.aliases, one.severity, one.fixed) == (published, aliases, "UNKNOWN", "")


def test_the_list_of_packages_alone_gives_the_same_vulnerabilities() -> None:
    report, listed = parsed("image.json"), boms.made(str(PINNED), recorded("bom.json"), parsed("image.json"))
    again = boms.restored(parsed("sbom.json"), listed)
    assert found.vulnerabilities(again, NOWHERE) == found.vulnerabilities(report, NOWHERE)
    assert found.unassessed(again, ["vendor-blas"]) == found.unassessed(report, ["vendor-blas"])
    assert "CVE-2099-0005" in {one.id for one in found.vulnerabilities(parsed("sbom.json"), NOWHERE)}


def test_of_a_secret_its_kind_and_place_are_read_and_nothing_else() -> None:
    report = parsed("image.json")
    manifest, log, silent = Images().manifest(PINNED), Path("log"), SilentTask()
    leaks = Layers(cast(Any, None), cast(Any, None)).leaks(
        report, SUBJECT, manifest, configuration(GROUND, TOP), log=log, task=silent
    )
    kinds = [(one.rule, one.severity, one.place.file) for one in found.secrets(leaks, NOWHERE)]
    assert kinds == [("github-pat", "CRITICAL", ""), ("github-pat", "CRITICAL", "srv/notes")]
    assert set(Secret.model_fields) == {"rule", "severity", "place"}
    assert not {"match", "code"} & set(reports.Leak.model_fields)


def test_packages_of_third_parties_by_pattern_and_of_types_without_advisories_are_not_assessed() -> None:
    assert found.unassessed(parsed("image.json"), ["vendor-*"]) == ("vendor-blas 12.4", "vendor-driver 1.0")
    assert found.unassessed(parsed("image.json"), []) == ("vendor-driver 1.0",)
    whole = json.loads(recorded("image.json"))
    whole["Results"][1]["Type"] = "conda-pkg"
    report = reports.parse(json.dumps(whole).encode(), "x")
    assert found.unassessed(report, []) == ("lib-a 1.5", "vendor-blas 12.4", "vendor-driver 1.0")
    assert found.assessed(report, []) == 1


def test_the_wheels_around_a_vendors_libraries_are_named_in_the_real_image() -> None:
    report = parsed("torch.json")
    assert found.unassessed(report, ["nvidia-*"]) == ("nvidia-cublas-cu12 12.4.5.8",)
    assert {one.place.file for one in found.vulnerabilities(report, NOWHERE)} == {
        "var/lib/dpkg/status",
        "opt/venv/lib/python3.11/site-packages/torch-2.6.0.dist-info/METADATA",
    }


def test_a_licence_without_a_category_is_unknown_and_each_has_the_layer_of_its_package() -> None:
    listed = found.licences(parsed("torch.json"), NOWHERE)
    assert {one.category for one in listed} <= {"restricted", "notice", "reciprocal", "unencumbered", "unknown"}
    assert [one for one in listed if not one.place.layer or not one.place.file] == []


@pytest.mark.parametrize("name", ["image.json", "torch.json", "sbom.json"])
def test_a_report_that_was_cut_off_is_never_read(name: str) -> None:
    text = recorded(name).rstrip()
    for end in range(0, len(text), 97):
        with pytest.raises(ToolFailed, match="cannot be read"):
            reports.parse(text[:end], "x")


def group(index: int, **changed: Any) -> Callable[[Any], Any]:
    def change(whole: Any) -> None:
        whole["Results"][index].update(changed)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole.pop("SchemaVersion"),
        lambda whole: whole.update(SchemaVersion=3),
        lambda whole: whole.pop("Trivy"),
        lambda whole: whole.pop("Metadata"),
        lambda whole: whole.update(ArtifactType="filesystem"),
        lambda whole: whole.update(Results={}),
        lambda whole: whole["Metadata"].update(OS={"Family": 12}),
        lambda whole: whole["Results"][0]["Vulnerabilities"][0].update(Severity="FATAL"),
        lambda whole: whole["Results"][0]["Vulnerabilities"][0].pop("VulnerabilityID"),
        lambda whole: whole["Results"][0]["Packages"][0].pop("Name"),
        group(0, Vulnerabilities="none"),
        group(0, Packages=[[]]),
    ],
)
def test_a_report_of_another_shape_is_never_read(change: Callable[[Any], Any]) -> None:
    whole = json.loads(recorded("image.json"))
    change(whole)
    with pytest.raises(ToolFailed, match="cannot be read"):
        reports.parse(json.dumps(whole).encode(), "x")


@pytest.mark.parametrize(
    ("name", "about", "locked", "says"),
    [
        ("image.json", "sha256:" + "0" * 64, (), "is about the image"),
        ("no-system.json", "", (), "knows no operating system"),
        ("no-packages.json", "", (), "found no package of debian"),
        ("image.json", "", ("lib-a", "lib-c"), "did not see 1 of the distributions"),
    ],
)
def test_a_report_that_looked_at_nothing_proves_nothing(name: str, about: str, locked: Sequence[str], says: str) -> None:
    with pytest.raises(ToolFailed, match=says):
        reports.prove(parsed(name), Digest(about or image_of(name)), "`app`", locked=frozenset(locked))


def test_a_true_report_tells_the_system() -> None:
    assert reports.prove(parsed("image.json"), IMAGE, "`app`", locked=frozenset({"lib-a", "vendor-blas"})).name == "12.9"
    assert reports.prove(parsed("end-of-life.json"), Digest(image_of("end-of-life.json")), "`app`").eosl


@pytest.mark.parametrize("name", ["Lib_A", "lib.a", "lib--a", "LIB-a"])
def test_names_of_distributions_are_compared_as_locks_write_them(name: str) -> None:
    assert reports.normal(name) == "lib-a"


@pytest.mark.parametrize(
    ("family", "name", "keys"),
    [
        ("debian", "12.9", ["debian 12", "pip::"]),
        ("ubuntu", "22.04", None),
    ],
)
def test_a_database_must_know_the_release_and_the_languages(family: str, name: str, keys: Sequence[str] | None) -> None:
    system = reports.System.model_validate({"Family": family, "Name": name})
    assert list(reports.wanted(parsed("image.json"), system)) == (keys or ["debian 22", "pip::"])


def test_a_distribution_without_advisories_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="no advisories that we know of for fedora 40"):
        list(reports.wanted(parsed("image.json"), reports.System.model_validate({"Family": "fedora", "Name": "40"})))


LAYERS = tuple(Digest(f"sha256:{number}{'0' * 63}") for number in range(4))


@pytest.mark.parametrize(
    ("lineage", "owners"),
    [
        ([1, 2], ["os", "mid", "app", "app"]),
        ([2, 2], ["os", "os", "app", "app"]),
        ([None, 2], ["", "", "app", "app"]),
        ([1, None], ["os", "", "", ""]),
        ([1, -1], ["os", "", "", ""]),
        ([-1, 2], ["", "", "app", "app"]),
        ([], ["app"] * 4),
    ],
)
def test_a_layer_belongs_to_the_image_that_has_it_and_whose_parent_has_not(
    lineage: Sequence[int | None], owners: Sequence[str]
) -> None:
    known = {}
    for index, count in enumerate(lineage):
        pinned = Pinned.parse(f"localhost/x@sha256:{index}{'1' * 63}")
        known[pinned] = None if count is None else config(*(LAYERS[:count] if count > 0 else LAYERS[::-1]))

    class Parents(Images):
        def config(self, pinned: Pinned) -> Config:
            found = known[pinned]
            assert found
            return found

    pairs = [(name, pinned if known[pinned] else None) for name, pinned in zip(("os", "mid"), known, strict=False)]
    subject = replace(SUBJECT, lineage=pairs)
    places = found.places(subject, config(*LAYERS), Parents())
    assert [places.at("x", reports.Layer.model_validate({"DiffID": str(layer)})).image for layer in LAYERS] == owners


FILLED, EMPTY = {"created_by": "COPY x"}, {"created_by": "ENV x", "empty_layer": True}
COMMAND = {"created_by": 'CMD ["bash"]', "empty_layer": True}
OLD_COMMAND = {"created_by": '/bin/sh -c #(nop)  CMD ["bash"]', "empty_layer": True}


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ([], 0),
        ([FILLED] * 4, 0),
        ([FILLED, FILLED, FILLED, FILLED, COMMAND], 0),
        ([FILLED, COMMAND, EMPTY, FILLED, FILLED, FILLED], 1),
        ([FILLED, OLD_COMMAND, FILLED, FILLED, FILLED, EMPTY, COMMAND], 1),
        ([FILLED, COMMAND, FILLED, FILLED, COMMAND, EMPTY, FILLED, COMMAND], 3),
        ([COMMAND, FILLED], 0),
        ([EMPTY, COMMAND], 0),
    ],
)
def test_below_the_last_command_but_one_the_scanner_looks_for_no_secrets(
    history: Sequence[Mapping[str, Any]], count: int
) -> None:
    assert passed_over(configuration(*LAYERS, history=history)) == tuple(map(str, LAYERS[:count]))


def test_a_scan_is_by_digest_from_the_registry_offline_and_without_the_users_environment(tmp_path: Path) -> None:
    run = Scanner()
    (result,) = scan([SUBJECT], bench(tmp_path, run, PATH="/bin", COSIGN_PASSWORD="x", TRIVY_SEVERITY="LOW", HOME="/home/ada"))
    assert result.error is None
    assert files(tmp_path / ".pipeline") == ["bom.json", "findings.json", "scanned.json"]
    words, options = run.call("--image-src")
    assert words[-1] == str(PINNED)
    pairs = set(pairwise(words))
    assert {("--image-src", "remote"), ("--cache-backend", "memory"), ("--exit-code", "0"), ("--format", "json")} <= pairs
    assert {("--scanners", "vuln,secret,license"), ("--image-config-scanners", "secret")} <= pairs
    assert {"--skip-db-update", "--offline-scan", "--disable-telemetry", "--skip-version-check"} <= set(words)
    assert options["bare"]
    assert set(options["env"]) == {"PATH", "HOME", "HTTPS_PROXY", "TMPDIR"}
    assert len([call for call, _ in run.calls if "--download-db-only" in call]) == 1


def test_a_database_has_longer_to_come_than_the_scanner_would_wait_by_itself(tmp_path: Path) -> None:
    run = Scanner()
    scan([SUBJECT], bench(tmp_path, run))
    words, options = run.call("--download-db-only")
    assert ("--timeout", f"{trivy.SECONDS}s") in set(pairwise(words))
    assert options["timeout"] > trivy.SECONDS


def test_one_database_is_brought_for_all_images_of_a_run(tmp_path: Path) -> None:
    run = Scanner()
    scan([SUBJECT, replace(SUBJECT, lineage=[])], bench(tmp_path, run))
    assert len([call for call, _ in run.calls if "--download-db-only" in call]) == 1
    assert len([call for call, _ in run.calls if "--image-src" in call]) == 2


def test_a_run_that_begins_while_another_clears_away_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made_but_not_yet_held(path: Path) -> object:
        path.touch()
        monkeypatch.undo()
        assert exit_code(scan([SUBJECT], bench(tmp_path, Scanner()))) == 0
        return FileLock(path)

    monkeypatch.setattr("pipeline.scan.stage.FileLock", made_but_not_yet_held)
    assert exit_code(scan([SUBJECT], bench(tmp_path, Scanner()))) == 0
    assert list((tmp_path / "cache" / "scanning").iterdir()) == []


def test_without_a_database_vulnerabilities_are_not_looked_for_and_not_stated(tmp_path: Path) -> None:
    run = Scanner(database=b"")
    results = scan([SUBJECT], bench(tmp_path, run))
    assert results[0].scanned is None
    assert "connection refused" in results[0].unscanned
    assert files(tmp_path / ".pipeline") == ["bom.json", "findings.json"]
    assert ("--scanners", "secret,license") in set(pairwise(run.call("--image-src")[0]))
    assert (exit_code(results), exit_code(results, require_database=True)) == (0, 75)
    for text in (reporting.scans_markdown(results), json.dumps(reporting.scans_json(results))):
        assert "connection refused" in text
    assert "| app |  |  | not assessed | not assessed |" in reporting.scans_markdown(results)


def test_the_index_of_a_database_may_have_pages_above_pages_and_no_end_of_them_is_refused() -> None:
    last, (root,) = len(KNOWN) // PAGE, struct.unpack_from("<Q", KNOWN, 32)
    for below in (root, last):
        branch = struct.pack("<QHHIIIQ", last, BRANCH, 1, 0, 0, 0, below).ljust(PAGE, b"\0")
        content = bytearray(KNOWN + branch)
        for meta in (0, PAGE):
            struct.pack_into("<Q", content, meta + 32, last)
        if below == root:
            assert roots(bytes(content)) == roots(KNOWN) == {"debian 12", PIP, "vulnerability", "data-source"}
        else:
            with pytest.raises(ToolFailed, match="is none of its index"):
                roots(bytes(content))


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"debian 12 pip::", "it does not begin as one"), (KNOWN[:PAGE] + bytes(len(KNOWN) - PAGE), "is none of its index")],
)
def test_a_database_that_is_none_stops_everything_and_is_not_kept(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(ToolFailed, match=f"cannot be read: .*{says}"):
        scan([SUBJECT], bench(tmp_path, Scanner(database=content)))
    assert list(tmp_path.rglob("trivy.db")) == []
    assert files(tmp_path / ".pipeline") == []


def test_a_database_that_is_too_small_stops_everything(tmp_path: Path) -> None:
    here = bench(tmp_path, Scanner())
    here = replace(here, settings=replace(here.settings, least_database=None))
    assert here.least_database == LEAST_DATABASE
    with pytest.raises(ToolFailed, match=f"has {len(KNOWN)} bytes, a real one has more than 100000000"):
        scan([SUBJECT], here)
    assert files(tmp_path / ".pipeline") == []


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Scanner(database=known("debian 11", PIP)), "knows nothing of `debian 12`"),
        (Scanner(database=known("debian 11", PIP, package="debian 12")), "knows nothing of `debian 12`"),
        (Scanner(database=known("debian 12")), "knows nothing of `pip::`"),
        (Scanner(database=known("debian 12", f"of {PIP}")), "knows nothing of `pip::`"),
        (Scanner(report=recorded("no-system.json")), "is about the image"),
        (Scanner(report=recorded("torch.json")), "is about the image"),
        (Scanner(report=recorded("image.json")[:-9]), "cannot be read"),
        (Scanner(code=137), "was killed"),
        (Scanner(code=2), "failed with exit status 2"),
    ],
)
def test_when_an_image_cannot_be_scanned_nothing_is_written(tmp_path: Path, run: Scanner, says: str) -> None:
    (result,) = scan([SUBJECT], bench(tmp_path, run))
    assert says in str(result.error)
    assert files(tmp_path / ".pipeline") == []
    assert "| app | error |" in reporting.scans_markdown([result])


def test_a_list_that_lacks_a_package_is_noticed(tmp_path: Path) -> None:
    whole = json.loads(recorded("bom.json"))
    whole["components"] = [one for one in whole["components"] if one["name"] != "lib-a"]
    with pytest.raises(ToolFailed, match="is of 4 packages, its list has 3"):
        rescan(SUBJECT, bom(whole), bench(tmp_path, Scanner()))


def bom(document: Mapping[str, Any]) -> Bom:
    made = read(bom_statement(str(PINNED), document))
    assert isinstance(made, Bom)
    return made


def test_a_rescan_states_that_it_looked_at_a_list(tmp_path: Path) -> None:
    run = Scanner()
    result = scan([SUBJECT], bench(tmp_path, run))[0]
    first = result.scanned
    assert first is not None
    assert result.bom is not None
    second = rescan(SUBJECT, result.bom, bench(tmp_path, run)).scanned
    assert second is not None
    assert second.source == "sbom"
    assert second.vulnerabilities == first.vulnerabilities


@pytest.mark.parametrize(
    ("code", "stderr", "error", "says"),
    [
        (1, recorded("absent.txt").decode(), ToolFailed, "MANIFEST_UNKNOWN"),
        (1, recorded("unreachable.txt").decode(), Temporary, "connection refused"),
        (1, recorded("no-database.txt").decode(), ToolFailed, "--skip-db-update cannot be specified on the first run"),
        (1, recorded("refused.txt").decode(), RegistryRefused, "UNAUTHORIZED"),
        (1, "FATAL\tscan error: context deadline exceeded", Temporary, "deadline exceeded"),
        (1, "FATAL\tTOOMANYREQUESTS: retry-after: 35.852µs", Temporary, "TOOMANYREQUESTS"),
        (1, "FATAL\twrite /x: no space left on device", Temporary, "no space left"),
        (-9, "", Temporary, "killed"),
        (137, "", Temporary, "killed"),
        (-11, "", ToolFailed, "without a word"),
        (2, "panic: runtime error\ngoroutine 1", ToolFailed, "panic: runtime error goroutine 1"),
    ],
)
def test_a_failure_of_the_scanner_is_of_the_class_of_its_cause(
    code: int, stderr: str, error: type[PipelineError], says: str
) -> None:
    failed = trivy.failure("image", code, stderr)
    assert type(failed) is error
    assert says in failed.message
    assert "\n" not in failed.message


@pytest.mark.parametrize(("available", "layers"), [(10**5, 1), (2 * 10**6, 2), (10**9, 5)])
def test_as_many_layers_are_looked_at_together_as_there_is_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: int, layers: int
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:       99 kB\nMemAvailable:   {available} kB\n")
    monkeypatch.setattr(trivy, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert trivy.parallel() == layers


def test_the_summary_counts_a_vulnerability_once_and_names_secrets_and_what_is_not_assessed(tmp_path: Path) -> None:
    results = scan([SUBJECT], bench(tmp_path, Scanner()))
    text = reporting.scans_markdown(results)
    assert "| app | 2 | 2 | 1 (1 fixable) | 0 | 1 (1 fixable) | 1 | 0 | 2 | 1 forbidden, 1 restricted, 1 notice |" in text
    assert "- app: critical secret of the kind github-pat in `srv/notes` of app" in text
    assert "- app: critical secret of the kind github-pat in its configuration\n" in text
    assert "- app: listed, but nothing is known of them: vendor-blas 12.4, vendor-driver 1.0" in text
    assert "| CVE-2099-0001 | critical | shell 5.2 | 5.3 | `var/lib/dpkg/status` of os |" in text


def test_the_packages_of_one_source_do_not_crowd_a_summary(tmp_path: Path) -> None:
    (result,) = scan([SUBJECT], bench(tmp_path, Scanner()))
    assert result.scanned is not None
    first = result.scanned.vulnerabilities[0]
    many = [first.model_copy(update={"package": f"perl-{number}"}) for number in range(5)]
    never = first.model_copy(update={"id": "CVE-2099-0009", "fixed": "", "status": "fix_deferred"})
    dark = [f"conda-{number:02} 1" for number in range(26)]
    several = result.scanned.model_copy(update={"vulnerabilities": [*many, never], "unassessed": dark})
    text = reporting.scans_markdown([replace(result, scanned=several)])
    assert "| CVE-2099-0001 | critical | perl-0, perl-1, perl-2 and 2 more 5.2 | 5.3 |" in text
    assert "| CVE-2099-0009 | critical | shell 5.2 | fix deferred |" in text
    assert text.count("| CVE-2099-0001 |") == 1
    assert "conda-24 1 and 1 more\n" in text


def test_the_end_of_a_system_is_in_the_summary(tmp_path: Path) -> None:
    (result,) = scan([SUBJECT], bench(tmp_path, Scanner()))
    assert result.scanned is not None
    ended = replace(result, scanned=result.scanned.model_copy(update={"end_of_life": True}))
    assert "debian 12.9 has reached its end of life" in reporting.scans_markdown([ended])


def test_of_several_images_the_worst_code_counts() -> None:
    failed = Result(subject=SUBJECT, error=ToolFailed("x"))
    passing = Result(subject=SUBJECT, unscanned="why")
    assert exit_code([passing, failed]) == 5
    assert exit_code([passing]) == 0


def test_findings_name_the_layer_of_a_licence(tmp_path: Path) -> None:
    (result,) = scan([SUBJECT], bench(tmp_path, Scanner()))
    assert isinstance(result.findings, Findings)
    shell = Place(file="var/lib/dpkg/status", layer=str(GROUND), image="os")
    assert Licence(name="GPL-2.0-only", package="shell", category="restricted", place=shell) in result.findings.licences
    assert result.findings.size == 700
