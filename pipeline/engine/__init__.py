"""The container engine: the only place that uses the Docker SDK.

`connect` reaches it, `ensure` brings an image to it, `container` runs one with a deadline and always removes it. What a
run leaves there carries its owner in a label, so that the next run removes what a killed one could not.
"""

from pipeline.engine.connection import Engine, connect
from pipeline.engine.containers import Container, Ended, container
from pipeline.engine.facts import Facts
from pipeline.engine.images import Described, describe, ensure
from pipeline.engine.spec import Gpus, Spec

__all__ = ["Container", "Described", "Ended", "Engine", "Facts", "Gpus", "Spec", "connect", "container", "describe", "ensure"]
