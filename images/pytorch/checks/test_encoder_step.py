"""An encoder in plain torch learns in mixed precision: the same steps on the CPU (bfloat16) and on a GPU (float16 too)."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.register_assert_rewrite("mixed_precision")

from mixed_precision import WORDS, Learns  # noqa: E402

LAYERS = {"cpu": 2, "gpu": 4}


class Encoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(256, 2)

    def forward(self, input_ids, labels):
        logits = self.head(self.layers(self.embed(input_ids)).mean(dim=1))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


@pytest.fixture
def fresh(lane):
    def make():
        torch.manual_seed(0)
        return Encoder(LAYERS[lane]).to("cuda" if lane == "gpu" else "cpu")

    return make


class TestEncoder(Learns):
    """The tests of `mixed_precision.py`."""
