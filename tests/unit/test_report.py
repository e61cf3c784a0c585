"""What people and CI systems read at the end, word for word, without colour."""

import io
import json
from datetime import UTC, datetime
from xml.etree import ElementTree as Tree

import pytest
from rich.console import Console, RenderableType

from pipeline import report, statements
from pipeline.build import BuildResult
from pipeline.check import Subject
from pipeline.diagnosis import Finding, State
from pipeline.explain import Explanation, Part
from pipeline.gpus import Gpu
from pipeline.oci import Digest, Repository
from pipeline.plan import Step
from pipeline.statements import Checked, Lane, Outcome, Reference
from pipeline.update import Moved

NOW = datetime(2026, 1, 2, tzinfo=UTC)
REPOSITORY = Repository("localhost:5601", "candidates/images")
DIGEST = Digest("sha256:" + "ab" * 32)


def lane(image: str, which: Lane, outcome: Outcome, reason: str = "", *checks: Checked) -> statements.Tested:
    return statements.Tested(
        image=image,
        subject=str(REPOSITORY.at(DIGEST)),
        lane=which,
        outcome=outcome,
        reason=reason,
        checks=checks,
        suite="5" * 64,
        machine={"engine": "20.10"},
        started=NOW,
        finished=NOW,
        run="run-1",
    )


def checked(name: str, outcome: Outcome = Outcome.PASSED, reason: str = "", rung: str = "") -> Checked:
    return Checked(name=name, image="nlp", outcome=outcome, reason=reason, rung=rung, seconds=1.25)


def subject(image: str, size: int) -> Subject:
    return Subject(image=image, pinned=REPOSITORY.at(DIGEST), tag=f"v1-{image}-0123456789ab", size=size)


SUBJECTS = (subject("torch", 2_410_000_000), subject("nlp", 2_520_000_000), subject("os", 45_100_000))
TESTED = (
    lane("torch", "cpu", Outcome.PASSED, "", checked("all-reduce", rung="two processes on gloo"), checked("all-reduce::test_a")),
    lane("torch", "gpu", Outcome.NOT_RUN, "no NVIDIA driver on this machine"),
    lane(
        "nlp",
        "cpu",
        Outcome.FAILED,
        "trainer: test_steps: 3 is not 4",
        checked("imports"),
        checked("trainer", Outcome.FAILED, "test_steps: 3 is not 4"),
        checked("trainer::test_steps", Outcome.FAILED, "3 is not \x1b[31m4"),
    ),
    lane("nlp", "gpu", Outcome.INFRASTRUCTURE, "the engine went away"),
    lane("os", "cpu", Outcome.NOT_RUN, "the catalog lists no check"),
)


def shown(what: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=150, color_system=None).print(what)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "\n".join(line for line in lines if not line or set(line) != {"─"}).strip("\n") + "\n"


def test_the_table_counts_only_what_was_selected_and_says_so() -> None:
    left_out = [checked(name, Outcome.NOT_RUN, "not selected") for name in ("two", "three")]
    good = lane("nlp", "cpu", Outcome.PASSED, "", checked("one"), *left_out)
    bad = lane("nlp", "gpu", Outcome.FAILED, "", checked("one", Outcome.FAILED, "3 is not 4"), *left_out)
    told = shown(report.lanes_table((good, bad)))
    assert "passed, 1 check; 2 not selected   failed, 1 of 1 check; 2 not selected\n" in told
    assert "two" not in told


def test_the_table_says_what_passed_what_could_not_run_and_why_and_how_to_use_it() -> None:
    assert shown(report.lanes_table(TESTED, SUBJECTS)) == (
        "image   candidate               size      cpu                                   gpu\n"
        "torch   v1-torch-0123456789ab   2.41 GB   passed, 1 check                       "
        "not-run: no NVIDIA driver on this machine\n"
        "nlp     v1-nlp-0123456789ab     2.52 GB   failed, 1 of 2 checks                 infrastructure: the engine went away\n"
        "os      v1-os-0123456789ab      45.1 MB   not-run: the catalog lists no check\n"
        "torch cpu all-reduce passed: two processes on gloo\n"
        "nlp cpu trainer failed: test_steps: 3 is not 4\n"
        "  again: nox -s test -- nlp --lane cpu -k trainer --keep\n"
        "  log: .pipeline/logs/nlp-cpu.log\n"
        "nlp gpu infrastructure: the engine went away\n"
        "\n"
        "use it:  nox -s run -- torch\n"
        "image:   localhost:5601/candidates/images:v1-torch-0123456789ab\n"
    )


def test_nothing_is_offered_for_use_when_nothing_passed() -> None:
    assert "use it" not in shown(report.lanes_table(TESTED[2:], SUBJECTS))


def test_the_same_as_markdown() -> None:
    assert report.lanes_markdown(TESTED[2:4], SUBJECTS) == (
        "| image | candidate | size | cpu | gpu |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| nlp | `v1-nlp-0123456789ab` | 2.52 GB | failed, 1 of 2 checks | infrastructure: the engine went away |\n"
        "\n"
        "- nlp cpu trainer failed: test_steps: 3 is not 4\n"
        "  - again: nox -s test -- nlp --lane cpu -k trainer --keep\n"
        "  - log: .pipeline/logs/nlp-cpu.log\n"
        "- nlp gpu infrastructure: the engine went away\n"
    )


def test_junit_counts_tests_and_only_a_pass_is_empty() -> None:
    root = Tree.fromstring(report.lanes_junit(TESTED))
    suites = {suite.get("name"): suite for suite in root}
    counts = {name: tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped")) for name, suite in suites.items()}
    assert counts == {
        "torch.cpu": ("1", "0", "0", "0"),
        "torch.gpu": ("1", "0", "0", "1"),
        "nlp.cpu": ("2", "1", "0", "0"),
        "nlp.gpu": ("1", "0", "1", "0"),
        "os.cpu": ("1", "0", "0", "1"),
    }
    failure = suites["nlp.cpu"].find("testcase[@name='trainer::test_steps']/failure")
    assert failure is not None
    assert failure.get("message") == "3 is not \N{REPLACEMENT CHARACTER}[31m4"
    assert suites["torch.cpu"].find("properties/property[@name='subject']") is not None


def test_json_holds_the_whole_record_with_tag_and_size() -> None:
    data = json.loads(json.dumps(report.lanes_json(TESTED[:1], SUBJECTS)))
    assert (data[0]["outcome"], data[0]["tag"], data[0]["size"]) == ("passed", "v1-torch-0123456789ab", 2_410_000_000)
    assert data[0]["checks"][0]["name"] == "all-reduce"


def test_a_plan_as_table_and_json() -> None:
    steps = (
        Step(image="os", action="reuse", reason="candidate exists", tag="v1-os-0123456789ab", input_hash="1" * 64, digest=DIGEST),
        Step(image="nlp", action="build", reason="no candidate", tag="v1-nlp-0123456789ab", input_hash="2" * 64, digest=None),
    )
    assert shown(report.plan_table(steps)) == (
        "image   action   candidate             reason\n"
        "os      reuse    v1-os-0123456789ab    candidate exists\n"
        "nlp     build    v1-nlp-0123456789ab   no candidate\n"
        "1 to build, 1 to reuse\n"
    )
    assert json.loads(json.dumps(report.plan_json(steps)))[0]["digest"] == str(DIGEST)


@pytest.fixture
def builds() -> tuple[BuildResult, ...]:
    return (
        BuildResult(
            image="os", state="built", reason="no candidate", pinned=REPOSITORY.at(DIGEST), size=45_100_000, seconds=12.34
        ),
        BuildResult(image="torch", state="failed", reason="`pip` failed", exit_code=5, hint="read the log"),
        BuildResult(image="nlp", state="aborted", reason="`torch` failed", exit_code=5),
    )


def test_builds_as_table_and_junit(builds: tuple[BuildResult, ...]) -> None:
    assert shown(report.builds_table(builds)) == (
        "image   state     digest         size      took     reason\n"
        "os      built     abababababab   45.1 MB   12.3 s   no candidate\n"
        "torch   failed                             0.0 s    `pip` failed\n"
        "nlp     aborted                            0.0 s    `torch` failed\n"
        "torch: read the log\n"
    )
    suite = Tree.fromstring(report.builds_junit(builds))[0]
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]


def test_findings_end_with_the_remedies() -> None:
    found = (
        Finding("docker", State.OK, "28.0.1"),
        Finding("registry", State.FAULT, "port 5601 is taken", "set PIPELINE_CANDIDATES"),
    )
    assert shown(report.findings_table(found)).endswith("registry: set PIPELINE_CANDIDATES\n")
    assert report.findings_json(found)[1] == {
        "name": "registry",
        "state": "fault",
        "detail": "port 5601 is taken",
        "remedy": "set PIPELINE_CANDIDATES",
    }


def test_an_explanation_shows_what_differs_and_who_follows() -> None:
    parts = (
        Part(name="file:Dockerfile", state="changed", now="1" * 64, before="2" * 64),
        Part(name="claim:torch", state="same", now="2.6.0", before="2.6.0"),
    )
    found = Explanation(
        image="torch", input_hash="3" * 64, tag="v1-333333333333", closest="v1-444444444444", parts=parts, descendants=("nlp",)
    )
    text = shown(report.explanation_table(found))
    assert "compared with `v1-444444444444`" in text
    assert "file:Dockerfile   changed   111111111111   222222222222\n" in text
    assert text.endswith("1 part differs, 1 the same; images that follow: nlp\n")


def test_what_an_update_moved() -> None:
    moved = (Moved(image="nlp", name="tqdm", before="4.66.0", after="4.67.1", lock="requirements/1-data.lock"),)
    assert shown(report.moved_table(moved)) == (
        "image   package   before   now      lock\nnlp     tqdm      4.66.0   4.67.1   requirements/1-data.lock\n"
    )
    assert shown(report.moved_table(())) == "nothing moved\n"
    assert report.moved_json(moved)[0]["after"] == "4.67.1"


def test_a_gpu_lane_says_what_it_ran_on_and_what_to_do_about_the_machine() -> None:
    gpu = Gpu(index=0, uuid="GPU-1", name="NVIDIA A100", capability=(8, 0), memory=1, used=0)
    told = {
        "gpus": [gpu, gpu],
        "machine": {"driver": "550.54.15"},
        "cause": "fallen-off",
        "remedy": "take it out of service",
        "reference": Reference(subject="x@y", origin="the release `v1.0.3`"),
    }
    one = lane("nlp", "gpu", Outcome.INFRASTRUCTURE, "Xid 79", checked("matmul")).model_copy(update=told)
    told_of_it = shown(report.lanes_table([one]))
    assert "nlp gpu infrastructure: Xid 79\n" in told_of_it
    assert "  remedy: take it out of service\n" in told_of_it
    assert "nlp gpu ran on 2 x NVIDIA A100, driver 550.54.15; reference image: the release `v1.0.3`\n" in told_of_it
    alone = one.model_copy(update={"reference": Reference(origin="nothing is released yet")})
    assert "; no reference image: nothing is released yet\n" in shown(report.lanes_table([alone]))
