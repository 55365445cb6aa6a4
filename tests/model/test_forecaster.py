"""The forecaster's head on numbers done by hand."""

import re

import pytest
import torch

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.block import BlockState
from mamba2.model.forecaster import Forecaster
from mamba2.verify.checks import require_close

UNIT_NORMAL = [-1.6448536, -0.6744898, 0.0, 0.6744898, 1.6448536]


def forecaster(**options) -> Forecaster:
    """Two features and two targets, with a head that does not look at its input."""
    model = Forecaster(
        ModelConfig(**{"d_model": 4, "layers": 2, "headdim": 2, "d_state": 2, **options}), features=2, targets=2
    )
    with torch.no_grad():
        model.head.weight.zero_()
    return model


def test_without_its_input_the_untrained_head_forecasts_the_unit_normal():
    model = forecaster()

    forecast, _ = model(torch.randn(1, 1, 2), model.initial_state(1))

    assert forecast.mean.flatten().tolist() == [0.0, 0.0]
    assert forecast.quantiles.flatten().tolist() == pytest.approx([*UNIT_NORMAL, *UNIT_NORMAL], abs=1e-6)


def test_a_quantile_is_the_one_below_and_a_softplus():
    model = forecaster(quantiles=(0.1, 0.5, 0.9))
    with torch.no_grad():  # for each target the mean, the lowest quantile and the rises
        model.head.bias.copy_(torch.tensor([7.0, -1.0, 0.541324855, 100.0, 8.0, 2.0, -200.0, 0.541324855]))

    forecast, _ = model(torch.randn(1, 1, 2), model.initial_state(1))

    assert forecast.mean.flatten().tolist() == [7.0, 8.0]
    assert forecast.quantiles.flatten().tolist() == pytest.approx([-1.0, 0.0, 100.0, 2.0, 2.0, 3.0])


def test_one_level_is_no_sum():
    model = forecaster(quantiles=(0.5,))

    forecast, _ = model(torch.randn(1, 1, 2), model.initial_state(1))

    assert forecast.quantiles.tolist() == [[[[0.0], [0.0]]]]


def test_the_untrained_forecast_is_close_to_the_unit_normal():
    torch.manual_seed(0)
    model = Forecaster(ModelConfig(layers=1), features=9, targets=1)

    forecast, _ = model(torch.randn(1, 50, 9), model.initial_state(1))

    assert forecast.mean.std().item() < 0.2
    assert forecast.quantiles.mean((0, 1, 2)).tolist() == pytest.approx(UNIT_NORMAL, abs=0.2)


def test_there_is_one_state_for_each_layer():
    assert [tuple(layer.ssm.shape) for layer in forecaster().initial_state(3)] == [(3, 4, 2, 2)] * 2


def test_the_reference_forecaster_has_as_many_parameters_as_by_hand():
    model = Forecaster(ModelConfig(), features=9, targets=1)

    assert sum(each.numel() for each in model.parameters()) == (9 * 256 + 256) + 2_442_064 + (256 * 6 + 6)


def test_features_of_another_number_are_refused_by_name():
    model = forecaster()
    message = "Forecaster: axis 'feature' is 3 in features (1, 5, 3) but 2 in the model."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        model(torch.zeros(1, 5, 3), model.initial_state(1))


def test_a_state_of_another_batch_is_refused_by_name():
    model = forecaster()
    message = "Forecaster.forward: axis 'batch' is 1 in state[0].conv (1, 3, 12) but 2 in features (2, 5, 2)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        model(torch.zeros(2, 5, 2), model.initial_state(1))


@pytest.mark.parametrize("strict", [True, False])
def test_exported_with_a_free_batch_it_gives_the_same(strict):
    torch.manual_seed(0)
    model = Forecaster(ModelConfig(d_model=4, layers=1, headdim=2, d_state=2, chunk=4), features=2, targets=1)
    batch = torch.export.Dim("batch", min=2)
    free = ({0: batch}, (BlockState({0: batch}, {0: batch}),))
    example = (torch.randn(2, 11, 2), model.initial_state(2))
    exported = torch.export.export(model, example, dynamic_shapes=free, strict=strict).module()

    other = (torch.randn(3, 11, 2), model.initial_state(3))
    (mean, quantiles), _ = exported(*other)

    require_close("mean", mean, model(*other)[0].mean)
    require_close("quantiles", quantiles, model(*other)[0].quantiles)
