"""The releases that the image names load beside each other, and in the versions that it claims."""

from importlib import import_module

import numpy
import pytest
import torch

MODULES = ["accelerate", "datasets", "huggingface_hub", "pandas", "pyarrow", "tokenizers", "transformers"]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_loads_in_the_claimed_version(name, claims):
    assert import_module(name).__version__ == claims[name.replace("_", "-")]


@pytest.mark.parametrize(
    "name", ["dill", "multiprocess", "requests", "safetensors.torch", "tqdm", "torchaudio", "torchvision", "yaml"]
)
def test_what_they_work_with_loads(name):
    import_module(name)


@pytest.mark.parametrize(
    "name", ["BertForSequenceClassification", "BertTokenizerFast", "Trainer", "TrainingArguments", "pipeline"]
)
def test_transformers_loads_what_it_defers(name):
    assert getattr(import_module("transformers"), name)


def test_torch_and_numpy_share_memory():
    array = numpy.arange(4.0)
    torch.from_numpy(array)[0] = 7
    assert array[0] == 7
    assert torch.from_numpy(array).numpy() is not None
