"""The folder from which a Dockerfile adds Debian packages to those of its parent, without network.

The Dockerfile knows it as `packages`; one step of it runs `install.sh` there, which is `data/install-packages.sh`.
"""

import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pipeline.locks import PackagesLock
from pipeline.rootfs import lay_out

CONTEXT = "packages"
"""The name of the folder in a Dockerfile."""


def installer() -> str:
    """The sha256 hex of the script that installs: a part of the input hash of the images that use it."""
    return hashlib.sha256(_script()).hexdigest()


def prepare(lock: PackagesLock, debs: Mapping[str, Path], *, epoch: int, folder: Path) -> None:
    """Write script, packages and `epoch` (seconds of SOURCE_DATE_EPOCH) into the empty `folder`."""
    lay_out(lock, debs, folder / "debs")
    (folder / "install.sh").write_bytes(_script())
    (folder / "epoch").write_text(f"{epoch}\n")


def _script() -> bytes:
    return (resources.files("pipeline") / "data" / "install-packages.sh").read_bytes()
