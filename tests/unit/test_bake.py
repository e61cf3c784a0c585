"""The bake definition, and what becomes of a bake that fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.bake import ATTEMPTS, INDEX_URL, Baked, Bakery, Material, Target, bake, definition, save_cache
from pipeline.builders import Builder
from pipeline.command import Completed
from pipeline.errors import PipelineError, RegistryRefused, Temporary, ToolFailed, ToolUnfit
from pipeline.oci import Digest, Repository
from pipeline.story import SilentTask
from pipeline.surroundings import Surroundings

DATA = Path(__file__).parent.parent / "data" / "buildkit"
FAMILY = Repository.parse("localhost:5601/candidates/family")
PARENT = f"sha256:{'1' * 64}"
BUILDER = Builder(command=("docker", "buildx"), name="pipeline", environment={"BUILDX_CONFIG": "/cache/buildx"})
AROUND = Surroundings(
    certificates=Path("/etc/ssl/certs/ca.crt"),
    index_url="https://me:s3cret@pypi.example.com/simple",
    proxies={"HTTPS_PROXY": "http://proxy:3128"},
)


def target(*, links: bool = True, fresh: bool = False, context: str = "/src/app") -> Target:
    return Target(
        name="app",
        repository=FAMILY,
        context=Path(context),
        contexts={"base": f"docker-image://{FAMILY}@{PARENT}"},
        labels={"claim": "${HOME} and %{if}", "${plain}": "$x"},
        platform="linux/amd64",
        epoch=1738108800,
        compression_level=7,
        rewrite_timestamp=not links,
        cache=FAMILY.tag("buildcache-v1.0-app-zstd7") if links else None,
        fresh=fresh,
    )


def test_the_definition_is_what_buildx_was_seen_to_need() -> None:
    cache = "ref=localhost:5601/candidates/family:buildcache-v1.0-app-zstd7"
    zstd = "compression=zstd,compression-level=7,force-compression=true"
    assert definition([target()], AROUND) == {
        "group": {"default": {"targets": ["app"]}},
        "target": {
            "app": {
                "context": "/src/app",
                "dockerfile": "Dockerfile",
                "contexts": {"base": f"docker-image://localhost:5601/candidates/family@{PARENT}"},
                "platforms": ["linux/amd64"],
                "args": {"SOURCE_DATE_EPOCH": "1738108800", "HTTPS_PROXY": "http://proxy:3128"},
                "labels": {"claim": "$${HOME} and %%{if}", "$${plain}": "$x"},
                "secret": ["type=file,id=ca,src=/etc/ssl/certs/ca.crt", f"type=env,id=index-url,env={INDEX_URL}"],
                "output": [
                    "type=image,name=localhost:5601/candidates/family,push-by-digest=true,name-canonical=true,push=true,"
                    f"oci-mediatypes=true,{zstd}"
                ],
                "cache-from": [f"type=registry,{cache}"],
            }
        },
    }


def test_an_image_with_ordinary_steps_is_clamped_while_exporting_and_has_no_cache() -> None:
    wanted = definition([target(links=False)], AROUND)["target"]["app"]
    assert wanted["output"][0].endswith(",rewrite-timestamp=true")
    assert "cache-from" not in wanted


def test_a_fresh_build_reads_no_cache() -> None:
    wanted = definition([target(fresh=True)], AROUND)["target"]["app"]
    assert wanted["no-cache"] is True
    assert "cache-from" not in wanted


def test_the_cache_is_written_after_the_image_and_by_itself(tmp_path: Path) -> None:
    run = Recorded("", code=0)
    assert save_cache(target(fresh=True), bakery(run), log=tmp_path / "cache.log", task=SilentTask()) == ""
    (asked,) = run.asked
    zstd = "compression=zstd,compression-level=7,force-compression=true"
    kind = "mode=min,image-manifest=true,oci-mediatypes=true,ignore-error=true"
    assert asked["output"] == ["type=cacheonly"]
    assert asked["cache-to"] == [f"type=registry,ref={FAMILY}:buildcache-v1.0-app-zstd7,{kind},{zstd}"]
    assert not {"cache-from", "no-cache"} & asked.keys()


def test_an_image_without_a_cache_writes_none(tmp_path: Path) -> None:
    run = Recorded("", code=0)
    save_cache(target(links=False), bakery(run), log=tmp_path / "cache.log", task=SilentTask())
    assert run.asked == []


def test_a_cache_that_cannot_be_written_is_said_and_no_error(tmp_path: Path) -> None:
    run = Recorded("ERROR: failed to solve: no")
    assert save_cache(target(), bakery(run), log=tmp_path / "cache.log", task=SilentTask()) == "no"


def test_a_path_with_a_comma_stays_one_field() -> None:
    odd = Surroundings(certificates=Path('/a,b/"c".pem'))
    assert definition([target()], odd)["target"]["app"]["secret"][0] == 'type=file,id=ca,"src=/a,b/""c"".pem"'


class Recorded:
    """A `Run` that plays a recorded stream, and may leave a record."""

    def __init__(self, stream: str, *, code: int = 1, metadata: str | None = None) -> None:
        self.stream, self.code, self.metadata = stream, code, metadata
        self.argv: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        self.asked: list[Any] = []

    def __call__(self, *argv: object, on_line: Any = None, env: Any = None, stdin: bytes | None = None, **_: Any) -> Completed:
        self.asked.append(json.loads(stdin or b"")["target"]["app"])
        self.argv, self.env = tuple(str(word) for word in argv), dict(env)
        for line in self.stream.splitlines():
            on_line(line)
        if self.metadata is not None:
            Path(self.argv[self.argv.index("--metadata-file") + 1]).write_text(self.metadata)
        return Completed(argv=self.argv, code=self.code, stdout="", stderr="", seconds=1.0)


def bakery(run: Recorded) -> Bakery:
    return Bakery(builder=BUILDER, around=AROUND, run=run)


def baked(run: Recorded, folder: Path) -> Baked:
    return bake(target(), bakery(run), metadata=folder / "metadata.json", log=folder / "logs" / "app.log", task=SilentTask())


def failed(stream: str, folder: Path) -> PipelineError:
    with pytest.raises(PipelineError) as caught:
        baked(Recorded(stream), folder)
    assert str(folder / "logs" / "app.log") in caught.value.hint or isinstance(caught.value, ToolUnfit)
    return caught.value


def recorded(name: str) -> str:
    return (DATA / f"{name}.jsonl").read_text()


def test_what_buildkit_pushed_and_resolved_is_read_from_its_record(tmp_path: Path) -> None:
    run = Recorded(recorded("built"), code=0, metadata=(DATA / "metadata.json").read_text())
    digest = "sha256:61defb951341e4e6be99f4f70ac04c8d26d5da8d06192c3317c1376c695882e7"
    uri = "pkg:docker/localhost:5601/candidates/family"
    assert baked(run, tmp_path) == Baked(
        digest=Digest("sha256:666bcbc1b5097ce73441c3788ce8620f9b9851c2d6613d7b595e387587cb9fe4"),
        materials=(
            Material(uri=f"{uri}@tmp?platform=linux%2Famd64", digest=digest, image=True, pinned=False),
            Material(uri=f"{uri}?digest={digest}&platform=linux%2Famd64", digest=digest, image=True, pinned=True),
        ),
        executed=2,
    )


def test_buildx_is_told_the_builder_and_to_add_nothing(tmp_path: Path) -> None:
    run = Recorded("", code=0, metadata=(DATA / "metadata.json").read_text())
    baked(run, tmp_path)
    assert run.argv[:5] == ("docker", "buildx", "--builder", "pipeline", "bake")
    assert run.env["BUILDX_NO_DEFAULT_ATTESTATIONS"] == "1"
    assert run.env["BUILDX_GIT_LABELS"] == "false"
    assert run.env["BUILDX_CONFIG"] == "/cache/buildx"
    assert run.env[INDEX_URL] == AROUND.index_url


NOTHING = '"buildx.build.provenance": {}'


@pytest.mark.parametrize(
    "metadata",
    [None, "{}", "not json", '{"app": 3}']
    + [f'{{"app": {{{NOTHING}{more}}}}}' for more in ("", ', "containerimage.digest": 3', ', "containerimage.digest": "x"')],
)
def test_a_record_that_lacks_the_digest_is_an_error(tmp_path: Path, metadata: str | None) -> None:
    with pytest.raises(ToolFailed, match="no readable record"):
        baked(Recorded("", code=0, metadata=metadata), tmp_path)


def test_a_buildx_that_does_not_tell_what_was_resolved_is_unfit(tmp_path: Path) -> None:
    record = f'{{"app": {{"containerimage.digest": "{PARENT}"}}}}'
    with pytest.raises(ToolUnfit, match="what BuildKit resolved"):
        baked(Recorded("", code=0, metadata=record), tmp_path)


def test_sources_are_read_from_the_newer_format_of_provenance_too(tmp_path: Path) -> None:
    source = f'{{"uri": "pkg:docker/debian@12", "digest": {{"sha256": "{"1" * 64}"}}}}'
    provenance = f'{{"buildDefinition": {{"resolvedDependencies": [{source}]}}}}'
    record = f'{{"app": {{"containerimage.digest": "{PARENT}", "buildx.build.provenance": {provenance}}}}}'
    (material,) = baked(Recorded("", code=0, metadata=record), tmp_path).materials
    assert (material.uri, material.pinned) == ("pkg:docker/debian@12", False)


def resolved(source: dict[str, Any], folder: Path) -> tuple[Material, ...]:
    made = {"containerimage.digest": PARENT, "buildx.build.provenance": {"materials": [source]}}
    return baked(Recorded("", code=0, metadata=json.dumps({"app": made})), folder).materials


def test_downloads_and_git_repositories_are_told_by_what_they_were(tmp_path: Path) -> None:
    (file,) = resolved({"uri": "https://x/y", "digest": {"sha256": "1" * 64}}, tmp_path)
    assert file == Material(uri="https://x/y", digest=f"sha256:{'1' * 64}", image=False, pinned=False)
    uri = f"https://x/y.git#{'2' * 40}"
    (repository,) = resolved({"uri": uri, "digest": {"sha1": "2" * 40}}, tmp_path)
    assert repository == Material(uri=uri, digest=f"sha1:{'2' * 40}", image=False, pinned=True)


@pytest.mark.parametrize("told", [{}, {"sha256": ""}, {"sha256": "1" * 40}, {"sha1": ""}, {"md5": "1" * 32}], ids=str)
def test_what_is_told_without_a_digest_is_not_believed(tmp_path: Path, told: dict[str, str]) -> None:
    with pytest.raises(ToolFailed, match="no readable record"):
        resolved({"uri": "https://x/y", "digest": told}, tmp_path)


def test_a_failed_step_is_the_tools_failure_with_its_last_lines(tmp_path: Path) -> None:
    error = failed(recorded("run-fails"), tmp_path)
    assert isinstance(error, ToolFailed)
    assert "`app` failed in `[root 2/2] RUN " in error.message
    assert error.message.endswith("exit code: 3\n  fetching wheels\n  ERROR: no matching distribution")


def test_a_step_that_failed_without_a_word_leaves_no_empty_lines(tmp_path: Path) -> None:
    silent = "\n".join(line for line in recorded("run-fails").splitlines() if '"logs"' not in line)
    assert failed(silent, tmp_path).message.endswith("exit code: 3")


def test_a_full_disk_is_temporary_and_says_how_to_free_it(tmp_path: Path) -> None:
    error = failed(recorded("disk-full"), tmp_path)
    assert isinstance(error, Temporary)
    assert "docker buildx prune --builder pipeline" in error.hint


@pytest.mark.parametrize("stream", ["push-fails", "builder-gone"])
def test_a_registry_or_builder_that_is_gone_is_temporary(tmp_path: Path, stream: str) -> None:
    assert isinstance(failed(recorded(stream), tmp_path), Temporary)


def test_a_step_that_cannot_reach_its_own_server_is_the_images_fault(tmp_path: Path) -> None:
    stream = recorded("run-fails").replace("exit code: 3", "exit code: 7")
    assert isinstance(failed(stream.replace("no matching", "connection refused"), tmp_path), ToolFailed)


def test_a_blob_that_the_registry_does_not_know_yet_is_sent_again(tmp_path: Path) -> None:
    words = "errors:\nblob unknown: blob unknown to registry"
    vertex = {"digest": "d", "name": "exporting to image", "error": f"failed to push x: {words}"}
    run = Recorded(json.dumps({"vertexes": [vertex]}) + f"\nERROR: failed to solve: failed to push x: {words}")
    with pytest.raises(ToolFailed, match=r"errors:\nblob unknown"):
        baked(run, tmp_path)
    assert len(run.asked) == ATTEMPTS


def test_a_failed_step_is_not_tried_again(tmp_path: Path) -> None:
    run = Recorded(recorded("run-fails"))
    with pytest.raises(ToolFailed):
        baked(run, tmp_path)
    assert len(run.asked) == 1


@pytest.mark.parametrize("told", ["", "unexpected status from PUT request to http://x/y?a=b: 500 Internal Server Error"])
def test_a_registry_that_fails_inside_is_temporary_whatever_it_answers_at_last(tmp_path: Path, told: str) -> None:
    stream = recorded("registry-full").replace("unknown: blob upload invalid", told or "unknown: blob upload invalid")
    error = failed(stream, tmp_path)
    assert isinstance(error, Temporary)
    answer = "500 Internal Server Error" if told else "blob upload invalid"
    assert error.message == f"`app` cannot be pushed: registry `localhost:5601` answers `{answer}`"
    assert "its disk is full" in error.hint


def test_a_push_without_the_right_is_refused(tmp_path: Path) -> None:
    stream = recorded("push-fails").replace("connect: connection refused", "401 Unauthorized")
    assert isinstance(failed(stream, tmp_path), RegistryRefused)


def test_an_unknown_builder_is_a_tool_that_is_missing(tmp_path: Path) -> None:
    assert isinstance(failed('ERROR: no builder "pipeline" found', tmp_path), ToolUnfit)


def test_anything_else_is_the_tools_failure(tmp_path: Path) -> None:
    error = failed("ERROR: failed to solve: dockerfile parse error on line 1: unknown instruction: FORM", tmp_path)
    assert type(error) is ToolFailed
    assert "unknown instruction: FORM" in error.message


def test_passwords_stay_out_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed):
        baked(Recorded("WARNING: https://me:s3cret@pypi.example.com failed\nERROR: x"), tmp_path)
    assert "s3cret" not in (tmp_path / "logs" / "app.log").read_text()
