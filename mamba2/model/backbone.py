"""The residual stack of blocks."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.ops.norm import rms_norm
from mamba2.shapes import shaped

BackboneState = tuple[BlockState, ...]
"""One state a block, first block first."""

_SEGMENT = 4096
"""Time steps that pass all layers together without grad mode: what a layer leaves then grows no further with length."""


class Backbone(nn.Module):
    """x ← x + block(rms_norm(x)) for each block, then a last norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        blocks = [Mamba2Block(config) for _ in range(config.layers)]
        self.norm_weights = nn.ParameterList(torch.ones(config.d_model) for _ in range(config.layers))
        self.last_norm_weight = nn.Parameter(torch.ones(config.d_model))
        self.blocks = nn.ModuleList(blocks)
        with torch.no_grad():
            # The residual stream sums `layers` outputs; their variance must not grow with depth (GPT-2, section 2.3).
            for block in blocks:
                block.out_proj.weight.mul_(config.layers**-0.5)

    def initial_state(self, batch: int) -> BackboneState:
        """The state before the first time step."""
        return tuple(block.initial_state(batch) for block in self._blocks())

    @shaped
    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        state: BackboneState,
        mask: Bool[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], BackboneState]:
        """Any number of time steps at once, going on from `state`; where `mask` is False a step is a pad."""
        time = x.shape[1]
        # A graph that is compiled or exported is one for all lengths.
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or time <= _SEGMENT:
            return self._forward(x, state, mask)
        y = torch.empty_like(x)
        for start in range(0, time, _SEGMENT):
            now = slice(start, start + _SEGMENT)
            y[:, now], state = self._forward(x[:, now], state, None if mask is None else mask[:, now])
        return y, state

    @shaped
    def step(
        self, x: Float[Tensor, "batch 1 d_model"], state: BackboneState
    ) -> tuple[Float[Tensor, "batch 1 d_model"], BackboneState]:
        """One time step."""
        return self._run(x, state, [partial(self._around, block.step, x.dtype) for block in self._blocks()])

    def _blocks(self) -> Iterator[Mamba2Block]:
        return cast("Iterator[Mamba2Block]", iter(self.blocks))

    def _forward(
        self, x: Float[Tensor, "batch time d_model"], state: BackboneState, mask: Bool[Tensor, "batch time"] | None
    ) -> tuple[Float[Tensor, "batch time d_model"], BackboneState]:
        if mask is not None:
            x = torch.where(mask[..., None], x, 0.0)
        layers = (self._layer(block, x.dtype) for block in self.blocks)
        return self._run(x, state, [layer if mask is None else partial(layer, mask=mask) for layer in layers])

    def _layer(self, block: nn.Module, dtype: torch.dtype) -> Callable[..., Any]:
        # A wrapper around a block has its reasons, and is called.
        if isinstance(block, Mamba2Block) and dtype == _stream_dtype(dtype):
            return block.residual
        return partial(self._around, block, dtype)

    def _around(
        self,
        block: Callable[..., Any],
        dtype: torch.dtype,
        stream: Float[Tensor, "batch time d_model"],
        weight: Float[Tensor, " d_model"],
        state: BlockState,
        **mask: Bool[Tensor, "batch time"],
    ) -> tuple[Float[Tensor, "batch time d_model"], BlockState]:
        """x + block(norm(x)), where the block runs in another dtype than the stream, or is a single step."""
        y, after = block(rms_norm(stream, weight, eps=self.config.norm_eps).to(dtype), state, **mask)
        return stream + y, after

    def _run(
        self, x: Float[Tensor, "batch time d_model"], state: BackboneState, layers: Iterable[Callable[..., Any]]
    ) -> tuple[Float[Tensor, "batch time d_model"], BackboneState]:
        if len(state) != len(self.blocks):
            raise ShapeError(f"Backbone: axis 'layer' is {len(state)} in state but {len(self.blocks)} in the model.")
        stream, after = x.to(_stream_dtype(x.dtype)), []
        for layer, weight, before in zip(layers, self.norm_weights, state, strict=True):
            stream, new = layer(stream, weight, before)
            after.append(new)
        return rms_norm(stream, self.last_norm_weight, eps=self.config.norm_eps).to(x.dtype), tuple(after)


def _stream_dtype(dtype: torch.dtype) -> torch.dtype:
    """Sums of many layers lose digits in half precision, so the stream itself is float32 or wider."""
    return torch.promote_types(dtype, torch.float32)
