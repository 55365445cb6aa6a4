"""One whole training step of a config on fake tensors: shapes without numbers, memory or a GPU."""

from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mamba2.config import RunConfig
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model
from mamba2.train.evaluate import TensorBatch
from mamba2.train.optim import make_optimizer
from mamba2.train.step import compute_gradients

_LENGTH = 1024
"""Bars that the fast form takes at once."""


class DryRun(NamedTuple):
    """What the training step was made of."""

    parameters: int
    batch: int
    time: int
    features: int


def standing_for(time: int) -> tuple[int, int]:
    """Rows and bars of the largest step that is taken on fake tensors: each operation takes them as long as real ones.

    >>> [standing_for(time) for time in (60, 700, 5000)]
    [(34, 60), (2, 700), (2, 1024)]
    """
    length = min(time, _LENGTH)
    return 2 * (_LENGTH // length), length


def dry_run(config: RunConfig) -> DryRun:
    """Builds the model and takes one training step, all but the tests for finite values: fake tensors have none.

    Of a batch of more than 2048 bars it takes a part, which goes the same ways.

    Raises:
        ShapeError: a function of the model was given a tensor that does not fit it.
    """
    rows, time = standing_for(config.data.window)
    batch = min(config.train.batch, rows)
    with FakeTensorMode():
        model = with_gradients(config, batch, time)
        make_optimizer(model, config.train).step()
    parameters = sum(each.numel() for each in model.parameters())
    return DryRun(parameters, batch, time, len(config.data.features))


def with_gradients(config: RunConfig, batch: int, time: int) -> Forecaster:
    """A new model after the backward pass of a batch of zeros, as training runs it.

    Raises:
        ShapeError: a function of the model was given a tensor that does not fit it.
    """
    model = make_model(config)
    zeros = TensorBatch(
        torch.zeros(batch, time, len(config.data.features)),
        torch.zeros(batch, time, len(config.data.targets)),
        torch.ones(batch, time, dtype=torch.bool),
    )
    compute_gradients(model, zeros, config.train.max_grad_norm, precision=config.train.precision)
    return model
