"""The same folder has the same hash whatever the locale of the process says of file names."""

import os
import subprocess
import sys
from pathlib import Path

SHARED = """\
line: "1.0"
repository: family
candidates: localhost:5601/candidates
releases: localhost:5601/releases
platform: linux/amd64
epoch: 2025-01-29T00:00:00Z
compression-level: 7
"""
SCRIPT = """\
import sys
from pathlib import Path
from pipeline import context
from pipeline.settings import Settings
root, staged = map(Path, sys.argv[1:])
settings = Settings(root=root, cache=root / "cache")
catalog = context.load(settings)
found = context.hashes(settings, catalog)["a"]
context.stage(settings, catalog, catalog.images["a"], staged, found)
print(found.value)
"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_names_beyond_ascii_count_by_their_bytes_in_every_locale(tmp_path: Path) -> None:
    home = tmp_path / "images" / "a"
    (home / "ü").mkdir(parents=True)
    (home.parent / "catalog.yaml").write_text(SHARED)
    (home / "image.yaml").write_text("description: A\n")
    (home / "Dockerfile").write_text("FROM scratch\n")
    (home / ".dockerignore").write_text("é*\n", encoding="utf-8")
    for name in ("éa".encode(), "ü/x".encode(), b"\xff"):
        Path(os.fsdecode(bytes(home) + b"/" + name)).touch()
    told = []
    for kind, chosen in (("utf-8", {"LC_ALL": "C.UTF-8"}), ("ascii", ASCII)):
        staged = tmp_path / kind
        staged.mkdir()
        argv = [sys.executable, "-c", SCRIPT, str(tmp_path), str(staged)]
        value = subprocess.run(argv, env={**os.environ, **chosen}, check=True, capture_output=True).stdout
        told.append((value, sorted(os.fsencode(path.name) for path in staged.iterdir())))
    assert told[0] == told[1]
    assert told[0][1] == [b"Dockerfile", "ü".encode(), b"\xff"]
