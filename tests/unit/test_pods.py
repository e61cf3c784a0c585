"""Lanes as Jobs: what a pod may not have, and that its log is judged like a lane that ran here."""

import base64
import copy
import dataclasses
import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pipeline import nvidia, statements, turns
from pipeline.check import Job, Subject, Suite, Ticket, collect, manifests, nonce
from pipeline.check import pods as rendered
from pipeline.check.suite import Listed, library
from pipeline.data import lane_pod
from pipeline.errors import InputError
from pipeline.failures import NONE
from pipeline.oci import Config
from pipeline.statements import Lane, Outcome
from tests.cases import NOW, SUBJECT
from tests.machines import recorded

NONCE = "5" * 32
FILE = "lab/test_it.py"


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest takes a second to pack."""
    monkeypatch.setattr(rendered, "library", lambda: b"pytest")


def suite(lane: Lane = "gpu", files: Mapping[str, bytes] = {}) -> Suite:
    checks = (Listed(image="lab", name="it", kind="test"),)
    return Suite(lane=lane, checks=checks, files={FILE: b"def test_it(): ...", **files}, claims={})


def ticket(lane: Lane = "gpu", **changes: Any) -> Ticket:
    asked = {"nonce": NONCE, "image": "lab", "subject": str(SUBJECT), "lane": lane, "suite": suite(lane).hash}
    return Ticket.model_validate({**asked, "gpus": 1 if lane == "gpu" else 0, "seconds": 1200.0, "run": "17", **changes})


def job(lane: Lane = "gpu", environment: tuple[str, ...] = ("PATH=/usr/bin", "HOME=/home/user"), **changes: Any) -> Job:
    config = Config(
        diff_ids=(),
        created="",
        labels={},
        environment=environment,
        entrypoint=(),
        command=(),
        user="1000:0",
        exposed=(),
        platform="linux/amd64",
    )
    given = {"subject": Subject(image="lab", pinned=SUBJECT, tag="x"), "suite": suite(lane), "config": config}
    return Job(**{**given, "ticket": ticket(lane), **changes})


def of_kind(found: tuple[Mapping[str, Any], ...], kind: str) -> list[Any]:
    return [manifest for manifest in found if manifest["kind"] == kind]


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_manifests_are_valid_by_kubernetes_own_schema(version: str) -> None:
    for manifest in manifests([job("gpu", queue="gpus"), job("cpu", environment=())]):
        kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_a_pod_has_the_image_by_digest_and_nothing_to_write_with() -> None:
    (made,) = of_kind(manifests([job()]), "Job")
    pod = made["spec"]["template"]["spec"]
    assert {each["image"] for each in pod["containers"] + pod["initContainers"]} == {str(SUBJECT)}
    assert pod["automountServiceAccountToken"] is False
    assert {kind for volume in pod["volumes"] for kind in volume} == {"name", "projected", "emptyDir"}
    for container in pod["containers"] + pod["initContainers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert not [entry for entry in container["env"] if "KEY" in entry["name"] or "PASSWORD" in entry["name"]]
    assert pod["securityContext"]["runAsNonRoot"] is True
    mounted = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted == {"/pipeline-in", "/pipeline", "/tmp", "/dev/shm", "/home/user"}
    (policy,) = of_kind(manifests([job()]), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= made["spec"]["template"]["metadata"]["labels"].items()


def test_gpus_queue_and_deadline_are_those_that_were_asked_for() -> None:
    (made,) = of_kind(manifests([job(ticket=ticket(gpus=2), queue="gpus")]), "Job")
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert made["spec"]["suspend"] is True
    assert made["spec"]["backoffLimit"] == 0
    assert [rule["action"] for rule in made["spec"]["podFailurePolicy"]["rules"]] == ["Ignore"]
    assert made["spec"]["activeDeadlineSeconds"] > 1200
    run, prepare = made["spec"]["template"]["spec"]["containers"][0], made["spec"]["template"]["spec"]["initContainers"][0]
    assert run["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert "resources" not in prepare
    (plain,) = of_kind(manifests([job("cpu")]), "Job")
    assert "suspend" not in plain["spec"]
    assert "resources" not in plain["spec"]["template"]["spec"]["containers"][0]


def test_several_jobs_share_one_pytest_that_is_the_same_each_time() -> None:
    twice = [of_kind(manifests([job(), job("cpu")]), "ConfigMap") for _ in range(2)]
    assert twice[0] == twice[1]
    assert len(twice[0]) == 3
    packed = base64.b64decode(twice[0][1]["binaryData"]["suite.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert f"suite/{FILE}" in archive.getnames()


def test_a_suite_that_no_config_map_holds_is_refused() -> None:
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(40_000))
    with pytest.raises(InputError, match=r"a ConfigMap holds 1048576"):
        manifests([job(suite=suite(files={"lab/data": noise}))])


def answers(name: str, **changes: str) -> list[dict[str, Any]]:
    """What `nvidia-smi` of a recorded machine said."""
    said = {"query": recorded(f"{name}.query.csv"), "q": recorded(f"{name}.q.txt"), "apps": "", "L": "", **changes}
    texts = zip(nvidia.QUESTIONS, ("query", "q", "apps", "L"), strict=True)
    return [{"argv": list(argv), "code": 0, "stdout": said[key], "stderr": "", "error": ""} for argv, key in texts]


ABSENT = [{"argv": list(argv), "code": 127, "stdout": "", "stderr": "", "error": "no such file"} for argv in nvidia.QUESTIONS]


def left(lane: Lane = "gpu", outcome: str | None = "passed", **changes: Any) -> dict[str, Any]:
    test: dict[str, Any] = {
        "outcome": outcome,
        "reason": "" if outcome == "passed" else "3 is not 4",
        "rung": "",
        "seconds": 0.5,
        "measured": {},
    }
    result = {
        "format": 1,
        "nonce": NONCE,
        "suite": suite(lane).hash,
        "lane": lane,
        "python": "3.11.2",
        "pytest": "9.0.0",
        "running": "",
        "finished": True,
        "tests": {f"{FILE}::test_it": test},
        "files": {},
    }
    looked = answers("t4") if lane == "gpu" else []
    whole = {"code": 0 if outcome == "passed" else 1, "timed_out": False, "before": looked, "after": looked, "node": "n1"}
    packed = base64.b64encode(json.dumps(result).encode()).decode()
    return {"result": packed, **whole, "started": 1.0, "finished": 2.0, **changes}


def log_of(content: Mapping[str, Any], capsys: pytest.CaptureFixture[str], said: str = "what the checks said\n") -> str:
    lane_pod.show(json.dumps(content), NONCE)
    return f"-----PIPELINE JOB {NONCE}-----\n{said}{capsys.readouterr().out}"


def judged(log: str, lane: Lane = "gpu", **changes: Any) -> statements.Tested:
    assert nonce(log) == NONCE
    return collect(log, ticket(lane, **changes), suite(lane), NONE, now=NOW)


def test_a_pass_is_one_with_the_gpus_and_the_node_in_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    tested = judged(log_of(left(), capsys))
    assert (tested.outcome, tested.subject, tested.run) == (Outcome.PASSED, str(SUBJECT), "17")
    assert [gpu.name for gpu in tested.gpus] == ["Tesla T4"]
    assert (tested.machine["engine"], tested.machine["host"], tested.machine["python"]) == ("kubernetes", "n1", "3.11.2")
    assert "kernel's log" in tested.machine["not looked at"]
    assert tested.reference
    assert tested.reference.subject == ""
    assert tested.started.timestamp() == 1.0


def test_lines_with_times_and_names_in_front_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(left(), capsys)
    lines = [f"[pod/lab-gpu-5/run] 2026-11-30T13:00:00.1Z {line}" for line in log.splitlines()]
    assert judged("\n".join(lines)).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        ({"code": 139}, Outcome.FAILED, "segmentation fault"),
        ({"timed_out": True, "code": -9}, Outcome.ERROR, "timed out"),
        ({"code": 1}, Outcome.ERROR, "contradicts"),
        ({"result": None, "code": 1}, Outcome.ERROR, "no result file"),
        ({"before": ABSENT}, Outcome.INFRASTRUCTURE, "cannot be started in the pod"),
        ({"before": []}, Outcome.INFRASTRUCTURE, "was not asked"),
        ({"after": ABSENT}, Outcome.INFRASTRUCTURE, "is gone"),
        ({"before": answers("rtx4090")}, Outcome.INFRASTRUCTURE, "1 were asked for"),
    ],
)
def test_what_is_no_pass_says_why(
    changes: dict[str, Any], outcome: Outcome, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tested = judged(log_of(left(**changes), capsys))
    assert (tested.outcome, says in tested.reason) == (outcome, True), tested.reason


def test_a_failed_check_fails_the_lane(capsys: pytest.CaptureFixture[str]) -> None:
    tested = judged(log_of(left("cpu", "failed"), capsys), "cpu")
    assert (tested.outcome, "3 is not 4" in tested.reason) == (Outcome.FAILED, True)
    assert tested.gpus == ()


def cut(log: str) -> str:
    return log[: log.index("-----PIPELINE END")]


def halved(log: str) -> str:
    lines = log.splitlines()
    return "\n".join(line for number, line in enumerate(lines) if number != 3)


def mixed(log: str) -> str:
    return log.replace("-----PIPELINE END", "late words\n-----PIPELINE END")


@pytest.mark.parametrize("spoil", [cut, halved, mixed])
def test_a_log_that_is_not_whole_is_an_error(spoil: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tested = judged(spoil(log_of(left(), capsys)))
    assert tested.outcome is Outcome.ERROR
    assert {check.outcome for check in tested.checks} == {Outcome.ERROR}
    assert "not whole" in tested.reason


def test_what_no_pod_prints_is_not_believed(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("{}", "not json", json.dumps(left(judged="passed"))):
        packed = base64.b64encode(zlib.compress(text.encode())).decode()
        end = hashlib.sha256(packed.encode()).hexdigest()
        log = f"-----PIPELINE RESULT {NONCE}-----\n{packed}\n-----PIPELINE END {NONCE} {end}-----\n"
        assert judged(log).outcome is Outcome.ERROR


def test_a_result_within_the_checks_words_is_a_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    forged = log_of(left(), capsys)
    with pytest.raises(InputError, match="two results of one job"):
        judged(log_of(left(outcome="failed"), capsys, said=forged))


def test_a_log_of_nobody_or_of_two_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="of no jobs"):
        nonce("Error from server\n")
    with pytest.raises(InputError, match="of 2 jobs"):
        nonce(log_of(left(), capsys) + f"-----PIPELINE JOB {'6' * 32}-----")


def test_other_checks_than_those_of_this_checkout_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="are not those that ran"):
        judged(log_of(left(), capsys), suite="0" * 64)


def test_the_checks_are_told_the_gpus_of_the_pod() -> None:
    (gpu,) = lane_pod.gpus(answers("t4"))
    known = nvidia.examine(ask=lambda argv: answered(answers("t4"), argv), driver="", host="").gpus[0].model_dump(mode="json")
    assert gpu == known
    assert lane_pod.gpus(ABSENT) == []
    assert lane_pod.gpus(answers("t4", query="0, GPU-1, T4, [Unknown Error], 1, 7.5, 1, Disabled, 0")) == []


def test_the_checks_of_a_pod_with_a_slice_are_told_the_slice_and_not_its_gpu() -> None:
    said = answers("a100-mig", L=recorded("a100-mig.L.txt"))
    told, known = lane_pod.gpus(said), nvidia.examine(ask=lambda argv: answered(said, argv), driver="", host="").gpus
    assert [(one["uuid"], one["name"], one["capability"], one["clock"]) for one in told] == [
        (one.uuid, one.name, list(one.capability), one.clock) for one in known
    ]
    assert [one["memory"] for one in told[:2]] == [40 * 2**30, 10 * 2**30]


def answered(told: list[dict[str, Any]], argv: Any) -> Any:
    from pipeline.command import Completed

    said = next(each for each in told if each["argv"] == list(argv))
    return Completed(argv=tuple(argv), code=0, stdout=said["stdout"], stderr="", seconds=0.0)


def test_a_driver_that_does_not_know_a_field_is_asked_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(argv: list[str]) -> dict[str, Any]:
        known = "clocks.max.sm" not in argv[1]
        text = "0, GPU-1, T4, 15360, 2, 7.5, [N/A], 0" if known else 'Field "clocks.max.sm" is not a valid field to query.'
        return {"argv": argv, "code": 0 if known else 2, "stdout": text, "stderr": "", "error": ""}

    monkeypatch.setattr(lane_pod, "answer", old)
    told = lane_pod.answers(nvidia.QUESTIONS[:1])
    assert [len(each["argv"]) for each in told] == [3, 3]
    assert lane_pod.gpus(told)[0]["memory"] == 15360 * 2**20


def test_pytest_fits_a_config_map() -> None:
    assert len(gzip.compress(library(), 1)) < rendered.CONFIG_MAP_LIMIT


def test_a_user_with_a_name_or_root_is_left_to_the_image() -> None:
    for user in ("", "0:0", "root", "user"):
        (made,) = of_kind(manifests([job(config=dataclasses.replace(job().config, user=user))]), "Job")
        assert "runAsNonRoot" not in made["spec"]["template"]["spec"]["securityContext"]


@pytest.mark.parametrize(
    ("program", "seconds", "ending"),
    [
        ("raise SystemExit(3)", 300, (3, False)),
        ("import os; os.kill(os.getpid(), 11)", 300, (139, False)),
        ("import time; time.sleep(3600)", 0.2, (137, True)),
    ],
)
def test_how_the_checks_ended_is_told_as_a_shell_does(program: str, seconds: float, ending: tuple[int, bool]) -> None:
    assert lane_pod.checks(["-c", program], seconds, []) == ending


DEPLOY = Path(__file__).parents[2] / "deploy"


def patched(manifest: Any, patch: str) -> Any:
    """What RFC 6902's `add` and `remove` make of it."""
    made = copy.deepcopy(dict(manifest))
    for step in yaml.safe_load(patch):
        *folders, last = (part.replace("~1", "/") for part in step["path"].split("/")[1:])
        place: Any = made
        for part in folders:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if step["op"] == "add":
            place[last] = step["value"]
        else:
            del place[last]
    return made


def test_each_patch_that_is_offered_fits_what_is_rendered() -> None:
    offered = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))["patches"]
    for made in of_kind(manifests([job(), job("cpu")]), "Job"):
        fit = [each for each in offered if re.fullmatch(each["target"].get("name", ".*"), made["metadata"]["name"])]
        assert len(fit) == (len(offered) if "-gpu-" in made["metadata"]["name"] else 1)
        whole = made
        for each in fit:
            whole = patched(whole, each["patch"])
        kubernetes_validate.validate(whole, "1.37", strict=True)
        if len(fit) > 1:
            assert whole["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}


def test_a_pod_keeps_to_the_standard_restricted() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    for made in of_kind(manifests([job(), job("cpu")]), "Job"):
        pod = made["spec"]["template"]["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"] + pod["initContainers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not {"privileged", "procMount", "runAsUser"} & container["securityContext"].keys()


def test_names_leave_room_for_those_of_pods() -> None:
    long = job(ticket=ticket(image="an-image-" * 12 + "x"))
    assert len(long.name) + len("-abcde") <= 63
    (made,) = of_kind(manifests([long]), "Job")
    assert all(len(text) <= 63 and text[-1].isalnum() for text in made["metadata"]["labels"].values())


def test_the_example_of_runners_gives_the_runner_what_it_needs() -> None:
    spec: Any = yaml.safe_load((DEPLOY / "arc" / "values.yaml").read_text(encoding="utf-8"))["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.37", strict=True)
    folders, engine = spec["initContainers"]
    runner = spec["containers"][0]
    nodes = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    assert folders["securityContext"]["runAsUser"] == 0
    assert nodes == {mount["name"] for mount in folders["volumeMounts"]}
    assert nodes < {mount["name"] for mount in runner["volumeMounts"]}
    assert "--group=123" in engine["command"][-1]
    named = {entry["name"]: entry for entry in runner["env"]}
    assert named["PIPELINE_MACHINE"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert str(turns.FOLDER) in {mount["mountPath"] for mount in runner["volumeMounts"]}
