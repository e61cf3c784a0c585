"""The check stage: an image's suite, run inside the unmodified image and outside around it, lane by lane.

Checks are plain pytest files in `images/<name>/checks/`. `test_*.py` run inside (`lane`), `service_*.py` outside
(`service`); what they found is judged against what the catalog lists (`results`). Lanes may also run as Jobs of a cluster
(`pods`), whose logs are judged in the same way (`collected`).
"""

from pipeline.check.bench import Bench, Given, Hardware, Limits, Options, Subject
from pipeline.check.collected import collect, nonce
from pipeline.check.expected import expected
from pipeline.check.hardware import hardware
from pipeline.check.pods import Job, Ticket, manifests
from pipeline.check.stage import check, exit_code
from pipeline.check.suite import Suite, read

__all__ = [
    "Bench",
    "Given",
    "Hardware",
    "Job",
    "Limits",
    "Options",
    "Subject",
    "Suite",
    "Ticket",
    "check",
    "collect",
    "exit_code",
    "expected",
    "hardware",
    "manifests",
    "nonce",
    "read",
]
