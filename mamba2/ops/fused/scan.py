"""The chunked scan with the time step inside the decay, and its derivative.

With total[t] = Σ dt·A up to t in a chunk, L[t,s] = exp(total[t] - total[s])·dt[s] for s ≤ t, and S the state before it:

    M = L ∘ (C Bᵀ) + diag(D)        y[t] = Σ_s M[t,s] x[s] + exp(total[t]) S C[t]

The step dt goes in as log dt in the exponent and D on the diagonal, so neither costs a pass over x. Sums of decays are
float64: of two sums over a chunk only the difference matters, which float32 would round away.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mamba2.shapes import shaped

_EXPONENTS = {torch.float32: (-60.0, 88.0), torch.float64: (-700.0, 700.0)}
"""Within these exp is a normal number, and in float32 its products are too; what is not is 10 to 100 times slower on a
CPU, and nothing that would count."""

_NO_TRACE = -800.0
"""As in `mamba2.ops.scan`: exp of this is zero, and log decays below say the same."""

_LEAST_STEP = {torch.float32: 1e-38, torch.float64: 1e-300}
"""A smaller dt is taken for this one, so that its logarithm is finite."""


class ScanTape(NamedTuple):
    """What `scan_backward` needs."""

    x: Float[Tensor, "batch block head chunk channel"]
    B: Float[Tensor, "batch block group chunk state"]
    C: Float[Tensor, "batch block group chunk state"]
    dt: Float[Tensor, "batch block head chunk"]
    A: Float[Tensor, " head"]
    total: Float[Tensor, "batch block head chunk"]
    """Float64."""
    L: Float[Tensor, "batch block head chunk chunk"]
    M: Float[Tensor, "batch block head chunk chunk"]
    scores: Float[Tensor, "batch block group chunk chunk"]
    before: Float[Tensor, "batch block head channel state"] | None
    """The state before each chunk; None where all of them are zero."""


class ScanGradients(NamedTuple):
    """What `scan_backward` gives."""

    x: Float[Tensor, "batch block head chunk channel"]
    B: Float[Tensor, "batch block group chunk state"]
    C: Float[Tensor, "batch block group chunk state"]
    dt: Float[Tensor, "batch block head chunk"]
    A: Float[Tensor, " head"]
    D: Float[Tensor, " head"]
    state: Float[Tensor, "batch head channel state"] | None
    """None where the chunk began with zeros that have no gradient."""


@shaped
def scan_forward(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch block head chunk channel"],
    dt: Float[Tensor, "batch block head chunk"],
    A: Float[Tensor, " head"],
    B: Float[Tensor, "batch block group chunk state"],
    C: Float[Tensor, "batch block group chunk state"],
    D: Float[Tensor, " head"] | None,
    state: Float[Tensor, "batch head channel state"] | None,
    *,
    keep: bool,
) -> tuple[Float[Tensor, "batch block head chunk channel"], Float[Tensor, "batch head channel state"], ScanTape | None]:
    """All chunks at once but for the state, which goes from one to the next; no state is one of zeros."""
    groups = B.shape[2]
    steps = dt.double()
    total = (steps * A.double()[:, None]).clamp_min(_NO_TRACE).cumsum(-1)
    source = total - steps.clamp_min(_LEAST_STEP[x.dtype]).log()
    low, high = _EXPONENTS[x.dtype]
    L = x.new_empty(*total.shape, total.shape[-1])
    torch.sub(total[..., :, None], source[..., None, :], out=L)
    # Clamped before exp, cut after: what lies above the diagonal would overflow.
    L.clamp_(low, high).exp_().tril_()
    scores = C @ B.mT
    M = torch.empty_like(L) if keep else L
    torch.mul(L.unflatten(2, (groups, -1)), scores.unsqueeze(3), out=M.unflatten(2, (groups, -1)))
    if D is not None:
        M.diagonal(dim1=-2, dim2=-1).add_(D[:, None])
    y = M @ x

    added = x.mT @ _per_head(B, _exp(total[..., -1:] - total, x.dtype) * dt)
    before, after = _carry(_exp(total[..., -1], x.dtype), added, state)
    if before is not None:
        y.flatten(0, 2).baddbmm_(_per_head(C, _exp(total, x.dtype)).flatten(0, 2), before.mT.flatten(0, 2))
    return y, after, ScanTape(x, B, C, dt, A, total, L, M, scores, before) if keep else None


@shaped
def scan_backward(  # torchtyc: ignore[unresolved-arg]
    tape: ScanTape,
    dy: Float[Tensor, "batch block head chunk channel"],
    dstate: Float[Tensor, "batch head channel state"] | None,
) -> ScanGradients:
    """The gradients of everything that went into `scan_forward`; no `dstate` is one of zeros.

    With E = dM ∘ L ∘ (C Bᵀ), the gradient of the exponent total[t] - total[s] + log dt[s]:

        dtotal[t] = Σ_s E[t,s] - Σ_s E[s,t]        dlog dt[s] = Σ_t E[t,s]        d(C Bᵀ) = dM ∘ L, summed over a group

    On the diagonal total cancels, exactly; left in the sums it would leave its rounding error.
    """
    x, B, C, dt, A, _, L, M, scores, _ = tape
    groups = B.shape[2]
    dM = dy @ x.mT
    dx = M.mT @ dy
    dD = dM.diagonal(dim1=-2, dim2=-1).sum((0, 1, 3))
    by_group = dM.mul_(L).unflatten(2, (groups, -1))
    dscores = by_group.sum(3)
    E = by_group.mul_(scores.unsqueeze(3)).flatten(2, 3)
    diagonal = E.diagonal(dim1=-2, dim2=-1)
    dlog = diagonal.to(torch.float64, copy=True)
    diagonal.zero_()
    columns = E.sum(-2).double()
    dtotal = E.sum(-1).double() - columns
    dlog += columns
    dB, dC = dscores.mT @ C, dscores @ B

    sums = _Sums(dx, dB, dC, dlog, dtotal)
    dfirst = _states_backward(tape, dy, dstate, sums)

    ddecay = dtotal.flip(-1).cumsum(-1).flip(-1)
    steps = dt.double()
    ddecay.masked_fill_(steps * A.double()[:, None] < _NO_TRACE, 0.0)
    ddt = ddecay * A.double()[:, None] + torch.where(dt > _LEAST_STEP[x.dtype], dlog / steps, 0.0)
    dA = (ddecay * steps).sum((0, 1, 3))
    return ScanGradients(dx, dB, dC, ddt.to(x.dtype), dA.to(x.dtype), dD, dfirst)


class _Sums(NamedTuple):
    """Gradients that what is within the chunks and what is between them add to."""

    x: Float[Tensor, "batch block head chunk channel"]
    B: Float[Tensor, "batch block group chunk state"]
    C: Float[Tensor, "batch block group chunk state"]
    log_dt: Float[Tensor, "batch block head chunk"]
    total: Float[Tensor, "batch block head chunk"]


def _states_backward(  # torchtyc: ignore[unresolved-arg]
    tape: ScanTape,
    dy: Float[Tensor, "batch block head chunk channel"],
    dstate: Float[Tensor, "batch head channel state"] | None,
    sums: _Sums,
) -> Float[Tensor, "batch head channel state"] | None:
    """Adds what goes through the states between chunks; the gradient of the first of them.

    With from_start[t] = exp(total[t]) and to_end[s] = exp(total[-1] - total[s])·dt[s]:

        y[t] += from_start[t]·S C[t]        S after = exp(total[-1])·S + Σ_s to_end[s]·x[s] ⊗ B[s]
    """
    x, B, C, dt, _, total, _, _, _, before = tape
    groups, dbefore = B.shape[2], None
    if before is not None:
        from_start = _exp(total, x.dtype)
        read, dread = _per_head(C, from_start), dy @ before
        sums.total.add_((dread * read).sum(-1))
        sums.C.add_(_over_group(dread, from_start, groups))
        dbefore = dy.mT @ read
    elif dstate is None:
        return None
    whole = _exp(total[..., -1], x.dtype)
    dafter, dfirst = _carry_back(whole, dbefore, dstate, x.shape[1])
    to_end = _exp(total[..., -1:] - total, x.dtype) * dt
    kept, dkept = _per_head(B, to_end), x @ dafter
    sums.x.flatten(0, 2).baddbmm_(kept.flatten(0, 2), dafter.mT.flatten(0, 2))
    sums.B.add_(_over_group(dkept, to_end, groups))
    dexponent = (dkept * kept).sum(-1).double()
    sums.log_dt.add_(dexponent)
    sums.total.sub_(dexponent)
    dlast = sums.total[..., -1]
    dlast += dexponent.sum(-1)
    if before is not None:
        dlast += (dafter * before).sum((-2, -1)).double() * whole
    return dfirst


def _exp(exponent: Float[Tensor, "batch block head *_"], dtype: torch.dtype) -> Float[Tensor, "batch block head *_"]:
    """exp of float64 sums, which rounds to zero where it is none in `dtype`."""
    rounded: Tensor = exponent.clamp_min(_EXPONENTS[torch.float64][0]).exp_().to(dtype)
    return rounded


def _per_head(
    shared: Float[Tensor, "batch block group chunk state"], weight: Float[Tensor, "batch block head chunk"]
) -> Float[Tensor, "batch block head chunk state"]:
    """B or C of each head, weighted: cheaper than to weight x, which has more channels than these have states."""
    by_group = weight.unflatten(2, (shared.shape[2], -1))  # torchtyc: ignore[trace-error]
    each: Tensor = (shared.unsqueeze(3) * by_group.unsqueeze(-1)).flatten(2, 3)
    return each


def _over_group(
    each: Float[Tensor, "batch block head chunk state"], weight: Float[Tensor, "batch block head chunk"], groups: int
) -> Float[Tensor, "batch block group chunk state"]:
    """The gradient of what `_per_head` shared."""
    by_group: Tensor = (each * weight.unsqueeze(-1)).unflatten(2, (groups, -1))  # torchtyc: ignore[trace-error]
    return by_group.sum(3)


def _carry(  # torchtyc: ignore[unresolved-arg]
    whole: Float[Tensor, "batch block head"],
    added: Float[Tensor, "batch block head channel state"],
    state: Float[Tensor, "batch head channel state"] | None,
) -> tuple[Float[Tensor, "batch block head channel state"] | None, Float[Tensor, "batch head channel state"]]:
    """S[i+1] = whole[i]·S[i] + added[i]: the states before each chunk, and the last."""
    blocks, whole = added.shape[1], whole[..., None, None]
    if state is None and blocks == 1:
        return None, added[:, 0]
    before, after = torch.empty_like(added), torch.empty_like(added[:, 0])
    before[:, 0] = 0.0 if state is None else state
    for i in range(blocks):
        torch.addcmul(added[:, i], before[:, i], whole[:, i], out=before[:, i + 1] if i + 1 < blocks else after)
    return before, after


def _carry_back(  # torchtyc: ignore[unresolved-arg]
    whole: Float[Tensor, "batch block head"],
    dbefore: Float[Tensor, "batch block head channel state"] | None,
    dstate: Float[Tensor, "batch head channel state"] | None,
    blocks: int,
) -> tuple[Float[Tensor, "batch block head channel state"], Float[Tensor, "batch head channel state"] | None]:
    """The gradients of the states after each chunk, and of the first: dS[i] = dbefore[i] + whole[i]·dS[i+1]."""
    if dbefore is None:
        if dstate is None:
            raise ValueError("scan_backward: neither the states before nor the last have a gradient.")
        # One chunk that began with nothing: torch has no gradient to give on.
        return dstate.unsqueeze(1), None
    dafter, dfirst, whole = torch.empty_like(dbefore), torch.empty_like(dbefore[:, 0]), whole[..., None, None]
    dafter[:, -1] = 0.0 if dstate is None else dstate
    for i in reversed(range(blocks)):
        torch.addcmul(dbefore[:, i], dafter[:, i], whole[:, i], out=dafter[:, i - 1] if i else dfirst)
    return dafter, dfirst
