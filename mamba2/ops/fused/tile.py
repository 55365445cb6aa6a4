"""One tile of the mixer: some rows, over some whole chunks of time, from input to output projection and back."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.ops.fused.conv import conv_backward, conv_forward
from mamba2.ops.fused.gate import GateTape, gate_backward, gate_forward
from mamba2.ops.fused.norm import rms_scale, tangent_
from mamba2.ops.fused.scan import ScanTape, scan_backward, scan_forward
from mamba2.shapes import shaped


class Weights(NamedTuple):
    """The parameters of a block; the input projection in its three parts, for gate, convolution and time step."""

    residual_norm: Float[Tensor, " d_model"] | None
    """Of the layer around the block, x + block(rms_norm(x)); None for the block by itself."""
    W_z: Float[Tensor, "d_inner d_model"]
    W_conv: Float[Tensor, "conv d_model"]
    W_dt: Float[Tensor, "head d_model"]
    b_z: Float[Tensor, " d_inner"] | None
    b_conv: Float[Tensor, " conv"] | None
    b_dt: Float[Tensor, " head"] | None
    conv: Float[Tensor, "conv width"]
    conv_bias: Float[Tensor, " conv"] | None
    A_log: Float[Tensor, " head"]
    dt_bias: Float[Tensor, " head"]
    D: Float[Tensor, " head"] | Float[Tensor, " d_inner"] | None
    """The skip, one value a head or one a channel."""
    norm: Float[Tensor, " d_inner"] | None
    W_out: Float[Tensor, "d_model d_inner"]
    b_out: Float[Tensor, " d_model"] | None


class Options(NamedTuple):
    """What a block is told beside its tensors; names and values as in `ModelConfig`."""

    n_groups: int
    dt_range: tuple[float, float]
    norm: str
    norm_eps: float


class State(NamedTuple):
    """The last inputs of the convolution, and the state of the recurrence."""

    conv: Float[Tensor, "batch width-1 conv"]
    ssm: Float[Tensor, "batch head channel state"]


class TileState(NamedTuple):
    """What one tile leaves to the next of the same rows, and the gradient that it gets back; None is zeros."""

    conv: Float[Tensor, "batch width-1 conv"] | None
    ssm: Float[Tensor, "batch head channel state"] | None


class TileTape(NamedTuple):
    """What `tile_backward` needs, beside the weights."""

    unit: Float[Tensor, "batch time d_model"]
    """What goes into the input projection: the input, or that over its root mean square."""
    scale: Float[Tensor, "batch time 1"] | None
    """One over the root mean square; None where the block is by itself."""
    past: Float[Tensor, "batch width-1 conv"] | None
    projected: Float[Tensor, "batch time conv"]
    """What goes into the convolution."""
    mixed: Float[Tensor, "batch time conv"]
    """After the convolution, before silu."""
    raw_dt: Float[Tensor, "batch time head"]
    """Before softplus and limits."""
    gated: Float[Tensor, "batch time d_inner"]
    scan: ScanTape
    gate: GateTape


@shaped
def tile_forward(  # torchtyc: ignore[unresolved-arg]
    u: Float[Tensor, "batch time d_model"],
    state: TileState,
    weights: Weights,
    options: Options,
    *,
    chunk: int,
    keep: bool,
) -> tuple[Float[Tensor, "batch time d_model"], TileState, TileTape | None]:
    """Runs the tile; its time is a multiple of the chunk, and the norms' weights have gone into the projections."""
    scale = None if weights.residual_norm is None else rms_scale(u.unsqueeze(2), options.norm_eps).squeeze(2)
    unit = u if scale is None else u * scale
    z = F.linear(unit, weights.W_z, weights.b_z)
    xBC = F.linear(unit, weights.W_conv, weights.b_conv)
    raw_dt = F.linear(unit, weights.W_dt, weights.b_dt).add_(weights.dt_bias)
    mixed = conv_forward(xBC, weights.conv, weights.conv_bias, state.conv)
    x, B, C = (_silu_of(each) for each in _parts(mixed, weights, options, chunk))
    dt = F.softplus(raw_dt).clamp_(*options.dt_range).unflatten(1, (-1, chunk)).transpose(2, 3).contiguous()

    D = weights.D
    is_per_head = D is not None and D.shape == weights.A_log.shape
    A, per_head = -weights.A_log.exp(), D if is_per_head else None
    y, ssm, scan = scan_forward(x, dt, A, B, C, per_head, state.ssm, keep=keep)
    if D is not None and not is_per_head:
        y.addcmul_(x, D.view(x.shape[2], 1, x.shape[4]))
    gated, gate = gate_forward(y, z, n_groups=options.n_groups, norm=options.norm, eps=options.norm_eps, keep=keep)
    out = F.linear(gated, weights.W_out, weights.b_out)
    if scale is not None:
        out.add_(u)
    after = TileState(_last(state.conv, xBC, weights.conv.shape[1]), ssm)
    if scan is None or gate is None:
        return out, after, None
    return out, after, TileTape(unit, scale, state.conv, xBC, mixed, raw_dt, gated, scan, gate)


@shaped
def tile_backward(  # torchtyc: ignore[unresolved-arg]
    tape: TileTape,
    dy: Float[Tensor, "batch time d_model"],
    dstate: TileState,
    weights: Weights,
    options: Options,
    total: Weights,
) -> tuple[Float[Tensor, "batch time d_model"], TileState]:
    """The gradients of the input and of the state before the tile; those of the weights are added to `total`."""
    chunk = tape.scan.x.shape[3]
    _add_linear(total.W_out, total.b_out, dy, tape.gated)
    dgated = dy @ weights.W_out
    dheads, dz = gate_backward(tape.gate, dgated, norm=options.norm)
    of_scan = scan_backward(tape.scan, dheads, dstate.ssm)
    dx = of_scan.x
    if weights.D is not None and total.D is not None:
        if weights.D.shape == of_scan.D.shape:
            total.D.add_(of_scan.D)
        else:
            total.D.add_((dheads * tape.scan.x).sum((0, 1, 3)).flatten())
            dx.addcmul_(dheads, weights.D.view(dx.shape[2], 1, dx.shape[4]))
    # A = -exp(A_log) is its own derivative
    total.A_log.add_(of_scan.A * tape.scan.A)

    ddt = of_scan.dt.transpose(2, 3).reshape(tape.raw_dt.shape)
    dt, (low, high) = F.softplus(tape.raw_dt), options.dt_range
    ddt = torch.ops.aten.softplus_backward(ddt, tape.raw_dt, 1, 20).masked_fill_((dt < low) | (dt > high), 0.0)
    total.dt_bias.add_(ddt.sum((0, 1)))

    batch, time, conv = tape.projected.shape
    reach = weights.conv.shape[1] - 1
    later = tape.projected.new_empty(batch, time + reach, conv)
    later[:, time:] = 0.0
    into = _parts(later[:, :time], weights, options, chunk)
    for each, before, after in zip(
        (dx, of_scan.B, of_scan.C), _parts(tape.mixed, weights, options, chunk), into, strict=True
    ):
        torch.ops.aten.silu_backward.grad_input(each, before, grad_input=after)
    dxBC, dconv, dconv_bias, dpast = conv_backward(tape.projected, weights.conv, tape.past, later)
    total.conv.add_(dconv)
    if total.conv_bias is not None:
        total.conv_bias.add_(dconv_bias)
    if dstate.conv is not None:
        kept = max(0, reach - time)  # of the past that follows, so many steps were in the one before
        if dpast is not None:
            dpast[:, reach - kept :] += dstate.conv[:, :kept]
        dxBC[:, time - (reach - kept) :] += dstate.conv[:, kept:]

    du = (dz @ weights.W_z).flatten(0, 1)
    du.addmm_(dxBC.flatten(0, 1), weights.W_conv).addmm_(ddt.flatten(0, 1), weights.W_dt)
    _add_linear(total.W_z, total.b_z, dz, tape.unit)
    _add_linear(total.W_conv, total.b_conv, dxBC, tape.unit)
    _add_linear(total.W_dt, total.b_dt, ddt, tape.unit)
    du = du.view(dy.shape)
    if tape.scale is not None:
        tangent_(du.unsqueeze(2), tape.unit.unsqueeze(2))
        du = torch.addcmul(dy, du, tape.scale)
    return du, TileState(dpast, of_scan.state)


def _last(  # torchtyc: ignore[unresolved-arg]
    past: Float[Tensor, "batch width-1 conv"] | None, xBC: Float[Tensor, "batch time conv"], width: int
) -> Float[Tensor, "batch width-1 conv"]:
    """The last inputs of the convolution, after those of the tile."""
    batch, time, conv = xBC.shape
    reach = width - 1
    if time >= reach:
        return xBC[:, time - reach :]
    past = xBC.new_zeros(batch, reach, conv) if past is None else past
    return torch.cat((past[:, time:], xBC), 1)


def _add_linear(  # torchtyc: ignore[unresolved-arg]
    dweight: Float[Tensor, "_ _"],
    dbias: Float[Tensor, " _"] | None,
    dy: Float[Tensor, "batch time _"],
    x: Float[Tensor, "batch time _"],
) -> None:
    """Adds the gradients of W and b in y = x·Wᵀ + b."""
    dy = dy.flatten(0, 1)
    dweight.addmm_(dy.mT, x.flatten(0, 1))
    if dbias is not None:
        dbias.add_(dy.sum(0))


def _parts(  # torchtyc: ignore[unresolved-arg]
    flat: Float[Tensor, "batch time conv"], weights: Weights, options: Options, chunk: int
) -> tuple[
    Float[Tensor, "batch block head chunk channel"],
    Float[Tensor, "batch block group chunk state"],
    Float[Tensor, "batch block group chunk state"],
]:
    """Views of x, B and C, cut into heads or groups and into chunks."""
    d_inner, conv = len(weights.W_z), len(weights.W_conv)
    x, B, C = flat.unflatten(1, (-1, chunk)).split((d_inner, (conv - d_inner) // 2, (conv - d_inner) // 2), dim=-1)
    x = x.unflatten(-1, (len(weights.A_log), -1)).transpose(2, 3)
    B, C = (each.unflatten(-1, (options.n_groups, -1)).transpose(2, 3) for each in (B, C))
    return x, B, C


def _silu_of(view: Float[Tensor, "*_"]) -> Float[Tensor, "*_"]:
    """silu, written in the order of axes of the view and not in that of its memory."""
    opened: Tensor = torch.ops.aten.silu.out(view, out=view.new_empty(view.shape))
    return opened
