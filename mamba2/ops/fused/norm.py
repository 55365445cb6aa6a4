"""The root-mean-square norm without its weight, and its derivative."""

import torch
from jaxtyping import Float
from torch import Tensor

from mamba2.shapes import shaped


@shaped
def rms_scale(x: Float[Tensor, "batch time group width"], eps: float) -> Float[Tensor, "batch time group 1"]:
    """1 / sqrt(mean(x²) + eps), over the last axis."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale: Tensor = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return scale


@shaped
def tangent_(
    dunit: Float[Tensor, "batch time group width"], unit: Float[Tensor, "batch time group width"]
) -> Float[Tensor, "batch time group width"]:
    """dunit ← dunit - unit·mean(dunit·unit): times the scale it is the gradient of v, where unit = scale·v."""
    along = (dunit * unit).mean(-1, keepdim=True)
    return dunit.addcmul_(unit, along, value=-1)
