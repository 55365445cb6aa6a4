"""The gate and its norm, from heads and chunks back to time steps, and their derivative."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.ops.fused.norm import rms_scale, tangent_
from mamba2.shapes import shaped


class GateTape(NamedTuple):
    """What `gate_backward` needs."""

    y: Float[Tensor, "batch block head chunk channel"]
    z: Float[Tensor, "batch time d_inner"]
    opened: Float[Tensor, "batch time d_inner"]
    """silu(z)."""
    unit: Float[Tensor, "batch time d_inner"] | None
    """What was normed, over its root mean square; None without a norm."""
    scale: Float[Tensor, "batch time group 1"] | None
    """One over the root mean square."""


@shaped
def gate_forward(
    y: Float[Tensor, "batch block head chunk channel"],
    z: Float[Tensor, "batch time d_inner"],
    *,
    n_groups: int,
    norm: str,
    eps: float,
    keep: bool,
) -> tuple[Float[Tensor, "batch time d_inner"], GateTape | None]:
    """`gated_rms_norm` but for its weight, which goes into the output projection; without a tape to keep it edits z."""
    opened = F.silu(z, inplace=not keep)
    gated = torch.empty_like(z) if keep or norm == "before gate" else opened
    if norm == "before gate":
        _by_head(gated, y).copy_(y)
        gated, scale = _normalise(gated, n_groups, eps)
        return gated * opened, GateTape(y, z, opened, gated, scale) if keep else None
    torch.mul(y, _by_head(opened, y), out=_by_head(gated, y))  # torchtyc: ignore[trace-error]
    if norm == "none":
        return gated, GateTape(y, z, opened, None, None) if keep else None
    gated, scale = _normalise(gated, n_groups, eps)
    return gated, GateTape(y, z, opened, gated, scale) if keep else None


@shaped
def gate_backward(  # torchtyc: ignore[unresolved-arg]
    tape: GateTape, dgated: Float[Tensor, "batch time d_inner"], *, norm: str
) -> tuple[Float[Tensor, "batch block head chunk channel"], Float[Tensor, "batch time d_inner"]]:
    """The gradients of y and z."""
    y, z, opened, unit, scale = tape
    dy, dopened = torch.empty_like(y), torch.empty_like(z)
    if norm == "before gate" and unit is not None and scale is not None:
        torch.mul(dgated, unit, out=dopened)
        dy.copy_(_by_head(_normalise_backward(dgated * opened, unit, scale), y))
    else:
        if unit is not None and scale is not None:
            dgated = _normalise_backward(dgated, unit, scale)
        torch.mul(_by_head(dgated, y), y, out=_by_head(dopened, y))
        torch.mul(_by_head(dgated, y), _by_head(opened, y), out=dy)
    torch.ops.aten.silu_backward.grad_input(dopened, z, grad_input=dopened)
    return dy, dopened


def _by_head(
    flat: Float[Tensor, "batch time d_inner"], y: Float[Tensor, "batch block head chunk channel"]
) -> Float[Tensor, "batch block head chunk channel"]:
    """A view of time steps in the order of axes of y."""
    batch, block, head, chunk, channel = y.shape
    return flat.view(batch, block, chunk, head, channel).transpose(2, 3)  # torchtyc: ignore[trace-error]


def _normalise(
    x: Float[Tensor, "batch time d_inner"], groups: int, eps: float
) -> tuple[Float[Tensor, "batch time d_inner"], Float[Tensor, "batch time group 1"]]:
    """x, a temporary of the caller, over its root mean square in each group; and what it was multiplied by."""
    by_group = x.unflatten(2, (groups, -1))  # torchtyc: ignore[trace-error]
    scale = rms_scale(by_group, eps)
    by_group.mul_(scale)
    return x, scale


def _normalise_backward(
    dunit: Float[Tensor, "batch time d_inner"],
    unit: Float[Tensor, "batch time d_inner"],
    scale: Float[Tensor, "batch time group 1"],
) -> Float[Tensor, "batch time d_inner"]:
    groups = (scale.shape[2], -1)
    dunit, unit = dunit.unflatten(2, groups), unit.unflatten(2, groups)  # torchtyc: ignore[trace-error]
    dx: Tensor = tangent_(dunit, unit).mul_(scale).flatten(2)
    return dx
