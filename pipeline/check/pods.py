"""A lane as a Kubernetes Job: manifests that hold all it needs, and the ticket by which its result is known again.

The pod has the image by digest and the files of a ConfigMap; it has no token of the cluster, no key, no login and no
network, so that it can change nothing but its log.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline import names, nvidia
from pipeline.check.bench import Given, Limits, Subject
from pipeline.check.lane import FOLDER, specification
from pipeline.check.suite import Suite, library, packed
from pipeline.engine import Spec
from pipeline.errors import InputError
from pipeline.oci import Config, Digest
from pipeline.statements import Lane

MOUNT = "/pipeline-in"
HOME = "/pipeline-home"
CONFIG_MAP_LIMIT = 2**20
"""Bytes that a ConfigMap holds at most (Kubernetes, ConfigMap)."""
WAITING = 1800
"""Seconds more than the lane's own that a Job may take: to pull an image, and to look at GPUs."""
KEPT = 86400
"""Seconds that a Job and its log are kept after its end."""
QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
AGAIN = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
"""A pod that its node or a more important one pushed out says nothing of the image: another is started."""
Manifest = Mapping[str, Any]


class Ticket(BaseModel):
    """What was asked of a pod, kept here: its log is judged by it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nonce: str
    image: str
    subject: str
    lane: Lane
    suite: str
    """Hash of the checks."""
    gpus: int
    seconds: float
    """The lane's deadline."""
    run: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """One lane of one image, as it is to run in a cluster."""

    subject: Subject
    suite: Suite
    config: Config
    """The image's own configuration."""
    ticket: Ticket
    queue: str = ""
    """The Kueue queue that it waits in; empty: none."""

    @property
    def name(self) -> str:
        """The name of its Job and of its ConfigMap."""
        return f"{self.ticket.image[:40].rstrip('-')}-{self.ticket.lane}-{self.ticket.nonce[:12]}"


def manifests(jobs: Sequence[Job]) -> tuple[Manifest, ...]:
    """All that a cluster is given, what it needs first; raises `InputError` for a suite that no ConfigMap holds."""
    shared = gzip.compress(library(), mtime=0)
    pytest = f"{names.COMMAND}-pytest-{Digest.of(shared).hex[:12]}"
    return (
        _config_map(pytest, {"library.tar.gz": shared}, {}),
        _no_network(),
        *(manifest for job in jobs for manifest in _of(job, pytest)),
    )


def _of(job: Job, pytest: str) -> Iterator[Manifest]:
    home = dict(line.split("=", 1) for line in job.config.environment).get("HOME", "")
    limits = Limits(lane=job.ticket.seconds)
    spec = specification(
        str(job.subject.pinned), job.suite, home, nonce=job.ticket.nonce, select="", limits=limits, given=Given()
    )
    program = resources.files("pipeline.data").joinpath("lane_pod.py").read_bytes()
    told = {
        "nonce": job.ticket.nonce,
        "seconds": job.ticket.seconds,
        "argv": list(spec.command),
        "questions": nvidia.QUESTIONS if job.ticket.lane == "gpu" else (),
    }
    files = {
        "lane_pod.py": program,
        "pod.json": json.dumps(told).encode(),
        "suite.tar.gz": gzip.compress(packed(job.suite), mtime=0),
    }
    yield _config_map(job.name, files, _labels(job))
    yield _job(job, spec, home, pytest)


def _config_map(name: str, files: Mapping[str, bytes], labels: Mapping[str, str]) -> Manifest:
    size = sum(map(len, files.values()))
    if size > CONFIG_MAP_LIMIT:
        raise InputError(
            f"the files of `{name}` take {size} bytes, and a ConfigMap holds {CONFIG_MAP_LIMIT}",
            hint="take large files out of `checks/`, or run the lane where the engine is at hand",
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {**_ours(), **labels}},
        "immutable": True,
        "binaryData": {path: base64.b64encode(content).decode() for path, content in files.items()},
    }


def _no_network() -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"{names.COMMAND}-no-network", "labels": _ours()},
        "spec": {"podSelector": {"matchLabels": _ours()}, "policyTypes": ["Ingress", "Egress"]},
    }


def _job(job: Job, spec: Spec, home: str, pytest: str) -> Manifest:
    queued = {QUEUE: job.queue} if job.queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "labels": {**_ours(), **_labels(job), **queued}},
        "spec": {
            **({"suspend": True} if job.queue else {}),
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [AGAIN]},
            "activeDeadlineSeconds": int(job.ticket.seconds) + WAITING,
            "ttlSecondsAfterFinished": KEPT,
            "template": {"metadata": {"labels": {**_ours(), **_labels(job)}}, "spec": _pod(job, spec, home, pytest)},
        },
    }


def _pod(job: Job, spec: Spec, home: str, pytest: str) -> Manifest:
    places = {"in": MOUNT, "work": FOLDER, "tmp": "/tmp", "shm": "/dev/shm", **({"home": home} if home else {})}
    filling = {"in": MOUNT, "work": FOLDER, **({"home": HOME} if home else {})}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **_not_root(job.config.user)},
        "initContainers": [_container("prepare", job, spec, filling)],
        "containers": [_container("run", job, spec, places)],
        "volumes": [
            {"name": "in", "projected": {"sources": [{"configMap": {"name": name}} for name in (job.name, pytest)]}},
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
            *([{"name": "home", "emptyDir": {}}] if home else []),
        ],
    }


def _container(name: str, job: Job, spec: Spec, places: Mapping[str, str]) -> Manifest:
    """`prepare` fills the volumes, `run` runs the checks, both in the image itself; only the second gets GPUs."""
    told = [{"name": key, "value": value} for key, value in spec.environment.items()]
    node = {"name": "PIPELINE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    gpus = {"resources": {"limits": {GPU: str(job.ticket.gpus)}}} if job.ticket.gpus and name == "run" else {}
    return {
        "name": name,
        "image": spec.image,
        "command": list(spec.entrypoint),
        "args": [f"{MOUNT}/lane_pod.py", name],
        "env": [*told, node],
        **gpus,
        "securityContext": {
            "readOnlyRootFilesystem": spec.read_only,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": volume, "mountPath": path, **({"readOnly": True} if volume == "in" else {})}
            for volume, path in places.items()
        ],
    }


def _not_root(user: str) -> dict[str, bool]:
    """That no root starts, where the image's own user is a number, which is all that a cluster can tell."""
    number = user.partition(":")[0]
    return {"runAsNonRoot": True} if number.isdecimal() and int(number) else {}


def _ours() -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": names.DISTRIBUTION}


def _labels(job: Job) -> dict[str, str]:
    return {f"{names.DISTRIBUTION}/image": job.ticket.image[:63].rstrip("-"), f"{names.DISTRIBUTION}/lane": job.ticket.lane}
