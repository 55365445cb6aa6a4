"""The loss by hand."""

import pytest
import torch

from mamba2.errors import ShapeError
from mamba2.model.forecaster import Forecast
from mamba2.train.loss import forecast_loss

LEVELS = torch.tensor([0.1, 0.9])


def forecast(mean: float, low: float, high: float, time: int = 1) -> Forecast:
    return Forecast(torch.full((1, time, 1), mean), torch.tensor([low, high]).expand(1, time, 1, 2))


def test_the_loss_is_squared_error_plus_mean_pinball() -> None:
    loss = forecast_loss(forecast(1.0, 0.0, 5.0), torch.tensor([[[3.0]]]), torch.tensor([[True]]), LEVELS)

    # (3 - 1)² + (0.1·(3 - 0) + (0.9 - 1)·(3 - 5)) / 2
    assert loss.item() == pytest.approx(4 + (0.3 + 0.2) / 2)


def test_bars_without_a_valid_target_do_not_count() -> None:
    targets = torch.tensor([[[3.0], [1000.0]]])
    loss = forecast_loss(forecast(1.0, 0.0, 5.0, time=2), targets, torch.tensor([[True, False]]), LEVELS)

    assert loss.item() == pytest.approx(4.25)


def test_a_batch_without_valid_bars_has_no_loss() -> None:
    loss = forecast_loss(forecast(1.0, 0.0, 5.0), torch.tensor([[[3.0]]]), torch.tensor([[False]]), LEVELS)

    assert loss.item() == 0


def test_a_forecast_of_another_target_count_is_refused_by_name() -> None:
    with pytest.raises(
        ShapeError, match=r"^forecast_loss: axis 'target' is 2 in targets \(1, 1, 2\) but 1 in forecast"
    ):
        forecast_loss(forecast(1.0, 0.0, 5.0), torch.zeros(1, 1, 2), torch.tensor([[True]]), LEVELS)
