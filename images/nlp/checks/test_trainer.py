"""A run of Trainer as the articles have it: a tokenizer, a data set, ten steps, a checkpoint; offline, random weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = Path(__file__).with_name("training.py")
STEPS = 10
RESUMED_STEPS = 15
SWITCH = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trainer")


@pytest.fixture(scope="module")
def trained(folder):
    return train(folder, STEPS)


def test_ten_steps_end_in_a_checkpoint(trained, folder):
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert trained.stdout.split()[-2:] == ["steps", str(STEPS)]
    assert {"config.json", "model.safetensors", "optimizer.pt", "trainer_state.json"} <= names(folder / f"checkpoint-{STEPS}")


def test_a_checkpoint_is_resumed_only_when_the_user_trusts_it(trained, folder):
    # Transformers 4.35 saves random states with pickle, which torch 2.6 loads only when told to.
    done = train(folder, RESUMED_STEPS, "resume")
    assert done.returncode != 0
    assert "weights_only" in done.stderr
    done = train(folder, RESUMED_STEPS, "resume", environment={SWITCH: "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["steps", str(RESUMED_STEPS)]


def train(folder, steps, *words, environment=None):
    told = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), **(environment or {})}
    argv = [sys.executable, str(TRAINING), str(folder), str(steps), *words]
    return subprocess.run(argv, env=told, capture_output=True, text=True, timeout=600, check=False)


def names(folder):
    return {path.name for path in folder.iterdir()}
