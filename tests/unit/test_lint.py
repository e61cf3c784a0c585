"""`lint` names file, line, fault and remedy."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.catalog import Catalog, Image, Rootfs
from pipeline.command import Completed
from pipeline.errors import InputError, ToolFailed
from pipeline.lint import OFF, Finding, examine, exceptions, lint
from pipeline.settings import Settings
from tests.cases import NOW

DIGEST = "sha256:" + "a" * 64
OS = Image(name="os", description="x", release=False, rootfs=Rootfs(suite="bookworm", packages=("bash",)))
TOOLS = Image(name="tools", description="x", release=False, parent="os")
APP = Image(name="app", description="x", variant="app", parent="os", uses=("tools",))
ALONE = Image(name="alone", description="x", variant="alone")
CATALOG = Catalog(
    line="2.6",
    repository="family",
    candidates="localhost:5601/candidates",
    releases="localhost:5601/releases",
    platform="linux/amd64",
    epoch=datetime(2025, 1, 29, tzinfo=UTC),
    compression_level=7,
    images={image.name: image for image in (OS, TOOLS, APP, ALONE)},
)


def found(text: str, image: Image = APP) -> list[tuple[int, str]]:
    return [(finding.line, finding.rule) for finding in examine(CATALOG, image, text)]


class Hadolint:
    """Answers as hadolint does."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.argv: list[str] = []

    def __call__(self, *argv: str | Path, **_: Any) -> Completed:
        self.argv = [str(word) for word in argv]
        return Completed(argv=tuple(self.argv), code=0, stdout=self.answer, stderr="", seconds=0.1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("tools", "app", "alone"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "Dockerfile").write_text("FROM base\n" if name != "alone" else "FROM scratch\n")
    return Settings(root=tmp_path, cache=tmp_path / "cache")


def test_an_install_outside_the_lock_is_named_with_its_own_line() -> None:
    (finding,) = examine(CATALOG, APP, "FROM base\nRUN true && \\\n    # a comment\n    pip install \\\n      foo")
    assert str(finding).startswith("error: images/app/Dockerfile:5: installs `foo` outside the lock (outside-lock) → ")
    assert "nox -s update -- app" in finding.hint


def test_installs_are_found_in_heredocs_arrays_and_triggers() -> None:
    assert found("FROM base\nRUN <<E\nset -e\npip install foo\nE") == [(4, "outside-lock")]
    assert found('FROM base\nRUN ["pip", "install", "foo"]') == [(2, "outside-lock")]
    assert found("FROM base\nONBUILD RUN pip install foo") == [(2, "outside-lock")]
    assert found("FROM base\nRUN curl https://x/y | sh") == [(2, "piped-script")]


def test_images_from_outside_have_digests() -> None:
    assert found("# syntax=docker/dockerfile:1\nFROM python:3.11 AS a\nFROM base\nCOPY --from=x/y /x /") == [
        (1, "unpinned-image"),
        (2, "unpinned-image"),
        (4, "unpinned-image"),
    ]
    assert found(f"FROM python:3.11@{DIGEST} AS a\nFROM tools AS b\nFROM scratch AS c\nFROM base") == []
    assert found("FROM x:$T AS a\nFROM base") == [(1, "unread-image")]
    assert found("FROM x/y-${TARGETARCH}:1 AS a\nFROM base") == [(1, "unpinned-image")]


@pytest.mark.parametrize("line", ["ARG HTTP_PROXY", "ARG A=1 no_proxy", "ONBUILD ARG https_proxy=http://x"])
def test_arguments_that_the_builder_fills_with_a_proxy_are_found(line: str) -> None:
    assert found(f"FROM base\n{line}") == [(2, "baked-proxy")]
    assert found("FROM base\nARG PROXY\nENV HTTP_PROXY=http://proxy.example.com:3128") == []


def test_a_dockerfile_that_is_no_text_is_named(settings: Settings) -> None:
    (settings.images / "app/Dockerfile").write_bytes(b"FROM base\n# caf\xe9\n")
    with pytest.raises(InputError, match=r"images/app/Dockerfile` cannot be read: 'utf-8'"):
        lint(["app"], settings=settings, catalog=CATALOG, hadolint=Path("hadolint"), run=Hadolint("[]"))


def test_an_image_of_the_family_that_was_not_asked_for_is_told_how() -> None:
    hints = [finding.hint for finding in examine(CATALOG, TOOLS, "FROM app AS a\nFROM base")]
    assert hints == ["to start from the family's own image, add `app` to `uses:` in `image.yaml`"]
    (finding,) = examine(CATALOG, ALONE, "FROM base")
    assert "`parent:`" in finding.hint


def test_the_final_stage_stands_on_the_parent() -> None:
    assert found("FROM base AS a\nFROM tools") == [(2, "not-on-parent")]
    assert found("FROM base AS a\nFROM tools AS b\nFROM a") == []
    assert found(f"FROM python@{DIGEST}", ALONE) == []


@pytest.mark.parametrize(
    "line",
    [
        "ENV API_TOKEN=x",
        "ENV DB_PASSWORD x",
        "ARG GITHUB_TOKEN",
        "ARG TOKEN=",
        "ARG X=1 AWS_SECRET_ACCESS_KEY=2",
        "ENV X=ghp_0123456789abcdef",
    ],
)
def test_secrets_in_variables_are_found(line: str) -> None:
    assert found(f"FROM base\n{line}") == [(2, "baked-secret")]


@pytest.mark.parametrize(
    "line",
    [
        "ENV TOKENIZERS_PARALLELISM=false",
        "ENV KEYBOARD=us",
        "ARG TOKEN_FILE=/x",
        "ENV SSH_PUBLIC_KEY=x",
        "ENV PATH=/x",
        "ENV TOKEN=",
    ],
)
def test_names_that_only_look_like_secrets_are_not(line: str) -> None:
    assert found(f"FROM base\n{line}") == []


def test_what_is_added_from_elsewhere_has_a_checksum() -> None:
    assert found("FROM base\nADD https://x/y /\nADD git@x:y.git /z\nADD local /l") == [
        (2, "unpinned-download"),
        (3, "unpinned-download"),
    ]
    assert found(f"FROM base\nADD --checksum={DIGEST} https://x/y /") == []


def test_a_dockerfile_that_cannot_be_read_is_one_finding() -> None:
    (finding,) = examine(CATALOG, APP, "FROM base\nRUNN x")
    assert (finding.line, finding.rule, finding.fatal) == (2, "dockerfile", True)


def test_hadolint_is_asked_without_the_rules_that_are_off(settings: Settings) -> None:
    said = [
        {
            "file": "images/app/Dockerfile",
            "line": 3,
            "code": "DL4000",
            "level": "error",
            "message": "m",
            "column": 1,
        },
        {"file": "images/app/Dockerfile", "line": 2, "code": "SC2086", "level": "info", "message": "q", "column": 1},
    ]
    hadolint = Hadolint(json.dumps(said))
    findings = lint(["os", "tools", "app"], settings=settings, catalog=CATALOG, hadolint=Path("/h"), run=hadolint)
    assert [(x.path, x.line, x.rule, x.fatal) for x in findings] == [
        ("images/app/Dockerfile", 2, "SC2086", False),
        ("images/app/Dockerfile", 3, "DL4000", True),
    ]
    assert hadolint.argv.count("--ignore") == len(OFF)
    assert hadolint.argv[-2:] == [f"images/{name}/Dockerfile" for name in ("tools", "app")]


def test_images_without_a_dockerfile_start_nothing(settings: Settings) -> None:
    hadolint = Hadolint("")
    assert lint(["os"], settings=settings, catalog=CATALOG, hadolint=Path("/h"), run=hadolint) == ()
    assert hadolint.argv == []


@pytest.mark.parametrize(
    "answer", ["", "{}", "[1]", '[{"file": "x"}]', '[{"file": "x", "line": 1, "code": "a", "message": "b"}]']
)
def test_an_answer_that_cannot_be_read_is_no_clean_lint(settings: Settings, answer: str) -> None:
    with pytest.raises(ToolFailed):
        lint(["app"], settings=settings, catalog=CATALOG, hadolint=Path("/h"), run=Hadolint(answer))


def test_a_missing_dockerfile_is_an_input_error(settings: Settings) -> None:
    (settings.images / "app" / "Dockerfile").unlink()
    with pytest.raises(InputError, match="Dockerfile"):
        lint(["app"], settings=settings, catalog=CATALOG, hadolint=Path("/h"), run=Hadolint("[]"))


def test_findings_sort_by_place() -> None:
    one, two = (Finding(path="a", line=line, rule="r", text="t") for line in (2, 10))
    assert sorted([two, one]) == [one, two]


ADDING = APP.model_copy(update={"packages": ("git",)})
STEP = 'RUN --mount=type=bind,from=packages,target=/packages --network=none ["/bin/sh", "/packages/install.sh"]'


def test_packages_are_a_known_name_where_the_image_adds_some() -> None:
    assert found(f"FROM base\n{STEP}", ADDING) == []
    (finding,) = examine(CATALOG, APP, f"FROM base\n{STEP}")
    assert (finding.line, finding.rule) == (2, "unpinned-image")
    assert "`packages:` in `image.yaml`" in finding.hint


def test_packages_that_no_step_installs_are_found_with_the_step_to_write() -> None:
    (finding,) = examine(CATALOG, ADDING, 'FROM base\nRUN ["/bin/true"]')
    assert (finding.line, finding.rule, finding.fatal) == (1, "unused-packages", True)
    assert STEP in finding.hint


def test_an_exception_of_a_misspelt_image_is_a_fault_of_its_own_line(settings: Settings) -> None:
    assert exceptions(settings, CATALOG, NOW) == ()
    (settings.root / "policies").mkdir()
    entry = "  - {rule: size, image: app, owner: o, reason: r, expires: 2026-06-01}\n"
    text = f"exceptions:\n{entry}{entry.replace('app', 'ap')}"
    (settings.root / "policies" / "exceptions.yaml").write_text(text)
    (found,) = exceptions(settings, CATALOG, NOW)
    text = "exception `size` is of no image: there is no `ap`, did you mean `app`?"
    assert str(found) == f"error: policies/exceptions.yaml:3: {text} (idle-exception)"
