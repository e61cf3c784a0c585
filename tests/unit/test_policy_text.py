"""Policies and exceptions from YAML: what ships is whole, and whatever is wrong refuses with all its faults."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from pipeline import policy
from pipeline.errors import CatalogError
from pipeline.policy import CODES
from pipeline.policy.rules import RULES
from tests import cases

POLICIES = Path(__file__).parents[2] / "policies"
RELEASE = (POLICIES / "release.yaml").read_text(encoding="utf-8")
LOCAL = (POLICIES / "local.yaml").read_text(encoding="utf-8")
ENTRY = {
    "rule": "vulnerabilities",
    "image": "nlp",
    "id": "CVE-2026-1",
    "owner": "somebody",
    "reason": "not reachable",
    "expires": "2026-06-30",
}


def faults(text: str) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        policy.parse(text.encode(), "p.yaml")
    assert caught.value.hint
    assert caught.value.message.startswith("`p.yaml` has ")
    return list(caught.value.problems)


def exception_faults(text: str) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        policy.parse_exceptions(text.encode(), "e.yaml")
    return list(caught.value.problems)


def entry(**changes: str) -> str:
    return "exceptions:\n  - {" + ", ".join(f"{name}: {text}" for name, text in {**ENTRY, **changes}.items()) + "}\n"


def test_the_release_policy_as_it_ships() -> None:
    found = policy.parse(RELEASE.encode(), "policies/release.yaml")
    assert found.keys == ()
    assert found.scan.grace == {"CRITICAL": timedelta(days=3), "HIGH": timedelta(days=14), "UNKNOWN": timedelta(days=14)}
    assert found.lanes["gpu"].gpus == (("A100", "H100", "H200"),)
    assert found.size.growth == Decimal(10)
    assert (found.registry, found.checkout, found.build.clean) == ("any", "clean", True)
    assert found.licences.refused == ("forbidden", "AGPL-1.0", "AGPL-3.0")
    assert (found.secrets, found.bom, found.scan.required) == ("refuse", "required", True)


def test_the_local_policy_as_it_ships() -> None:
    found = policy.parse(LOCAL.encode(), "policies/local.yaml")
    assert [(key.name, key.development) for key in found.keys] == [("development", True)]
    assert found.registry == "loopback"
    assert not found.lanes.gpu.required
    assert not found.scan.required


def test_what_is_commented_in_the_files_that_ship_can_be_used() -> None:
    keys = [line[4:] for line in RELEASE.splitlines() if line.startswith(("#   - ", "#     "))]
    with_keys = RELEASE.replace("keys: []\n", "keys:\n" + "\n".join(keys) + "\n")
    assert [key.name for key in policy.parse(with_keys.encode(), "p").keys] == ["ci-2026", "release-2026", "ci-2025", "gpu-2025"]
    frozen = [line[1:] for line in RELEASE.splitlines() if line.startswith("#  ")]
    with_freeze = RELEASE.replace("freeze: []\n", "freeze:\n" + "\n".join(frozen[-3:]) + "\n")
    assert [one.reason for one in policy.parse(with_freeze.encode(), "p").freeze] == ["nobody is there to look"]
    text = (POLICIES / "exceptions.yaml").read_text(encoding="utf-8")
    assert policy.parse_exceptions(text.encode(), "e").exceptions == ()
    entries = [line[1:] for line in text.splitlines() if line.startswith("#  ")]
    assert policy.parse_exceptions(("exceptions:\n" + "\n".join(entries)).encode(), "e").exceptions[0].id == "CVE-2026-12345"


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"[]", b"null", b"{", b"\x00", b"\xff\xfe\xff", b"policy"])
def test_what_is_empty_or_unreadable_refuses(content: bytes) -> None:
    for parse in (policy.parse, policy.parse_exceptions):
        with pytest.raises(CatalogError) as caught:
            parse(content, "p.yaml")
        assert len(caught.value.problems) == 1


@pytest.mark.parametrize("key", list(policy.Policy.model_fields))
def test_a_policy_that_lacks_a_key_refuses(key: str) -> None:
    lines, kept, skip = RELEASE.splitlines(), [], False
    for line in lines:
        skip = line.startswith(f"{key}:") if line[:1].isalpha() else skip
        kept += [] if skip else [line]
    assert faults("\n".join(kept)) == [f"p.yaml:2: `{key}` is missing"]


@pytest.mark.parametrize(
    ("key", "inner"),
    [("gpu", "required: true"), ("gpu", "rungs: full"), ("gpu", "age: 30 days"), ("cpu", "gpus: []")],
)
def test_a_lane_that_lacks_a_key_refuses(key: str, inner: str) -> None:
    line = next(line for line in RELEASE.splitlines() if line.startswith(f"  {key}: "))
    assert f"`lanes.{key}.{inner.partition(':')[0]}` is missing" in faults(RELEASE.replace(line, _without(line, inner)))[0]


def _without(line: str, part: str) -> str:
    return line.replace(f"{part}, ", "").replace(f", {part}", "")


def test_all_faults_of_a_policy_at_once_with_their_lines() -> None:
    text = RELEASE
    for old, new in {
        "registry: any": "registry: anywhere",
        "checkout: clean #": "chekout: clean #",
        "keys: []": "keys: [{name: a, roles: [], file: ../a.pub}, {name: b, roles: [boss], file: keys/b.pub, revoked: no}]",
        "signed: [ci]": "signed: []",
        "  clean: true": "  clean: yes",
        "gpus: [[A100, H100, H200]]": "gpus: [[]]",
        " rungs: full,": " rungs: most,",
        "age: 7 days": "age: 7",
        "database-age: 48 hours": "database-age: -1 days",
        "{ CRITICAL: 3 days,": "{ SEVERE: 3 days,",
        "refused: [forbidden, AGPL-1.0, AGPL-3.0]": "refused: [agpl, forbiden, AGPL-3.0-only]",
        "growth: 10 %": "growth: 0.1",
        "freeze: []": "freeze: [{from: 2026-02-30, to: tomorrow, reason: x}]",
    }.items():
        assert old in text
        text = text.replace(old, new, 1)
    found = [problem.partition(": ")[2] for problem in faults(text)]
    assert found == [
        "`checkout` is missing",
        "`registry` must be `loopback` or `any`, not `anywhere`",
        "unknown key `chekout`: did you mean `checkout`?",
        "`keys[0].file` is not a file such as `keys/ci.pub`: `../a.pub`",
        "`keys[0].roles` is empty: name at least one",
        "`keys[1].revoked` must be `true` or `false`, not `no`",
        "`keys[1].roles[0]` must be `ci`, `gpu` or `release`, not `boss`",
        "`signed` is empty: name at least one",
        "`build.clean` must be `true` or `false`, not `yes`",
        "`lanes.gpu.gpus[0]` is empty: name at least one",
        "`lanes.gpu.rungs` must be `full` or `any`, not `most`",
        "`scan.age` must be a time such as `7 days`, `24 hours` or `30 minutes`, not `7`",
        "`scan.database-age` must be a time such as `7 days`, `24 hours` or `30 minutes`, not `-1 days`",
        "unknown key `scan.grace.SEVERE`: it must be `CRITICAL`, `HIGH`, `MEDIUM`, `LOW` or `UNKNOWN`",
        "`licences.refused[0]` is no SPDX name such as `AGPL-3.0-only`, and none of `forbidden`, `restricted`, `reciprocal`, "
        "`notice`, `permissive`, `unencumbered`, `unknown`: `agpl`",
        "`licences.refused[1]` is no SPDX name such as `AGPL-3.0-only`, and none of `forbidden`, `restricted`, `reciprocal`, "
        "`notice`, `permissive`, `unencumbered`, `unknown`: `forbiden`",
        "`size.growth` must be a share such as `10 %`, not `0.1`",
        "`freeze[0].from` must be a day that there is: day is out of range for month",
        "`freeze[0].to` must be a day such as `2026-05-31`, or `2026-05-31T12:00:00Z`, not `tomorrow`",
    ]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("{name: a, roles: [ci]}", "`a` must have one of `file`, `kms` and `development: true`"),
        ("{name: a, roles: [ci], file: keys/a.pub, kms: 'k8s://a/b'}", "`a` must have one of"),
        ("{name: a, roles: [ci], file: keys/a.pub}, {name: a, roles: [gpu], file: keys/b.pub}", "there is a key `a` already"),
        ("{name: a, roles: [ci], file: keys/a.pub}, {name: b, roles: [gpu], file: keys/a.pub}", "`b` is listed already"),
        ("{name: a, roles: [ci], development: true}", "`a`: a development key needs `registry: loopback`"),
        ("{name: a, roles: [ci, ci], file: keys/a.pub}", "`keys[0].roles` names something twice"),
        ("{name: a, roles: [ci], kms: 'env://KEY'}", "`keys[0].kms` is not the address of a key in a KMS"),
        ("{name: a, roles: [ci], file: /etc/a.pub}", "`keys[0].file` is not a file"),
        ("{name: a, roles: [ci], file: keys/.pub}", "`keys[0].file` is not a file"),
    ],
)
def test_a_key_has_one_origin_of_its_own(keys: str, fault: str) -> None:
    (found,) = faults(RELEASE.replace("keys: []", f"keys: [{keys}]"))
    assert fault in found


def test_times_are_in_days_hours_and_minutes() -> None:
    for text, span in {"2 days": timedelta(days=2), "1 hour": timedelta(hours=1), "30 minutes": timedelta(minutes=30)}.items():
        assert policy.parse(RELEASE.replace("age: 7 days", f"age: {text}").encode(), "p").scan.age == span


@pytest.mark.parametrize("text", ["AGPL 3.0", "-MIT", "agpl-3.0", "*"])
def test_a_licence_that_nothing_is_under_is_not_refused_in_vain(text: str) -> None:
    assert "is no SPDX name" in faults(RELEASE.replace("refused: [forbidden, AGPL-1.0, AGPL-3.0]", f"refused: ['{text}']"))[0]


def test_a_day_after_which_there_is_none_is_refused() -> None:
    text = RELEASE.replace("freeze: []", "freeze: [{from: 2026-12-19, to: 9999-12-31, reason: x}]")
    assert "must be a day that there is" in faults(text)[0]


def test_a_time_of_freeze_holds_its_last_day_and_does_not_end_before_it_begins() -> None:
    text = RELEASE.replace("freeze: []", "freeze: [{from: 2026-12-19, to: 2026-12-19, reason: x}]")
    (frozen,) = policy.parse(text.encode(), "p").freeze
    assert (frozen.begin, frozen.end) == (datetime(2026, 12, 19, tzinfo=UTC), datetime(2026, 12, 20, tzinfo=UTC))
    moment = "2026-12-19T12:00:00Z"
    assert "`freeze[0]` ends before it begins" in faults(text.replace("2026-12-19", moment))[0]
    assert "`freeze[0]` ends before it begins" in faults(text.replace("to: 2026-12-19", "to: 2026-12-17"))[0]


def test_exceptions_know_their_day() -> None:
    (found,) = policy.parse_exceptions(entry().encode(), "e").exceptions
    assert found.expires == datetime(2026, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"rule": "vulnerability"}, "`exceptions[0].rule` is no rule that can be waived, as are `vulnerabilities`"),
        ({"id": "CVE-2026-*"}, "`exceptions[0].id` must be one exact finding, without `*`"),
        ({"id": "'*'"}, "`exceptions[0].id` must be one exact finding, without `*`"),
        ({"image": "'*'"}, "`exceptions[0].image` is not an image's name"),
        ({"owner": "''"}, "`exceptions[0].owner` is not one line of text"),
        ({"reason": "''"}, "`exceptions[0].reason` is not one line of text"),
        ({"expires": "never"}, "`exceptions[0].expires` must be a day such as"),
        ({"expires": "[2026-06-30]"}, "`exceptions[0].expires` must be a day such as"),
        ({"until": "2026-06-30"}, "unknown key `exceptions[0].until`"),
    ],
)
def test_an_exception_that_is_too_wide_or_unclear_refuses(changes: dict[str, str], fault: str) -> None:
    assert fault in exception_faults(entry(**changes))[0]


@pytest.mark.parametrize("code", [code.name for code in CODES if not code.waivable])
def test_rules_of_integrity_take_no_exceptions(code: str) -> None:
    assert "is no rule that can be waived" in exception_faults(entry(rule=code))[0]


def test_an_exception_stands_once() -> None:
    twice = entry() + entry().partition("\n")[2]
    assert exception_faults(twice) == ["e.yaml:3: `vulnerabilities CVE-2026-1` of `nlp` is excepted already"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"image": "nlpp"}, "vulnerabilities CVE-2026-1` is of no image: there is no `nlpp`, did you mean `nlp`?"),
        ({"image": "vision"}, "vulnerabilities CVE-2026-1` is of no image: there is no `vision`; remove it"),
        (
            {"expires": "2026-05-10"},
            "vulnerabilities CVE-2026-1` expired at 2026-05-10T00:00:00+00:00 (owner: somebody); mend",
        ),
        ({"expires": "2026-11-10"}, "vulnerabilities CVE-2026-1` is too wide: it ends more than 180 days from now"),
        ({"rule": "size"}, "size CVE-2026-1` names a finding, and its rule has none"),
    ],
)
def test_an_exception_that_does_nothing_is_told_with_its_line(changes: dict[str, str], text: str) -> None:
    content = entry(image="lab").encode() + b"  - " + entry(**changes).partition("  - ")[2].encode()
    (found,) = policy.idle_exceptions(content, "e.yaml", ["nlp", "lab"], cases.NOW)
    assert str(found).startswith(f"e.yaml:3: exception `{text}")


def test_every_code_has_a_rule_and_every_rule_a_code() -> None:
    assert list(RULES) == [code.name for code in CODES]
    integrity = {"signature", "build", "lanes", "failing-lane", "claims", "bom", "scan", "policy"}
    integrity |= {"unreadable", "crowd", "future"}
    assert {code.name for code in CODES if not code.waivable} == integrity | {"registry", "release", "withdrawn"}


def test_what_an_exception_must_name_and_what_a_rollback_goes_on_over() -> None:
    findings = {"vulnerabilities", "end-of-life", "unassessed", "licences", "secrets"}
    assert {code.name for code in CODES if code.findings} == findings
    aged = {"lanes", "failing-lane", "claims", "scan", "size", "soak", "freeze"}
    assert {code.name for code in CODES if code.ages} == findings | aged


def test_the_digest_is_of_every_file_by_its_path_and_bytes() -> None:
    base = {"release.yaml": b"a", "exceptions.yaml": b"b", "keys/ci.pub": b"c"}
    others = [
        {**base, "release.yaml": b"A"},
        {**base, "keys/ci.pub": b"C"},
        {**base, "keys/gpu.pub": b"c"},
        {name: content for name, content in base.items() if name != "keys/ci.pub"},
        {"release.yaml": b"b", "exceptions.yaml": b"a", "keys/ci.pub": b"c"},
        {"release.yaml": b"ab", "exceptions.yaml": b"", "keys/ci.pub": b"c"},
    ]
    assert policy.digest(base) == policy.digest(dict(reversed(base.items())))
    assert len({policy.digest(one) for one in (base, *others)}) == len(others) + 1
    assert policy.digest(base).startswith("sha256:")


def test_the_keys_of_a_policy_are_known_as_evidence_knows_them() -> None:
    assert set(cases.strict().known) == set(cases.KEYS.values())
    text = RELEASE.replace("keys: []", "keys: [{name: a, roles: [ci], file: keys/a.pub, retired: 2026-01-31, revoked: true}]")
    (key,) = policy.parse(text.encode(), "p").known
    assert (key.retired, key.revoked) == (datetime(2026, 1, 31, tzinfo=UTC), True)
