"""The check stage: an image's suite, run inside the unmodified image and outside around it, lane by lane.

Checks are plain pytest files in `images/<name>/checks/`. `test_*.py` run inside (`lane`), `service_*.py` outside
(`service`); what they found is judged against what the catalog lists (`results`).
"""

from pipeline.check.bench import Bench, Given, Hardware, Limits, Options, Subject
from pipeline.check.expected import expected
from pipeline.check.hardware import hardware
from pipeline.check.stage import check, exit_code

__all__ = ["Bench", "Given", "Hardware", "Limits", "Options", "Subject", "check", "exit_code", "expected", "hardware"]
