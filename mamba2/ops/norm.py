"""Root-mean-square norms; the mean square is taken in float32 or wider."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.errors import ConfigError
from mamba2.shapes import shaped


@shaped
def rms_norm(
    x: Float[Tensor, "batch time d_model"], weight: Float[Tensor, " d_model"], *, eps: float
) -> Float[Tensor, "batch time d_model"]:
    """weight · x / sqrt(mean(x²) + eps), over the last axis (Zhang & Sennrich 2019, arXiv 1910.07467).

    >>> rms_norm(torch.tensor([[[3.0, 4.0]]]), torch.tensor([1.0, 2.0]), eps=12.5).flatten().tolist()
    [0.6000000238418579, 1.600000023841858]
    """
    return (_unit(x, eps) * weight).to(x.dtype)


@shaped
def gated_rms_norm(
    y: Float[Tensor, "batch time d_inner"],
    gate: Float[Tensor, "batch time d_inner"],
    weight: Float[Tensor, " d_inner"],
    *,
    n_groups: int = 1,
    eps: float,
    before_gate: bool = False,
) -> Float[Tensor, "batch time d_inner"]:
    """norm(y · silu(gate)) per group of the last axis; with `before_gate` norm(y) · silu(gate) (arXiv 2405.21060, 7.1).

    Raises:
        ConfigError: d_inner is not a multiple of n_groups.
    """
    d_inner = y.shape[-1]
    if n_groups < 1 or d_inner % n_groups:
        raise ConfigError(f"gated_rms_norm: d_inner must be a multiple of n_groups; got {d_inner} and {n_groups}.")
    opened = F.silu(gate)
    z = y if before_gate else y * opened
    normed = _unit(z.reshape(*z.shape[:-1], n_groups, d_inner // n_groups), eps).flatten(-2) * weight
    return (normed * opened if before_gate else normed).to(y.dtype)


def _unit(x: Float[Tensor, "batch time ..."], eps: float) -> Float[Tensor, "batch time ..."]:
    """x over its root mean square."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
