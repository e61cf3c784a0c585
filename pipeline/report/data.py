"""Results as JSON values: what `--json` prints. Field names are those of the values, digests and references are text."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.oci import Digest, Pinned, Repository, Tagged

if TYPE_CHECKING:
    from pipeline.build import BuildResult
    from pipeline.check import Subject
    from pipeline.diagnosis import Finding
    from pipeline.explain import Compatibility, Explanation
    from pipeline.plan import Step
    from pipeline.statements import Tested
    from pipeline.update import Moved


def plan_json(steps: "Sequence[Step]") -> Any:
    """A plan, a step an image."""
    return plain(steps)


def builds_json(results: "Sequence[BuildResult]") -> Any:
    """How each image's build ended."""
    return plain(results)


def lanes_json(tested: "Sequence[Tested]", subjects: "Sequence[Subject]" = ()) -> Any:
    """Every lane's record, with the candidate's tag and size in bytes where they are known."""
    known = {subject.image: {"tag": subject.tag, "size": subject.size} for subject in subjects}
    return [{**one.model_dump(mode="json"), **known.get(one.image, {})} for one in tested]


def findings_json(findings: "Sequence[Finding]") -> Any:
    """What `doctor` found."""
    return plain(findings)


def lint_json(findings: Sequence[Any]) -> Any:
    """What `lint` found."""
    return plain(findings)


def explanation_json(explanation: "Explanation") -> Any:
    """The parts of an input hash."""
    return plain(explanation)


def compatibility_json(found: "Compatibility") -> Any:
    """What an image runs on."""
    return plain(found)


def moved_json(moved: "Sequence[Moved]") -> Any:
    """What `update` moved."""
    return plain(moved)


def plain(value: Any) -> Any:
    """A value of ours as JSON can hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Digest | Pinned | Tagged | Repository | Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value
