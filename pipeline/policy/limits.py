"""Rules about size and time."""

from collections.abc import Iterator

from pipeline.policy.case import Case, Fault, Remark, Said, Unknown
from pipeline.policy.model import Policy
from pipeline.statements import Built, Findings


def size(policy: Policy, case: Case) -> Iterator[Said]:
    """Compressed, it is within the catalog's limit and the growth that the policy grants since the last release."""
    sizes = [one.size for one in (case.evidence.one(Built), case.evidence.one(Findings)) if one]
    if not sizes:
        yield Unknown(message="nothing that counts says how large it is")
        return
    found, limit, released = max(sizes), case.expected.size_limit, case.released_size
    solution = f"`nox -s explain -- {case.image}` tells what changed; make it smaller, or raise `size-limit` in its `image.yaml`"
    if limit is not None and found > limit:
        yield Fault(message=f"it has {found:,} bytes, and its limit is {limit:,}", solution=solution)
    if released is None:
        yield Remark(message="no release to compare with")
    elif (found - released) * 100 > released * policy.size.growth:
        text = f"it has {found:,} bytes, more than {policy.size.growth} % above the last release's {released:,}"
        yield Fault(
            message=text, solution=f"`nox -s explain -- {case.image}` tells what changed; or except `size` for this image"
        )


def soak(policy: Policy, case: Case) -> Iterator[Said]:
    """Time for others to try the candidate."""
    built = case.evidence.one(Built)
    if built is None:
        yield Unknown(message="nothing that counts says when it was built")
    elif case.now - built.finished < policy.soak:
        free = (built.finished + policy.soak).isoformat(timespec="seconds")
        yield Fault(message=f"it is too young until {free}", solution=f"from then on: `nox -s promote -- {case.image}`")


def freeze(policy: Policy, case: Case) -> Iterator[Said]:
    """Times without releases."""
    for one in policy.freeze:
        if one.begin <= case.now < one.end:
            end = one.end.isoformat(timespec="seconds")
            yield Fault(
                message=f"releases are frozen until {end}: {one.reason}",
                solution=f"from then on: `nox -s promote -- {case.image}`; or except `freeze` for this image",
            )
