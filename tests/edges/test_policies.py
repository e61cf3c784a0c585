"""Whether policy, exceptions and keys are as they are committed, as the real git tells it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline import policies
from pipeline.command import Runner
from pipeline.policy import Checkout
from tests.unit.test_keys import CI, folder, pem

ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
PATH = {"PATH": os.environ["PATH"]}
NAMED = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy that is committed, in a folder of its own."""
    (root := tmp_path / "policies").mkdir()
    path = folder(root, CI, ci=pem())
    (tmp_path / ".gitignore").write_text("*.bak\n")
    (tmp_path / "other").write_text("x")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    return path


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *NAMED, *words], check=True, env=ALONE | PATH, capture_output=True, text=True)
    return done.stdout.strip()


def checkout(path: Path) -> Checkout:
    nothing: Any = None
    loaded = policies.load(path, pinned=None, cache=path.parent, cosign=nothing, run=Runner(ALONE | PATH), environment={})
    return loaded.checkout


def test_what_is_committed_is_clean_and_its_commit_is_told(policy: Path) -> None:
    (policy.parents[1] / "other").write_text("what is changed elsewhere is no change of the policy")
    found = checkout(policy)
    assert (found.clean, found.commit) == (True, git(policy.parent, "rev-parse", "HEAD"))


@pytest.mark.parametrize("name", ["release.yaml", "exceptions.yaml", "keys/ci.pub"])
@pytest.mark.parametrize("staged", [True, False], ids=["staged", "changed"])
def test_what_is_changed_is_not_as_committed(policy: Path, name: str, staged: bool) -> None:
    with (policy.parent / name).open("a") as file:
        file.write("\n")
    if staged:
        git(policy.parent, "add", ".")
    assert not checkout(policy).clean


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_what_git_was_told_not_to_look_at_is_not_as_committed(policy: Path, flag: str) -> None:
    git(policy.parent, "update-index", flag, policy.name)
    policy.write_bytes(policy.read_bytes() + b"\n")
    assert git(policy.parent, "status", "--porcelain") == ""
    assert not checkout(policy).clean


@pytest.mark.parametrize("name", ["new", "keys/new", "new/file", "ignored.bak"])
def test_what_lies_beside_it_and_is_not_committed_is_not_as_committed(policy: Path, name: str) -> None:
    (policy.parent / name).parent.mkdir(exist_ok=True)
    (policy.parent / name).write_text("x")
    git(policy.parent, "config", "status.showUntrackedFiles", "no")
    assert not checkout(policy).clean


def test_where_nothing_was_committed_and_outside_git_nothing_is_as_committed(policy: Path, tmp_path: Path) -> None:
    git(tmp_path, "update-ref", "-d", "HEAD")
    assert (checkout(policy).clean, checkout(policy).commit) == (False, None)
    (tmp_path / ".git").rename(tmp_path / "elsewhere")
    assert (checkout(policy).clean, checkout(policy).commit) == (False, None)
