"""What Hypothesis draws: small odd sizes first, and tensors filled from a drawn seed, so that failures shrink well."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from mamba2.config import ModelConfig

seeds = st.integers(0, 2**16)
dtypes = st.sampled_from([torch.float64, torch.float32])


@dataclass(frozen=True)
class Sizes:
    """Sizes of one call; `head` is a multiple of `group`."""

    batch: int
    time: int
    group: int
    head: int
    channel: int
    state: int
    width: int
    chunk: int
    cut: int
    """A place in time, 0 … time, to stop and go on from."""


@st.composite
def all_sizes(draw: st.DrawFn, *, least_time: int = 0, most_time: int = 33) -> Sizes:
    """Every axis is drawn at once, empty batches and no time at all included."""
    time = draw(st.integers(least_time, most_time))
    group = draw(st.sampled_from([1, 2, 3, 4, 8]))
    return Sizes(
        batch=draw(st.integers(0, 3)),
        time=time,
        group=group,
        head=group * draw(st.integers(1, 8 // group)),
        channel=draw(st.integers(1, 8)),
        state=draw(st.integers(1, 8)),
        width=draw(st.integers(1, 5)),
        chunk=draw(st.integers(1, time + 3)),
        cut=draw(st.integers(0, time)),
    )


class Source:
    """Normal and uniform float64 tensors out of one seed."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Values of order 1."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Values within [low, high)."""
        return low + (high - low) * torch.rand(shape, generator=self._generator, dtype=torch.float64)


@st.composite
def model_configs(draw: st.DrawFn, *, most_layers: int = 3) -> ModelConfig:
    """Tiny networks with every option drawn at once."""
    n_groups = draw(st.sampled_from([1, 2, 3]))
    headdim = draw(st.integers(1, 5))
    d_inner = headdim * n_groups * draw(st.integers(1, 6 // n_groups))
    expand = draw(st.sampled_from([each for each in (1, 2, 3) if d_inner % each == 0]))
    levels = st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True)
    return ModelConfig(
        d_model=d_inner // expand,
        layers=draw(st.integers(1, most_layers)),
        d_state=draw(st.integers(1, 6)),
        expand=expand,
        headdim=headdim,
        n_groups=n_groups,
        d_conv=draw(st.integers(1, 5)),
        chunk=draw(st.integers(1, 12)),
        dt_range=draw(st.sampled_from([(0.0, math.inf), (0.01, 0.1), (0.3, 1.0), (0.0, 0.05), (0.5, 0.5)])),
        bias=draw(st.booleans()),
        conv_bias=draw(st.booleans()),
        D=draw(st.sampled_from(["head", "channel", "none"])),
        norm=draw(st.sampled_from(["after gate", "before gate", "none"])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-2])),
        quantiles=tuple(sorted(level / 100 for level in draw(levels))),
    )


def randomised(module: nn.Module, seed: int) -> Any:
    """The module in float64 with every parameter far from its start, where ones and zeros would hide mistakes."""
    source = Source(seed)
    module = module.double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            match name.rpartition(".")[2]:
                case "A_log":
                    values = source.uniform(math.log(0.1), math.log(16.0), *parameter.shape)
                case "dt_bias":
                    values = source.uniform(-7.0, 2.0, *parameter.shape)
                case _:
                    values = source.normal(*parameter.shape) / parameter.shape[-1] ** 0.5
            parameter.copy_(values)
    return module


@dataclass(frozen=True, eq=False)
class BlockCase:
    """A block with any options and a call of it, in float64."""

    block: Any
    sizes: Sizes
    u: Tensor
    state: Any


@st.composite
def block_cases(draw: st.DrawFn, make: Callable[[ModelConfig], Any], *, least_time: int = 0) -> BlockCase:
    """A block of `make` in the middle of a segment: its state is not zero."""
    config, sizes, seed = draw(model_configs()), draw(all_sizes(least_time=least_time, most_time=16)), draw(seeds)
    source, block = Source(seed), randomised(make(config), seed + 1)
    zeros = block.initial_state(sizes.batch)
    state = type(zeros)(*(source.normal(*each.shape) for each in zeros))
    return BlockCase(block, sizes, source.normal(sizes.batch, sizes.time, config.d_model), state)
