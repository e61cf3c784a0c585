"""Evidence and decisions with real keys, on a real registry: each way in without the right is refused by its own rule."""

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import dsse, names, policy, statements
from pipeline.command import Runner
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import NotThere, ToolFailed
from pipeline.evidence import Evidence, Key, Signed, Why
from pipeline.gather import STATEMENT_LIMIT, found, gather
from pipeline.oci import OCI_INDEX, OCI_MANIFEST, Digest, Pinned, Repository
from pipeline.policy import Allowed, Case, Policy, decide
from pipeline.registry import Registry
from pipeline.statements import Bom, Built, Outcome, Statable
from tests import cases
from tests.cases import KEYS, NOW, YESTERDAY, strict
from tests.fakes import Answer, FakeRegistry, fake_registry, unknown
from tests.integration.conftest import Stack
from tests.integration.families import PROJECT
from tests.integration.signing import (
    DOCUMENT,
    Signer,
    bundle,
    entries,
    found_cosign,
    hang,
    image_in,
    referrer,
    signature_of,
    stated,
    told,
    written,
)

SECOND = timedelta(seconds=1)
OFFLINE = ("--insecure-ignore-tlog=true", "--trusted-root", "root.json")


@dataclass(frozen=True, kw_only=True)
class Shop:
    """An image, keys, and the good statements about it, which cosign signed."""

    ci: Signer
    gpu: Signer
    release: Signer
    digest: Digest
    good: dict[str, bytes]
    host: str

    def about(self, record: Statable) -> Any:
        """The record, about our image."""
        return record.model_copy(update={"subject": f"registry.example.com/team/images@{self.digest}"})

    def image(self) -> Pinned:
        """Our image, in a repository where nobody has been."""
        return image_in(Repository(self.host, f"integration/{secrets.token_hex(6)}/trust"))

    def without(self, *kinds: str) -> list[bytes]:
        return [content for kind, content in self.good.items() if kind not in kinds]

    def evidence(self, image: Pinned, *, keys: Sequence[tuple[Key, dsse.PublicKey]] = (), now: datetime = NOW) -> Evidence:
        return gather(image, keys or self.keys, Registry(), now=now)

    @property
    def keys(self) -> list[tuple[Key, dsse.PublicKey]]:
        return [one.public for one in (self.ci, self.gpu, self.release)]

    def case(self, image: Pinned, *, now: datetime = NOW, **changes: Any) -> Case:
        return cases.case(evidence=self.evidence(image, now=now), now=now, **changes)

    def hung(self, *contents: Any) -> Pinned:
        image = self.image()
        hang(image, contents)
        return image


@pytest.fixture(scope="module")
def shop(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("keys")
    cosign = found_cosign(folder, stack.host)
    ci, gpu, release = (Signer(key=KEYS[role], folder=folder, cosign=cosign).keep() for role in ("ci", "gpu", "release"))
    ci.say("trusted-root", "create", "--out", "root.json")
    ci.say("signing-config", "create", "--out", "signing.json")
    digest = image_in(Repository(stack.host, f"integration/{secrets.token_hex(6)}/trust")).digest
    made = Shop(ci=ci, gpu=gpu, release=release, digest=digest, good={}, host=stack.host)
    records: dict[str, Statable] = {
        "built": cases.built(),
        "cpu": cases.passed("cpu"),
        "gpu": cases.passed("gpu"),
        "scanned": cases.scanned(),
        "findings": cases.findings(),
        "bom": cases.bom(document=DOCUMENT),
    }
    for kind, record in records.items():
        made.good[kind] = (gpu if kind == "gpu" else ci).by_cosign(stated(made.about(record)))
    made.good["signature"] = ci.by_cosign(signature_of(digest))
    return made


def refused(case: Case, asked: Policy | None = None) -> list[str]:
    return cases.refused(case, asked)


def whys(evidence: Evidence) -> list[Why]:
    return [one.why for one in evidence.ignored]


def key_asked(name: str, **changes: Any) -> Policy:
    """The strict policy, one key of which is another."""
    return strict(keys=tuple(one.model_copy(update=changes) if one.name == name else one for one in strict().keys))


def test_all_that_cosign_signed_is_read_and_allowed(shop: Shop) -> None:
    image = shop.image()
    registry = Registry()
    for content in shop.good.values():
        registry.attach(image, dsse.BUNDLE_TYPE, content, dsse.BUNDLE_TYPE, {})
    case = shop.case(image)
    assert isinstance(decide(strict(), case), Allowed)
    assert (len(case.evidence.counted), len(case.evidence.signatures), case.evidence.ignored) == (6, 1, ())


def test_a_failed_test_alone_satisfies_a_bare_cosign_and_not_us(shop: Shop) -> None:
    image = shop.hung(shop.ci(shop.about(cases.failed("cpu"))))
    accepted = shop.ci.say("verify", "--key", "ci.pub", *OFFLINE, str(image))
    assert statements.TEST_RESULT in accepted.stdout
    evidence = shop.evidence(image)
    assert (evidence.signatures, [one.outcome for one in evidence.all(statements.Tested)]) == ((), [Outcome.FAILED])
    assert {"signature", "build", "lanes", "failing-lane"} <= set(refused(shop.case(image)))


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("signature", "signature"),
        ("built", "build"),
        ("cpu", "lanes"),
        ("gpu", "lanes"),
        ("scanned", "scan"),
        ("findings", "licences"),
        ("bom", "bom"),
    ],
)
def test_what_another_roles_key_signed_does_not_count(shop: Shop, kind: str, rule: str) -> None:
    wrong = shop.ci if kind == "gpu" else shop.gpu
    payload = dsse.parse(shop.good[kind]).payload
    case = shop.case(shop.hung(*shop.without(kind), wrong(payload)))
    assert rule in refused(case)
    assert whys(case.evidence) == [Why.ROLE]


def test_what_an_unknown_key_signed_does_not_count(shop: Shop) -> None:
    stranger = Signer(key=Key(name="ci", roles=frozenset({"ci"})), folder=shop.ci.folder, cosign=shop.ci.cosign)
    forged = stranger(dsse.parse(shop.good["built"]).payload)
    case = shop.case(shop.hung(*shop.without("built"), forged))
    assert refused(case) == ["build"]
    assert whys(case.evidence) == [Why.UNSIGNED]


def test_a_signature_moved_to_other_bytes_does_not_count(shop: Shop) -> None:
    envelope = dsse.parse(shop.good["built"])
    forged = bundle(
        envelope.payload.replace(b'"dirty": true', b'"dirty":false').replace(b"e" * 40, b"f" * 40), envelope.signature
    )
    case = shop.case(shop.hung(*shop.without("built"), forged))
    assert refused(case) == ["build"]
    assert whys(case.evidence) == [Why.UNSIGNED]


def test_nothing_that_a_revoked_key_signed_counts(shop: Shop) -> None:
    image = shop.hung(*shop.good.values())
    asked = key_asked("ci", revoked=True)
    keys = [(listed.key, public) for listed, (_, public) in zip(asked.keys, shop.keys, strict=True)]
    case = cases.case(evidence=shop.evidence(image, keys=keys))
    assert refused(case, asked) == ["signature", "build", "lanes", "bom", "scan", "licences", "secrets"]
    assert set(whys(case.evidence)) == {Why.REVOKED}


def test_what_a_retired_key_signed_before_stands_and_later_does_not(shop: Shop) -> None:
    image = shop.hung(*shop.good.values())
    for retired, rules in ((YESTERDAY + SECOND, []), (YESTERDAY - SECOND, ["signature", "build", "lanes"])):
        asked = key_asked("ci", retired=retired)
        keys = [(listed.key, public) for listed, (_, public) in zip(asked.keys, shop.keys, strict=True)]
        case = cases.case(evidence=shop.evidence(image, keys=keys))
        assert refused(case, asked)[:3] == rules
        assert set(whys(case.evidence)) == ({Why.RETIRED} if rules else set())


def test_a_statement_whose_subject_was_swapped_does_not_count(shop: Shop) -> None:
    other = Digest.of(b"another image")
    swapped = {**stated(shop.about(cases.passed("cpu")))}
    swapped["subject"] = [{"name": "registry.example.com/team/images", "digest": {"sha256": other.hex}}]
    elsewhere = stated(cases.passed("cpu").model_copy(update={"subject": f"registry.example.com/team/images@{other}"}))
    elsewhere = {**elsewhere, "subject": stated(shop.about(cases.built()))["subject"]}
    for statement in (swapped, elsewhere):
        case = shop.case(shop.hung(*shop.without("cpu"), shop.ci(statement)))
        assert refused(case) == ["unreadable", "lanes"]  # subject and record contradict each other
        assert whys(case.evidence) == [Why.UNREADABLE]


def test_what_was_copied_from_another_image_does_not_count(shop: Shop) -> None:
    other = image_in(shop.image().repository, b"another layer")
    hang(other, shop.good.values())
    case = shop.case(other)
    assert {"signature", "build", "lanes", "bom", "scan"} <= set(refused(case))
    assert set(whys(case.evidence)) == {Why.SUBJECT}
    assert (case.evidence.signatures, case.evidence.counted) == ((), ())


def test_an_old_pass_does_not_hide_a_newer_failure(shop: Shop) -> None:
    failure = shop.ci(shop.about(cases.failed("cpu", YESTERDAY + SECOND)))
    case = shop.case(shop.hung(failure, *shop.good.values()))
    assert refused(case) == ["lanes", "failing-lane"]
    assert whys(case.evidence) == [Why.OLDER]


def test_a_pass_elsewhere_does_not_hide_a_failure_on_other_gpus(shop: Shop) -> None:
    failure = cases.failed("gpu")
    elsewhere = cases.passed("gpu", YESTERDAY + SECOND, gpus=[cases.gpu("Tesla T4")])
    signed = (shop.gpu(shop.about(one)) for one in (failure, elsewhere))
    case = shop.case(shop.hung(*shop.without("gpu"), *signed))
    assert "failing-lane" in refused(case, cases.lanes_asked(gpu={"gpus": (("T4",),)}))
    assert refused(case) == ["lanes", "failing-lane"]


def test_a_newer_pass_of_an_older_suite_does_not_count_for_todays(shop: Shop) -> None:
    older = shop.ci(shop.about(cases.passed("cpu", NOW, suite=cases.OLDER)))
    assert refused(shop.case(shop.hung(*shop.without("cpu"), older))) == ["lanes"]
    failure = shop.ci(shop.about(cases.failed("cpu")))
    assert refused(shop.case(shop.hung(*shop.without("cpu"), older, failure))) == ["lanes", "failing-lane"]


def test_a_date_ahead_is_refused(shop: Shop) -> None:
    ahead = shop.ci(shop.about(cases.passed("cpu", NOW + timedelta(minutes=6))))
    case = shop.case(shop.hung(*shop.good.values(), ahead))
    assert refused(case) == ["future"]
    zone = written(stated(shop.about(cases.passed("cpu", NOW)))).replace(b"2026-05-10T12:00:00Z", b"2026-05-10T12:00:00-01:00")
    assert refused(shop.case(shop.hung(*shop.good.values(), shop.ci(zone)))) == ["future"]


def test_a_machines_fault_after_a_pass_leaves_the_pass(shop: Shop) -> None:
    void = [
        shop.gpu(shop.about(cases.passed("gpu", NOW, outcome=outcome))) for outcome in (Outcome.INFRASTRUCTURE, Outcome.NOT_RUN)
    ]
    case = shop.case(shop.hung(*shop.good.values(), *void))
    assert refused(case) == []
    assert whys(case.evidence) == [Why.VOID, Why.VOID]


def test_a_scan_with_a_stale_database_or_of_no_package_is_refused(shop: Shop) -> None:
    stale = cases.scanned(NOW, database=statements.Database(version="2", updated=NOW - timedelta(hours=48) - SECOND))
    for record in (stale, cases.scanned(NOW, packages=0)):
        assert refused(shop.case(shop.hung(*shop.good.values(), shop.ci(shop.about(record))))) == ["scan"]


def test_junk_hides_nothing_and_breaks_nothing(shop: Shop) -> None:
    envelope = dsse.parse(shop.good["cpu"])
    texts = (
        b"junk",
        b"{}",
        b"[" * 100_000,
        bundle(envelope.payload, *(envelope.signature,) * 100_000),
        secrets.token_bytes(10**6),
    )
    image = shop.image()
    absent = {"mediaType": dsse.BUNDLE_TYPE, "digest": str(Digest.of(b"absent")), "size": 6}
    junk = [referrer(image, texts[number % len(texts)] + b" " * number) for number in range(50)]
    other = [referrer(image, b"%d" % number, kind=kind) for number, kind in enumerate(("text/plain", "\x1b[2J", "x" * 999, "ci"))]
    wrong = [
        referrer(image, b"none", layers=[]),
        referrer(
            image, b"short", layers=[{**told(Registry().upload(image.repository, b"short"), dsse.BUNDLE_TYPE), "size": 999}]
        ),
        referrer(image, b"gone", layers=[{**absent, "urls": ["https://example.com"]}]),
        {**referrer(image, b"listed as another"), "artifactType": "text/plain"},
        {
            **referrer(image, b"x1"),
            "artifactType": dsse.BUNDLE_TYPE,
            "annotations": {dsse.PREDICATE_ANNOTATION: statements.TEST_RESULT},
        },
        {"mediaType": OCI_INDEX, **_index(image)},
        {"mediaType": "text/plain", "digest": str(image.digest), "size": 1},
        referrer(image, bundle(b"{}")),
    ]
    good = [referrer(image, content) for content in shop.good.values()]
    good[0] = {**good[0], "artifactType": "", "annotations": {dsse.PREDICATE_ANNOTATION: "x"}}
    hang(image, [*junk, *other, *wrong, *good, *good])
    case = shop.case(image)
    assert refused(case) == []
    assert set(whys(case.evidence)) == {Why.FOREIGN}
    assert len(case.evidence.ignored) == 62


def _index(image: Pinned) -> dict[str, Any]:
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
    return {"digest": str(Registry().put_manifest(image.repository, body, OCI_INDEX).digest), "size": len(body)}


def test_more_than_is_looked_at_refuses_once_and_junk_can_be_told_from_the_rest(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.gather.ATTACHED", 8)
    image = shop.hung(b"junk", b"more junk", b"and more", *shop.good.values())
    case = shop.case(image)
    assert [one.text.partition(" that")[0] for one in case.evidence.because(Why.CROWD)] == ["is the first of 2"]
    assert "crowd" in refused(case)
    junk = {Digest(one.manifest) for one in case.evidence.because(Why.FOREIGN, Why.UNSIGNED)}
    hang(image, [one for one in entries(image) if Digest(one["digest"]) not in junk])
    assert refused(shop.case(image)) == []


def test_what_a_registry_reads_otherwise_than_we_hides_nothing_and_breaks_nothing(shop: Shop) -> None:
    """A distribution registry takes them all: it reads other fields than we, or none that tell it that content is missing."""
    image = shop.image()
    here, gone = ({"mediaType": dsse.BUNDLE_TYPE, "digest": str(Digest.of(text)), "size": 4} for text in (b"here", b"gone"))
    registry = Registry()
    registry.upload(image.repository, b"here")
    changes: list[dict[str, Any]] = [
        {"fsLayers": []},
        {"manifests": None},
        {"layers": [{**gone, "Urls": ["https://example.com"]}]},
        {"layers": [{**gone, "url\u017f": ["https://example.com"]}]},
        {"layers": [gone], "Layers": [here]},
        {"mediaType": "text/plain", "MediaType": OCI_MANIFEST},
    ]
    hang(image, [*shop.good.values(), *(referrer(image, b"here", **each) for each in changes)])
    case = shop.case(image)
    assert refused(case) == []
    assert whys(case.evidence) == [Why.FOREIGN] * len(changes)


def test_what_somebody_wraps_anew_does_not_count(shop: Shop) -> None:
    """Who may push cannot sign, but attach what others have signed: with large things beside it, or as something else."""
    image = shop.image()
    large = told(Registry().upload(image.repository, b"large" * 1000), "application/octet-stream")
    for changes in (
        {"config": large},
        {"layers": [{**told(Registry().upload(image.repository, shop.good["cpu"]), dsse.BUNDLE_TYPE), "size": 10**12}]},
        {"subject": None},
        {"annotations": {dsse.PREDICATE_ANNOTATION: statements.SUMMARY}},
        {"annotations": {names.ANNOTATION_VERDICT: "withdraw v1.0.3-nlp"}},
    ):
        hang(image, [*shop.good.values(), referrer(image, shop.good["cpu"], **changes)])
        case = shop.case(image)
        assert refused(case) == []
        assert whys(case.evidence) == [Why.FOREIGN]


def test_a_text_of_half_characters_in_the_registry_breaks_nothing(shop: Shop) -> None:
    image = shop.image()
    half = referrer(image, b"half", artifactType="\ud800")
    hang(image, [half, *shop.good.values()])
    case = shop.case(image)
    assert refused(case) == []
    json.dumps([one.text for one in case.evidence.ignored], ensure_ascii=False).encode()


def test_a_statement_too_large_for_ours_is_not_read(shop: Shop) -> None:
    large = shop.ci(shop.about(cases.failed("cpu", NOW, events=["x" * 20 * 2**20])))
    assert len(large) > STATEMENT_LIMIT
    case = shop.case(shop.hung(*shop.good.values(), large))
    assert refused(case) == []
    assert whys(case.evidence) == [Why.FOREIGN]


@pytest.fixture
def fake(shop: Shop) -> Iterator[tuple[FakeRegistry, Pinned, list[Digest]]]:
    """A registry that keeps its own list, with our image and all that is good, and the manifests of that."""
    with fake_registry() as registry:
        registry.lists_referrers = True
        image = image_in(registry.repository())
        yield registry, image, [Digest(referrer(image, content)["digest"]) for content in shop.good.values()]


Fake = tuple[FakeRegistry, Pinned, list[Digest]]


def test_a_registry_with_a_list_of_its_own_is_as_good(shop: Shop, fake: Fake) -> None:
    assert refused(shop.case(fake[1])) == []


def address(image: Pinned, digest: Digest) -> str:
    return f"/v2/{image.repository.path}/manifests/{digest}"


def test_what_is_listed_and_not_there_is_refused(shop: Shop, fake: Fake) -> None:
    registry, image, (_, cpu, *_) = fake
    registry.canned["GET", address(image, cpu)] = [unknown("MANIFEST_UNKNOWN")]
    assert refused(shop.case(image)) == ["unreadable", "lanes"]


def test_a_referrer_whose_blob_is_missing_is_refused(shop: Shop, fake: Fake) -> None:
    registry, image, _ = fake
    referrer(image, b"soon gone")
    del registry.blobs[str(Digest.of(b"soon gone"))]
    case = shop.case(image)
    assert refused(case) == ["unreadable"]


def test_a_registry_that_lies_about_a_statement_is_refused(shop: Shop, fake: Fake) -> None:
    registry, image, (built, cpu, *_) = fake
    registry.canned["GET", address(image, cpu)] = [Answer(200, registry.manifests[image.repository.path, str(built)])] * 2
    assert refused(shop.case(image)) == ["unreadable", "lanes"]
    assert [one.manifest for one in shop.evidence(image).because(Why.UNREADABLE)] == [str(cpu)]
    registry.blobs[str(Digest.of(shop.good["built"]))] = shop.good["cpu"]
    assert refused(shop.case(image)) == ["unreadable", "build"]


def test_a_registry_that_lies_about_the_image_is_not_listened_to(shop: Shop, fake: Fake) -> None:
    registry, image, (built, *_) = fake
    registry.manifests[image.repository.path, str(image.digest)] = registry.manifests[image.repository.path, str(built)]
    with pytest.raises(ToolFailed, match="answered"):
        shop.evidence(image)
    with pytest.raises(NotThere):
        shop.evidence(image.repository.at(Digest.of(b"not there")))


def test_a_registry_that_hides_all_statements_proves_nothing(shop: Shop, fake: Fake) -> None:
    registry, image, _ = fake
    for name in [name for name in registry.manifests if name != (image.repository.path, str(image.digest))]:
        del registry.manifests[name]
    case = shop.case(image)
    assert case.evidence == Evidence(subject=image)
    assert refused(case) == ["signature", "build", "lanes", "bom", "scan", "licences", "secrets"]


def test_an_exception_counts_until_its_moment_and_no_second_longer(shop: Shop) -> None:
    weak = shop.ci(shop.about(cases.scanned(NOW, vulnerabilities=[cases.weakness(severity="CRITICAL")])))
    image = shop.hung(*shop.good.values(), weak)
    assert refused(shop.case(image)) == ["vulnerabilities"]
    text = b"""exceptions:
  - {rule: vulnerabilities, image: nlp, id: CVE-2026-1, owner: somebody, reason: not reachable, expires: 2026-05-11}
"""
    excepted = policy.parse_exceptions(text, "exceptions.yaml")
    midnight = datetime(2026, 5, 11, tzinfo=NOW.tzinfo)
    assert refused(shop.case(image, now=midnight - SECOND, exceptions=excepted)) == []
    late = shop.case(image, now=midnight + SECOND, exceptions=excepted)
    assert refused(late) == ["vulnerabilities"]
    assert any("expired" in note for note in decide(strict(), late).notes)


def test_an_edited_policy_is_refused_where_a_digest_is_pinned(shop: Shop) -> None:
    image = shop.hung(*shop.good.values())
    checkout = cases.case().checkout
    assert refused(shop.case(image, checkout=checkout)) == []
    assert refused(shop.case(image, checkout=replace(checkout, policy="sha256:" + "9" * 64))) == ["policy"]


def test_keys_that_the_policy_does_not_list_count_for_nothing(shop: Shop) -> None:
    case = shop.case(shop.hung(*shop.good.values()))
    assert refused(case, strict(keys=strict().keys[1:])) == ["signature"]


def test_a_withdrawal_refuses_for_good(shop: Shop) -> None:
    record = statements.Decided(
        image="nlp",
        subject=f"registry.example.com/team/images@{shop.digest}",
        action="withdraw",
        tag="v1.0.3-nlp",
        policy=cases.DIGEST,
        actor="somebody",
        finished=YESTERDAY,
        run="17",
    )
    assert refused(shop.case(shop.hung(*shop.good.values(), shop.release(record)))) == ["withdrawn"]
    assert refused(shop.case(shop.hung(*shop.good.values(), shop.ci(record)))) == []


def test_signed_nonsense_is_no_statement_and_where_it_could_be_a_failure_it_refuses(shop: Shop) -> None:
    about = {"_type": statements.STATEMENT_TYPES[0], "subject": [{"digest": {"sha256": shop.digest.hex}}]}
    payloads = [
        b"",
        b"null",
        b"[]",
        b'{"subject": [{"digest": [1]}]}',
        written(stated(shop.about(cases.built())))[:-1] + b', "predicateType": "x"}',
        written(stated(shop.about(cases.passed("cpu", NOW)))).replace(b'"memory": 0', b'"memory": ' + b"9" * 4999),
        written({**about, "predicateType": statements.TEST_RESULT.replace("i", "\u0456"), "predicate": {}}),
    ]
    case = shop.case(shop.hung(*shop.good.values(), *map(shop.ci, payloads)))
    assert refused(case) == []
    assert whys(case.evidence) == [Why.FOREIGN] * len(payloads)
    ours = [
        written({**about, "predicateType": statements.CYCLONEDX, "predicate": {"bomFormat": "CycloneDX", "metadata": 3}}),
        written({**about, "predicateType": statements.TEST_RESULT, "predicate": {"annotations": {"outcome": "passed"}}}),
        written(stated(shop.about(cases.built()))).replace(b"2026-05-09T12:00:00Z", b"0001-01-01T00:00:00+14:00"),
        written(stated(shop.about(cases.passed("cpu", NOW)))).replace(b"2026-05-10T12:00:00Z", b"2026-05-10T12:00:00"),
    ]
    case = shop.case(shop.hung(*shop.good.values(), *map(shop.ci, ours)))
    assert refused(case) == ["unreadable"]
    assert whys(case.evidence) == [Why.UNREADABLE] * len(ours)


def test_a_key_may_come_from_the_environment(shop: Shop) -> None:
    text = (shop.ci.folder / "ci.key").read_text()
    key = PrivateKey(reference="env://KEY_OF_CI", environment={"KEY_OF_CI": text, "COSIGN_REPOSITORY": "example.com/elsewhere"})
    made = Cosign(path=shop.ci.cosign, run=Runner({})).sign(dsse.parse(shop.good["built"]).payload, key)
    assert refused(shop.case(shop.hung(*shop.without("built"), made))) == []


def test_cosign_signs_by_itself_and_we_count_it(shop: Shop) -> None:
    image = shop.hung(*shop.without("signature"))
    assert refused(shop.case(image)) == ["signature"]
    plain = ("--signing-config", "signing.json", "--trusted-root", "root.json")
    shop.ci.say("sign", "--yes", "--key", "ci.key", *plain, str(image))
    assert refused(shop.case(image)) == []
    assert isinstance(shop.evidence(image).one(Built), Built)
    assert isinstance(shop.evidence(image).one(Bom), Bom)


def consumed(signer: Signer, image: Pinned, *words: str) -> tuple[int, dict[str, str]]:
    """What somebody finds who has nothing of ours: the exit code, and the predicate type of each manifest that is signed."""
    environment = {"PATH": f"{signer.cosign.parent}:{os.environ['PATH']}", "HOME": str(signer.folder)}
    script: tuple[str | Path, ...] = ("sh", PROJECT / "tests/data/consumer.sh", str(image), signer.pub, *words)
    done = Runner(environment)(*script, timeout=900, env=environment, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    return done.code, {manifest: kind for manifest, kind, _ in lines}


def test_cosign_curl_and_a_public_key_find_what_we_find_of_each_statement(shop: Shop) -> None:
    image = shop.hung(*shop.good.values(), b"junk", bundle(dsse.parse(shop.good["built"]).payload, b"no signature"))
    other = image_in(image.repository, b"another layer")
    hang(other, shop.good.values())
    for signer in (shop.ci, shop.gpu, shop.release):
        ours = [one for one in found(image, [signer.public], Registry()) if isinstance(one, Signed)]
        code, theirs = consumed(signer, image)
        assert theirs == {str(one.manifest): one.predicate_type for one in ours}
        assert code == (0 if signer is shop.ci else 1)
    assert consumed(shop.ci, other) == (1, {})
    assert consumed(shop.gpu, image, statements.TEST_RESULT)[0] == 0
    assert shop.evidence(other).counted == ()


@pytest.mark.parametrize(
    ("image", "key", "told"),
    [
        ("localhost:1/x:v1", __file__, "`localhost:1/x:v1` names no digest: write REGISTRY/REPOSITORY@sha256:…"),
        ("localhost:1/x@sha256:1", "/no.pub", "there is no key `/no.pub`"),
    ],
)
def test_they_are_told_what_they_named_wrongly(image: str, key: str, told: str) -> None:
    done = Runner(os.environ)("sh", PROJECT / "tests/data/consumer.sh", image, key, timeout=60, check=False)
    assert (done.code, done.stdout, done.stderr.strip()) == (2, "", told)


def test_a_failed_test_alone_is_no_release_for_them_either(shop: Shop) -> None:
    image = shop.hung(shop.ci(shop.about(cases.failed("cpu"))))
    (counted,) = shop.evidence(image).counted
    assert consumed(shop.ci, image) == (1, {str(counted.manifest): statements.TEST_RESULT})
    only_signature = ("--key", "ci.pub", *OFFLINE, "--type", statements.SIGNATURE, str(image))
    assert shop.ci.say("verify-attestation", *only_signature, check=False).code != 0
    hang(image, [shop.good["signature"]])
    assert shop.ci.say("verify-attestation", *only_signature).code == 0
