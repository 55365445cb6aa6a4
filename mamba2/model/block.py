"""One Mamba-2 block: projections, convolution, scan and gated norm around one state."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.choice import Sizes, own_sizes, why_apart, why_composed, why_composed_step
from mamba2.ops.conv import causal_conv1d, causal_conv1d_step
from mamba2.ops.fused.mixer import fused_mixer
from mamba2.ops.fused.step import fused_step
from mamba2.ops.fused.tile import Options, State, Weights
from mamba2.ops.norm import gated_rms_norm, rms_norm
from mamba2.ops.padding import align, restore
from mamba2.ops.scan import prepare_scan_input, scan_chunked, scan_step
from mamba2.shapes import shaped, unchecked

# `why_composed_step` compares the sizes of the input, of the state and of the parameters with the block's own.
_fast_step = unchecked(fused_step)


class BlockState(NamedTuple):
    """All that a block remembers of the past; a value that goes in and comes out, never edited in place."""

    conv: Float[Tensor, "batch width-1 conv"]
    """The last inputs of the convolution."""
    ssm: Float[Tensor, "batch head channel state"]
    """The state of the recurrence, float32 or wider."""


class Mamba2Block(nn.Module):
    """The Mamba-2 block of arXiv 2405.21060, figure 6: training, prefill and single steps are one function.

    u → (gate, xBC, dt) → causal convolution and silu on xBC → scan, plus D·x → gated norm → output projection
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.in_proj = nn.Linear(config.d_model, sum(config.projection), bias=config.bias)
        self.conv_weight = nn.Parameter(_uniform((config.d_xBC, config.d_conv), config.d_conv**-0.5))
        self.conv_bias = nn.Parameter(_uniform((config.d_xBC,), config.d_conv**-0.5)) if config.conv_bias else None
        self.A_log = nn.Parameter(torch.empty(config.n_heads).uniform_(*config.A_init).log())
        self.dt_bias = nn.Parameter(_initial_dt_bias(config))
        width_of_D = {"head": config.n_heads, "channel": config.d_inner, "none": 0}[config.D]
        self.D = nn.Parameter(torch.ones(width_of_D)) if width_of_D else None
        self.norm_weight = nn.Parameter(torch.ones(config.d_inner)) if config.norm != "none" else None
        self.out_proj = nn.Linear(config.d_inner, config.d_model, bias=config.bias)
        self._own_sizes = own_sizes(self)

    def initial_state(self, batch: int) -> BlockState:
        """The state before the first time step: zeros, beside the parameters and in their dtype, at least float32."""
        config, like = self.config, self.A_log
        wide = torch.promote_types(like.dtype, torch.float32)
        return BlockState(
            torch.zeros(batch, config.d_conv - 1, config.d_xBC, dtype=like.dtype, device=like.device),
            torch.zeros(batch, config.n_heads, config.headdim, config.d_state, dtype=wide, device=like.device),
        )

    @shaped
    def forward(
        self, u: Float[Tensor, "batch time d_model"], state: BlockState, mask: Bool[Tensor, "batch time"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], BlockState]:
        """Any number of time steps at once, going on from `state`.

        Where `mask` is False a step is a pad, wherever it stands and whatever it holds: outputs and state are those of
        the run without it, and its own output is 0.

        Raises:
            ShapeError: the input or the state does not have this block's sizes.
        """
        if why_composed(u, state, mask, self._sizes(u.shape[0]), self) is None:
            y, after = fused_mixer(u, State(*state), self._weights(None), self._options(), self._composed)
            return y, BlockState(*after)
        scan = partial(scan_chunked, chunk=self.config.chunk)
        if mask is None:
            return self._run(u, state, causal_conv1d, scan)
        aligned, order = align(u, mask)
        conv = partial(causal_conv1d, lengths=mask.sum(1))
        y, state = self._run(aligned, state, conv, scan, mask.gather(1, order))
        return restore(y, order, mask), state

    @shaped
    def residual(
        self,
        x: Float[Tensor, "batch time d_model"],
        norm_weight: Float[Tensor, " d_model"],
        state: BlockState,
        mask: Bool[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], BlockState]:
        """x + block(rms_norm(x)), a layer of the backbone, as one function where the block runs in its fast form.

        Raises:
            ShapeError: the input or the state does not have this block's sizes.
        """
        sizes = *self._sizes(x.shape[0]), (self.config.d_model,)
        if (
            why_apart(self, Mamba2Block.forward) is None
            and why_composed(x, (*state, norm_weight), mask, sizes, self) is None
        ):
            y, after = fused_mixer(x, State(*state), self._weights(norm_weight), self._options(), self._composed)
            return y, BlockState(*after)
        y, after = self(rms_norm(x, norm_weight, eps=self.config.norm_eps), state, mask)
        return x + y, after

    @shaped
    def step(
        self, u: Float[Tensor, "batch 1 d_model"], state: BlockState
    ) -> tuple[Float[Tensor, "batch 1 d_model"], BlockState]:
        """One time step.

        Raises:
            ShapeError: the input or the state does not have this block's sizes.
        """
        if why_composed_step(u, state, (*self._sizes(u.shape[0]), *self._own_sizes), self) is not None:
            return self._run(u, state, causal_conv1d_step, scan_step)
        z, xBC, dt = self.in_proj(u).split_with_sizes(self.config.projection, dim=-1)
        y, after = _fast_step(
            z,
            xBC,
            dt,
            State(*state),
            self.conv_weight,
            self.conv_bias,
            self.A_log,
            self.dt_bias,
            self.D,
            self.norm_weight,
            self._options(),
        )
        return self.out_proj(y), BlockState(*after)

    def _run(
        self,
        u: Float[Tensor, "batch time d_model"],
        state: BlockState,
        conv: Callable[..., tuple[Tensor, Tensor]],
        scan: Callable[..., tuple[Tensor, Tensor]],
        mask: Bool[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], BlockState]:
        if u.shape[-1] != self.config.d_model:
            raise ShapeError(
                f"Mamba2Block: axis 'd_model' is {u.shape[-1]} in u {tuple(u.shape)} "
                f"but {self.config.d_model} in the model."
            )
        gate, xBC, dt = self.in_proj(u).split(self.config.projection, dim=-1)
        xBC, past = conv(xBC, self.conv_weight, self.conv_bias, state.conv)
        x, B, C = self._split(F.silu(xBC))
        inputs = prepare_scan_input(x, dt, self.A_log, B, C, self.dt_bias, mask, dt_range=self.config.dt_range)
        y, ssm = scan(*inputs, state.ssm)
        y = self._normed((y + self._skip(x)).flatten(2), gate)
        return self.out_proj(y.to(u.dtype)), BlockState(past, ssm)

    def _weights(self, residual_norm: Float[Tensor, " d_model"] | None) -> Weights:
        """The parameters as the fast form takes them."""
        W_z, W_conv, W_dt = self.in_proj.weight.split(self.config.projection)
        biases = (None,) * 3 if self.in_proj.bias is None else self.in_proj.bias.split(self.config.projection)
        b_z, b_conv, b_dt = biases
        return Weights(
            residual_norm=residual_norm,
            W_z=W_z,
            W_conv=W_conv,
            W_dt=W_dt,
            b_z=b_z,
            b_conv=b_conv,
            b_dt=b_dt,
            conv=self.conv_weight,
            conv_bias=self.conv_bias,
            A_log=self.A_log,
            dt_bias=self.dt_bias,
            D=self.D,
            norm=self.norm_weight,
            W_out=self.out_proj.weight,
            b_out=self.out_proj.bias,
        )

    def _sizes(self, batch: int) -> Sizes:
        config = self.config
        past, ssm = (config.d_conv - 1, config.d_xBC), (config.n_heads, config.headdim, config.d_state)
        return (batch, config.d_model), (batch, *past), (batch, *ssm)

    def _options(self) -> Options:
        config = self.config
        return Options(config.n_groups, config.dt_range, config.norm, config.norm_eps)

    def _composed(
        self, u: Float[Tensor, "batch time d_model"], state: State, weights: Weights
    ) -> tuple[Float[Tensor, "batch time d_model"], State]:
        """The composed form as a function of the weights, which torch can differentiate as often as asked."""
        biases = [each for each in (weights.b_z, weights.b_conv, weights.b_dt) if each is not None]
        own = {
            "in_proj.weight": torch.cat((weights.W_z, weights.W_conv, weights.W_dt)),
            "in_proj.bias": torch.cat(biases) if biases else None,
            "conv_weight": weights.conv,
            "conv_bias": weights.conv_bias,
            "A_log": weights.A_log,
            "dt_bias": weights.dt_bias,
            "D": weights.D,
            "norm_weight": weights.norm,
            "out_proj.weight": weights.W_out,
            "out_proj.bias": weights.b_out,
        }
        named = {f"block.{name}": each for name, each in own.items() if each is not None}
        normed = u if weights.residual_norm is None else rms_norm(u, weights.residual_norm, eps=self.config.norm_eps)
        y, after = functional_call(_Composed(self), named, (normed, BlockState(*state)))
        return y if weights.residual_norm is None else u + y, State(*after)

    def _split(
        self, xBC: Float[Tensor, "batch time conv"]
    ) -> tuple[
        Float[Tensor, "batch time head channel"],
        Float[Tensor, "batch time group state"],
        Float[Tensor, "batch time group state"],
    ]:
        config = self.config
        per_state = config.n_groups * config.d_state
        x, B, C = xBC.split((config.d_inner, per_state, per_state), dim=-1)
        batch_time = xBC.shape[:2]
        return (
            x.reshape(*batch_time, config.n_heads, config.headdim),
            B.reshape(*batch_time, config.n_groups, config.d_state),
            C.reshape(*batch_time, config.n_groups, config.d_state),
        )

    def _skip(self, x: Float[Tensor, "batch time head channel"]) -> Float[Tensor, "batch time head channel"] | float:
        return 0.0 if self.D is None else self.D.view(self.config.n_heads, -1) * x

    def _normed(
        self, y: Float[Tensor, "batch time d_inner"], gate: Float[Tensor, "batch time d_inner"]
    ) -> Float[Tensor, "batch time d_inner"]:
        config = self.config
        if self.norm_weight is None:
            return y * F.silu(gate)
        return gated_rms_norm(
            y,
            gate,
            self.norm_weight,
            n_groups=config.n_groups,
            eps=config.norm_eps,
            before_gate=config.norm == "before gate",
        )


class _Composed(nn.Module):
    """A block that always runs in its composed form."""

    def __init__(self, block: Mamba2Block) -> None:
        super().__init__()
        self.block = block

    @shaped
    def forward(
        self, u: Float[Tensor, "batch time d_model"], state: BlockState
    ) -> tuple[Float[Tensor, "batch time d_model"], BlockState]:
        """As the block's, without a mask."""
        return self.block._run(u, state, causal_conv1d, partial(scan_chunked, chunk=self.block.config.chunk))


def _uniform(shape: tuple[int, ...], bound: float) -> Float[Tensor, "..."]:
    return torch.empty(shape).uniform_(-bound, bound)


def _initial_dt_bias(config: ModelConfig) -> Float[Tensor, " head"]:
    """softplus(dt_bias) log-uniform in dt_init: dt_bias = dt + log(1 - exp(-dt))."""
    low, high = config.dt_init
    dt = torch.empty(config.n_heads).uniform_(math.log(low), math.log(high)).exp()
    return dt + torch.log(-torch.expm1(-dt))
