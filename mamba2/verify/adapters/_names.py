"""Parameters that transformers, mamba_ssm and their ports name alike."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def mixer_weights(own: Mapping[str, Any]) -> dict[str, Tensor]:
    """A mixer's parameters under the textbook's names."""
    names = {
        "in_proj.weight": "in_proj",
        "in_proj.bias": "in_proj_bias",
        "conv1d.bias": "conv_bias",
        "A_log": "A_log",
        "dt_bias": "dt_bias",
        "D": "D",
        "norm.weight": "norm_weight",
        "out_proj.weight": "out_proj",
        "out_proj.bias": "out_proj_bias",
    }
    return {name: own[key] for key, name in names.items() if key in own} | {
        "conv_weight": own["conv1d.weight"].squeeze(1)
    }
