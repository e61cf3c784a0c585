"""An image that the strictest policy allows, from which tests take one thing at a time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pipeline import policy
from pipeline.evidence import Ignored, Key, Role, Signed, collect
from pipeline.gpus import Gpu
from pipeline.oci import Digest, Pinned
from pipeline.policy import Case, Checkout, Exceptions, Expected, Policy, Reason, Refused, Suite, Waiver, decide
from pipeline.statements import (
    SIGNATURE,
    Bom,
    Built,
    Checked,
    Database,
    Findings,
    Lane,
    Licence,
    Outcome,
    Ruled,
    Scanned,
    Statable,
    Tested,
    Vulnerability,
)

NOW = datetime(2026, 5, 10, 12, 0, 0, tzinfo=UTC)
YESTERDAY = NOW - timedelta(days=1)
SUBJECT = Pinned.parse("registry.example.com/team/images@sha256:" + "a" * 64)
OTHER = Pinned.parse("registry.example.com/team/images@sha256:" + "b" * 64)
HASH = "0123456789ab" + "c" * 52
TAG = "v1.0-nlp-0123456789ab"
CPU, GPU, OLDER = "1" * 64, "2" * 64, "3" * 64
"""Hashes of suites."""
DIGEST = "sha256:" + "d" * 64
"""Of the policy."""
CLAIMS = {"torch": "2.6.0", "huggingface-hub": "0.36.2", "cuda": "12.4"}
CHECKS: dict[Lane, tuple[tuple[str, str], ...]] = {
    "cpu": (("base", "cuda"), ("nlp", "imports")),
    "gpu": (("base", "matmul"), ("nlp", "bert")),
}
KEYS: dict[Role, Key] = {
    "ci": Key(name="ci", roles=frozenset({"ci"})),
    "gpu": Key(name="gpu", roles=frozenset({"gpu"})),
    "release": Key(name="release", roles=frozenset({"release"})),
}
RELEASE = Path(__file__).parents[1] / "policies" / "release.yaml"
LISTED = """\
keys:
  - {name: ci, roles: [ci], file: keys/ci.pub}
  - {name: gpu, roles: [gpu], file: keys/gpu.pub}
  - {name: release, roles: [release], kms: "awskms:///alias/release"}
"""


def strict(**changes: Any) -> Policy:
    """The release policy as it ships, with keys; `changes` name its fields."""
    return _release().model_copy(update=changes)


@cache
def _release() -> Policy:
    return policy.parse(RELEASE.read_bytes().replace(b"keys: []\n", LISTED.encode()), "release.yaml")


def times(at: datetime = YESTERDAY) -> dict[str, Any]:
    return {"started": at - timedelta(minutes=9), "finished": at, "run": "17"}


def gpu(name: str = "NVIDIA A100-SXM4-80GB", index: int = 0) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name=name, capability=(8, 0), memory=80 * 2**30, used=0)


def built(**changes: Any) -> Built:
    values: dict[str, Any] = {
        "image": "nlp",
        "subject": str(SUBJECT),
        "tag": TAG,
        "input_hash": HASH,
        "inputs": {"file:Dockerfile": "1", "claim:torch": "2"},
        "parent": None,
        "materials": [],
        "commit": "e" * 40,
        "dirty": False,
        "builder": "local",
        "compression_level": 7,
        "size": 1_000_000,
    }
    return Built(**{**values, **times(), **changes})


def passed(lane: Lane, at: datetime = YESTERDAY, **changes: Any) -> Tested:
    checks = [Checked(name=name, image=image, outcome=Outcome.PASSED) for image, name in CHECKS[lane]]
    values: dict[str, Any] = {
        "image": "nlp",
        "subject": str(SUBJECT),
        "lane": lane,
        "outcome": Outcome.PASSED,
        "checks": checks,
        "suite": CPU if lane == "cpu" else GPU,
        "claims": CLAIMS,
        "machine": {},
        "gpus": [gpu()] if lane == "gpu" else [],
    }
    return Tested(**{**values, **times(at), **changes})


def failed(lane: Lane, at: datetime = YESTERDAY, **changes: Any) -> Tested:
    return passed(lane, at, **{"outcome": Outcome.FAILED, "reason": "matmul: 3 is not 4", **changes})


def scanned(at: datetime = YESTERDAY, **changes: Any) -> Scanned:
    values: dict[str, Any] = {
        "image": "nlp",
        "subject": str(SUBJECT),
        "scanner": "pkg:golang/scanner@1",
        "database": Database(version="2", updated=at - timedelta(hours=6)),
        "system": "debian 12",
        "packages": 170,
        "unassessed": ["nvidia-cudnn-cu12 9.1.0.70"],
        "source": "image",
    }
    return Scanned(**{**values, **times(at), **changes})


def weakness(**changes: Any) -> Vulnerability:
    values: dict[str, Any] = {"id": "CVE-2026-1", "package": "openssl", "installed": "3.0.1", "fixed": "3.0.2"}
    return Vulnerability(**{"severity": "HIGH", "published": NOW - timedelta(days=14), **values, **changes})


def findings(**changes: Any) -> Findings:
    values: dict[str, Any] = {"image": "nlp", "subject": str(SUBJECT), "scanner": "pkg:golang/scanner@1", "size": 1_000_000}
    return Findings(**{**values, "licences": [Licence(name="MIT", category="notice")], **times(), **changes})


def bom(**changes: Any) -> Bom:
    values: dict[str, Any] = {"components": {"torch": ["2.6.0"], "huggingface_hub": ["0.36.2"]}, "document": {}}
    return Bom(**{"subject": str(SUBJECT), "finished": YESTERDAY, **values, **changes})


def signed(record: Statable | None, key: Key | None = None, *, subject: Pinned = SUBJECT, kind: str = "") -> Signed:
    """A record under a signature of the key that should have made it; nothing is the plain signature of the digest."""
    role: Role = "gpu" if isinstance(record, Tested) and record.lane == "gpu" else "ci"
    name = record.model_dump_json() if record is not None else f"signature of {subject}"
    return Signed(
        manifest=Digest.of(name.encode()),
        key=key or KEYS[role],
        subject=str(subject.digest),
        record=record,
        predicate_type=kind or (SIGNATURE if record is None else "-"),
    )


def all_good() -> tuple[Signed, ...]:
    """Every statement that the strict policy asks for."""
    return tuple(map(signed, (None, built(), passed("cpu"), passed("gpu"), scanned(), findings(), bom())))


def without(*kinds: type) -> tuple[Signed, ...]:
    return tuple(one for one in all_good() if not isinstance(one.record, kinds))


def case(found: Sequence[Signed | Ignored] | None = None, *, now: datetime = NOW, **changes: Any) -> Case:
    """The case of what was found on the digest; of all that is good when nothing is said."""
    values: dict[str, Any] = {
        "image": "nlp",
        "evidence": collect(SUBJECT, all_good() if found is None else found, now=now),
        "expected": expected(),
        "now": now,
        "registry_loopback": False,
        "checkout": Checkout(clean=True, commit="e" * 40, policy=DIGEST, pinned=DIGEST),
    }
    return Case(**{**values, **changes})


def expected(**changes: Any) -> Expected:
    values: dict[str, Any] = {
        "input_hash": HASH,
        "inputs": {"file:Dockerfile": "1", "claim:torch": "2"},
        "tag": TAG,
        "lanes": {"cpu": Suite(hash=CPU, checks=CHECKS["cpu"]), "gpu": Suite(hash=GPU, checks=CHECKS["gpu"])},
        "claims": CLAIMS,
        "size_limit": 1_000_000,
        "released": True,
    }
    return Expected(**{**values, **changes})


def reasons(one: Case, asked: Policy | None = None) -> Sequence[Reason]:
    decision = decide(asked or strict(), one)
    return decision.reasons if isinstance(decision, Refused) else ()


def refused(one: Case, asked: Policy | None = None) -> list[str]:
    """The codes of the rules that refuse, each once."""
    return list(dict.fromkeys(reason.rule for reason in reasons(one, asked)))


def instead(record: Statable, *more: Statable) -> Case:
    """The good case with `record` in place of the good statement of its kind, and `more` besides."""
    lane = getattr(record, "lane", None)
    kept = [good for good in all_good() if type(good.record) is not type(record) or getattr(good.record, "lane", None) != lane]
    return case([*kept, signed(record), *map(signed, more)])


def beside(*more: Signed | Ignored) -> Case:
    return case([*all_good(), *more])


def state(one: Case, code: str, asked: Policy | None = None) -> Ruled:
    return next(ruled for ruled in decide(asked or strict(), one).rules if ruled.code == code)


def without_gpu_lane() -> list[Signed]:
    return [one for one in all_good() if getattr(one.record, "lane", "") != "gpu"]


def lanes_asked(**changes: dict[str, Any]) -> Policy:
    lanes = strict().lanes
    told = {name: lanes[name].model_copy(update=change) for name, change in changes.items()}  # type: ignore[index]
    return strict(lanes=lanes.model_copy(update=told))


def scan_asked(**changes: Any) -> Policy:
    return strict(scan=strict().scan.model_copy(update=changes))


def exception(**changes: Any) -> Exceptions:
    values: dict[str, Any] = {"rule": "vulnerabilities", "image": "nlp", "id": "CVE-2026-1", "owner": "o", "reason": "r"}
    day = changes.pop("expires", NOW + timedelta(days=1))
    told = {name: text for name, text in {**values, **changes}.items() if text}
    waiver = Waiver(**told, expires="2026-06-30")  # type: ignore[arg-type]
    return Exceptions(exceptions=(waiver.model_copy(update={"expires": day}),))
