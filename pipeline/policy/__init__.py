"""Whether an image may be released: policies and exceptions from YAML, and `decide`; pure."""

from pipeline.policy.case import Case, Checkout, Expected, Suite
from pipeline.policy.codes import CODES, Code
from pipeline.policy.decide import Allowed, Judged, Reason, Refused, decide, waits
from pipeline.policy.model import NO_EXCEPTIONS, SERVICES, Exceptions, ListedKey, Policy, Waiver
from pipeline.policy.text import digest, idle_exceptions, parse, parse_exceptions

__all__ = [
    "CODES",
    "NO_EXCEPTIONS",
    "SERVICES",
    "Allowed",
    "Case",
    "Checkout",
    "Code",
    "Exceptions",
    "Expected",
    "Judged",
    "ListedKey",
    "Policy",
    "Reason",
    "Refused",
    "Suite",
    "Waiver",
    "decide",
    "digest",
    "idle_exceptions",
    "parse",
    "parse_exceptions",
    "waits",
]
