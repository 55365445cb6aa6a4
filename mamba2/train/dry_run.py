"""One whole training step of a config on fake tensors: shapes without numbers, memory or a GPU."""

from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mamba2.config import RunConfig
from mamba2.train.checkpoint import make_model
from mamba2.train.evaluate import TensorBatch
from mamba2.train.optim import make_optimizer
from mamba2.train.step import compute_gradients


class DryRun(NamedTuple):
    """What a training step would be made of."""

    parameters: int
    batch: int
    time: int
    features: int


def dry_run(config: RunConfig) -> DryRun:
    """Builds the model and takes one training step, all but the tests for finite values: fake tensors have none.

    Raises:
        ShapeError: a function of the model was given a tensor that does not fit it.
    """
    batch, time, features = config.train.batch, config.data.window, len(config.data.features)
    with FakeTensorMode():
        model = make_model(config)
        optimizer = make_optimizer(model, config.train)
        fake = TensorBatch(
            torch.zeros(batch, time, features),
            torch.zeros(batch, time, len(config.data.targets)),
            torch.ones(batch, time, dtype=torch.bool),
        )
        compute_gradients(model, fake, config.train.max_grad_norm)
        optimizer.step()
    return DryRun(sum(each.numel() for each in model.parameters()), batch, time, features)
