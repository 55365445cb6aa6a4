"""A whole block as one function, run tile by tile; its derivative runs the tiles in reverse."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from mamba2.ops.fused.gate import GateTape
from mamba2.ops.fused.plan import Plan, make_plan, tiles
from mamba2.ops.fused.scan import ScanTape
from mamba2.ops.fused.tile import (
    Options,
    State,
    TileState,
    TileTape,
    Weights,
    tile_backward,
    tile_forward,
)
from mamba2.shapes import shaped

_INWARD = ("W_z", "W_conv", "W_dt")
"""The projections behind the norm of a layer."""

Composed = Callable[[Tensor, State, Weights], tuple[Tensor, State]]
"""The same function of input, state and weights in operations that torch can differentiate twice."""


# glibc gives back to the system what lies free beyond twice the largest block that it has freed so far. A tile frees
# more, so each would have its pages mapped and cleared anew, a third of the time of a forward. A block of the largest
# size that counts (32 MiB), freed once and never touched, stops that; with other allocators it does nothing.
torch.empty(2**25 - 2**16, dtype=torch.uint8)


@shaped
def fused_mixer(  # torchtyc: ignore[unresolved-arg]
    u: Float[Tensor, "batch time d_model"],
    state: State,
    weights: Weights,
    options: Options,
    composed: Callable[..., Any],
    plan: Plan | None = None,
) -> tuple[Float[Tensor, "batch time d_model"], State]:
    """The block of arXiv 2405.21060, figure 6, with a derivative of its own; without grad mode nothing is kept.

    A second derivative is taken of `composed`, the same function of (u, state, weights) in torch's operations.
    The plan is made from the sizes where none is given; it changes the speed, not the result.
    """
    plan = plan or make_plan(u.shape[1], state.ssm.shape[3])
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (u, *state, *weights)):
        y, conv, ssm = _Mixer.apply(composed, options, plan, u, *state, *weights)
        return y, State(conv, ssm)
    y, after, _ = _run(u, state, weights, options, plan, keep=False)
    return y, after


class _Mixer(torch.autograd.Function):
    """`fused_mixer` as a node of the graph."""

    @staticmethod
    def forward(  # torchtyc: ignore[unresolved-arg]
        ctx: Any,
        composed: Composed,
        options: Options,
        plan: Plan,
        u: Float[Tensor, "batch time d_model"],
        conv: Float[Tensor, "batch width-1 conv"],
        ssm: Float[Tensor, "batch head channel state"],
        *weights: Any,
    ) -> tuple[Float[Tensor, "..."], ...]:
        ctx.composed, ctx.options, ctx.plan = composed, options, plan
        ctx.set_materialize_grads(False)
        y, after, tapes = _run(u, State(conv, ssm), Weights(*weights), options, plan, keep=True)
        ctx.save_for_backward(u, conv, ssm, *weights, *(each for tape in tapes for each in _flat(tape)))
        return y, *after

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, "..."] | None) -> tuple[Any, ...]:
        count = 3 + len(Weights._fields)
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, None, *_differentiable(ctx.composed, saved[:count], gradients, ctx.needs_input_grad[3:])
        tapes = [_unflat(saved[at : at + _TENSORS]) for at in range(count, len(saved), _TENSORS)]
        return (
            None,
            None,
            None,
            *_run_back(saved[:3], Weights(*saved[3:count]), ctx.options, ctx.plan, tapes, gradients),
        )


def _differentiable(
    composed: Composed, inputs: tuple[Any, ...], gradients: tuple[Any, ...], wanted: tuple[bool, ...]
) -> list[Float[Tensor, "..."] | None]:
    """The gradients of `inputs` as functions that can be differentiated again."""
    # Views, so that what one input owes to another is not counted here.
    own: list[Any] = [None if each is None else each.view_as(each) for each in inputs]
    y, after = composed(own[0], State(*own[1:3]), Weights(*own[3:]))
    results = (y, *after)
    pairs = [pair for pair in zip(results, gradients, strict=True) if pair[1] is not None and pair[0].requires_grad]
    leaves = [each for each, is_wanted in zip(own, wanted, strict=True) if is_wanted]
    outputs, weights = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = iter(torch.autograd.grad(outputs, leaves, weights, create_graph=True, allow_unused=True))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def _run(  # torchtyc: ignore[unresolved-arg]
    u: Float[Tensor, "batch time d_model"], start: State, weights: Weights, options: Options, plan: Plan, *, keep: bool
) -> tuple[Float[Tensor, "batch time d_model"], State, list[TileTape]]:
    """All tiles; and their tapes, where they are kept."""
    batch, time, _ = u.shape
    conv, ssm = (None if _is_fresh(each) else each for each in start)
    y, conv_after, ssm_after = u.new_empty(u.shape), torch.empty_like(start.conv), torch.empty_like(start.ssm)
    weights, tapes = _fold_norms(weights), []
    for rows, spans in tiles(plan, batch, time):
        state = TileState(None if conv is None else conv[rows], None if ssm is None else ssm[rows])
        for span in spans:
            now = slice(span.start, span.stop)
            y[rows, now], state, tape = tile_forward(u[rows, now], state, weights, options, chunk=span.chunk, keep=keep)
            if tape is not None:
                tapes.append(tape)
        if state.conv is not None and state.ssm is not None:
            conv_after[rows] = state.conv
            ssm_after[rows] = state.ssm
    return y, State(conv_after, ssm_after), tapes


def _is_fresh(state: Float[Tensor, "..."]) -> bool:
    """Whether there is nothing to decay or to read out; what wants a gradient gets it from both."""
    # Fake tensors do not say what they hold.
    if state.requires_grad or isinstance(state, FakeTensor):
        return False
    # Four times as fast as `any`, which is made for truth values.
    return not state.numel() or all(each == 0.0 for each in torch.aminmax(state))  # torchtyc: ignore[trace-error]


def _run_back(  # torchtyc: ignore[unresolved-arg]
    inputs: tuple[Float[Tensor, "..."], ...],
    weights: Weights,
    options: Options,
    plan: Plan,
    tapes: list[TileTape],
    gradients: tuple[Float[Tensor, "..."] | None, ...],
) -> tuple[Float[Tensor, "..."] | None, ...]:
    """The gradients of u, conv, ssm and the weights."""
    u, conv, ssm = inputs
    dy, dconv_after, dssm_after = gradients
    dy = torch.zeros_like(u) if dy is None else dy
    folded = _fold_norms(weights)
    zeros: list[Any] = [None if each is None else torch.zeros_like(each) for each in folded]
    total = Weights(*zeros)
    du, dconv, dssm = u.new_empty(u.shape), None, None
    for rows, spans in reversed(list(tiles(plan, u.shape[0], u.shape[1]))):
        after = TileState(*(None if each is None else each[rows] for each in (dconv_after, dssm_after)))
        for span in reversed(spans):
            now = slice(span.start, span.stop)
            du[rows, now], after = tile_backward(tapes.pop(), dy[rows, now], after, folded, options, total)
        dconv = _with_rows(dconv, conv, rows, after.conv)
        dssm = _with_rows(dssm, ssm, rows, after.ssm)
    return du, dconv, dssm, *_unfold_norms(total, weights)


def _with_rows(  # torchtyc: ignore[unresolved-arg]
    whole: Float[Tensor, "..."] | None, like: Float[Tensor, "..."], rows: slice, part: Float[Tensor, "..."] | None
) -> Float[Tensor, "..."] | None:
    """`whole` with some rows written, which every tile has or none."""
    if part is None:
        return None
    whole = torch.empty_like(like) if whole is None else whole
    whole[rows] = part
    return whole


def _flat(tape: TileTape) -> tuple[Float[Tensor, "..."] | None, ...]:
    return *tape[:-2], *tape.scan, *tape.gate


def _unflat(flat: tuple[Any, ...]) -> TileTape:
    own, scan = len(TileTape._fields) - 2, len(ScanTape._fields)
    records: list[Any] = [ScanTape(*flat[own : own + scan]), GateTape(*flat[own + scan :])]
    return TileTape(*flat[:own], *records)


_TENSORS = len(TileTape._fields) - 2 + len(ScanTape._fields) + len(GateTape._fields)


def _fold_norms(weights: Weights) -> Weights:
    """The norms' weights moved into the projections that follow: W·(norm ∘ v) = (W·diag(norm))·v."""
    if weights.norm is not None:
        weights = weights._replace(W_out=weights.W_out * weights.norm)
    if weights.residual_norm is None:
        return weights
    inward = {name: getattr(weights, name) * weights.residual_norm for name in _INWARD}
    return weights._replace(**inward)


def _unfold_norms(total: Weights, weights: Weights) -> Weights:
    """The gradients of `weights` from those of `_fold_norms(weights)`."""
    if weights.norm is not None:
        dnorm = (total.W_out * weights.W_out).sum(0)
        total = total._replace(W_out=total.W_out * weights.norm, norm=dnorm)
    if weights.residual_norm is None:
        return total
    inward = {name: getattr(total, name) * weights.residual_norm for name in _INWARD}
    parts = [(getattr(total, name) * getattr(weights, name)).sum(0) for name in _INWARD]
    return total._replace(**inward, residual_norm=parts[0] + parts[1] + parts[2])
