"""The quantiles of a forecast never cross."""

from hypothesis import given
from hypothesis import strategies as st

from mamba2.config import ModelConfig
from mamba2.model.forecaster import Forecaster
from mamba2.verify.strategies import Source, model_configs, randomised, seeds


@given(model_configs(), seeds, st.floats(1.0, 1e3))
def test_quantiles_never_cross(config: ModelConfig, seed: int, size: float) -> None:
    model = randomised(Forecaster(config, features=3, targets=2), seed)
    forecast, _ = model(Source(seed).normal(2, 7, 3) * size, model.initial_state(2))

    assert (forecast.quantiles.diff(dim=-1) >= 0).all()
