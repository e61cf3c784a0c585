"""BERT with random weights learns in mixed precision, alone and through Accelerate; nothing is downloaded."""

import pytest
import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification

pytest.register_assert_rewrite("mixed_precision")

from mixed_precision import STEPS, WORDS, Learns  # noqa: E402

LAYERS = {"cpu": 2, "gpu": 4}


@pytest.fixture
def fresh(lane):
    def make():
        return bert(LAYERS[lane]).to("cuda" if lane == "gpu" else "cpu")

    return make


class TestBert(Learns):
    """The tests of `mixed_precision.py`, and one more."""

    def test_accelerate_trains_in_mixed_precision(self, batch, lane, measure):
        accelerator = Accelerator(mixed_precision="bf16" if lane == "cpu" else "fp16", cpu=lane == "cpu")
        model = bert(LAYERS[lane])
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=5e-4))
        losses = []
        for _ in range(STEPS[lane]):
            loss = model(**batch).loss
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        measure("last / first loss", losses[-1] / losses[0], limit=0.5)


def bert(layers):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 256,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "vocab_size": WORDS,
    }
    return BertForSequenceClassification(BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
