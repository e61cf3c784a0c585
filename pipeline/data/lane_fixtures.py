"""The pytest plugin of what checks may use; copied into images, so it stands alone (Python 3.9 syntax, only pytest).

Fixtures: `lane` (`cpu` or `gpu`), `claims` (what the image claims, its parents' included), `gpus` (those that it was given),
`measure` (records a figure and judges it) and `rung` (says which step of its ladder ran). Marker: `gpus(n, memory=…,
capability=…)`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

import pytest

EXACT = 2**53
"""Larger integers travel as text: not every reader of JSON keeps them."""
GPUS: list[dict[str, Any]] = json.loads(os.environ.get("PIPELINE_GPUS", "[]"))
if GPUS and GPUS[0]["uuid"].startswith("MIG-"):
    # A process has one slice. Named, so that whoever counts GPUs without CUDA does not count what CUDA hides.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", GPUS[0]["uuid"])


@pytest.fixture
def lane() -> str:
    """`cpu` or `gpu`."""
    return os.environ.get("PIPELINE_LANE", "")


@pytest.fixture
def claims() -> dict[str, str]:
    """What the image claims, its parents' claims included: name → version."""
    claimed: dict[str, str] = json.loads(os.environ.get("PIPELINE_CLAIMS", "{}"))
    return claimed


@pytest.fixture
def gpus() -> list[dict[str, Any]]:
    """The GPUs of this lane, none in the lane `cpu`: index, uuid, name, capability, memory and used (bytes), clock (MHz)."""
    return GPUS


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Record a figure or a fact: `measure("busbw", 11.8, floor=2.5)`; below `floor` or above `limit` the check fails."""

    def record(name: str, value: Any, *, floor: Any = None, limit: Any = None) -> None:
        __tracebackhide__ = True
        for key, figure in ((name, value), (f"{name}.floor", floor), (f"{name}.limit", limit)):
            if figure is not None:
                request.node.user_properties.append(("measured", (key, plain(figure))))
        assert floor is None or value >= floor, f"{name} is {value}, below its floor of {floor}"
        assert limit is None or value <= limit, f"{name} is {value}, above its limit of {limit}"

    return record


@pytest.fixture
def rung(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say which step of its ladder a check ran, where the full one cannot: `rung("two processes on gloo")`."""

    def record(text: str) -> None:
        request.node.user_properties.append(("rung", str(text)))

    return record


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", 'gpus(n, memory=16, capability="8.0"): needs n GPUs of so many GB and such a capability; else not run'
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what this machine cannot run, with the reason."""
    for marker in item.iter_markers("gpus"):
        if reason := lacking(*marker.args, **marker.kwargs):
            pytest.skip(reason)


def lacking(count: int = 1, *, memory: float = 0, capability: str = "0.0") -> str:
    """Why the GPUs of this lane do not do, `memory` in GB; empty when they do."""
    least = [int(part) for part in capability.split(".")]
    fit = [gpu for gpu in GPUS if gpu["memory"] >= memory * 1e9 and list(gpu["capability"]) >= least]
    if len(fit) >= count:
        return ""
    kind = (f" of {memory:g} GB" if memory else "") + (f" of compute capability {capability}" if any(least) else "")
    return f"needs {count} GPU{'' if count == 1 else 's'}{kind}, this lane has {len(fit)}"


def plain(value: Any) -> bool | int | float | str:
    """A figure as JSON can hold it exactly."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    number = float(value)
    return number if math.isfinite(number) else str(number)
