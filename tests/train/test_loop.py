"""Training: what is yielded, what is learned, and when it stops."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.errors import TrainingError
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import load_model, make_model
from mamba2.train.evaluate import validation_loss
from mamba2.train.loop import Epoch, Step, fit


def test_every_step_and_every_epoch_is_yielded(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    events = list(fit(model, dataset, config, tmp_path))

    # ten windows in batches of four: three steps an epoch
    assert [(type(event), event.epoch) for event in events] == [(Step, 1)] * 3 + [(Epoch, 1)] + [(Step, 2)] * 3 + [
        (Epoch, 2)
    ]


def test_training_lowers_the_validation_loss(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    before = validation_loss(model, dataset.validation, 4)
    *_, last = fit(model, dataset, config, tmp_path)

    assert before is not None
    assert isinstance(last, Epoch)
    assert last.validation_loss is not None
    assert last.validation_loss < before


def test_two_runs_are_equal_bit_for_bit(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    losses = []
    for run in ("a", "b"):
        torch.manual_seed(7)
        events = fit(make_model(config), dataset, config, tmp_path / run)
        losses.append([event.loss for event in events if isinstance(event, Step)])

    assert losses[0] == losses[1]


def test_the_checkpoint_of_an_epoch_gives_its_validation_loss_again(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    epochs = [event for event in fit(model, dataset, config, tmp_path) if isinstance(event, Epoch)]
    again = [validation_loss(load_model(event.checkpoint)[0], dataset.validation, 4) for event in epochs]

    assert again == [event.validation_loss for event in epochs]


def test_validation_weighs_bars_not_batches(model: Forecaster, dataset: Dataset) -> None:
    sizes = [validation_loss(model, dataset.validation, size) for size in (1, 3, 4)]

    assert sizes == pytest.approx([sizes[0]] * 3, rel=1e-6)


def test_without_validation_windows_there_is_no_validation_loss(model: Forecaster, dataset: Dataset) -> None:
    nothing = dataset.validation.subset(np.zeros(4, bool))

    assert validation_loss(model, nothing, 4) is None


def test_a_loss_that_is_not_finite_stops_training_before_the_weights_change(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    dataset.train.tracks[0].features[:] = math.nan
    before = {name: each.clone() for name, each in model.state_dict().items()}

    with pytest.raises(TrainingError, match=r"^training: step 1: the loss is nan; first in the gradient of "):
        list(fit(model, dataset, config, tmp_path))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_a_gradient_that_is_not_finite_is_named(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    model.backbone.last_norm_weight.register_hook(lambda gradient: gradient * math.inf)

    with pytest.raises(TrainingError, match=r"step 1: a gradient is not finite; .* backbone.last_norm_weight"):
        list(fit(model, dataset, config, tmp_path))


def test_a_weight_that_is_not_finite_is_named(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    with torch.no_grad():
        model.embed.bias[0] = math.inf

    with pytest.raises(TrainingError, match=r"step 1: .*; parameter embed.bias is not finite"):
        list(fit(model, dataset, config, tmp_path))
