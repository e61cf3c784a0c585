"""The project's own workflows on a family of tiny images, run by act on this machine itself: no container, no account."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import names
from tests.integration.families import LINKS, PROJECT, Family

WORKFLOWS = PROJECT / ".github"
ROLES = ("ci", "gpu", "release")
STAND_INS = PROJECT / "tests" / "data" / "actions"
KEYS = """\
keys:
  - {name: ci, roles: [ci], file: keys/ci.pub}
  - {name: gpu, roles: [gpu], file: keys/gpu.pub}
  - {name: release, roles: [release], file: keys/release.pub}
"""
SCRIPT = """\
#!/bin/sh
mkdir -p "$RUNNER_TEMP/bin"
printf '#!/bin/sh\\nexec "{python}" -m pipeline "$@"\\n' > "$RUNNER_TEMP/bin/pipeline"
chmod 755 "$RUNNER_TEMP/bin/pipeline"
echo "$RUNNER_TEMP/bin" >> "$GITHUB_PATH"
"""
GIVEN = (names.ENV_RELEASES, names.ENV_DATABASE)
"""What the workflows take from the repository's variables, if a family is told it."""
IGNORED = "/cache/\n/tmp/\n/kept/\n/.pipeline/\n/*.key\n/*.pub\n/*.json\n"
IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@example.com")
MINUTES = 30.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What act told of one run."""

    code: int
    events: tuple[Mapping[str, Any], ...]

    @property
    def results(self) -> Mapping[str, str]:
        """Job → how it ended; jobs that were skipped are not there."""
        return {str(one["jobID"]): str(one["jobResult"]) for one in self.events if one.get("jobResult")}

    @property
    def failed(self) -> list[str]:
        """The steps that failed, by their names."""
        return [str(one["step"]) for one in self.events if one.get("stepResult") == "failure"]

    @property
    def summary(self) -> str:
        """What the steps wrote for people."""
        told = (str(one["msg"]).strip().partition("Summary - ") for one in self.events)
        return "\n".join(text for head, mark, text in told if mark)

    def said(self, job: str) -> str:
        """All that the steps of a job printed."""
        return "\n".join(str(one["msg"]) for one in self.events if one.get("jobID") == job and one.get("raw_output"))


class Repository:
    """A family in a git repository with the project's workflows, and a folder where artifacts are kept.

    A test may add to `secrets` and `variables`, which jobs are given, and to `folders`, whose programs they find first.
    """

    def __init__(self, family: Family, cosign: Path) -> None:
        self.family, self.root = family, family.root
        self.secrets = {f"PIPELINE_KEY_{role}_PASSWORD": secrets.token_hex(16) for role in map(str.upper, ROLES)}
        self.variables = {
            names.ENV_CANDIDATES: str(family.repository).removesuffix("/family"),
            **{names.ENV_KEY[role]: str(self.root / f"{role}.key") for role in ROLES},
            **{name: text for name, text in family.environment.items() if name in GIVEN},
        }
        self.folders: list[Path] = []
        self._policies(cosign)
        shutil.copytree(WORKFLOWS, self.root / ".github", dirs_exist_ok=True)
        (self.root / ".github" / "pipeline").write_text(SCRIPT.format(python=sys.executable))
        with (self.root / ".gitignore").open("a") as ignored:
            ignored.write(IGNORED)
        self.git("init", "-q", "-b", "main")
        self.git("remote", "add", "origin", "https://git.example.com/ml/family.git")
        self.commit("Begin")

    @property
    def statements(self) -> Path:
        """What the build of the push left, unsigned."""
        return self.root / "cache" / "statements-build"

    def key(self, role: str) -> Mapping[str, str]:
        """The variables that name a key, as a signing job gets them."""
        password = self.secrets[f"PIPELINE_KEY_{role.upper()}_PASSWORD"]
        return {names.ENV_KEY[role]: str(self.root / f"{role}.key"), names.ENV_PASSWORD: password}

    def commit(self, text: str) -> str:
        self.git("add", ".")
        self.git("commit", "-q", "-m", text)
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", self.root, *IDENTITY, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def change(self, image: str) -> None:
        """Other content of an image."""
        self.family.write(f"{image}/data", secrets.token_bytes(1000))

    def run(self, event: str, run: str, workflow: str = "images", **inputs: str) -> Ran:
        """One event, to the end of all its jobs; `run` is the id of the workflow's run, `inputs` what a person gave."""
        payload: dict[str, Any] = {"ref": "refs/heads/main", "inputs": inputs}
        if event == "pull_request":
            payload = {"pull_request": {"base": {"ref": "main"}, "head": {"ref": "x"}}}
        if event == "merge_group":
            payload = {"merge_group": {"base_sha": self.git("rev-parse", "HEAD~1")}}
        (self.root / "event.json").write_text(json.dumps(payload))
        shutil.rmtree(self.root / "kept", ignore_errors=True)
        path = os.pathsep.join([*map(str, self.folders), os.environ["PATH"]])
        done = subprocess.run(
            [Path(sys.executable).parent / "act", event, *self._options(run, workflow)],
            cwd=self.root,
            env={**self.family.environment, "HOME": str(self.root / "cache"), "PATH": path},
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
        )
        print(done.stdout, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return Ran(code=done.returncode, events=tuple(json.loads(line) for line in lines))

    def _options(self, run: str, workflow: str) -> list[str]:
        given = {**self.family.environment, "KEPT": str(self.root / "kept"), "FAMILY_REPOSITORY": str(self.root)}
        wanted = [
            name for name in given if name.startswith(("PIPELINE_", "BUILDX_", "FAMILY_")) or name in ("PYTHONPATH", "KEPT")
        ]
        options = [
            "-W",
            f".github/workflows/{workflow}.yml",
            "-e",
            "event.json",
            "--json",
            "--defaultbranch",
            "main",
            "--concurrent-jobs",
            "1",
        ]
        options += ["-P", "ubuntu-24.04=-self-hosted", "-P", "self-hosted=-self-hosted", "--env", f"GITHUB_RUN_ID={run}"]
        options += [word for name in wanted for word in ("--env", f"{name}={given[name]}")]
        options += [word for name, text in self.variables.items() for word in ("--var", f"{name}={text}")]
        options += [word for name, text in self.secrets.items() for word in ("-s", f"{name}={text}")]
        return [
            *options,
            *(word for action, folder in stand_ins().items() for word in ("--local-repository", f"{action}={folder}")),
        ]

    def _policies(self, cosign: Path) -> None:
        policies = self.root / "policies"
        shutil.copytree(PROJECT / "policies", policies, dirs_exist_ok=True)
        (policies / "keys").mkdir(exist_ok=True)
        release = policies / "release.yaml"
        release.write_text(release.read_text().replace("keys: []\n", KEYS))
        for role in ROLES:
            environment = {names.ENV_PASSWORD: self.secrets[f"PIPELINE_KEY_{role.upper()}_PASSWORD"], "HOME": str(self.root)}
            words: list[str | Path] = [cosign, "generate-key-pair", "--output-key-prefix", role]
            subprocess.run(words, cwd=self.root, env=environment, check=True, capture_output=True)
            shutil.copy(self.root / f"{role}.pub", policies / "keys")


def stand_ins() -> Mapping[str, Path]:
    """The actions that the workflows use, `owner/name@commit`, and what stands in for each."""
    texts = (path.read_text(encoding="utf-8") for path in (WORKFLOWS / "workflows").glob("*.yml"))
    used = {action for text in texts for action in re.findall(r"uses: (actions/[a-z-]+@[0-9a-f]{40})", text)}
    return {action: STAND_INS / action.partition("@")[0].partition("/")[2] for action in used}


def with_app(family: Family, python: bytes, debian: bytes) -> Family:
    """`python`, which is never released, and on it `app`, which is checked on CPUs and GPUs."""
    family.image(
        "python",
        "release: false\n",
        "FROM scratch AS unpacked\nADD python.tar /layer/\nADD debian.tar /layer/\nFROM scratch\n"
        "COPY --link --from=unpacked /layer/ /\n"
        "ENV PATH=/usr/bin:/bin HOME=/home/user\nUSER 1000:0\n",
    )
    family.write("python/python.tar", python)
    family.write("python/debian.tar", debian)
    family.image("app", "parent: python\nvariant: app\nchecks: {cpu: [it], gpu: [it]}\n", LINKS, data=secrets.token_bytes(1000))
    family.write("app/checks/test_it.py", "def test_it():\n    pass\n")
    catalog = family.root / "images" / "catalog.yaml"
    family.write("catalog.yaml", catalog.read_text() + "runners: {gpu: [self-hosted, gpu]}\n")
    (family.root / "README.md").write_text("A family.\n")
    return family
