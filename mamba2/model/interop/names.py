"""Which parameter of ours is which entry of theirs: one table for both directions."""

from collections.abc import Mapping
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from mamba2.model.files import Weights, misfits, require_fit

Module = TypeVar("Module", bound=nn.Module)

BLOCK = {
    "in_proj.weight": "in_proj.weight",
    "in_proj.bias": "in_proj.bias",
    "conv_weight": "conv1d.weight",
    "conv_bias": "conv1d.bias",
    "A_log": "A_log",
    "dt_bias": "dt_bias",
    "D": "D",
    "norm_weight": "norm.weight",
    "out_proj.weight": "out_proj.weight",
    "out_proj.bias": "out_proj.bias",
}
"""A parameter of `Mamba2Block`, and its entry in both libraries' mixers."""

HEAD = "lm_head.weight"
"""The head's entry in both libraries."""


def model_names(layers: int, *, embedding: str, prefix: str = "backbone.") -> dict[str, str]:
    """Parameters of a `LanguageModel` of that depth, whatever its options, and their entries."""
    names = {
        "embedding.weight": f"{prefix}{embedding}.weight",
        "backbone.last_norm_weight": f"{prefix}norm_f.weight",
        "head.weight": HEAD,
    }
    for index in range(layers):
        names[f"backbone.norm_weights.{index}"] = f"{prefix}layers.{index}.norm.weight"
        for ours, theirs in BLOCK.items():
            names[f"backbone.blocks.{index}.{ours}"] = f"{prefix}layers.{index}.mixer.{theirs}"
    return names


def export(module: nn.Module, names: Mapping[str, str]) -> dict[str, Float[Tensor, "..."]]:
    """The module's parameters under the other library's names; like a state dict they share the module's storage."""
    return {names[ours]: _to_theirs(names[ours], each) for ours, each in module.state_dict().items()}


def fill(where: str, module: Module, names: Mapping[str, str], weights: Weights) -> Module:
    """The module with copies of the entries as its parameters, in the entries' dtypes and on their devices.

    Raises:
        CheckpointError: entries are missing, unknown or of another shape; all of them are named.
    """
    require_fit(where, misfits({name: each.shape for name, each in export(module, names).items()}, weights))
    ours = {name: _to_ours(names[name], weights[names[name]]).clone() for name in module.state_dict()}
    module.load_state_dict(ours, assign=True)
    return module


def _to_theirs(name: str, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """nn.Conv1d has an axis of one input channel a group: (conv, width) is (conv, 1, width)."""
    return weight.unsqueeze(1) if name.endswith("conv1d.weight") else weight


def _to_ours(name: str, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return weight.squeeze(1) if name.endswith("conv1d.weight") else weight
