"""NVIDIA's driver and tools on a machine: the only place that reads what they say.

`examine` asks `nvidia-smi`, here or in a container on another machine; `look` looks at all of this machine. Whatever is
wrong is a value (`Trouble`), because a sick machine is a result like any other.
"""

from pipeline.nvidia.kernel import events
from pipeline.nvidia.local import DRIVER, driver_version, look, stale_specs, toolkit_version
from pipeline.nvidia.smi import QUESTIONS, Ask, asking, examine

__all__ = [
    "DRIVER",
    "QUESTIONS",
    "Ask",
    "asking",
    "driver_version",
    "events",
    "examine",
    "look",
    "stale_specs",
    "toolkit_version",
]
