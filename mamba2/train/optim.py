"""The optimizer and its schedule."""

import math

import torch
from torch import nn

from mamba2.config import TrainConfig

_LAST = 0.1
"""The learning rate ends at this part of its peak."""


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW; matrices decay, vectors (biases, norms, A_log, dt_bias, D) do not."""
    matrices = [each for each in model.parameters() if each.ndim >= 2]
    vectors = [each for each in model.parameters() if each.ndim < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95))


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Linear up to the peak over the warm-up steps, then a cosine down to a tenth of it at the last step.

    >>> config = TrainConfig(learning_rate=1.0, warm_up_steps=2)
    >>> [round(learning_rate(step, 7, config), 2) for step in range(7)]
    [0.5, 1.0, 1.0, 0.87, 0.55, 0.23, 0.1]
    """
    if step < config.warm_up_steps:
        return config.learning_rate * (step + 1) / config.warm_up_steps
    past = (step - config.warm_up_steps) / max(1, steps - config.warm_up_steps - 1)
    return config.learning_rate * (_LAST + (1 - _LAST) * (1 + math.cos(math.pi * past)) / 2)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = rate
