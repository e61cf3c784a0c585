"""The rules by their codes: what each asks, whether an exception can waive it, and whether it speaks of single findings."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Code:
    """One rule; `waivable` ones take exceptions, those with `findings` only for one finding each.

    A rollback goes on over those that `ages`: what time, news and new checks have brought since the release.
    What refuses by one that `passes` is allowed later, with nothing done.
    """

    name: str
    title: str
    waivable: bool = False
    findings: bool = False
    ages: bool = False
    passes: bool = False


CODES = (
    Code(name="policy", title="policy, exceptions and keys are as committed, and those that were pinned"),
    Code(name="registry", title="the registry is one that this policy is for"),
    Code(name="release", title="the catalog releases this image"),
    Code(name="unreadable", title="every attached statement can be had"),
    Code(name="crowd", title="no more is attached than is looked at"),
    Code(name="future", title="no statement is dated ahead"),
    Code(name="withdrawn", title="the digest was not withdrawn"),
    Code(name="signature", title="the digest is signed by all who must"),
    Code(name="build", title="it was built from these inputs, under this tag, from a commit"),
    Code(name="lanes", title="the required lanes passed with today's checks", ages=True),
    Code(name="failing-lane", title="no lane fails with today's checks, on any GPU", ages=True),
    Code(name="bom", title="its packages are listed"),
    Code(name="claims", title="what it claims is what is in it", ages=True),
    Code(name="scan", title="its vulnerabilities were looked up lately", ages=True),
    Code(name="vulnerabilities", title="nothing has a fix for longer than the grace", waivable=True, findings=True, ages=True),
    Code(name="end-of-life", title="its system still gets advisories", waivable=True, findings=True, ages=True),
    Code(name="unassessed", title="there are advisories for all of its packages", waivable=True, findings=True, ages=True),
    Code(name="licences", title="no licence is refused", waivable=True, findings=True, ages=True),
    Code(name="secrets", title="it holds no secrets", waivable=True, findings=True, ages=True),
    Code(name="size", title="it did not outgrow its limit or the last release", waivable=True, ages=True),
    Code(name="soak", title="it is old enough", waivable=True, ages=True, passes=True),
    Code(name="freeze", title="releases are not frozen", waivable=True, ages=True, passes=True),
)
"""In the order in which a decision lists them."""
BY_NAME = {code.name: code for code in CODES}
WAIVABLE = tuple(code.name for code in CODES if code.waivable)
