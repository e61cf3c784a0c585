"""What an image runs on, from what it claims: `architectures: sm_80 compute_90` and `driver: "525.60.13"`, its minimum.

Machine code for `sm_Mx` runs on GPUs of the same major version M and a minor one of x or more; PTX, `compute_Mx`, is compiled
at the first start for that GPU and every newer one. With `a` (`sm_90a`) both are for that one GPU, with `f` for its major
version. Source: CUDA C++ Programming Guide, "Application Compatibility".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pipeline.errors import InputError
from pipeline.gpus import Gpu

ARCHITECTURES, DRIVER = "architectures", "driver"
"""The claims that are read here."""
Runs = Literal["runs", "compiles", "does-not-run", "unknown"]
"""`compiles`: by PTX alone, compiled at the first start; `unknown`: the image claims no architectures."""

_WORD = re.compile(r"(sm|compute)_([1-9]\d?)(\d)([af]?)")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})*")


@dataclass(frozen=True, kw_only=True)
class Family:
    """GPUs of one compute capability, by the names that people know."""

    capability: tuple[int, int]
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Whether one family runs the image; `by` is the code that it runs."""

    family: Family
    runs: Runs
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What an image claims to run on; empty where it claims nothing, and then nothing is refused."""

    architectures: tuple[str, ...] = ()
    driver: str = ""

    @classmethod
    def of(cls, claims: Mapping[str, str]) -> Self:
        """From all claims of an image, its parents' included; raises `InputError` for those that cannot be read."""
        if wrong := faults(claims):
            name, text = next(iter(wrong.items()))
            raise InputError(f"the claim `{name}` {text}", hint="correct it in the image's `image.yaml`")
        return cls(architectures=tuple(claims.get(ARCHITECTURES, "").split()), driver=claims.get(DRIVER, ""))

    def refusal(self, gpu: Gpu) -> str:
        """Why this GPU cannot run the image; empty when it can, or when nothing is claimed."""
        if self.runs(gpu.capability)[0] != "does-not-run":
            return ""
        return f"this GPU is {_named(gpu.capability)}, the image supports {self._supported(gpu.capability)}"

    def driver_refusal(self, driver: str) -> str:
        """Why this driver (`550.54.15`) is too old; empty when it is not, or when nothing is claimed."""
        if not self.driver:
            return ""
        if not _VERSION.fullmatch(driver):
            return f"this machine's driver says `{driver}`, which is no version; the image needs {self.driver} or newer"
        if _numbers(driver) >= _numbers(self.driver):
            return ""
        return f"this machine's driver is {driver}, the image needs {self.driver} or newer"

    def runs(self, capability: tuple[int, int]) -> tuple[Runs, str]:
        """Whether GPUs of this capability run the image, and by which code."""
        if not self.architectures:
            return "unknown", ""
        fit = [word for word in self.architectures if _fits(word, capability)]
        if code := max((word for word in fit if word.startswith("sm_")), key=_order, default=""):
            return "runs", code
        code = max(fit, key=_order, default="")
        return ("compiles", code) if code else ("does-not-run", "")

    def _supported(self, capability: tuple[int, int]) -> str:
        """A range where the GPU is outside of it, all words where it is in a gap."""
        words = sorted(self.architectures, key=_order)
        outside = not _order(words[0])[0] <= capability <= _order(words[-1])[0]
        plain = all(re.fullmatch(r"sm_\d+", word) for word in words)
        return f"{words[0]} to {words[-1]}" if outside and plain and len(words) > 1 else " ".join(words)


def faults(claims: Mapping[str, str]) -> Mapping[str, str]:
    """What is wrong with the claims that are read here, by their names."""
    found = {}
    wrong = [word for word in claims.get(ARCHITECTURES, "").split() if not _WORD.fullmatch(word)]
    if wrong:
        found[ARCHITECTURES] = f"holds `{wrong[0]}`: it takes words like `sm_90`, and `compute_90` for PTX"
    if DRIVER in claims and not _VERSION.fullmatch(claims[DRIVER]):
        found[DRIVER] = f'must be the oldest driver that does, like `"525.60.13"`, not `{claims[DRIVER]}`'
    return found


def rows(claimed: Claimed, families: Sequence[Family]) -> tuple[Row, ...]:
    """Each family and whether it runs the image, the oldest first."""
    ordered = sorted(families, key=lambda family: family.capability)
    judged = ((family, *claimed.runs(family.capability)) for family in ordered)
    return tuple(Row(family=family, runs=runs, by=by) for family, runs, by in judged)


def _fits(word: str, capability: tuple[int, int]) -> bool:
    (code, _, only), (major, _) = _order(word), capability
    if only == "a":
        return code == capability
    same = code[0] == major and code <= capability
    return same or (word.startswith("compute_") and not only and code <= capability)


def _order(word: str) -> tuple[tuple[int, int], bool, str]:
    """Capability, whether it is PTX, and `a` or `f`."""
    ((kind, major, minor, only),) = _WORD.findall(word)
    return (int(major), int(minor)), kind == "compute", only


def _named(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"


def _numbers(version: str) -> tuple[int, ...]:
    """Zeros at the end count nothing."""
    return tuple(int(part) for part in re.sub(r"(?:\.0+)+$", "", version).split("."))
