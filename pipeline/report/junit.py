"""Results as JUnit XML, as GitHub, GitLab and Jenkins read it: only a pass is without a child element."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Tree

from pipeline.statements import Checked, Outcome, Tested

if TYPE_CHECKING:
    from pipeline.build import BuildResult

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""
_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.ERROR: "error",
    Outcome.INFRASTRUCTURE: "error",
    Outcome.NOT_RUN: "skipped",
}


def lanes_junit(tested: Sequence[Tested]) -> str:
    """A suite a lane, a case a test; a check whose tests are not known is a case of its own, and so is a lane without checks."""
    root = Tree.Element("testsuites")
    for one in tested:
        suite = _suite(root, f"{one.image}.{one.lane}", {"subject": one.subject, "suite": one.suite, **one.machine})
        cases = [check for check in one.checks if not _has_tests(check, one)]
        for check in cases:
            _case(suite, check.name, f"{check.image}.{one.lane}", check.seconds, check.outcome, check.reason)
        if one.outcome is not Outcome.PASSED and all(check.outcome is not one.outcome for check in cases):
            _case(suite, "lane", f"{one.image}.{one.lane}", 0.0, one.outcome, one.reason)
    return _text(root)


def builds_junit(results: "Sequence[BuildResult]") -> str:
    """A case an image; what was aborted because its parent failed is skipped."""
    outcomes = {"built": Outcome.PASSED, "reused": Outcome.PASSED, "failed": Outcome.FAILED, "aborted": Outcome.NOT_RUN}
    root = Tree.Element("testsuites")
    suite = _suite(root, "build", {})
    for result in results:
        _case(suite, result.image, "build", result.seconds, outcomes[result.state], result.reason)
    return _text(root)


def _has_tests(check: Checked, tested: Tested) -> bool:
    return any(other.name.startswith(f"{check.name}::") and other.image == check.image for other in tested.checks)


def _suite(root: Tree.Element, name: str, properties: dict[str, str]) -> Tree.Element:
    suite = Tree.SubElement(root, "testsuite", name=name)
    if properties:
        holder = Tree.SubElement(suite, "properties")
        for key, value in properties.items():
            Tree.SubElement(holder, "property", name=key, value=_clean(value))
    return suite


def _case(suite: Tree.Element, name: str, group: str, seconds: float, outcome: Outcome, reason: str) -> None:
    case = Tree.SubElement(suite, "testcase", name=_clean(name), classname=group, time=f"{seconds:.3f}")
    if outcome is not Outcome.PASSED:
        Tree.SubElement(case, _ELEMENTS[outcome], message=_clean(reason), type=outcome.value)


def _text(root: Tree.Element) -> str:
    for suite in root:
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for plural, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(plural, str(sum(case.find(element) is not None for case in cases)))
        suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
    Tree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Tree.tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
