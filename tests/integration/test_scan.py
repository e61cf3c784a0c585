"""Scans by the real Trivy: exactly what was planted is found, and what looked at nothing is never clean."""

import io
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import names, records, setup
from pipeline.command import Runner
from pipeline.errors import RegistryRefused, Temporary, ToolFailed
from pipeline.oci import Pinned
from pipeline.readiness import Need
from pipeline.registry import Registry
from pipeline.scan import Bench, Result, Subject, exit_code, rescan, scan
from pipeline.settings import Settings
from pipeline.statements import Place, read
from pipeline.story import Silent
from pipeline.surroundings import Surroundings
from tests.fakes import FakeRegistry, fake_registry
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT, ended, tiny, until
from tests.integration.images import layer, push
from tests.vulnerabilities import PIP, Advisory, database, metadata
from tests.vulnerabilities import push as push_database

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SITE = "opt/venv/lib/python3.11/site-packages"
DPKG = "var/lib/dpkg/status"
FIXED = Advisory(source="debian 12", package="shell", id="CVE-2099-0001", fixed="5.3", severity="CRITICAL")
UNFIXED = Advisory(source="debian 12", package="shell", id="CVE-2099-0002", severity="LOW")
MENDED = Advisory(source="debian 12", package="shell", id="CVE-2099-0003", fixed="1.0")
WHEEL = Advisory(source=PIP, package="lib-a", id="CVE-2099-0004", fixed="2.0", vulnerable="< 2.0", severity="MEDIUM")
VENDOR = Advisory(source="debian 12", package="vendor-driver", id="CVE-2099-0005")
ADVISORIES = (FIXED, UNFIXED, MENDED, WHEEL, VENDOR)
BUILDS_WITHIN = 3600.0
"""Seconds, where the candidates are not there yet."""
SCANS_WITHIN = 3600.0


def debian(*packages: str, version: str = "12") -> dict[str, bytes]:
    """Files of a Debian with these packages, each `name version maintainer`."""
    listed = [
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {number}\nMaintainer: {maintainer}\n"
        for name, number, maintainer in (package.split(" ", 2) for package in packages)
    ]
    release = f'ID=debian\nVERSION_ID="{version}"\nPRETTY_NAME="Debian GNU/Linux {version}"\n'
    return {
        "etc/os-release": release.encode(),
        "etc/debian_version": f"{version}.9\n".encode(),
        DPKG: "\n".join(listed).encode(),
        "usr/share/doc/shell/copyright": b"License: GPL-2.0-only\n",
    }


def wheel(name: str, version: str, licence: str = "MIT") -> dict[str, bytes]:
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: {licence}\n"
    return {f"{SITE}/{name.replace('-', '_')}-{version}.dist-info/METADATA": text.encode()}


def jar(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


DEBIAN = debian("shell 5.2 Debian <shell@lists.debian.org>")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


@pytest.fixture(scope="session")
def trivy(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Path:
    from platformdirs import user_cache_path

    cache = Path(os.environ.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False))
    ready = setup.ensure(
        frozenset({Need.TRIVY}),
        settings=Settings(root=tmp_path_factory.mktemp("trivy"), cache=cache),
        registry_host=stack.host,
        run=Runner(os.environ),
        story=Silent(),
        environment=os.environ,
    )
    return ready.tools["trivy"].path


@pytest.fixture
def bench(registry: FakeRegistry, trivy: Path, tmp_path: Path) -> Bench:
    """With a mirror whose database has `ADVISORIES`."""
    mirror = registry.repository("mirror/trivy-db").tag("2")
    push_database(mirror, database(ADVISORIES), metadata(NOW))
    settings = Settings(root=tmp_path, cache=tmp_path / "cache", database=str(mirror), least_database=1)
    return Bench(
        settings=settings,
        registry=Registry(),
        trivy=trivy,
        run=Runner(os.environ),
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        around=Surroundings(),
        story=Silent(),
        now=lambda: NOW,
        run_id="run",
        unassessed=("vendor-*",),
    )


def image(registry: FakeRegistry, *layers: Mapping[str, bytes], **config: Any) -> Subject:
    return Subject(image="app", pinned=push(registry, tuple(layer(files) for files in layers), config))


def written(bench: Bench, subject: Subject) -> set[str]:
    folder = records.path(bench.settings, subject.pinned.digest, "x").parent
    return {file.name for file in folder.glob("*")}


def only(results: Sequence[Result]) -> Result:
    (result,) = results
    if result.error:
        raise result.error
    return result


def test_exactly_what_was_planted_is_found_with_its_file_its_layer_and_its_image(bench: Bench, registry: FakeRegistry) -> None:
    below = image(registry, DEBIAN)
    app = image(registry, DEBIAN, wheel("lib-a", "1.5") | wheel("lib-b", "1.0"))
    result = only(scan([replace(app, lineage=[("os", below.pinned)], locked=frozenset({"lib-a", "lib-b"}))], bench))
    ground, top = Registry().config(app.pinned).diff_ids
    shell = Place(file=DPKG, layer=str(ground), image="os")
    lib = Place(file=f"{SITE}/lib_a-1.5.dist-info/METADATA", layer=str(top), image="app")
    assert result.scanned is not None
    assert [(one.id, one.package, one.fixed, one.severity, one.place) for one in result.scanned.vulnerabilities] == [
        (FIXED.id, "shell", "5.3", "CRITICAL", shell),
        (UNFIXED.id, "shell", "", "LOW", shell),
        (WHEEL.id, "lib-a", "2.0", "MEDIUM", lib),
    ]
    assert (result.scanned.packages, result.scanned.system, result.scanned.end_of_life) == (3, "debian 12.9", False)
    assert (result.scanned.database.version, result.scanned.database.updated) == ("2", NOW)
    assert result.scanned.scanner.startswith("pkg:golang/github.com/aquasecurity/trivy@0.")
    assert written(bench, app) == {"scanned.json", "findings.json", "bom.json"}
    for kind, record in (("scanned", result.scanned), ("findings", result.findings), ("bom", result.bom)):
        kept = read(json.loads(records.path(bench.settings, app.pinned.digest, kind).read_text()))
        assert record is not None
        assert kept.model_dump(mode="json") == record.model_dump(mode="json")


def test_licences_are_told_with_the_scanners_category_and_their_place(bench: Bench, registry: FakeRegistry) -> None:
    result = only(scan([image(registry, DEBIAN, wheel("lib-a", "1.5", "AGPL-3.0-only"))], bench))
    assert result.findings is not None
    found = {(one.name, one.category, one.package, one.place.file, one.place.image) for one in result.findings.licences}
    assert found == {
        ("AGPL-3.0-only", "forbidden", "lib-a", f"{SITE}/lib_a-1.5.dist-info/METADATA", "app"),
        ("GPL-2.0-only", "restricted", "shell", DPKG, "app"),
    }
    assert result.findings.size == Registry().manifest(result.subject.pinned).size


def test_a_secret_in_a_file_or_in_a_variable_is_found_and_its_text_is_written_nowhere(
    bench: Bench, registry: FakeRegistry
) -> None:
    first, second = (f"ghp_{secrets.token_hex(18)}" for _ in range(2))
    subject = image(registry, DEBIAN, {"srv/notes": f"token = {first}\n".encode()}, Env=[f"TOKEN={second}"])
    result = only(scan([subject], bench))
    assert result.findings is not None
    assert [(one.rule, one.severity) for one in result.findings.secrets] == [("github-pat", "CRITICAL")] * 2
    places = [one.place for one in result.findings.secrets]
    assert Place(file="srv/notes", layer=str(Registry().config(subject.pinned).diff_ids[1]), image="app") in places
    kept = [file for place in (bench.settings.root, bench.settings.cache) for file in place.rglob("*") if file.is_file()]
    assert kept
    assert [file for file in kept if first.encode() in file.read_bytes() or second.encode() in file.read_bytes()] == []


COPIED = {"created_by": "COPY / / # buildkit", "comment": "buildkit.dockerfile.v0"}
COMMAND = {"created_by": 'CMD ["bash"]', "comment": "buildkit.dockerfile.v0", "empty_layer": True}
OLD_COMMAND = {"created_by": '/bin/sh -c #(nop)  CMD ["bash"]', "empty_layer": True}


@pytest.mark.parametrize(
    "history",
    [
        [COPIED, COPIED, COPIED],
        [COPIED, COMMAND, COPIED, COPIED, COMMAND],
        [COPIED, OLD_COMMAND, COPIED, COMMAND, COPIED],
        [COPIED, COPIED, COMMAND, COPIED],
    ],
)
def test_a_secret_is_found_in_every_layer_also_below_the_command_of_a_parent(
    bench: Bench, registry: FakeRegistry, history: Sequence[Mapping[str, Any]]
) -> None:
    keys = [f"token = ghp_{secrets.token_hex(18)}\n".encode() for _ in range(3)]
    layers = [{**(DEBIAN if not number else {}), f"srv/{number}": key} for number, key in enumerate(keys)]
    contents = tuple(layer(files) for files in layers)
    subject = Subject(image="app", pinned=push(registry, contents, {}, history=history))
    result = only(scan([subject], bench))
    assert result.findings is not None
    diff_ids = Registry().config(subject.pinned).diff_ids
    assert [(one.place.file, one.place.layer) for one in result.findings.secrets] == [
        (f"srv/{number}", str(diff_id)) for number, diff_id in enumerate(diff_ids)
    ]


def test_packages_that_no_advisory_is_about_are_listed_as_such(bench: Bench, registry: FakeRegistry) -> None:
    packages = ("shell 5.2 Debian <shell@lists.debian.org>", "vendor-driver 1.0 Vendor <cudatools@nvidia.com>")
    result = only(scan([image(registry, debian(*packages), wheel("vendor-blas", "12.4"))], bench))
    assert result.scanned is not None
    assert result.scanned.unassessed == ("vendor-blas 12.4", "vendor-driver 1.0")
    assert result.scanned.packages == 1
    assert {one.id for one in result.scanned.vulnerabilities} == {FIXED.id, UNFIXED.id}


def test_what_real_databases_tell_is_read_and_a_rescan_reads_the_same(bench: Bench, registry: FakeRegistry) -> None:
    rejected = Advisory(source="debian 12", package="shell", id="CVE-2099-0011", fixed="5.3", severity="")
    bulletin = Advisory(source="debian 12", package="shell", id="CVE-2099-0012", fixed="1:5.3", vendor_ids=["DSA-1-1"])
    ghsa = Advisory(source=PIP, package="lib-a", id="CVE-2099-0013", vulnerable="< 2.0", vendor_ids=["GHSA-xxxx-yyyy-zzzz"])
    renew(bench, rejected, bulletin, ghsa)
    vendored = {name.replace(SITE, f"{SITE}/other/_vendor"): text for name, text in wheel("lib-a", "1.5").items()}
    both = debian("shell 5.2 Debian <s@x>", "shell-common 5.2 Debian <s@x>") | wheel("lib-a", "1.5") | vendored
    subject = image(registry, both)
    first = only(scan([subject], bench))
    assert first.scanned is not None
    assert first.bom is not None
    assert {(one.id, one.severity, tuple(one.aliases), one.published is None) for one in first.scanned.vulnerabilities} == {
        ("CVE-2099-0011", "UNKNOWN", (), True),
        ("CVE-2099-0012", "HIGH", (), False),
        ("CVE-2099-0013", "HIGH", ("GHSA-xxxx-yyyy-zzzz",), False),
    }
    assert len({one.place.file for one in first.scanned.vulnerabilities if one.package == "lib-a"}) == 2
    again = rescan(subject, first.bom, bench).scanned
    assert again is not None
    assert again.vulnerabilities == first.scanned.vulnerabilities


def test_java_archives_keep_no_image_from_being_scanned_and_are_listed_as_not_assessed(
    bench: Bench, registry: FakeRegistry
) -> None:
    archives = {
        "opt/named.jar": jar({"META-INF/maven/a/b/pom.properties": b"groupId=org.example\nartifactId=named\nversion=1.0\n"}),
        "opt/nameless.jar": jar({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n"}),
        "opt/broken.jar": b"PK",
    }
    result = only(scan([image(registry, DEBIAN | archives)], bench))
    assert result.scanned is not None
    assert result.bom is not None
    assert result.scanned.unassessed == ("org.example:named 1.0",)
    assert "named" in result.bom.components
    again = rescan(result.subject, result.bom, bench).scanned
    assert again is not None
    assert (again.unassessed, again.packages) == (result.scanned.unassessed, result.scanned.packages)


def test_a_system_after_its_end_is_told_though_nothing_is_found_in_it(bench: Bench, registry: FakeRegistry) -> None:
    renew(bench, Advisory(source="debian 9", package="other", id="CVE-2099-0009"))
    result = only(scan([image(registry, debian("shell 5.2 Debian <x@debian.org>", version="9"))], bench))
    assert result.scanned is not None
    assert (result.scanned.end_of_life, result.scanned.vulnerabilities) == (True, ())


def test_layers_of_an_unknown_parent_are_not_put_down_to_anybody(bench: Bench, registry: FakeRegistry) -> None:
    other = image(registry, debian("shell 9 Debian <x@debian.org>"))
    app = replace(image(registry, DEBIAN, wheel("lib-a", "1.5")), lineage=[("os", other.pinned)])
    result = only(scan([app], bench))
    assert result.scanned is not None
    assert {one.place.image for one in result.scanned.vulnerabilities} == {""}


def test_a_rescan_of_the_list_alone_finds_the_same(bench: Bench, registry: FakeRegistry) -> None:
    below = image(registry, DEBIAN)
    packages = ("shell 5.2 Debian <shell@lists.debian.org>", "vendor-driver 1.0 Vendor <cudatools@nvidia.com>")
    top = debian(*packages) | wheel("lib-a", "1.5") | wheel("vendor-blas", "12.4")
    app = replace(image(registry, DEBIAN, top), lineage=[("os", below.pinned)])
    first = only(scan([app], bench))
    assert first.bom is not None
    for blob in Registry().manifest(app.pinned).layers:
        del registry.blobs[str(blob.digest)]
    second = rescan(app, first.bom, bench)
    assert first.scanned is not None
    assert second.scanned == first.scanned.model_copy(update={"source": "sbom"})
    assert first.scanned.unassessed == ("vendor-blas 12.4", "vendor-driver 1.0")
    with pytest.raises(ToolFailed, match="not about `app`"):
        rescan(replace(app, pinned=below.pinned), first.bom, bench)


def renew(bench: Bench, *advisories: Advisory, content: bytes | None = None, about: bytes | None = None) -> None:
    """Another database in the mirror, and nothing left of the one before."""
    assert bench.settings.database
    mirror = Pinned.parse(f"{bench.settings.database}@sha256:{'0' * 64}").repository.tag("2")
    push_database(mirror, content if content is not None else database(advisories), about or metadata(NOW))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"srv/x": b"x"}, "knows no operating system"),
        ({**DEBIAN, DPKG: b""}, "found no package of debian"),
        ({**DEBIAN, "etc/os-release": b"ID=unheard\n", "etc/debian_version": b""}, "operating system"),
    ],
    ids=["no-system", "no-packages", "unheard-of"],
)
def test_an_image_that_was_not_really_looked_at_is_an_error_and_nothing_is_written(
    bench: Bench, registry: FakeRegistry, files: Mapping[str, bytes], says: str
) -> None:
    subject = image(registry, files)
    (result,) = scan([subject], bench)
    assert isinstance(result.error, ToolFailed)
    assert says in str(result.error)
    assert written(bench, subject) == set()
    assert exit_code([result]) == ToolFailed.exit_code


def test_a_distribution_of_the_locks_that_was_not_seen_is_an_error(bench: Bench, registry: FakeRegistry) -> None:
    subject = replace(image(registry, DEBIAN, wheel("lib-a", "1.5")), locked=frozenset({"lib-a", "lib-c"}))
    (result,) = scan([subject], bench)
    assert "did not see 1 of the distributions" in str(result.error)
    assert "`lib-c`" in str(result.error)
    assert written(bench, subject) == set()


def test_an_image_that_cannot_be_scanned_keeps_none_of_the_others_from_it(bench: Bench, registry: FakeRegistry) -> None:
    bad, good = image(registry, {"srv/x": b"x"}), image(registry, DEBIAN)
    results = scan([bad, good], bench)
    assert [bool(result.error) for result in results] == [True, False]
    assert exit_code(results) == ToolFailed.exit_code


@pytest.mark.parametrize(
    ("content", "about", "least", "says"),
    [
        (None, None, 10**8, "a real one has more than 100000000"),
        (b"", None, 1, "has 0 bytes"),
        (None, metadata(datetime(1, 1, 1, tzinfo=UTC)), 1, "tells nothing of its vulnerability database"),
        (None, metadata(datetime(1970, 1, 1, tzinfo=UTC)), 1, "tells no date"),
        (database([WHEEL]), None, 1, "knows nothing of `debian 12`"),
        (database([]), None, 1, "knows nothing of `debian 12`"),
        (database([FIXED]), None, 1, "knows nothing of `pip::`"),
        (secrets.token_bytes(70_000), None, 1, "cannot be read"),
    ],
    ids=["tiny", "empty", "undated", "timeless", "without-the-system", "without-anything", "without-the-language", "noise"],
)
def test_a_database_that_would_find_nothing_is_an_error_and_nothing_is_written(
    bench: Bench, registry: FakeRegistry, content: bytes | None, about: bytes | None, least: int, says: str
) -> None:
    renew(bench, *ADVISORIES, content=content, about=about)
    bench = replace(bench, settings=replace(bench.settings, least_database=least))
    subject = image(registry, DEBIAN, wheel("lib-a", "1.5"))
    with pytest.raises(ToolFailed, match=says):
        only(scan([subject], bench))
    assert written(bench, subject) == set()
    renew(bench, *ADVISORIES)
    mended = replace(bench, settings=replace(bench.settings, least_database=1))
    assert only(scan([subject], mended)).scanned is not None, "it is brought anew where the mirror has a better one"


def test_without_any_database_there_is_no_statement_about_vulnerabilities_and_the_rest_is_there(
    bench: Bench, registry: FakeRegistry
) -> None:
    bench = replace(bench, settings=replace(bench.settings, database=f"{registry.host}/nobody/here:2"))
    subject = image(registry, DEBIAN)
    records.write(bench.settings, subject.pinned.digest, "scanned", {})
    result = only(scan([subject], bench))
    assert result.scanned is None
    assert "MANIFEST_UNKNOWN" in result.unscanned
    assert written(bench, subject) == {"findings.json", "bom.json"}
    assert (exit_code([result]), exit_code([result], require_database=True)) == (0, 75)
    assert result.bom is not None
    with pytest.raises(Temporary, match="no vulnerability database"):
        rescan(subject, result.bom, bench)


def test_when_the_mirror_is_gone_the_last_database_counts_with_its_own_date(bench: Bench, registry: FakeRegistry) -> None:
    subject = image(registry, DEBIAN)
    only(scan([subject], bench))
    registry.manifests = {key: body for key, body in registry.manifests.items() if key[0] != "mirror/trivy-db"}
    result = only(scan([subject], bench))
    assert result.scanned is not None
    assert result.scanned.database.updated == NOW
    assert len(result.scanned.vulnerabilities) == 2


def test_two_runs_at_once_share_the_database_and_nothing_of_either_is_left(bench: Bench, registry: FakeRegistry) -> None:
    subjects = [image(registry, DEBIAN, {"srv/x": bytes([number])}) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = [only(found) for found in pool.map(lambda subject: scan([subject], bench), subjects)]
    assert [len(result.scanned.vulnerabilities) if result.scanned else 0 for result in results] == [2, 2]
    assert list((bench.settings.cache / "scanning").iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next(bench: Bench, registry: FakeRegistry) -> None:
    left = bench.settings.cache / "scanning" / "dead"
    left.mkdir(parents=True)
    (left / "x").write_text("x")
    left.with_name("dead.lock").touch()
    only(scan([image(registry, DEBIAN)], bench))
    assert list((bench.settings.cache / "scanning").iterdir()) == []


def test_the_scanner_gets_neither_the_users_settings_nor_secrets(
    bench: Bench, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    harmful = {"TRIVY_SEVERITY": "MEDIUM", "TRIVY_IGNORE_UNFIXED": "true", "COSIGN_PASSWORD": "x", "TRIVY_SKIP_DIRS": "/var"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trivy.yaml").write_text("severity: [MEDIUM]\n")
    (tmp_path / ".trivyignore").write_text(f"{FIXED.id}\n")
    spy = program(tmp_path, f'env >>"{told}"\nexec "{bench.trivy}" "$@"')
    run = Runner({**os.environ, **harmful})
    result = only(
        scan([image(registry, DEBIAN)], replace(bench, trivy=spy, run=run, environment={**bench.environment, **harmful}))
    )
    assert result.scanned is not None
    assert [one.id for one in result.scanned.vulnerabilities] == [FIXED.id, UNFIXED.id]
    given = {line.partition("=")[0] for line in told.read_text().splitlines()}
    assert given <= {"PATH", "HOME", "TMPDIR", "PWD", "SHLVL", "_"}


def test_a_private_registry_is_read_with_dockers_own_login(bench: Bench, registry: FakeRegistry, tmp_path: Path) -> None:
    subject = image(registry, DEBIAN)
    only(scan([subject], bench))
    known = replace(bench, registry=Known(subject.pinned, Registry()))
    registry.users["ada"] = "s3cret"
    login = {"auths": {registry.host: {"auth": "YWRhOnMzY3JldA=="}}}
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(login))
    environment = {**bench.environment, "DOCKER_CONFIG": str(tmp_path / "docker")}
    only(scan([subject], replace(known, environment=environment)))
    (result,) = scan([subject], known)
    assert isinstance(result.error, RegistryRefused)


def program(folder: Path, script: str) -> Path:
    path = folder / f"trivy-{secrets.token_hex(4)}"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


LOOKS = 'case "$*" in *"--image-src"*) {then} ;; esac\nexec "{trivy}" "$@"'


@pytest.mark.parametrize(
    ("then", "error", "says"),
    [
        ("echo FATAL no luck >&2; exit 1", ToolFailed, "failed with exit status 1: no luck"),
        ("kill -9 $$", Temporary, "killed, most likely for lack of memory"),
        ("exit 137", Temporary, "killed, most likely for lack of memory"),
        ("exit 0", ToolFailed, "without a `report.json`"),
        ('"{trivy}" "$@"; head -c 700 report.json >half; mv half report.json; exit 0', ToolFailed, "cannot be read"),
        ("echo '{{}}' >report.json; exit 0", ToolFailed, "cannot be read"),
        ("echo FATAL context deadline exceeded >&2; exit 1", Temporary, "deadline exceeded"),
    ],
    ids=["fails", "killed", "killed-inside", "silent", "half", "another-schema", "too-slow"],
)
def test_a_scanner_that_fails_is_never_a_clean_scan(
    bench: Bench, registry: FakeRegistry, tmp_path: Path, then: str, error: type[Exception], says: str
) -> None:
    real = str(bench.trivy)
    faulty = program(tmp_path, LOOKS.format(then=then.format(trivy=real), trivy=real))
    subject = image(registry, DEBIAN)
    (result,) = scan([subject], replace(bench, trivy=faulty))
    assert type(result.error) is error
    assert says in str(result.error)
    assert written(bench, subject) == set()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_scanner_and_nothing_is_left(
    stack: Stack, tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    family, folder, pid = tiny(tmp_path / "family", stack), tmp_path / "bin", tmp_path / "pid"
    assert family.call("build").code == 0
    folder.mkdir()
    slow = f'case "$*" in *--version*) echo "Version: 0.76.0" ;; *) echo $$ >"{pid}"; exec sleep 600 ;; esac'
    program(folder, slow).rename(folder / "trivy")
    scanning = family.start("scan", "app", PATH=f"{folder}:{os.environ['PATH']}")
    until(lambda: pid.is_file() and pid.read_text(), "the scanner does not start")
    scanning.send_signal(signum)
    assert ended(scanning).code == code
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert list((family.cache / "scanning").iterdir()) == []
    assert {file.name for file in (family.root / ".pipeline").rglob("*.json")} == {"built.json"}


def test_a_report_about_another_image_is_refused(bench: Bench, registry: FakeRegistry, tmp_path: Path) -> None:
    subject, other = image(registry, DEBIAN), image(registry, DEBIAN, {"srv/x": b"x"})
    real, names_ours, names_other = bench.trivy, str(subject.pinned.digest), str(other.pinned.digest)
    script = f'for word; do shift; set -- "$@" "$(echo "$word" | sed s/{names_ours}/{names_other}/)"; done\nexec "{real}" "$@"'
    (result,) = scan([subject], replace(bench, trivy=program(tmp_path, script)))
    assert isinstance(result.error, ToolFailed)
    assert "trivy's report is about the image" in str(result.error)
    assert written(bench, subject) == set()


def test_the_real_images_by_the_command_line(stack: Stack, tmp_path: Path) -> None:
    mirror = f"{stack.candidates}/trivy-db:2"
    planted = [
        Advisory(source="debian 12", package="bash", id="CVE-2099-1001", fixed="99.0", severity="CRITICAL"),
        Advisory(source="debian 12", package="coreutils", id="CVE-2099-1002", fixed="0.1"),
        Advisory(source=PIP, package="torch", id="CVE-2099-1003", vulnerable="<= 2.6.0", severity="HIGH"),
        Advisory(source=PIP, package="numpy", id="CVE-2099-1004", vulnerable="< 1.0"),
    ]
    pinned = Pinned.parse(f"{mirror}@sha256:{'0' * 64}")
    push_database(pinned.repository.tag("2"), database(planted), metadata(datetime.now(UTC)))
    verb(["build", "os", "pytorch"], BUILDS_WITHIN)
    environment = {names.ENV_DATABASE: mirror, names.ENV_LEAST_DATABASE: "1"}
    os_, torch = verb(["scan", "os", "pytorch", "--statements", str(tmp_path)], SCANS_WITHIN, **environment)
    found = [
        (one["id"], one["package"], one["place"]["file"], one["place"]["image"]) for one in torch["scanned"]["vulnerabilities"]
    ]
    bash = ("CVE-2099-1001", "bash", DPKG, "os")
    assert [(one["id"], one["place"]["image"]) for one in os_["scanned"]["vulnerabilities"]] == [("CVE-2099-1001", "os")]
    assert found == [bash, ("CVE-2099-1003", "torch", f"{SITE}/torch-2.6.0.dist-info/METADATA", "pytorch")]
    assert any(one.startswith("nvidia-cudnn-cu12 ") for one in torch["scanned"]["unassessed"])
    assert torch["findings"]["secrets"] == []
    bom = tmp_path / Pinned.parse(torch["pinned"]).digest.hex / "bom.json"
    again = ["scan", "pytorch", "--from-sbom", str(bom), "--statements", str(tmp_path / "again")]
    (second,) = verb(again, SCANS_WITHIN, **environment)
    moments = ("started", "finished", "run", "source")
    assert {k: v for k, v in second["scanned"].items() if k not in moments} == {
        k: v for k, v in torch["scanned"].items() if k not in moments
    }
    assert second["scanned"]["source"] == "sbom"


def test_without_a_database_the_command_line_says_so_and_fails_only_when_asked_to(stack: Stack, tmp_path: Path) -> None:
    verb(["build", "os"], BUILDS_WITHIN)
    environment = {**os.environ, names.ENV_DATABASE: f"{stack.candidates}/nobody:2"}
    words = ["scan", "os", "--statements", str(tmp_path)]
    for more, code in ((), 0), (["--require-database"], 75):
        done = call([*words, *more], environment)
        assert done.returncode == code
        assert "os: vulnerabilities not assessed:" in done.stderr
    assert {file.name for file in tmp_path.rglob("*.json")} == {"findings.json", "bom.json"}
    (bom,) = tmp_path.rglob("bom.json")
    text = json.loads(bom.read_text())
    text["subject"][0]["digest"]["sha256"] = "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(text))
    (tmp_path / "half.json").write_bytes(bom.read_bytes()[:500])
    for name, says in (
        ("other.json", "lists the packages of"),
        ("half.json", "is no list of packages that we can read"),
        (f"{bom.parent.name}/findings.json", "is another statement than a list of packages"),
        ("absent.json", "No such file"),
    ):
        done = call([*words, "--from-sbom", str(tmp_path / name)], environment)
        assert done.returncode == 2
        assert says in done.stderr


def call(words: Sequence[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "pipeline", *words]
    return subprocess.run(argv, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=SCANS_WITHIN, check=False)


def verb(words: Sequence[str], seconds: float, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *words, "--json"],
        cwd=PROJECT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        timeout=seconds,
        check=True,
    )
    return json.loads(done.stdout)


class Known:
    """What a registry told of one image while it was open to all."""

    def __init__(self, pinned: Pinned, registry: Registry) -> None:
        manifest, config = registry.manifest(pinned), registry.config(pinned)
        blob = registry.blob(pinned.repository, manifest.config)
        self.blob = lambda repository, descriptor: blob
        self.stream = registry.stream
        self.manifest = lambda pinned: manifest
        self.config = lambda pinned: config
