"""The function of each rule."""

from collections.abc import Callable, Iterator, Mapping

from pipeline.policy import contents, lanes, limits, origin
from pipeline.policy.case import Case, Said
from pipeline.policy.model import Policy

Rule = Callable[[Policy, Case], Iterator[Said]]

RULES: Mapping[str, Rule] = {
    "policy": origin.policy_as_committed,
    "registry": origin.registry,
    "release": origin.release,
    "unreadable": origin.unreadable,
    "crowd": origin.crowd,
    "future": origin.future,
    "withdrawn": origin.withdrawn,
    "signature": origin.signature,
    "build": origin.build,
    "lanes": lanes.lanes,
    "failing-lane": lanes.failing_lane,
    "bom": contents.bom,
    "claims": lanes.claims,
    "scan": contents.scan,
    "vulnerabilities": contents.vulnerabilities,
    "end-of-life": contents.end_of_life,
    "unassessed": contents.unassessed,
    "licences": contents.licences,
    "secrets": contents.secrets,
    "size": limits.size,
    "soak": limits.soak,
    "freeze": limits.freeze,
}
"""By code."""
