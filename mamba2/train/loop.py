"""The training loop: a generator, so that printing, plotting and stopping belong to whoever iterates over it."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.data.windows import batches
from mamba2.errors import TrainingError
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import save_checkpoint
from mamba2.train.evaluate import TensorBatch, batch_loss, to_tensors, validation_loss
from mamba2.train.optim import learning_rate, make_optimizer, set_learning_rate


class Step(NamedTuple):
    """What one optimizer step did."""

    epoch: int
    step: int
    """Counted from 1 over all epochs."""
    steps: int
    """Of the whole run."""
    loss: float
    learning_rate: float
    gradient_norm: float
    """Before clipping."""
    bars: int


class Epoch(NamedTuple):
    """What one pass over the training windows did."""

    epoch: int
    train_loss: float
    validation_loss: float | None
    """None without validation windows."""
    seconds: float
    checkpoint: Path


def fit(model: Forecaster, dataset: Dataset, config: RunConfig, out: Path) -> Iterator[Step | Epoch]:
    """Trains the model where it is, and yields each step and each epoch; an epoch ends with a checkpoint under `out`.

    Raises:
        TrainingError: a loss or a gradient is not finite; the model is as it was before that step.
        CheckpointError: a checkpoint cannot be written.
    """
    settings, device = config.train, next(model.parameters()).device
    optimizer = make_optimizer(model, settings)
    steps = settings.epochs * math.ceil(len(dataset.train) / settings.batch)
    step = 0
    for epoch in range(1, settings.epochs + 1):
        began, losses = time.perf_counter(), []
        order = np.random.default_rng((settings.seed, epoch))
        model.train()
        for batch in batches(dataset.train, settings.batch, rng=order):
            rate = learning_rate(step, steps, settings)
            set_learning_rate(optimizer, rate)
            step += 1
            loss, norm = compute_gradients(model, to_tensors(batch, device), settings.max_grad_norm)
            _require_finite(model, loss, norm, f"step {step}, epoch {epoch}")
            optimizer.step()
            losses.append(loss.item())
            yield Step(epoch, step, steps, loss.item(), rate, norm.item(), batch.valid.size)
        validation = validation_loss(model, dataset.validation, settings.batch)
        checkpoint = out / f"epoch-{epoch:03d}"
        save_checkpoint(checkpoint, model, optimizer, config, epoch=epoch, step=step)
        yield Epoch(epoch, float(np.mean(losses)), validation, time.perf_counter() - began, checkpoint)


def compute_gradients(
    model: Forecaster, batch: TensorBatch, max_grad_norm: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Leaves the batch's clipped gradients in the model; returns the loss, and the gradients' norm before clipping."""
    model.zero_grad(set_to_none=True)
    loss = batch_loss(model, batch)
    loss.backward()
    return loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)


def _require_finite(model: nn.Module, loss: Tensor, norm: Tensor, where: str) -> None:
    if loss.isfinite() and norm.isfinite():
        return
    named = list(model.named_parameters())
    weights = [name for name, each in named if not each.isfinite().all()]
    gradients = [name for name, each in named if each.grad is not None and not each.grad.isfinite().all()]
    what = f"the loss is {loss.item()}" if not loss.isfinite() else "a gradient is not finite"
    if weights:
        culprit = f"parameter {weights[0]} is not finite"
    else:
        culprit = f"first in the gradient of {gradients[0]}" if gradients else "in no single parameter"
    raise TrainingError(
        f"training: {what} at {where}; {culprit}. The weights are those before this step: "
        "check the data, or lower learning_rate."
    )
