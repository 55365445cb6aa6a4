"""This package's own scans, convolution, block, backbone and forecaster."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mamba2.config import ModelConfig
from mamba2.model.backbone import Backbone as OurBackbone
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.forecaster import Forecast
from mamba2.model.forecaster import Forecaster as OurForecaster
from mamba2.model.packing import run_packed
from mamba2.ops.conv import causal_conv1d, causal_conv1d_step
from mamba2.ops.scan import scan_chunked, scan_sequential, scan_step
from mamba2.verify.case import Config
from mamba2.verify.implementation import Block, Conv, Implementation, Model, Scan
from mamba2.verify.reference import State, Weights, part

OPTIONS = frozenset(
    {"groups", "dt_range", "bias", "conv_bias", "no conv_bias", "D per channel", "no D", "norm before gate", "no norm"}
)
STATES = frozenset({"state", "resume", "initial state", "step", "state gradients", "gradients", "empty"})
MODULES = STATES | OPTIONS | {"float64", "bfloat16", "float16", "padding", "packing", "errors", "save", "init"}


class ScanSequential(Scan):
    """`scan_sequential` and `scan_step`."""

    claims = STATES | {"float64", "groups", "errors"}

    def __init__(self, config: Config) -> None:
        self.chunk = config.chunk

    def read_state(self, state: Tensor) -> State:
        """It is the recurrence's."""
        return {"ssm": state}

    def write_state(self, tensors: State) -> Tensor:
        """It is the recurrence's."""
        return tensors["ssm"]

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """All steps."""
        return scan_sequential(x * dt[..., None], dt * A, B, C, state)

    def step(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step."""
        return scan_step(x * dt[..., None], dt * A, B, C, state)


class ScanChunked(ScanSequential):
    """`scan_chunked` and `scan_step`."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """All steps."""
        return scan_chunked(x * dt[..., None], dt * A, B, C, state, chunk=self.chunk)


class CausalConv(Conv):
    """`causal_conv1d` and `causal_conv1d_step`."""

    claims = STATES | {"float64", "errors"}

    def __init__(self, config: Config) -> None:
        self.width = config.d_conv

    def read_state(self, state: Tensor) -> State:
        """It is the past."""
        return {"conv": state}

    def write_state(self, tensors: State) -> Tensor:
        """It is the past."""
        return tensors["conv"]

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """All steps."""
        return causal_conv1d(x, weight, bias, state)

    def step(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step."""
        return causal_conv1d_step(x, weight, bias, state)


class Mamba2(Block):
    """`Mamba2Block`."""

    claims = MODULES | {"compile"}
    module: Any

    def __init__(self, config: Config) -> None:
        self.module = Mamba2Block(model_config(config))

    def weights(self) -> Weights:
        """They go by the textbook's names, but for the projections."""
        return block_weights(self.parameters())

    def initial_state(self, batch: int) -> Any:
        """Zeros."""
        return self.module.initial_state(batch)

    def read_state(self, state: BlockState) -> State:
        """They have the textbook's shapes."""
        return state._asdict()

    def write_state(self, tensors: State) -> BlockState:
        """They have the textbook's shapes."""
        return BlockState(**tensors)

    def run(self, u: Tensor, state: BlockState) -> Any:
        """All steps."""
        return self.module(u, state)

    def step(self, u: Tensor, state: BlockState) -> Any:
        """One step."""
        return self.module.step(u, state)

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        """All steps but the pads."""
        return self.module(u, state, mask)

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> tuple[Tensor, Any]:
        """Many sequences in one row."""
        return run_packed(self.module, u, cu_seqlens, state)


class Backbone(Model):
    """`Backbone`."""

    claims = MODULES
    module: Any

    def __init__(self, config: Config) -> None:
        self.module = OurBackbone(model_config(config))

    def weights(self) -> Weights:
        """Each block's with its norm in front, and the last norm."""
        return backbone_weights(self.parameters())

    def initial_state(self, batch: int) -> Any:
        """Zeros."""
        return self.module.initial_state(batch)

    def read_state(self, state: tuple[BlockState, ...]) -> State:
        """One after the other."""
        return {f"{layer}.{name}": each for layer, block in enumerate(state) for name, each in block._asdict().items()}

    def write_state(self, tensors: State) -> tuple[BlockState, ...]:
        """One after the other."""
        return tuple(BlockState(**part(tensors, f"{layer}.")) for layer in range(len(tensors) // 2))

    def run(self, u: Tensor, state: tuple[BlockState, ...]) -> tuple[Tensor, Any]:
        """All steps."""
        return _one_tensor(*self.module(u, state))

    def step(self, u: Tensor, state: tuple[BlockState, ...]) -> tuple[Tensor, Any]:
        """One step."""
        return _one_tensor(*self.module.step(u, state))

    def run_padded(self, u: Tensor, state: tuple[BlockState, ...], mask: Tensor) -> tuple[Tensor, Any]:
        """All steps but the pads."""
        return _one_tensor(*self.module(u, state, mask))

    def run_packed(self, u: Tensor, state: tuple[BlockState, ...], cu_seqlens: Tensor) -> tuple[Tensor, Any]:
        """Many sequences in one row."""
        return _one_tensor(*run_packed(self.module, u, cu_seqlens, state))


class Forecaster(Backbone):
    """`Forecaster` on three features and two targets: mean and quantiles side by side."""

    features = 3

    def __init__(self, config: Config) -> None:
        self.module = OurForecaster(model_config(config), features=3, targets=2)

    def weights(self) -> Weights:
        """The backbone's between an embedding and a head."""
        own = self.parameters()
        return backbone_weights(part(own, "backbone.")) | {
            "embed": own["embed.weight"],
            "embed_bias": own["embed.bias"],
            "head": own["head.weight"],
            "head_bias": own["head.bias"],
        }

    def readout(self, raw: Tensor) -> Tensor:
        """Of the head's values for a target the first is the mean, then the lowest quantile, then the rises."""
        mean, lowest, *rises = raw.unflatten(-1, (2, -1)).unbind(-1)
        quantiles = [lowest]
        for rise in rises:
            quantiles.append(quantiles[-1] + F.softplus(rise))
        return torch.stack((mean, *quantiles), dim=-1)


IMPLEMENTATIONS: dict[str, type[Implementation]] = {
    "scan_sequential": ScanSequential,
    "scan_chunked": ScanChunked,
    "conv": CausalConv,
    "block": Mamba2,
    "backbone": Backbone,
    "forecaster": Forecaster,
}


def model_config(config: Config) -> ModelConfig:
    """The same config in this package's words."""
    return ModelConfig(
        d_model=config.d_model,
        layers=config.layers,
        d_state=config.d_state,
        expand=config.expand,
        headdim=config.headdim,
        n_groups=config.n_groups,
        d_conv=config.d_conv,
        chunk=config.chunk,
        dt_range=config.dt_range,
        dt_init=config.dt_init,
        A_init=config.A_init,
        bias=config.bias,
        conv_bias=config.conv_bias,
        D=config.D,
        norm=config.norm,
        norm_eps=config.norm_eps,
    )


def block_weights(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A block's parameters under the textbook's names."""
    names = {"in_proj.weight": "in_proj", "in_proj.bias": "in_proj_bias"}
    names |= {"out_proj.weight": "out_proj", "out_proj.bias": "out_proj_bias"}
    return {names.get(name, name): each for name, each in own.items()}


def backbone_weights(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A backbone's parameters under the textbook's names."""
    found = {"norm": own["last_norm_weight"]}
    for layer in range(len(part(own, "norm_weights."))):
        block = block_weights(part(own, f"blocks.{layer}.")) | {"norm": own[f"norm_weights.{layer}"]}
        found |= {f"{layer}.{name}": each for name, each in block.items()}
    return found


def _one_tensor(outputs: Tensor | Forecast, state: Any) -> tuple[Tensor, Any]:
    if isinstance(outputs, Tensor):
        return outputs, state
    return torch.cat((outputs.mean[..., None], outputs.quantiles), dim=-1), state
