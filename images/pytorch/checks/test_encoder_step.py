"""An encoder learns, in mixed precision: the same steps on the CPU (bfloat16) and on a GPU (float16 too).

Some steps on one batch with two labels: the loss starts near ln 2 and falls below half (seen: to 0.003 of it and less).
Rounding moves the first loss by less than 2e-2 in bfloat16, 5e-3 in float16.
"""

import math
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = {"cpu": 10, "gpu": 20}
SHAPE = {"cpu": (8, 32), "gpu": (16, 64)}
"""Sequences and tokens of the batch."""
LAYERS = {"cpu": 2, "gpu": 4}
LIMITS = {torch.bfloat16: 2e-2, torch.float16: 5e-3}


class Encoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Embedding(8192, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(256, 2)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)).mean(dim=1))


@pytest.fixture
def device(lane):
    return torch.device("cuda" if lane == "gpu" else "cpu")


@pytest.fixture
def batch(device, lane):
    torch.manual_seed(0)
    shape = SHAPE[lane]
    return torch.randint(0, 8192, shape).to(device), (torch.arange(shape[0]) % 2).to(device)


@pytest.fixture
def fresh(device, lane):
    def make():
        torch.manual_seed(0)
        return Encoder(LAYERS[lane]).to(device)

    return make


@pytest.fixture
def dtypes(lane, rung):
    if lane == "gpu":
        return (torch.float16, torch.bfloat16) if torch.cuda.get_device_capability() >= (8, 0) else (torch.float16,)
    rung("bfloat16 on the CPU")
    return (torch.bfloat16,)


def test_the_loss_falls_in_mixed_precision(dtypes, batch, fresh, measure, lane):
    for dtype in dtypes:
        started = time.perf_counter()
        losses, skipped = train(fresh(), batch, dtype, STEPS[lane])
        measure(f"{dtype} steps/s", STEPS[lane] / (time.perf_counter() - started), floor=20 if lane == "gpu" else None)
        measure(f"{dtype} last / first loss", losses[-1] / losses[0], limit=0.5)
        assert losses[0] == pytest.approx(math.log(2), abs=0.3)
        assert skipped <= 2


def test_mixed_precision_is_on_and_changes_the_loss_by_rounding_only(dtypes, batch, fresh, measure):
    exact, logits = loss_of(fresh(), batch, None)
    assert logits.dtype == torch.float32
    for dtype in dtypes:
        loss, logits = loss_of(fresh(), batch, dtype)
        assert logits.dtype == dtype
        assert loss.dtype == torch.float32
        measure(f"{dtype} difference of the first loss", abs(loss.item() - exact.item()), limit=LIMITS[dtype])


def test_a_gradient_that_overflows_skips_its_step_and_halves_the_scale(dtypes, batch, fresh, device):
    model = fresh()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1.0), torch.amp.GradScaler(device.type, init_scale=65536)
    loss, _ = loss_of(model, batch, dtypes[0])
    scaler.scale(loss).backward()
    model.head.bias.grad[0] = math.inf
    before = [parameter.detach().clone() for parameter in model.parameters()]
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert scaler.get_scale() == 32768


def test_a_checkpoint_comes_back_equal_as_tensors_only(fresh, tmp_path):
    model = fresh()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert loaded.keys() == model.state_dict().keys()
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


def test_worker_processes_hand_batches_over_in_shared_memory(device):
    loader = DataLoader(TensorDataset(torch.arange(2**16)), batch_size=2**12, num_workers=2, pin_memory=device.type == "cuda")
    assert sum(int(part.to(device).sum()) for (part,) in loader) == 2**16 * (2**16 - 1) // 2


def loss_of(model, batch, dtype):
    tokens, labels = batch
    with torch.autocast(tokens.device.type, dtype=dtype, enabled=dtype is not None):
        logits = model(tokens)
    return nn.functional.cross_entropy(logits.float(), labels), logits


def train(model, batch, dtype, steps):
    """The losses of all steps, and how many steps the scaler left out."""
    device = batch[0].device.type
    optimizer, scaler = (
        torch.optim.AdamW(model.parameters(), lr=5e-4),
        torch.amp.GradScaler(device, enabled=dtype == torch.float16),
    )
    losses, skipped = [], 0
    for _ in range(steps):
        loss, _ = loss_of(model, batch, dtype)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
        losses.append(loss.item())
    return losses, skipped
