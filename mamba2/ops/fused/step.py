"""One time step between the two projections in as few operations as it takes: at batch 1 each costs more than its work.

Torch differentiates it as it stands; what is edited in place was made here.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.ops.fused.tile import Options, State
from mamba2.shapes import shaped


@shaped
def fused_step(  # torchtyc: ignore[unresolved-arg]
    z: Float[Tensor, "batch 1 d_inner"],
    xBC: Float[Tensor, "batch 1 conv"],
    dt: Float[Tensor, "batch 1 head"],
    state: State,
    conv: Float[Tensor, "conv width"],
    conv_bias: Float[Tensor, " conv"] | None,
    A_log: Float[Tensor, " head"],
    dt_bias: Float[Tensor, " head"],
    D: Float[Tensor, " head"] | Float[Tensor, " d_inner"] | None,
    norm: Float[Tensor, " d_inner"] | None,
    options: Options,
) -> tuple[Float[Tensor, "batch 1 d_inner"], State]:
    """Convolution, recurrence, skip and gated norm: S ← exp(dt·A) S + dt·x ⊗ B, y = norm((S C + D x)·silu(z))."""
    batch, heads, channels, states = state.ssm.shape
    groups, rows = options.n_groups, heads // options.n_groups * channels
    window = torch.cat((state.conv, xBC), dim=1)
    mixed = (window * conv.T.contiguous()).sum(1)
    mixed = F.silu(mixed if conv_bias is None else mixed.add_(conv_bias))
    x, B, C = mixed.split_with_sizes((heads * channels, groups * states, groups * states), dim=-1)
    x = x.view(batch, heads, channels)
    dt = F.softplus(dt + dt_bias)
    if options.dt_range != (0.0, math.inf):  # softplus's own limits
        dt = dt.clamp(*options.dt_range)

    decay = (dt * A_log.exp()).neg_().exp_()
    ssm = state.ssm.contiguous() * decay.view(batch, heads, 1, 1)  # to be seen by groups
    by_group = ssm.view(batch * groups, rows, states)
    driven = x * dt.view(batch, heads, 1)
    by_group.addcmul_(driven.view(batch * groups, rows, 1), B.reshape(batch * groups, 1, states))
    # C as a row: torch takes four times as long for a product with one column.
    y = torch.bmm(C.reshape(batch * groups, 1, states), by_group.mT).view(batch, heads, channels)
    if D is not None:
        y = torch.addcmul(y, x, D.view(heads, -1))
    return _gate(y.view(z.shape), z, norm, options), State(window.narrow(1, 1, state.conv.shape[1]), ssm)


def _gate(  # torchtyc: ignore[unresolved-arg]
    y: Float[Tensor, "batch 1 d_inner"],
    z: Float[Tensor, "batch 1 d_inner"],
    weight: Float[Tensor, " d_inner"] | None,
    options: Options,
) -> Float[Tensor, "batch 1 d_inner"]:
    opened = F.silu(z)
    if options.norm != "before gate":
        y = y * opened
    if weight is not None:
        by_group = y.view(len(y), options.n_groups, y.shape[2] // options.n_groups)
        mean_square = by_group.square().mean(-1, keepdim=True)
        y = (by_group * mean_square.add_(options.norm_eps).rsqrt_()).view(y.shape) * weight
    return y * opened if options.norm == "before gate" else y
