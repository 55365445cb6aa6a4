"""Bar features in, forecasts of the bar one horizon ahead out, at every time step."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.backbone import Backbone, BackboneState
from mamba2.shapes import shaped


class Forecast(NamedTuple):
    """What is expected of each target, in units of the bar's volatility."""

    mean: Float[Tensor, "batch time target"]
    quantiles: Float[Tensor, "batch time target quantile"]
    """At the levels of the config, never falling from one to the next."""


class Forecaster(nn.Module):
    """Linear embedding, `Backbone`, and a head for mean and quantiles: q[k+1] = q[k] + softplus(head)."""

    levels: Float[Tensor, " quantile"]
    """Of the forecast quantiles, as in the config."""

    def __init__(self, config: ModelConfig, *, features: int, targets: int) -> None:
        super().__init__()
        self.config = config
        self.targets = targets
        self.register_buffer("levels", torch.tensor(config.quantiles), persistent=False)
        self.embed = nn.Linear(features, config.d_model)
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.d_model, targets * (1 + len(config.quantiles)))
        with torch.no_grad():
            # The untrained forecast is close to the unit normal, which is what targets over their volatility are like.
            self.head.weight.mul_(0.1)
            self.head.bias.copy_(_unit_normal(config.quantiles).repeat(targets))

    def initial_state(self, batch: int) -> BackboneState:
        """The state at the start of a segment."""
        return self.backbone.initial_state(batch)

    @shaped
    def forward(
        self,
        features: Float[Tensor, "batch time feature"],
        state: BackboneState,
        mask: Bool[Tensor, "batch time"] | None = None,
    ) -> tuple[Forecast, BackboneState]:
        """Forecasts at every bar, going on from `state`; the one at t knows the bars up to t.

        Where `mask` is False a bar is a pad, and its forecast means nothing.
        """
        if mask is None:
            return self._run(features, state, self.backbone)
        return self._run(torch.where(mask[..., None], features, 0.0), state, partial(self.backbone, mask=mask))

    @shaped
    def step(self, features: Float[Tensor, "batch 1 feature"], state: BackboneState) -> tuple[Forecast, BackboneState]:
        """The forecast after one more bar."""
        return self._run(features, state, self.backbone.step)

    def _run(
        self, features: Float[Tensor, "batch time feature"], state: BackboneState, backbone: Callable[..., Any]
    ) -> tuple[Forecast, BackboneState]:
        if features.shape[-1] != self.embed.in_features:
            raise ShapeError(
                f"Forecaster: axis 'feature' is {features.shape[-1]} in features {tuple(features.shape)} "
                f"but {self.embed.in_features} in the model."
            )
        x, state = backbone(self.embed(features), state)
        raw = self.head(x).unflatten(-1, (self.targets, -1))
        mean, lowest, rises = raw[..., 0], raw[..., 1:2], F.softplus(raw[..., 2:])
        return Forecast(mean, torch.cat((lowest, rises), dim=-1).cumsum(-1)), state


def _unit_normal(levels: tuple[float, ...]) -> Float[Tensor, " quantile"]:
    """Head biases that make the mean 0 and the quantiles those of the unit normal."""
    quantiles = torch.tensor([NormalDist().inv_cdf(level) for level in levels])
    rises = quantiles.diff()
    return torch.cat((torch.zeros(1), quantiles[:1], rises + torch.log(-torch.expm1(-rises))))
