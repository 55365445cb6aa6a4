"""One training step's gradients, in one pass or in parts, and the first thing in them that is not finite."""

from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mamba2.model.backbone import BackboneState
from mamba2.model.block import BlockState
from mamba2.model.forecaster import Forecaster
from mamba2.train.evaluate import TensorBatch
from mamba2.train.loss import forecast_loss


class Gradients(NamedTuple):
    """What a step found; the gradients themselves are in the model, clipped."""

    loss: Float[Tensor, ""]
    norm: Float[Tensor, ""]
    """Of the gradients, before clipping."""
    state: BackboneState
    """After the last bar of each window, detached."""


def compute_gradients(
    model: nn.Module,
    batch: TensorBatch,
    max_grad_norm: float,
    *,
    state: BackboneState | None = None,
    bars: float | None = None,
    parts: int = 1,
    precision: str = "float32",
) -> Gradients:
    """Leaves the clipped gradients of the batch's loss in the model; parts add up to what one pass would give.

    Args:
        model: a `Forecaster`, or one spread over processes, whose backward pass averages over them.
        state: that the windows go on from; not given: the initial state.
        bars: by which the losses' sum is divided; not given: the batch's valid bars. For several processes it is the
            valid bars of all of them over their number, so that the mean over processes is the mean over bars.
    """
    inner = forecaster(model)
    state = inner.initial_state(len(batch.valid)) if state is None else state
    whole = batch.valid.sum().clamp_min(1) if bars is None else bars
    model.zero_grad(set_to_none=True)
    losses, states = [], []
    rows = len(batch.valid)  # none in a process without a share, which takes part with gradients of 0
    sizes = [len(part) for part in torch.empty(rows).tensor_split(min(parts, max(1, rows)))]
    for number, part, before in zip(range(len(sizes)), _split(batch, sizes), _split_state(state, sizes), strict=True):
        is_last = number == len(sizes) - 1
        with nullcontext() if is_last or not isinstance(model, DistributedDataParallel) else model.no_sync():
            with torch.autocast(batch.features.device.type, torch.bfloat16, enabled=precision == "bf16"):
                forecast, after = model(part.features, before)
            loss = forecast_loss(forecast, part.targets, part.valid, inner.levels)
            loss = loss * (part.valid.sum().double() / whole).to(loss.dtype)  # whole numbers divide in float32
            loss.backward()
        losses.append(loss.detach())
        states.append(after)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    return Gradients(torch.stack(losses).sum(), norm, _join_states(states))


def find_fault(model: nn.Module, found: Gradients) -> str:
    """What is not finite in a step, and where it shows first; empty if all is."""
    states = torch.stack([each.isfinite().all() for block in found.state for each in block])
    if bool(found.loss.isfinite() & found.norm.isfinite() & states.all()):
        return ""
    named = list(forecaster(model).named_parameters())
    weights = [name for name, each in named if not each.isfinite().all()]
    gradients = [name for name, each in named if each.grad is not None and not each.grad.isfinite().all()]
    if not found.loss.isfinite():
        what = f"the loss is {found.loss.item()}"
    else:
        what = "a state is not finite" if found.norm.isfinite() else "a gradient is not finite"
    if weights:
        return f"{what}; parameter {weights[0]} is not finite"
    if gradients:
        return f"{what}; first in the gradient of {gradients[0]}"
    blocks = [str(index) for index, block in enumerate(found.state) if not all(each.isfinite().all() for each in block)]
    return f"{what}; in the state of block {blocks[0]}" if blocks else f"{what}; in no single parameter"


def forecaster(model: nn.Module) -> Forecaster:
    """The model itself where it is spread over processes."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    if not isinstance(inner, Forecaster):
        raise TypeError(f"compute_gradients: the model must be a Forecaster; got {type(inner).__name__}.")
    return inner


def _split(batch: TensorBatch, sizes: list[int]) -> list[TensorBatch]:
    return [TensorBatch(*parts) for parts in zip(*(each.split(sizes) for each in batch), strict=True)]


def _split_state(state: BackboneState, sizes: list[int]) -> list[BackboneState]:
    blocks = [list(zip(*(each.split(sizes) for each in block), strict=True)) for block in state]
    return [tuple(BlockState(*block[index]) for block in blocks) for index in range(len(sizes))]


def _join_states(parts: list[BackboneState]) -> BackboneState:
    return tuple(
        BlockState(*(torch.cat(columns).detach() for columns in zip(*blocks, strict=True)))
        for blocks in zip(*parts, strict=True)
    )
