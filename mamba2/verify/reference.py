"""The textbook: Mamba-2 one time step at a time, written from the paper alone (Dao & Gu 2024, arXiv 2405.21060).

It shares nothing with `mamba2.ops`, runs in whatever dtype it is given, and is meant to be read, not to be fast. States
are dictionaries: `conv` holds the last d_conv - 1 inputs of the convolution (batch, width-1, conv), `ssm` the state of
the recurrence (batch, head, channel, state). Weights go by these names:

    in_proj (d_in_proj, d_model)   rows: gate, x, B, C, dt           in_proj_bias, out_proj_bias   if there are any
    conv_weight (conv, width)      conv_bias (conv) if there is one
    A_log, dt_bias (head)          D (head) or (d_inner) if there is a skip
    norm_weight (d_inner)          if there is a norm                 out_proj (d_model, d_inner)

A model has those of its blocks as `0.in_proj`, …, with `0.norm` in front of each block and `norm` after the last, and
may have `embed`, `embed_bias`, `head` and `head_bias`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mamba2.verify.case import Config

Weights = Mapping[str, Tensor]
State = dict[str, Tensor]


def scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """S[t] = exp(dt[t]·A) S[t-1] + dt[t]·x[t] ⊗ B[t], y[t] = S[t] C[t]; head h reads group ⌊h·groups/heads⌋."""
    heads, groups = x.shape[2], B.shape[2]
    group_of = [head * groups // heads for head in range(heads)]
    outputs = [x[:, :0]]
    for t in range(x.shape[1]):
        step = dt[:, t]
        decay = torch.exp(step * A)
        state = decay[:, :, None, None] * state + (step[:, :, None] * x[:, t])[..., None] * B[:, t, group_of, None, :]
        outputs.append((state * C[:, t, group_of, None, :]).sum(-1)[:, None])
    return torch.cat(outputs, dim=1), state


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, past: Tensor) -> tuple[Tensor, Tensor]:
    """y[t] = bias + Σ_k weight[k]·x[t - width + 1 + k], channel by channel."""
    width, seen = weight.shape[1], torch.cat((past, x), dim=1)
    windows = [(seen[:, t : t + width] * weight.T).sum(1, keepdim=True) for t in range(x.shape[1])]
    y = torch.cat([x[:, :0], *windows], dim=1)
    return y if bias is None else y + bias, seen[:, x.shape[1] :]


def block(config: Config, weights: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    """Section 7 of the paper, figure 6: projection, convolution, silu, recurrence, skip, gated norm, projection."""
    batch, time, heads, width = u.shape[0], u.shape[1], config.n_heads, config.d_inner
    projected = u @ weights["in_proj"].T + weights.get("in_proj_bias", 0.0)
    gate, xBC, dt = projected[..., :width], projected[..., width:-heads], projected[..., -heads:]
    mixed, past = conv(xBC, weights["conv_weight"], weights.get("conv_bias"), state["conv"])
    mixed = mixed * torch.sigmoid(mixed)
    x = mixed[..., :width].reshape(batch, time, heads, config.headdim)
    per_state = config.n_groups * config.d_state
    B, C = (
        mixed[..., start : start + per_state].reshape(batch, time, config.n_groups, config.d_state)
        for start in (width, width + per_state)
    )
    dt = torch.logaddexp(dt + weights["dt_bias"], torch.zeros_like(dt))
    dt = dt.clip(min=config.dt_range[0]).clip(max=config.dt_range[1])
    y, ssm = scan(x, dt, -torch.exp(weights["A_log"]), B, C, state["ssm"])
    if "D" in weights:
        y = y + weights["D"].reshape(heads, weights["D"].numel() // heads) * x
    y = gated_norm(config, y.reshape(batch, time, width), gate, weights.get("norm_weight"))
    return y @ weights["out_proj"].T + weights.get("out_proj_bias", 0.0), {"conv": past, "ssm": ssm}


def gated_norm(config: Config, y: Tensor, gate: Tensor, weight: Tensor | None) -> Tensor:
    """norm(y·silu(gate)), each group by its own mean square; with 'before gate' norm(y)·silu(gate)."""
    opened = gate * torch.sigmoid(gate)
    if weight is None:
        return y * opened
    if config.norm == "before gate":
        return _norm(y, weight, config.n_groups, config.norm_eps) * opened
    return _norm(y * opened, weight, config.n_groups, config.norm_eps)


def model(config: Config, weights: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    """x ← x + block(norm(x)) for each block, then a last norm, between an embedding and a head if there are any."""
    x = u @ weights["embed"].T + weights.get("embed_bias", 0.0) if "embed" in weights else u
    after: State = {}
    for layer in range(config.layers):
        own, before = part(weights, f"{layer}."), part(state, f"{layer}.")
        y, last = block(config, own, _norm(x, own["norm"], 1, config.norm_eps), before)
        x = x + y
        after |= {f"{layer}.{name}": each for name, each in last.items()}
    x = _norm(x, weights["norm"], 1, config.norm_eps)
    return (x @ weights["head"].T + weights.get("head_bias", 0.0) if "head" in weights else x), after


def part(tensors: Mapping[str, Tensor], prefix: str) -> State:
    """Those of one layer, by their names within it."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


def state_shapes(level: str, config: Config, batch: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a state at a level: `scan` has `ssm`, `conv` has `conv`, a block has both, a model has its blocks'."""
    shapes = {
        "conv": (batch, config.d_conv - 1, config.d_xBC),
        "ssm": (batch, config.n_heads, config.headdim, config.d_state),
    }
    match level:
        case "scan":
            return {"ssm": shapes["ssm"]}
        case "conv":
            return {"conv": shapes["conv"]}
        case "block":
            return shapes
        case _:
            return {f"{layer}.{name}": each for layer in range(config.layers) for name, each in shapes.items()}


def _norm(y: Tensor, weight: Tensor, groups: int, eps: float) -> Tensor:
    width = y.shape[-1] // groups
    parts = [y[..., g * width : (g + 1) * width] for g in range(groups)]
    parts = [each / torch.sqrt((each**2).mean(-1, keepdim=True) + eps) for each in parts]
    return torch.cat(parts, dim=-1) * weight
