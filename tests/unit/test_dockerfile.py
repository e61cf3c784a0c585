"""Dockerfiles are read as BuildKit reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.dockerfile import External, external_images, links_only, refuse_untold
from pipeline.errors import DockerfileError, InputError
from pipeline.expansion import expand, split
from pipeline.instructions import parse

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "dockerfiles.json").read_text(encoding="utf-8"))
"""Texts and what BuildKit 0.34's own parser made of them."""

DIGEST = "sha256:" + "a" * 64


def outside(text: str, *contexts: str, **variables: str) -> list[tuple[int, str]]:
    return [(x.line, x.fault or str(x.reference)) for x in external_images(text, contexts, variables)]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: ascii(case["text"])[:60])
def test_instructions_are_those_that_buildkit_reads(case: dict[str, Any]) -> None:
    if case["refused"]:
        with pytest.raises(DockerfileError):
            parse(case["text"])
        return
    file = parse(case["text"])
    theirs = [x for x in case["instructions"] if x["keyword"] != "FROM"]
    assert [(x.keyword, list(x.flags), x.line, x.end, list(x.heredocs)) for x in file.instructions] == [
        (x["keyword"], x["flags"], x["line"], x["end"], x["heredocs"]) for x in theirs
    ]
    for ours, their in zip(file.instructions, theirs, strict=True):
        if ours.keyword in ("RUN", "CMD", "ENTRYPOINT", "SHELL") and not ours.json:
            assert [ours.arguments] == (their["values"] or [""])
        elif ours.json or ours.keyword in ("COPY", "ADD", "ARG", "EXPOSE", "VOLUME"):
            assert list(ours.words) == [x for x in their["values"] if x or ours.json]


def test_directives_end_at_the_first_comment_blank_line_or_instruction() -> None:
    assert parse("\ufeff# escape=`\nFROM a\nRUN one `\n two").instructions[0].arguments == "one  two"
    assert parse("# a comment\n# escape=`\nFROM a\nRUN one `\nRUN two").escape == "\\"
    assert parse("\n# escape=`\nFROM a").escape == "\\"
    with pytest.raises(DockerfileError, match="second `escape`"):
        parse("# escape=`\n# escape=`\nFROM a")


def test_a_backtick_at_the_end_of_a_comment_continues_nothing() -> None:
    assert [x.arguments for x in parse("# escape=`\nFROM a\n# text `\nRUN one\nRUN two").instructions] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "there is no `FROM`"),
        ("# only a comment\n", 1, "there is no `FROM`"),
        ("ARG X\n\nRUN x\nFROM a", 3, "`RUN` before the first `FROM`"),
        ("FROM a\nCOPPY b c", 2, "unknown instruction `COPPY`"),
        ("FROM a AS 1b", 1, "`1b` is not a stage's name"),
        ("FROM a b", 1, "`FROM` wants"),
        ("FROM a\n\nRUN <<E\nx", 3, "heredoc `E` has no end"),
        ("FROM a\nCMD [1]", 2, "JSON"),
        ("ARG X=${Y?}\nFROM a:$X", 1, "`Y`: must be set"),
    ],
)
def test_what_buildkit_refuses_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DockerfileError, match=message) as caught:
        external_images(text, ())
    assert caught.value.line == line


def test_a_base_behind_global_arguments_is_found() -> None:
    text = "ARG REG=harbor.local:8443\nARG V=v2.6\nFROM ${REG}/ml/pytorch-cuda:${V}"
    assert outside(text) == [(3, "harbor.local:8443/ml/pytorch-cuda:v2.6")]
    assert outside(text, V="v2.7") == [(3, "harbor.local:8443/ml/pytorch-cuda:v2.7")]


def test_an_argument_of_a_stage_is_not_one_of_from() -> None:
    assert outside("FROM a AS one\nARG T=2\nFROM b:${T}")[1] == (3, "`T` has no value before the first `FROM`")


def test_an_argument_without_a_default_has_no_value() -> None:
    assert outside("ARG T\nFROM b:${T}") == [(2, "`T` has no value before the first `FROM`")]
    assert outside("ARG T\nFROM b:${T:-3}") == [(2, "docker.io/library/b:3")]
    assert outside("FROM b:${TARGETARCH}", TARGETARCH="amd64") == [(1, "docker.io/library/b:amd64")]
    assert outside("FROM b:$X", X="an argument that no ARG declares") == [(1, "`X` has no value before the first `FROM`")]


def test_a_stage_named_like_its_image_is_external_once() -> None:
    assert outside("FROM python AS python\nFROM python") == [(1, "docker.io/library/python:latest")]


def test_a_stage_that_comes_later_hides_no_image() -> None:
    assert outside("FROM build\nFROM a AS build") == [(1, "docker.io/library/build:latest"), (2, "docker.io/library/a:latest")]


def test_copy_finds_a_stage_in_any_letter_case_and_from_only_as_written() -> None:
    assert outside(f"FROM a@{DIGEST} AS Builder\nFROM scratch\nCOPY --from=BUILDER /x /x") == [
        (1, f"docker.io/library/a@{DIGEST}")
    ]
    (_, (line, fault)) = outside("FROM a AS builder\nFROM Builder")
    assert line == 2
    assert "is not a repository" in fault


def test_images_of_copy_and_of_every_mount_are_found() -> None:
    text = "FROM scratch\nRUN --mount=type=cache,target=/c --mount=type=bind,FROM=harbor.local/tools/uv:0.5,target=/uv true"
    assert outside(text) == [(2, "harbor.local/tools/uv:0.5")]
    assert outside("FROM scratch\nCOPY --from=alpine/curl:8.8.0 /x /") == [(2, "docker.io/alpine/curl:8.8.0")]
    assert outside("FROM scratch\nONBUILD COPY --from=x/y:1 /x /") == [(2, "docker.io/x/y:1")]
    assert outside('FROM scratch\nRUN "--mount=type=bind,from=x/y:1" true') == []


def test_stages_by_number_exist_before_the_line_or_are_a_fault() -> None:
    assert outside("FROM scratch\nFROM scratch\nCOPY --from=0 /x /") == []
    assert outside("FROM scratch\nCOPY --from=0 /x /") == [(2, "there is no stage `0` before this line")]
    assert outside("FROM scratch\nCOPY --from=b /x /\nFROM scratch AS b") == [(2, "there is no stage `b` before this line")]


def test_a_mount_takes_no_stage_by_number_and_nothing_is_no_image() -> None:
    assert outside("FROM scratch\nFROM scratch\nRUN --mount=from=0,target=/x true") == [(3, "docker.io/library/0:latest")]
    assert outside("FROM scratch\nCOPY --from=Scratch /x /\nRUN --mount=from=scratch,target=/x true") == []


def test_variables_of_the_platform_have_their_values_before_the_first_from() -> None:
    found = external_images("FROM x:$TARGETARCH-$BUILDOS-$OTHER", (), {"TARGETARCH": "a", "BUILDOS": "b", "OTHER": "c"})
    assert [x.fault for x in found] == ["`OTHER` has no value before the first `FROM`"]
    found = external_images(
        "ARG OTHER\nFROM x:$TARGETARCH-$BUILDOS-$OTHER", (), {"TARGETARCH": "a", "BUILDOS": "b", "OTHER": "c"}
    )
    assert [x.text for x in found] == ["x:a-b-c"]


@pytest.mark.parametrize("text", ["#!/x\n// syntax=evil\nFROM scratch", '{"syntax": "evil"}', "# syntax=$X\nFROM scratch"])
def test_no_way_to_name_a_frontend_goes_round_the_refusal(text: str) -> None:
    with pytest.raises(DockerfileError):
        refuse_untold(text)


def test_from_of_copy_takes_no_variables() -> None:
    ((line, fault),) = outside("ARG X=1\nFROM scratch\nCOPY --from=a:$X /x /")
    assert line == 3
    assert "takes no variables" in fault


def test_named_contexts_are_not_external() -> None:
    text = "FROM build-env AS b\nFROM base:latest\nCOPY --link --from=b / /\nCOPY --from=Base /x /"
    assert outside(text, "base", "build-env") == [(4, "`docker.io/library/Base` is not a repository")]
    assert outside("FROM python:3.11 AS base", "base") == []
    assert outside("FROM base:1", "base") == [(1, "docker.io/library/base:1")]


@pytest.mark.parametrize(
    "text",
    [
        "# syntax=docker/dockerfile:1.11\nFROM scratch",
        "# check=skip=all\n#SYNTAX = docker/dockerfile:1.11 -x\nFROM scratch",
        "#!/usr/bin/env x\n# syntax=docker/dockerfile:1.11\nFROM scratch",
        "// syntax=docker/dockerfile:1.11\n",
    ],
)
def test_the_frontend_is_an_external_image(text: str) -> None:
    if text.startswith("//"):
        with pytest.raises(DockerfileError):
            parse(text)
        return
    (found,) = external_images(text, ())
    assert (found.text, "syntax" in text.split("\n")[found.line - 1].lower()) == ("docker/dockerfile:1.11", True)


def test_a_syntax_line_below_a_comment_is_none() -> None:
    assert outside("# hello\n# syntax=docker/dockerfile:1\nFROM scratch") == []


def test_a_fault_has_no_reference() -> None:
    (fault,) = external_images("FROM a:${X%y}", (), {})
    assert fault == External(line=1, text="a:${X%y}", reference=None, fault=fault.fault)
    assert "only BuildKit evaluates" in fault.fault


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("$A-${A}", "1-1"),
        ("${N:-x}${N-x}${M:-$A}${M-z}", "xx1"),
        ("${A:+y}${N+z}${M+y}${M:+z}", "yy"),
        ("'$A'\"$A\"", "$A1"),
        ("a\\$A", "a$A"),
        ('"a\\b\\""', 'a\\b"'),
        ("$", "$"),
        ("${A?no}", "1"),
    ],
)
def test_variables_are_replaced_as_in_a_shell(word: str, text: str) -> None:
    assert expand(word, {"A": "1", "M": ""}).text == text


@pytest.mark.parametrize(
    "word", ["${A:-x", "${N+", "'a", '"a', "${A", "${}", "${:x}", "${A^}", "${A:#x}", "${N?no}", "${M:?no}", "${A#x}", "${A/x/y}"]
)
def test_what_cannot_be_replaced_is_an_error(word: str) -> None:
    with pytest.raises(InputError):
        expand(word, {"A": "1", "M": ""})


def test_words_end_where_they_do_in_go() -> None:
    assert split("a\x1cb c\u2003d <x < y 'e f'", raw=False) == ["a\x1cb", "c", "d", "<x", "<", "y", "e f"]


@pytest.mark.parametrize(
    "text",
    [
        "FROM base\nCOPY --link --from=a /layer/ /",
        'FROM base\nCOPY --link=true ["a b", "/"]\nENV A=b\nUSER 1000\nCMD x\nHEALTHCHECK NONE\nVOLUME /x\nLABEL a=b\nARG X',
        "FROM a AS g\nRUN x\nFROM base\ncopy --link --chown=1:0 --from=g /l/ /",
        "FROM a AS ground\nCOPY --link x /\nFROM ground\nCOPY --link y /",
        "ARG B=ground\nFROM a AS other\nRUN x\nFROM a AS ground\nFROM $B",
        "FROM base",
    ],
)
def test_links_and_metadata_alone_are_links_only(text: str) -> None:
    assert links_only(text)


@pytest.mark.parametrize(
    "keyword",
    [
        *("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK"),
        *("LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
    ],
)
def test_every_instruction_without_a_layer_is_metadata(keyword: str) -> None:
    assert links_only(f"FROM base\n{keyword} a=b")


@pytest.mark.parametrize("keyword", ["ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME"])
def test_arrays_are_read_where_buildkit_reads_them(keyword: str) -> None:
    (one,) = parse(f'FROM a\n{keyword} ["a b", "c"]').instructions
    assert (one.json, one.words) == (True, ("a b", "c"))


@pytest.mark.parametrize("start", ["ADD <<E /x", "COPY <<E /x", "RUN cat <<E", "ONBUILD ADD <<E /x"])
def test_what_stands_in_a_heredoc_is_no_instruction(start: str) -> None:
    (one,) = parse(f"FROM a\n{start}\nARG HTTP_PROXY\nE").instructions
    assert one.heredocs == ("ARG HTTP_PROXY\n",)


def test_letter_case_of_keywords_is_nothing() -> None:
    run, env, trigger = parse("from a\nrun [\"b c\"]\nenv A='b c'\nonbuild run x").instructions
    assert (run.keyword, run.words, env.pairs) == ("RUN", ("b c",), (("A", "'b c'"),))
    assert (trigger.trigger and trigger.trigger.keyword) == "RUN"
    with pytest.raises(DockerfileError, match="`ARG http_proxy`"):
        refuse_untold("from a\narg http_proxy")


def test_what_only_python_takes_for_json_is_no_array() -> None:
    (one,) = parse("FROM a\nRUN [NaN]").instructions
    assert (one.json, one.words) == (False, ("[NaN]",))


def test_names_and_values_are_read_from_both_forms() -> None:
    lines = ("ENV A=1 B='x y'", "ENV A b=c d", "LABEL a=b", "ARG A B=2", "ENV A")
    read = [one.pairs for one in parse("FROM a\n" + "\n".join(lines)).instructions]
    assert read == [(("A", "1"), ("B", "'x y'")), (("A", "b=c d"),), (("a", "b"),), (("A", ""), ("B", "2")), (("A", ""),)]


@pytest.mark.parametrize(
    "line",
    [
        "RUN true",
        "ADD --link x /",
        "COPY x /",
        "COPY --link=false x /",
        "WORKDIR /x",
        "ONBUILD ENV a=b",
        "COPY --link --from=a /x /opt/x",
        "COPY --link <<E /\nx\nE",
        "COPY --link --parents a/b /",
    ],
)
def test_ordinary_steps_are_not_links_only(line: str) -> None:
    assert not links_only(f"FROM base\n{line}")
    assert not links_only(f"FROM base AS under\n{line}\nFROM scratch AS other\nFROM under")
    assert links_only(f"FROM base AS aside\n{line}\nFROM base")
