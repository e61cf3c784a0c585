"""Secrets in the layers that Trivy passes over.

Trivy takes all below the last `CMD` of a history for somebody else's image, and looks for no secrets there (0.76,
`GuessBaseImageIndex`). So those layers are looked at once more, as an image without a history; what one image of a run
has shown of a layer counts for the others.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ToolFailed
from pipeline.oci import OCI_MANIFEST, Descriptor, Digest, Manifest
from pipeline.scan import report as reports
from pipeline.scan.bench import Bench, Subject
from pipeline.scan.report import Leak, Report
from pipeline.scan.trivy import Trivy
from pipeline.story import Task
from pipeline.toolchain import require_space

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
COMMANDS = ("CMD", "/bin/sh -c #(nop)  CMD")
"""How the line of a history begins below which Trivy does not look."""

Leaked = tuple[str, Leak]
"""A file and what looks like a secret in it."""


class Layers:
    """What a run has seen of layers."""

    def __init__(self, trivy: Trivy, bench: Bench) -> None:
        self._trivy, self._bench = trivy, bench
        self._seen: dict[str, tuple[Leaked, ...]] = {}

    def leaks(
        self, report: Report, subject: Subject, manifest: Manifest, config: bytes, *, log: Path, task: Task
    ) -> list[Leaked]:
        """All that looks like secrets in an image: what its report has, and what it passed over."""
        diff_ids = [str(each) for each in json.loads(config)["rootfs"]["diff_ids"]]
        over = passed_over(config)
        self._keep(report, [layer for layer in diff_ids if layer not in over])
        todo = {layer: blob for layer, blob in zip(diff_ids, manifest.layers, strict=True) if layer in over}
        todo = {layer: blob for layer, blob in todo.items() if layer not in self._seen}
        if todo:
            self._look(todo, subject, log, task)
        of_configuration = [leaked for leaked in _leaks(report) if not leaked[1].layer.diff_id]
        return of_configuration + [leaked for layer in dict.fromkeys(diff_ids) for leaked in self._seen[layer]]

    def _keep(self, report: Report, layers: Sequence[str]) -> None:
        for layer in layers:
            self._seen[layer] = tuple(leaked for leaked in _leaks(report) if leaked[1].layer.diff_id == layer)

    def _look(self, todo: Mapping[str, Descriptor], subject: Subject, log: Path, task: Task) -> None:
        config = json.dumps(
            {"os": "linux", "architecture": "amd64", "config": {}, "rootfs": {"type": "layers", "diff_ids": list(todo)}}
        ).encode()
        with self._trivy.layout() as folder:
            room = 2 * sum(blob.size for blob in todo.values())
            require_space("looking for secrets in lower layers", room, folder, remedy="free some, or scan the parent beside it")
            _write_layout(folder, config, list(todo.values()))
            for blob in todo.values():
                with _blob(folder, blob.digest).open("wb") as file:
                    file.writelines(self._bench.registry.stream(subject.pinned.repository, blob))
            what = f"{len(todo)} layers of `{subject.pinned}`"
            report = reports.parse(self._trivy.secrets(log=log, task=task), what)
        seen = (report.metadata.image_id, list(report.metadata.diff_ids or ()))
        if seen != (str(Digest.of(config)), list(todo)):
            raise ToolFailed(f"trivy's report about {what} is about others")
        self._keep(report, list(todo))


def passed_over(config: bytes) -> tuple[str, ...]:
    """Diff-ids of the layers in which Trivy looks for no secrets, by an image's configuration."""
    data: Mapping[str, Any] = json.loads(config)
    history: Sequence[Mapping[str, Any]] = data.get("history") or ()
    filled = [index for index, line in enumerate(history) if not line.get("empty_layer")]
    top = filled[-1] if filled else 0
    ends = [i for i in range(top) if history[i].get("empty_layer") and _commands(history[i])]
    count = sum(index < ends[-1] for index in filled) if ends else 0
    return tuple(data["rootfs"]["diff_ids"][:count])


def _commands(line: Mapping[str, Any]) -> bool:
    return str(line.get("created_by") or "").startswith(COMMANDS)


def _leaks(report: Report) -> Iterator[Leaked]:
    for group in report.groups:
        file = "" if group.target == report.artifact_name else group.target.removeprefix("/")
        yield from ((file, leak) for leak in group.secrets or ())


def _write_layout(folder: Path, config: bytes, layers: Sequence[Descriptor]) -> None:
    """An OCI image layout of one image, its layers still to come."""
    (folder / "blobs" / "sha256").mkdir(parents=True)
    listed = [{"mediaType": each.media_type, "digest": str(each.digest), "size": each.size} for each in layers]
    about = _put(folder, config, CONFIG_TYPE)
    manifest = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": about, "layers": listed}).encode()
    index = {"schemaVersion": 2, "manifests": [_put(folder, manifest, OCI_MANIFEST)]}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")


def _put(folder: Path, content: bytes, media_type: str) -> Mapping[str, Any]:
    digest = Digest.of(content)
    _blob(folder, digest).write_bytes(content)
    return {"mediaType": media_type, "digest": str(digest), "size": len(content)}


def _blob(folder: Path, digest: Digest) -> Path:
    return folder / "blobs" / "sha256" / digest.hex
