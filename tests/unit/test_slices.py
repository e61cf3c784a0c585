"""Checks on slices of a GPU: of several a process has the first, whatever else is in its container."""

import json
import os
import runpy

import pytest

from pipeline.data import lane_fixtures

NAME = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})


def visible(*uuids: str) -> str | None:
    os.environ["PIPELINE_GPUS"] = json.dumps([{"uuid": uuid} for uuid in uuids])
    runpy.run_path(lane_fixtures.__file__)
    return os.environ.pop(NAME, None)


def test_the_first_slice_is_named_and_whole_gpus_are_left_to_cuda() -> None:
    assert visible("MIG-1", "MIG-2") == "MIG-1"
    assert visible("GPU-1", "GPU-2") is None
    assert visible() is None


def test_a_choice_that_somebody_made_stays() -> None:
    os.environ[NAME] = "MIG-2"
    assert visible("MIG-1", "MIG-2") == "MIG-2"
