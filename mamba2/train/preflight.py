"""What a run will take, found out before it begins: one step on fake tensors, counted and weighed."""

import os
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from mamba2.config import RunConfig
from mamba2.errors import ConfigError
from mamba2.train.checkpoint import make_model
from mamba2.train.evaluate import TensorBatch
from mamba2.train.step import compute_gradients

_GB = 1e9


class Preflight(NamedTuple):
    """What one process needs."""

    parameters: int
    flops: int
    """Of one optimizer step, forward and backward, in products of matrices."""
    memory: int
    """Bytes at the peak, beside what torch itself takes: weights, AdamW's moments, gradients, saved activations."""


def preflight(config: RunConfig, world: int = 1) -> Preflight:
    """Takes one step on fake tensors, and counts what it multiplies and what it keeps for the backward pass.

    Peak memory is weights and two moments, 12 bytes a parameter, and the larger of the gradients and the activations
    that a part of the batch leaves, for the ones go as the others come.

    Raises:
        ShapeError: a function of the model was given a tensor that does not fit it.
    """
    settings, time = config.train, config.data.window
    part = -(-settings.batch // (world * settings.accumulate))
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with FakeTensorMode():
        model = make_model(config)
        fake = TensorBatch(
            torch.zeros(part, time, len(config.data.features)),
            torch.zeros(part, time, len(config.data.targets)),
            torch.ones(part, time, dtype=torch.bool),
        )
        with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda tensor: tensor):
            compute_gradients(model, fake, settings.max_grad_norm, precision=settings.precision)
        weights = {each.untyped_storage()._cdata for each in model.parameters()}
        activations = sum(each.untyped_storage().nbytes() for key, each in saved.items() if key not in weights)
        parameters = sum(each.numel() for each in model.parameters())
    flops = counter.get_total_flops() * settings.batch // (part * world)
    return Preflight(parameters, flops, 12 * parameters + max(4 * parameters, activations))


def require_room(found: Preflight, device: torch.device) -> None:
    """
    Raises:
        ConfigError: the run needs more memory than the device has free.
    """
    free = free_memory(device)
    if free is not None and found.memory > free:
        raise ConfigError(
            f"memory: {device} must have about {found.memory / _GB:.1f} GB free; got {free / _GB:.1f} GB. "
            "Raise accumulate, or lower batch, window or the model's size."
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # counts what caches would give back, unlike sysconf
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
