"""The portable Mamba-2 of niverel-mamba, as it runs without a GPU: whole sequences, and its steps alone.

A whole sequence starts from zeros and leaves no past of the convolution, so states are judged in the steps alone.
Not claimed are float64 (A is float32 everywhere) and errors that name the sizes (those of a call are torch's).
"""

import math
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from mamba2.verify.adapters._names import mixer_weights
from mamba2.verify.case import Config
from mamba2.verify.implementation import Block, Implementation
from mamba2.verify.reference import State, Weights

if find_spec("niverel_mamba") is None:
    raise ImportError("niverel-mamba is missing. Write python -m pip install niverel-mamba.")

OPTIONS = frozenset(
    {"groups", "dt_range", "bias", "conv_bias", "no conv_bias", "D per channel", "norm before gate", "no norm"}
)


class Mamba2(Block):
    """`niverel_mamba.torch.Mamba2` on whole sequences, and step by step from zeros."""

    claims = OPTIONS | {"bfloat16", "float16", "step", "packing", "gradients", "save", "init", "compile"}
    module: Any

    def __init__(self, config: Config) -> None:
        low, high = config.dt_range
        settings = import_module("niverel_mamba").Mamba2Config(
            d_model=config.d_model,
            d_state=config.d_state,
            d_conv=config.d_conv,
            expand=config.expand,
            headdim=config.headdim,
            ngroups=config.n_groups,
            chunk_size=config.chunk,
            bias=config.bias,
            conv_bias=config.conv_bias,
            D_has_hdim=config.D == "channel",
            rmsnorm=config.norm != "none",
            norm_before_gate=config.norm == "before gate",
            norm_epsilon=config.norm_eps,
            dt_limit=(low, math.nextafter(high, math.inf) if low == high else high),  # it takes no equal ones
            A_init_range=config.A_init,
            dt_min=config.dt_init[0],
            dt_max=config.dt_init[1],
        )
        self.module = import_module("niverel_mamba.torch").Mamba2(settings)

    def weights(self) -> Weights:
        """Under the textbook's names."""
        return mixer_weights(self.parameters())

    def initial_state(self, batch: int) -> Any:
        """Zeros."""
        return self.module.allocate_inference_state(batch)

    def run(self, u: Tensor, _state: Any) -> tuple[Tensor, None]:
        """All steps, from zeros."""
        return self.module(u), None

    def step(self, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        outputs, state = self.module.step(u, state)
        return outputs, state

    def run_packed(self, u: Tensor, _state: Any, cu_seqlens: Tensor) -> tuple[Tensor, None]:
        """Many sequences in one row, told apart by a number at each step."""
        numbers = torch.searchsorted(cu_seqlens, torch.arange(u.shape[1]), right=True)
        return self.module(u, seq_idx=numbers[None]), None


class Steps(Mamba2):
    """`niverel_mamba.torch.Mamba2` by its steps alone, which take a state and give the next."""

    claims = (Mamba2.claims - {"packing", "compile"}) | {"state", "resume", "initial state", "state gradients"}

    def read_state(self, state: Any) -> State:
        """The oldest input that it holds is beyond what the convolution sees next."""
        return {"conv": state.conv_state[..., 1:].mT, "ssm": state.ssm_state}

    def write_state(self, tensors: State) -> Any:
        """A state of its own kind; nothing reads its oldest input."""
        past = torch.nn.functional.pad(tensors["conv"].mT, (1, 0))
        return replace(self.initial_state(len(past)), conv_state=past, ssm_state=tensors["ssm"])

    def run(self, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step after the other."""
        outputs = [u[:, :0]]
        for t in range(u.shape[1]):
            y, state = self.step(u[:, t : t + 1], state)
            outputs.append(y)
        return torch.cat(outputs, dim=1), state


IMPLEMENTATIONS: dict[str, type[Implementation]] = {"mamba2": Mamba2, "steps": Steps}
