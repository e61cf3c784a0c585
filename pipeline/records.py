"""What a run leaves as files: unsigned statements, one a digest and kind, and reports; written whole or not at all."""

import json
import os
import tempfile
from pathlib import Path

from pipeline.errors import InputError
from pipeline.oci import Digest
from pipeline.settings import Settings
from pipeline.statements import Statement


def may_write(settings: Settings) -> None:
    """Raises `InputError` when no statement can be kept here; for work that is too long to find that out at its end."""
    folder = _folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"`{folder}` cannot be written", hint="make it yours, or name another folder with `--statements`")


def path(settings: Settings, digest: Digest, kind: str) -> Path:
    """Where the statement of this kind (`built`, `tested-cpu`) about `digest` is kept."""
    return _folder(settings) / digest.hex / f"{kind}.json"


def write(settings: Settings, digest: Digest, kind: str, statement: Statement) -> Path:
    """Keep `statement`, in place of an older one; returns its path."""
    target = path(settings, digest, kind)
    write_text(target, json.dumps(statement, indent=1, sort_keys=True, ensure_ascii=False))
    return target


def remove(settings: Settings, digest: Digest, kind: str) -> None:
    """Take an older statement away, about which there is nothing to say any more."""
    path(settings, digest, kind).unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write `text` to `target`, whose folder is made when it lacks; a reader sees the old file or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=target.parent, prefix=".", suffix=".part", delete=False, encoding="utf-8"
    ) as partial:
        try:
            partial.write(text)
            partial.flush()
            os.fsync(partial.fileno())
            Path(partial.name).chmod(0o644)
            Path(partial.name).replace(target)
        except BaseException:
            Path(partial.name).unlink(missing_ok=True)
            raise


def _folder(settings: Settings) -> Path:
    return settings.statements or settings.work / "statements"
