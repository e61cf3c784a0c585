"""A rendered Job without a cluster: its containers one after another on the engine, with the volumes that it names."""

import base64
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def log_of(text: str, image: str, folder: Path, *, binds: Sequence[str] = ()) -> str:
    """What the main container wrote; `image` is the engine's id of the image, which stands for the digest in the manifest."""
    manifests = list(yaml.safe_load_all(text))
    (job,) = (manifest for manifest in manifests if manifest["kind"] == "Job")
    maps = {each["metadata"]["name"]: each["binaryData"] for each in manifests if each["kind"] == "ConfigMap"}
    pod = job["spec"]["template"]["spec"]
    volumes = {volume["name"]: _volume(volume, maps, folder) for volume in pod["volumes"]}
    for container in pod["initContainers"]:
        _run(container, image, volumes, binds)
    (main,) = pod["containers"]
    return _run(main, image, volumes, binds)


def _volume(volume: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]], folder: Path) -> Path:
    place = folder / str(volume["name"])
    place.mkdir()
    place.chmod(0o777)
    for source in volume.get("projected", {}).get("sources", ()):
        for name, content in maps[source["configMap"]["name"]].items():
            (place / name).write_bytes(base64.b64decode(content))
    return place


def _run(container: Mapping[str, Any], image: str, volumes: Mapping[str, Path], binds: Sequence[str]) -> str:
    asked = container["securityContext"]
    assert asked["readOnlyRootFilesystem"]
    mounts = [
        f"{volumes[mount['name']]}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"
        for mount in container["volumeMounts"]
    ]
    words = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--security-opt",
        "no-new-privileges",
        "--cap-drop",
        "ALL",
    ]
    for bind in (*mounts, *binds):
        words += ["--volume", bind]
    for entry in container["env"]:
        words += ["--env", f"{entry['name']}={entry.get('value', 'a-node')}"]
    words += ["--entrypoint", container["command"][0], image, *container["args"]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout
