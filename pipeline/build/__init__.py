"""The build stage: what a plan says, parents first, two at once; every image is proved before it gets its tag.

A failed image stops its descendants and nobody else. A candidate tag appears after the image has been read back from the
registry and keeps all its promises, so a run that is killed leaves no tag.
"""

from pipeline.build.one import BuildResult
from pipeline.build.run import build
from pipeline.build.shop import Workshop, definition

__all__ = ["BuildResult", "Workshop", "build", "definition"]
