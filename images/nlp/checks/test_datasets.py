"""Datasets reads, maps and hands over as torch and NumPy, with nothing but local files."""

import json

import numpy
import pytest
import torch

ROWS = [{"text": f"row {number}", "label": number % 2, "weights": [number, number / 2]} for number in range(64)]


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


@pytest.fixture
def rows(datasets, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(tmp_path / "cache"))


def test_json_comes_back_as_it_was(rows):
    assert list(rows) == ROWS


def test_rows_come_as_torch_tensors(rows):
    rows.set_format("torch", columns=["label", "weights"])
    assert torch.equal(rows[:4]["label"], torch.tensor([0, 1, 0, 1]))
    assert rows[3]["weights"].tolist() == [3.0, 1.5]


def test_rows_come_as_numpy_arrays(rows):
    rows.set_format("numpy", columns=["label", "weights"])
    assert isinstance(rows[:4]["label"], numpy.ndarray)
    assert rows["weights"].sum() == sum(sum(row["weights"]) for row in ROWS)


def test_two_processes_map_and_the_result_survives_the_disk(datasets, rows, tmp_path):
    doubled = rows.map(double, num_proc=2)
    doubled.save_to_disk(str(tmp_path / "saved"))
    assert datasets.load_from_disk(str(tmp_path / "saved"))["label"] == [row["label"] * 2 for row in ROWS]


def test_a_table_of_pandas_makes_the_round_trip(datasets, rows):
    again = datasets.Dataset.from_pandas(rows.to_pandas())
    assert again["text"] == [row["text"] for row in ROWS]


def double(row):
    return {"label": row["label"] * 2}
