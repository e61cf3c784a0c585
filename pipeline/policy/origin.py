"""Rules of integrity: who signed, what was built, and whether the policy, the registry and the statements can be believed.

None of them can be waived. Whoever may only push to the registry can neither satisfy nor break them, unless by attaching
hundreds of things: what no known key signed is shown, and nothing else.
"""

from collections.abc import Iterator

from pipeline.evidence import Why
from pipeline.policy.case import Case, Fault, Remark, Said
from pipeline.policy.model import Policy
from pipeline.statements import Built, Decided
from pipeline.wording import some

MAKE_A_KEY = (
    "`cosign generate-key-pair --output-key-prefix {role}`, put `{role}.pub` into `policies/keys/` and list it under `keys:` in "
    "the policy; the private half belongs to the jobs that sign, and nowhere else"
)
PARTS = 5
"""How many parts of an input hash a message names."""


def policy_as_committed(policy: Policy, case: Case) -> Iterator[Said]:
    """An edited branch cannot judge itself."""
    checkout = case.checkout
    if policy.checkout == "clean" and not checkout.clean:
        yield Fault(message="policy, exceptions or keys are not as committed", solution="`git status policies`, then commit them")
    if checkout.pinned is None:
        yield Remark(message="no digest is pinned: PIPELINE_POLICY_DIGEST is not set")
    elif checkout.pinned != checkout.policy:
        yield Fault(
            message=f"policy, exceptions and keys have the digest `{checkout.policy}`, and `{checkout.pinned}` is pinned",
            solution="check out the commit that was pinned; or have the change reviewed, and PIPELINE_POLICY_DIGEST set anew "
            "where the release environment is kept",
        )


def registry(policy: Policy, case: Case) -> Iterator[Said]:
    """A policy for laptops is for registries on them."""
    if policy.registry == "loopback" and not case.registry_loopback:
        yield Fault(
            message=f"this policy is for plain registries on this machine, and `{case.evidence.subject.repository.host}` is none",
            solution=f"`nox -s verify -- {case.evidence.subject} --policy policies/release.yaml`",
        )


def release(_: Policy, case: Case) -> Iterator[Said]:
    """Some images only carry others."""
    if not case.expected.released:
        yield Fault(
            message=f"`{case.image}` is never released: its `image.yaml` says `release: false`",
            solution="`nox -s plan` lists the images; release one that stands on it",
        )


def unreadable(_: Policy, case: Case) -> Iterator[Said]:
    """What cannot be had may have been a failure."""
    for one in case.evidence.because(Why.UNREADABLE):
        where = case.evidence.subject.repository
        address = f"{'http' if where.loopback else 'https'}://{where.host}/v2/{where.path}/manifests/{one.manifest}"
        yield Fault(
            message=f"`{one.manifest}` is attached and cannot be had: {one.text}",
            solution=f"mend the registry; or `curl -X DELETE {address}`, then `nox -s test scan sign -- {case.image}`",
        )


def crowd(_: Policy, case: Case) -> Iterator[Said]:
    """Whoever may push can attach more than anybody reads; a failure could hide behind it."""
    for one in case.evidence.because(Why.CROWD):
        yield Fault(
            message=f"`{one.manifest}` {one.text}",
            solution=f"`nox -s verify -- {case.evidence.subject} --keys policies/keys --json` lists under `ignored` what no key "
            "signed (`foreign`, `unsigned`): delete that from the registry, take the right to push from whoever attached it, "
            "and verify again",
        )


def future(_: Policy, case: Case) -> Iterator[Said]:
    """A date ahead would count as the newest for as long as it lies ahead."""
    for one in case.evidence.because(Why.FUTURE):
        yield Fault(
            message=f"`{one.manifest}` {one.text}",
            solution=f"set the clock of the machine that is wrong, and `nox -s sign -- {case.image}`; a statement that is dated "
            "ahead must be deleted from the registry",
        )


def withdrawn(_: Policy, case: Case) -> Iterator[Said]:
    """What was withdrawn once is never released again."""
    for one in case.evidence.all(Decided):
        if one.action == "withdraw":
            yield Fault(
                message=f"it was withdrawn as `{one.tag}` by {one.actor}: {one.reason}",
                solution=f"change what was wrong with `images/{case.image}`, then `nox -s build test scan sign -- {case.image}`",
            )


def signature(policy: Policy, case: Case) -> Iterator[Said]:
    """Each role that must have signed has a key, and signed the digest itself; only the policy's own keys count."""
    roles = dict.fromkeys((*policy.signed, "ci", *(("gpu",) if policy.lanes.gpu.required else ())))
    for role in roles:
        if not any(role in key.roles and not key.revoked for key in policy.known):
            yield Fault(
                message=f"the policy lists no key of the role `{role}`, so nothing that one signed can count",
                solution=MAKE_A_KEY.format(role=role),
            )
        elif role in policy.signed and not case.evidence.signed_by(role):
            yield Fault(
                message=f"no key of the role `{role}` signed the digest itself", solution=f"`nox -s sign -- {case.image}`"
            )
    yield from _foreign(policy, case)


def _foreign(policy: Policy, case: Case) -> Iterator[Fault]:
    for signed in (*case.evidence.signatures, *case.evidence.counted):
        if signed.key not in policy.known:
            yield Fault(
                message=f"`{signed.manifest}` was verified with the key `{signed.key.name}`, which is not the policy's",
                solution=f"`nox -s verify -- {case.evidence.subject}` with the keys of this policy alone",
            )


def build(policy: Policy, case: Case) -> Iterator[Said]:
    """What was built is what this checkout describes."""
    built, again = case.evidence.one(Built), f"`nox -s build sign -- {case.image}`"
    if built is None:
        rebuild = f"`nox -s build -- {case.image} --rebuild`, then `nox -s sign -- {case.image}`"
        yield Fault(message="nothing that counts says how it was built", solution=rebuild)
        return
    if built.image != case.image:
        yield Fault(message=f"it was built as `{built.image}`", solution=again)
    if built.input_hash != case.expected.input_hash:
        yield Fault(message=f"it was built from other inputs: {_parts(built, case)}", solution=again)
    if built.tag != case.expected.tag:
        yield Fault(message=f"it was built as candidate `{built.tag}`, not `{case.expected.tag}`", solution=again)
    yield from _manner(policy, case, built)


def _manner(policy: Policy, case: Case, built: Built) -> Iterator[Fault]:
    if policy.build.clean and (built.dirty or not built.commit):
        where = f"from `{built.commit}` with changes that are not committed" if built.commit else "outside a git checkout"
        solution = f"commit, then `nox -s build -- {case.image} --rebuild` and `nox -s sign -- {case.image}`"
        yield Fault(message=f"it was built {where}", solution=solution)
    if policy.build.reproduced and not built.reproduced:
        yield Fault(
            message="it was not built twice with the same digest",
            solution=f"`nox -s build -- {case.image} --twice`, then `nox -s sign -- {case.image}`",
        )


def _parts(built: Built, case: Case) -> str:
    expected = case.expected.inputs
    names = sorted(name for name in {*built.inputs, *expected} if built.inputs.get(name) != expected.get(name))
    return some([f"`{name}`" for name in names], PARTS) or f"`{built.input_hash}`"
