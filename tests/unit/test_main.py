"""The command line: arguments, settings, exit codes."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline import policies, surroundings, verbs
from pipeline.__main__ import main
from pipeline.arguments import parse, parser
from pipeline.errors import InputError
from pipeline.oci import Digest, Repository, Tagged
from pipeline.verbs import VERBS, releases

FAMILY = Path(__file__).parents[2]


def test_every_verb_of_the_parser_is_one_that_runs() -> None:
    text = parser().format_help()
    assert all(f"    {verb} " in text for verb in VERBS)
    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([verb, "--help"])
        assert ended.value.code == 0


def test_options_have_no_abbreviations(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["build", "--rebuil"])
    assert ended.value.code == 2
    assert "--rebuil" in capsys.readouterr().err


def test_words_after_an_image_belong_to_the_command_that_runs_in_it() -> None:
    assert parser().parse_args(["run", "nlp", "python", "-c", "1", "--json"]).command == ["python", "-c", "1", "--json"]


def test_a_folder_without_a_catalog_is_exit_2_and_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan"], {"HOME": str(tmp_path)}) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"there is no `images/catalog.yaml` in `{tmp_path}` or above it" in told.err
    assert "hint: " in told.err


def test_whoever_verifies_without_a_catalog_is_told_of_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "registry.example.com/x:1"], {"HOME": str(tmp_path)}) == 2
    assert "name the folder of public keys with `--keys`" in capsys.readouterr().err


def test_an_unknown_image_is_exit_2_with_the_nearest_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", "npl", "--root", str(FAMILY)], {"PIPELINE_CACHE": str(tmp_path)}) == 2
    assert "hint: did you mean `nlp`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PIPELINE_TRIVY_DB": "mirror:5000/trivy-db"}, "hint: `mirror:5000/trivy-db:2`, the schema of the database"),
        ({"PIPELINE_TRIVY_DB_LEAST": "100 MB"}, "`PIPELINE_TRIVY_DB_LEAST` is no number of bytes: `100 MB`"),
    ],
)
def test_a_database_that_is_not_fully_named_is_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, environment: Mapping[str, str], says: str
) -> None:
    assert main(["scan", "--root", str(FAMILY)], {"PIPELINE_CACHE": str(tmp_path), **environment}) == 2
    assert says in capsys.readouterr().err


def test_the_catalog_is_found_from_a_folder_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(FAMILY / "images" / "nlp")
    assert main(["plan", "npl"], {"PIPELINE_CACHE": str(tmp_path)}) == 2


def test_a_registry_that_does_not_answer_is_exit_75_and_never_an_empty_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["plan", "--json", "--root", str(FAMILY), "--candidates", "localhost:1/candidates"]
    assert main(arguments, {"PIPELINE_CACHE": str(tmp_path)}) == 75
    told = capsys.readouterr()
    assert told.out == ""
    assert "localhost:1" in told.err


def test_a_folder_that_may_not_be_written_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused(_: object) -> int:
        raise PermissionError(13, "Permission denied", "/root/x")

    monkeypatch.setattr(verbs, "VERBS", {"plan": refused})
    assert main(["plan", "--root", str(FAMILY)], {"PIPELINE_CACHE": str(tmp_path)}) == 2
    assert "error: `/root/x` cannot be used: Permission denied" in capsys.readouterr().err


def test_a_home_in_a_variable_is_the_home_and_no_folder_of_that_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["plan"], {"PIPELINE_ROOT": "~/family", "PIPELINE_CACHE": "~/cache"}) == 2
    assert f"`{tmp_path}/family/images/catalog.yaml`" in capsys.readouterr().err


def test_a_folder_that_is_gone_is_exit_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["plan"], {"PIPELINE_CACHE": str(tmp_path)}) == 2
    assert "the folder that you stand in is gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--since", "HEAD"], "hint: give `--matrix` too"),
        (["--child-pipeline"], "`--child-pipeline` is about what a CI has to do"),
        (["--matrix", "--since", ""], "`--since` names no commit"),
    ],
)
def test_what_a_plan_would_leave_out_of_account_is_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: list[str], says: str
) -> None:
    assert main(["plan", *option, "--root", str(FAMILY)], {"PIPELINE_CACHE": str(tmp_path)}) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", [["init", ""], ["new", "", "--parent", "nlp"], ["verify", "nlp", "--policy", " "]])
def test_an_empty_word_is_no_folder_no_file_and_no_name(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    assert "an empty word names nothing" in capsys.readouterr().err


def test_a_cache_folder_that_cannot_be_made_is_exit_2_and_names_the_variable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(["plan", "--root", str(FAMILY)], {"PIPELINE_CACHE": str(tmp_path / "file" / "cache")}) == 2
    assert "cannot be used: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--queue", "gpus"], ["--gpus", "2", "--lane", "cpu"], ["--require-gpu", "--lane", "cpu"]])
def test_options_of_a_check_that_others_make_void_are_exit_2(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["test", "--root", str(FAMILY), *words], {"PIPELINE_CACHE": str(tmp_path)}) == 2
    assert "too" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "run"])
def test_a_word_that_no_verb_knows_is_told_with_the_usage_of_its_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    needed = {
        "issues": ["x", "--there", "y"],
        "new": ["x", "--parent", "y"],
        "rollback": ["x", "--to", "1", "--reason", "y"],
        "withdraw": ["x", "--reason", "y"],
    }
    with pytest.raises(SystemExit) as ended:
        parse([verb, *needed.get(verb, ["x"] if verb not in ("setup", "doctor") else []), "--nope"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: pipeline {verb} ")
    assert f"pipeline {verb}: error: unrecognized arguments: --nope" in told


@pytest.mark.parametrize("verb", [["verify"], ["test"], ["scan"], ["run", "nlp"]])
def test_who_reads_from_a_mistyped_port_is_told_so_and_starts_nothing(
    verb: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = {"PIPELINE_CACHE": str(tmp_path), "PIPELINE_CANDIDATES": "localhost:1/candidates"}
    environment |= {"HOME": str(tmp_path), "PIPELINE_POLICY": str(FAMILY / "policies" / "release.yaml")}
    assert main([verb[0], "--root", str(FAMILY), *verb[1:]], environment) == 75
    assert "error: nothing listens at `localhost:1`" in capsys.readouterr().err
    assert not (tmp_path / "services").exists()


@pytest.mark.parametrize("parents", ["::", "http://harbor.example.com/candidates", "Harbor/x y"])
def test_a_place_of_parents_that_is_none_is_exit_2_before_anything_is_started(
    parents: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = {"PIPELINE_CACHE": str(tmp_path), "PIPELINE_PARENTS": parents}
    assert main(["build", "--root", str(FAMILY)], environment) == 2
    assert (
        f"`PIPELINE_PARENTS` names no registry and project: `{parents}/pytorch-cuda` is not a repository"
        in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["verify"], ["promote", "nlp"], ["history", "nlp"]])
def test_a_pinned_digest_that_is_none_is_exit_2_and_names_the_variable(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = {"PIPELINE_CACHE": str(tmp_path), "PIPELINE_POLICY_DIGEST": "sha256:abc"}
    assert main([words[0], "--root", str(FAMILY), *words[1:]], environment) == 2
    assert "`PIPELINE_POLICY_DIGEST` is not a sha256 digest: `sha256:abc`" in capsys.readouterr().err


def test_a_folder_without_a_record_is_no_summary_and_one_in_which_nothing_was_built_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = {"PIPELINE_CACHE": str(tmp_path)}
    for folder in (tmp_path / "nothing", tmp_path):
        assert main(["summary", "--root", str(FAMILY), str(folder)], environment) == 2
        assert f"`{folder}` holds none of `plan.json`" in capsys.readouterr().err
    (tmp_path / "build.json").touch()
    assert main(["summary", "--root", str(FAMILY), str(tmp_path)], environment) == 0
    assert capsys.readouterr().out == "No image was built.\n"


def test_a_summary_says_nothing_of_what_was_there_already_and_nobody_releases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built = [{"image": "os", "state": "reused", "reason": "x"}, {"image": "build-env", "state": "built", "reason": "y"}]
    (tmp_path / "build.json").write_text(json.dumps(built))
    assert main(["summary", "--root", str(FAMILY), str(tmp_path)], {"PIPELINE_CACHE": str(tmp_path)}) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")] == ["### build-env: built"]


class Released:
    """A registry that holds one release."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def tags(self, repository: Repository) -> tuple[str, ...]:
        return (self.tag,)

    def resolve(self, tagged: Tagged) -> Digest:
        return Digest.of(b"x")


@pytest.mark.parametrize(("host", "policy"), [("localhost:1", "local.yaml"), ("registry.example.com", "release.yaml")])
def test_a_release_is_compared_by_the_policy_of_where_releases_are_and_not_of_where_the_change_is_built(
    host: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "build.json").write_text(json.dumps([{"image": "pytorch", "state": "built", "reason": "x"}]))
    environment = {"PIPELINE_CACHE": str(tmp_path), "PIPELINE_RELEASES": f"{host}/ml"}
    read: list[Path] = []

    def load(path: Path, **_: object) -> None:
        read.append(path)
        raise InputError("no policy is needed here")

    monkeypatch.setattr(surroundings, "registry", lambda *_, **__: Released("v2.6.3"))
    monkeypatch.setattr(policies, "load", load)
    assert main(["summary", "--root", str(FAMILY), str(tmp_path)], environment) == 0
    assert [path.name for path in read] == [policy]
    assert "the release of `pytorch` cannot be read" in capsys.readouterr().err


def test_whom_no_variable_names_is_known_by_the_systems_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert releases._login() == "root"
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    assert releases._login() == "nobody known"


@pytest.mark.parametrize(
    ("words", "environment", "says"),
    [
        (["build", "nlp", "--expect", "abc"], {}, "`abc` is not a sha256 digest"),
        (["build", "--expect", "sha256:" + "0" * 64], {}, "`--expect` is about one image"),
        (["test", "nlp", "--gpus", "x"], {}, "`--gpus x` names no GPUs"),
        (["sign", "nlp", "--statements", "/nowhere"], {}, "there is no folder `/nowhere`"),
        (["test", "nlp", "--gpus", "0"], {}, "`--gpus 0` names no GPUs"),
        (
            ["plan"],
            {"PIPELINE_CANDIDATES": "http://x/y"},
            "`--candidates` or `PIPELINE_CANDIDATES` names no registry",
        ),
        (["history", "nlp"], {"PIPELINE_RELEASES": "a b"}, "`--releases` or `PIPELINE_RELEASES` names no registry"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_told_before_anything_is_done(
    words: list[str], environment: Mapping[str, str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([words[0], "--root", str(FAMILY), *words[1:]], {"PIPELINE_CACHE": str(tmp_path), **environment}) == 2
    told = capsys.readouterr().err
    assert f"error: {says}" in told
    assert "\nhint: " in told
    assert list(tmp_path.iterdir()) == []
