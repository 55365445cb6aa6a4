"""The forecaster is one function over a sequence and bar by bar, and its quantiles never cross."""

from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mamba2.model.backbone import BackboneState
from mamba2.model.block import BlockState
from mamba2.model.forecaster import Forecaster
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import Sizes, Source, all_sizes, model_configs, randomised, seeds


class Case(NamedTuple):
    """A forecaster and a call of it, in float64."""

    model: Forecaster
    sizes: Sizes
    features: Tensor
    state: BackboneState


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """The state is not zero, as in the middle of a segment."""
    features, targets = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    sizes, seed = draw(all_sizes(most_time=10)), draw(seeds)
    model = randomised(Forecaster(draw(model_configs()), features=features, targets=targets), seed)
    source = Source(seed + 1)
    state = tuple(
        BlockState(*(source.normal(*each.shape) for each in layer)) for layer in model.initial_state(sizes.batch)
    )
    return Case(model, sizes, source.normal(sizes.batch, sizes.time, features), state)


@given(cases(), st.floats(1.0, 1e3))
def test_quantiles_never_cross(case, size):
    forecast, _ = case.model(case.features * size, case.state)

    assert (forecast.quantiles.diff(dim=-1) >= 0).all()


@given(cases())
def test_forward_is_a_prefill_of_any_length_and_then_steps(case):
    model, sizes, features, state = case
    whole, whole_last = model(features, state)

    prefill, state = model(features[:, : sizes.cut], state)
    means, quantiles = [prefill.mean], [prefill.quantiles]
    for t in range(sizes.cut, sizes.time):
        forecast, state = model.step(features[:, t : t + 1], state)
        means.append(forecast.mean)
        quantiles.append(forecast.quantiles)

    require_close("mean", torch.cat(means, dim=1), whole.mean)
    require_close("quantiles", torch.cat(quantiles, dim=1), whole.quantiles)
    for layer, (actual, expected) in enumerate(zip(state, whole_last, strict=True)):
        require_close(f"conv state of layer {layer}", actual.conv, expected.conv)
        require_close(f"ssm state of layer {layer}", actual.ssm, expected.ssm)
