"""The loss of a model on windows of bars."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mamba2.data.windows import Batch, Windows, batches
from mamba2.model.forecaster import Forecaster
from mamba2.train.loss import forecast_loss


class TensorBatch(NamedTuple):
    """A batch of windows on a device."""

    features: Float[Tensor, "batch time feature"]
    targets: Float[Tensor, "batch time target"]
    valid: Bool[Tensor, "batch time"]


def to_tensors(batch: Batch, device: torch.device) -> TensorBatch:
    """Copies a batch of windows to the device."""
    return TensorBatch(*(torch.from_numpy(each).to(device) for each in (batch.features, batch.targets, batch.valid)))


def batch_loss(model: Forecaster, batch: TensorBatch) -> Float[Tensor, ""]:
    """The mean loss of some windows, each from a zero state."""
    forecast, _ = model(batch.features, model.initial_state(len(batch.features)))
    return forecast_loss(forecast, batch.targets, batch.valid, model.levels)


@torch.no_grad()
def validation_loss(model: Forecaster, windows: Windows, size: int) -> float | None:
    """The mean loss over all valid bars of the windows, `size` windows at a time; None where there is no window."""
    device = next(model.parameters()).device
    model.eval()
    total, bars = 0.0, 0
    for batch in batches(windows, size, rng=None):
        valid = int(batch.valid.sum())
        total += batch_loss(model, to_tensors(batch, device)).item() * valid
        bars += valid
    return total / bars if bars else None
