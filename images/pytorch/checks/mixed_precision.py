"""What a model must show in mixed precision; `test_encoder_step.py` and others bring the model.

Some steps on one batch with two labels: the loss starts near ln 2 (seen: 0.681 to 0.715) and falls below half (seen: to
0.003 of it and less). Rounding moves the first loss by less than 2e-2 in bfloat16, 5e-3 in float16.
"""

import gc
import time
import weakref
from dataclasses import dataclass

import floors
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = {"cpu": 10, "gpu": 20}
WARM_UP = 3
"""Steps that are not timed: they load libraries."""
SHAPE = {"cpu": (8, 32), "gpu": (16, 64)}
"""Sequences and tokens of the batch."""
WORDS = 8192
LIMITS = {torch.bfloat16: 2e-2, torch.float16: 5e-3}
SCALE = 65536
MAY_SKIP = 2
"""Steps: a scale of 65536 may overflow at first."""
STEPS_A_SECOND = 20
"""Where tensor cores of 7.5 or newer work."""
LEFT_OVER = 2**20
"""Bytes that may stay allocated."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """`skipped`: steps that the scaler left out; `unsound`: those it took with gradients that are not finite."""

    losses: tuple
    skipped: int
    unsound: int
    steps_a_second: float


class Learns:
    """What is asked of a model; the subclass's file has a fixture `fresh`, which makes it with the same weights each time."""

    @pytest.fixture
    def device(self, lane):
        return torch.device("cuda" if lane == "gpu" else "cpu")

    @pytest.fixture
    def dtypes(self, lane, rung):
        # Asked of the hardware: torch also calls bfloat16 supported where it is emulated.
        if lane == "gpu":
            return (torch.float16, torch.bfloat16) if torch.cuda.get_device_capability() >= (8, 0) else (torch.float16,)
        rung("bfloat16 on the CPU")
        return (torch.bfloat16,)

    @pytest.fixture
    def batch(self, device, lane):
        torch.manual_seed(0)
        shape = SHAPE[lane]
        return {"input_ids": torch.randint(0, WORDS, shape).to(device), "labels": (torch.arange(shape[0]) % 2).to(device)}

    def test_the_loss_falls_in_mixed_precision(self, dtypes, batch, fresh, lane, gpus, measure):
        fast = lane == "gpu" and torch.cuda.get_device_capability() >= (7, 5) and not floors.shared(gpus)
        for dtype in dtypes:
            forget_peak(lane)
            done = train(fresh(), batch, dtype, STEPS[lane])
            measure(f"{dtype} first loss", done.losses[0], floor=0.55, limit=0.85)
            measure(f"{dtype} last / first loss", done.losses[-1] / done.losses[0], limit=0.5)
            measure(f"{dtype} skipped steps", done.skipped, limit=MAY_SKIP)
            measure(f"{dtype} steps with infinite gradients", done.unsound, limit=0)
            if lane == "gpu":
                measure(f"{dtype} peak GPU MB", torch.cuda.max_memory_allocated() / 1e6)
            measure(f"{dtype} steps/s", done.steps_a_second, floor=STEPS_A_SECOND if fast else None)

    def test_mixed_precision_is_on_and_changes_the_loss_by_rounding_only(self, dtypes, batch, fresh, measure):
        exact = forward(fresh(), batch, None)
        assert exact.logits.dtype == torch.float32
        for dtype in dtypes:
            found = forward(fresh(), batch, dtype)
            assert found.logits.dtype == dtype
            assert found.loss.dtype == torch.float32
            measure(f"{dtype} difference of the first loss", abs(found.loss.item() - exact.loss.item()), limit=LIMITS[dtype])

    def test_a_gradient_that_overflows_skips_its_step_and_halves_the_scale(self, dtypes, batch, fresh, device, measure):
        model, scaler = fresh(), torch.amp.GradScaler(device.type)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        assert scaler.get_scale() == SCALE
        assert not moves(model, batch, dtypes[0], optimizer, scaler, spoil=True)
        assert scaler.get_scale() == SCALE / 2
        tried = next((count for count in range(1, 4) if moves(model, batch, dtypes[0], optimizer, scaler)), None)
        assert tried, "no step after it changes the parameters"
        measure("steps until the next that counts", tried)

    def test_a_checkpoint_comes_back_equal_as_tensors_only(self, dtypes, batch, fresh, tmp_path):
        model = fresh()
        train(model, batch, dtypes[0], MAY_SKIP + 1)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        loaded, other = torch.load(tmp_path / "model.pt", weights_only=True), fresh()
        assert not equal(other.state_dict(), loaded)
        other.load_state_dict(loaded)
        assert equal(other.state_dict(), model.state_dict())

    def test_memory_is_given_back(self, dtypes, batch, fresh, lane, measure):
        train(fresh(), batch, dtypes[0], 1)  # libraries keep what they take at first
        before = allocated(lane)
        model = fresh()
        train(model, batch, dtypes[0], 2)
        alive = weakref.ref(model)
        del model
        measure("MB left over", abs(allocated(lane) - before) / 1e6, limit=LEFT_OVER / 1e6)
        assert alive() is None

    def test_worker_processes_hand_batches_over_in_shared_memory(self, device):
        pinned = device.type == "cuda"
        loader = DataLoader(TensorDataset(torch.arange(2**16)), batch_size=2**12, num_workers=2, pin_memory=pinned)
        total = 0
        for (part,) in loader:
            assert part.is_pinned() is pinned
            total += int(part.to(device, non_blocking=True).sum())
        assert total == 2**16 * (2**16 - 1) // 2


def forward(model, batch, dtype):
    """The model's own loss and logits, under autocast to `dtype` if there is one."""
    kind = batch["labels"].device.type
    with torch.amp.autocast(kind, dtype=dtype, enabled=dtype is not None):
        return model(**batch)


def train(model, batch, dtype, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scaler = torch.amp.GradScaler(batch["labels"].device.type, enabled=dtype == torch.float16)
    losses, skipped, unsound, started = [], 0, 0, None
    for step in range(steps):
        started = time.perf_counter() if step == WARM_UP else started
        optimizer.zero_grad()
        loss = forward(model, batch, dtype).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        finite = bool(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite())
        left_out = leaves_out(scaler, optimizer)
        skipped, unsound = skipped + left_out, unsound + (not finite and not left_out)
        losses.append(loss.item())
    speed = (steps - WARM_UP) / (time.perf_counter() - started) if started else 0.0
    return Trained(losses=tuple(losses), skipped=skipped, unsound=unsound, steps_a_second=speed)


def leaves_out(scaler, optimizer):
    """Take a step, and say whether the scaler left it out."""
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() < scale


def moves(model, batch, dtype, optimizer, scaler, *, spoil=False):
    """Whether a step, if asked for one with an infinite gradient, changes any parameter."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.zero_grad()
    scaler.scale(forward(model, batch, dtype).loss).backward()
    if spoil:
        next(one for one in model.parameters() if one.grad is not None).grad.view(-1)[0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
    return not all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def forget_peak(lane):
    if lane == "gpu":
        torch.cuda.reset_peak_memory_stats()


def allocated(lane):
    """Bytes of GPU memory that tensors hold; the CPU's are not counted."""
    gc.collect()
    if lane == "cpu":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()
