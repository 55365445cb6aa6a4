"""What training minimises."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mamba2.model.forecaster import Forecast
from mamba2.shapes import shaped


@shaped
def forecast_loss(
    forecast: Forecast,
    targets: Float[Tensor, "batch time target"],
    valid: Bool[Tensor, "batch time"],
    levels: Float[Tensor, " quantile"],
) -> Float[Tensor, ""]:
    """Squared error of the mean plus pinball loss of the quantiles, averaged over valid bars; 0 where there are none.

    Pinball loss of quantile q at level p: max(p·(target - q), (p - 1)·(target - q)), averaged over the levels
    (Koenker & Bassett 1978).
    """
    squared = (targets - forecast.mean).square()
    above = targets[..., None] - forecast.quantiles
    pinball = torch.maximum(levels * above, (levels - 1) * above).mean(-1)
    losses = (squared + pinball).mean(-1)
    return torch.where(valid, losses, 0.0).sum() / valid.sum().clamp_min(1)
