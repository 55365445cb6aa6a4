"""The state-space recurrence of Mamba-2, step by step and in chunks (Dao & Gu 2024, arXiv 2405.21060).

S[t] = exp(dt[t]·A) S[t-1] + dt[t]·x[t] ⊗ B[t]        y[t] = S[t] C[t]

A head reads B and C of its group: heads g·(heads/groups) … (g+1)·(heads/groups) - 1 share group g.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.amp import is_autocast_available

from mamba2.errors import ConfigError
from mamba2.shapes import shaped

_NO_TRACE = -800.0
"""exp of this is zero in float32 and float64; log decays below say the same and would cost the sums their digits."""


class ScanInput(NamedTuple):
    """What every scan takes, beside the state."""

    x: Float[Tensor, "batch time head channel"]
    """Already multiplied by dt."""
    log_decay: Float[Tensor, "batch time head"]
    """dt·A, never positive."""
    B: Float[Tensor, "batch time group state"]
    C: Float[Tensor, "batch time group state"]


@shaped
def prepare_scan_input(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time head channel"],
    dt: Float[Tensor, "batch time head"],
    A_log: Float[Tensor, " head"],
    B: Float[Tensor, "batch time group state"],
    C: Float[Tensor, "batch time group state"],
    dt_bias: Float[Tensor, " head"],
    mask: Bool[Tensor, "batch time"] | None = None,
    *,
    dt_range: tuple[float, float],
) -> ScanInput:
    """Discretises the inputs, for every path.

    dt ← clamp(softplus(dt + dt_bias), dt_range), x ← dt·x, log_decay = -dt·exp(A_log):
    zero-order hold on A, Euler on B (arXiv 2405.21060, section 7). All results are float32 or wider.
    Where `mask` is False dt is 0: such a step leaves the state as it is.

    >>> one, zero = torch.ones(1, 1, 1), torch.zeros(1)
    >>> out = prepare_scan_input(one[..., None], one, zero, one[None], one[None], zero, dt_range=(0.0, 0.5))
    >>> out.x.item(), out.log_decay.item()  # dt = softplus(1) = 1.31, limited to 0.5
    (0.5, -0.5)
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    dt = F.softplus(dt.to(wide) + dt_bias.to(wide)).clamp(*dt_range)
    if mask is not None:
        dt = dt * mask[..., None]
    log_decay = -dt * A_log.to(wide).exp()
    return ScanInput(x.to(wide) * dt[..., None], log_decay, B.to(wide), C.to(wide))


@shaped
def scan_step(
    x: Float[Tensor, "batch 1 head channel"],
    log_decay: Float[Tensor, "batch 1 head"],
    B: Float[Tensor, "batch 1 group state"],
    C: Float[Tensor, "batch 1 group state"],
    state: Float[Tensor, "batch head channel state"],
) -> tuple[Float[Tensor, "batch 1 head channel"], Float[Tensor, "batch head channel state"]]:
    """One time step: S ← exp(log_decay) S + x ⊗ B, y = S C.

    Raises:
        ConfigError: the heads are not a multiple of the groups.
    """
    per_group = _heads_per_group(x.shape[2], B.shape[2])
    B, C = (each[:, 0].repeat_interleave(per_group, dim=1).unsqueeze(2) for each in (B, C))
    state = log_decay[:, 0, :, None, None].exp() * state + x[:, 0, :, :, None] * B
    return (state * C).sum(-1).unsqueeze(1), state


@shaped
def scan_sequential(
    x: Float[Tensor, "batch time head channel"],
    log_decay: Float[Tensor, "batch time head"],
    B: Float[Tensor, "batch time group state"],
    C: Float[Tensor, "batch time group state"],
    state: Float[Tensor, "batch head channel state"],
) -> tuple[Float[Tensor, "batch time head channel"], Float[Tensor, "batch head channel state"]]:
    """The recurrence, time step after time step: the reference that every other form is judged by.

    Raises:
        ConfigError: the heads are not a multiple of the groups.
    """
    ys = [x[:, :0]]
    for t in range(x.shape[1]):
        now = slice(t, t + 1)
        y, state = scan_step(x[:, now], log_decay[:, now], B[:, now], C[:, now], state)
        ys.append(y)
    return torch.cat(ys, dim=1), state


@shaped
def scan_chunked(
    x: Float[Tensor, "batch time head channel"],
    log_decay: Float[Tensor, "batch time head"],
    B: Float[Tensor, "batch time group state"],
    C: Float[Tensor, "batch time group state"],
    state: Float[Tensor, "batch head channel state"],
    *,
    chunk: int,
) -> tuple[Float[Tensor, "batch time head channel"], Float[Tensor, "batch head channel state"]]:
    """The same recurrence in matrix products over chunks of time, for any length and any chunk.

    With L[t,s] = exp(Σ log_decay[s+1…t]), s ≤ t in one chunk, and S the state before it (section 6 of the paper):

        y[t] = Σ_s L[t,s] (C[t]·B[s]) x[s] + exp(Σ log_decay[…t]) S C[t]

    Raises:
        ConfigError: the chunk is not positive, or the heads are not a multiple of the groups.
    """
    if chunk < 1:
        raise ConfigError(f"scan_chunked: chunk must be at least 1; got {chunk}.")
    time, heads, groups = x.shape[1], x.shape[2], B.shape[2]
    by_group = groups, _heads_per_group(heads, groups)
    if torch.compiler.is_compiling():
        # Lengths may be symbols: a comparison would fix their range, and so would a size that can be 1.
        blocks = (time + 2 * chunk - 1) // chunk
    else:
        chunk = max(1, min(chunk, time))
        blocks = (time + chunk - 1) // chunk
    steps = torch.arange(blocks, device=x.device)[:, None] * chunk + torch.arange(chunk, device=x.device)
    steps = steps.clamp(max=time)

    def cut(tensor: Float[Tensor, "batch time ..."]) -> Float[Tensor, "batch block chunk ..."]:
        """Time into whole chunks; the last is filled up with zeros: no decay, no input."""
        filled: Tensor = F.pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, 1])
        return filled[:, steps]

    device = x.device.type
    with torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext():
        x, B, C = cut(x).unflatten(3, by_group), cut(B), cut(C)
        # float64: of two sums over a long chunk only the difference matters, which float32 would round away.
        total = cut(log_decay).unflatten(3, by_group).double().clamp_min(_NO_TRACE).cumsum(2)
        decay = _decay_matrix(total.permute(0, 1, 3, 4, 2)).to(x.dtype)
        to_end = (total[:, :, -1:] - total).exp().to(x.dtype)
        from_start = total.exp().to(x.dtype)

        scores = torch.einsum("bctgn,bcsgn->bcgts", C, B)
        y = torch.einsum("bcgts,bcgrts,bcsgrp->bctgrp", scores, decay, x)
        inputs = torch.einsum("bcsgrp,bcsgr,bcsgn->bcgrpn", x, to_end, B)
        carry = _carry_at_once if torch.compiler.is_compiling() else _carry_in_turn
        before, state = carry(total[:, :, -1], inputs, state.to(x.dtype).unflatten(1, by_group))
        y = y + torch.einsum("bctgn,bctgr,bcgrpn->bctgrp", C, from_start, before)
        t = torch.arange(time, device=y.device)
        return y.flatten(3, 4)[:, t // chunk, t % chunk], state.flatten(1, 2)


def _carry_in_turn(
    total: Float[Tensor, "batch block group member"],
    inputs: Float[Tensor, "batch block group member channel state"],
    state: Float[Tensor, "batch group member channel state"],
) -> tuple[Float[Tensor, "batch block group member channel state"], Float[Tensor, "batch group member channel state"]]:
    """The states before each chunk and after the last, one chunk after the other."""
    decay = total.exp().to(state.dtype)[..., None, None]
    states = [state]
    for index in range(inputs.shape[1]):
        states.append(decay[:, index] * states[-1] + inputs[:, index])
    before = torch.stack(states[:-1], 1) if len(states) > 1 else inputs
    return before, states[-1]


def _carry_at_once(
    total: Float[Tensor, "batch block group member"],
    inputs: Float[Tensor, "batch block group member channel state"],
    state: Float[Tensor, "batch group member channel state"],
) -> tuple[Float[Tensor, "batch block group member channel state"], Float[Tensor, "batch group member channel state"]]:
    """The same without a loop, whose length a compiled graph could not leave open; quadratic in the blocks."""
    sums = F.pad(total.clamp_min(_NO_TRACE).cumsum(1), (0, 0, 0, 0, 1, 0))
    decay = _decay_matrix(sums.permute(0, 2, 3, 1)).to(state.dtype)
    added = torch.cat((state[:, None], inputs), dim=1)
    states = torch.einsum("bgrts,bsgrpn->btgrpn", decay, added)
    return states[:, :-1], states[:, -1].clone()  # a view would keep the state after each chunk


def _decay_matrix(total: Float[Tensor, "*_ time"]) -> Float[Tensor, "*_ time time"]:
    """L[t,s] = exp(total[t] - total[s]) for s ≤ t, else 0."""
    future = torch.ones(total.shape[-1], total.shape[-1], dtype=torch.bool, device=total.device).triu(1)
    # Masked before exp: after it, infinities times zero would reach the gradients.
    return (total[..., :, None] - total[..., None, :]).masked_fill(future, -torch.inf).exp()


def _heads_per_group(heads: int, groups: int) -> int:
    if groups == 0 or heads % groups:
        # torchtyc draws sizes that divide by nothing
        raise ConfigError(  # torchtyc: ignore[trace-error]
            f"scan: heads must be a multiple of groups; x has {heads} heads, B has {groups} groups."
        )
    return heads // groups
