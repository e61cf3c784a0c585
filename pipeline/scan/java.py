"""An empty index of Java archives, without which Trivy reads no image that has any.

Trivy 0.76 fails on the first `.jar` where there is no index and none may be brought; its own has hundreds of megabytes. With an
empty one it lists the archives that name themselves in a `pom.properties`, and passes over all others.

Format: trivy-java-db's schema 1, SQLite.
"""

import json
from contextlib import closing
from pathlib import Path

SCHEMA = 1
NEVER = "0001-01-01T00:00:00Z"


def empty_index(cache: Path) -> None:
    """Put it into Trivy's cache folder, which has none."""
    import sqlite3

    folder = cache / "java-db"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "trivy-java.db")) as made:
        made.execute("CREATE TABLE artifacts(id INTEGER PRIMARY KEY, group_id TEXT, artifact_id TEXT)")
        made.execute("CREATE TABLE indices(artifact_id INTEGER, version TEXT, sha1 BLOB, archive_type TEXT)")
    about = {"Version": SCHEMA} | dict.fromkeys(("NextUpdate", "UpdatedAt", "DownloadedAt"), NEVER)
    (folder / "metadata.json").write_text(json.dumps(about), encoding="utf-8")
