"""The layout of transformers' `Mamba2ForCausalLM` and `Mamba2Model`, as of version 5.24.

Settings that matter to a fresh model only (time_step_floor, initializer_range …) and those that its Mamba-2 never reads
(rms_norm, norm_before_gate in older configs) are left alone. `residual_in_fp32` is read either way and written as true,
as `Backbone` has it; it matters only for weights narrower than float32.
Token ids and tokenizers are no part of a model here.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mamba2.config import ModelConfig
from mamba2.errors import ConfigError
from mamba2.model.files import Weights
from mamba2.model.interop.names import HEAD, export, fill, model_names
from mamba2.model.interop.settings import (
    Fixed,
    Setting,
    make_config,
    our_fields,
    read_settings,
    require_expressible,
    their_values,
)
from mamba2.model.language import LanguageModel

_SETTINGS = (
    Setting("hidden_size", 4096, "d_model"),
    Setting("num_hidden_layers", 64, "layers"),
    Setting("state_size", 128, "d_state"),
    Setting("expand", 2, "expand"),
    Setting("head_dim", 64, "headdim"),
    Setting("n_groups", 8, "n_groups"),
    Setting("conv_kernel", 4, "d_conv"),
    Setting("chunk_size", 256, "chunk"),
    Setting("time_step_limit", (0.0, math.inf), "dt_range"),
    Setting("use_bias", False, "bias"),
    Setting("use_conv_bias", True, "conv_bias"),
    Setting("layer_norm_epsilon", 1e-5, "norm_eps"),
    Setting("time_step_min", 0.001),
    Setting("time_step_max", 0.1),
    Setting("num_heads", 128),
    Setting("vocab_size", 32768),
    Setting("tie_word_embeddings", False),
)
_FIXED = (Fixed("model_type", "mamba2", ("mamba2",)), Fixed("hidden_act", "silu", ("silu", "swish")))
_EXPRESSIBLE = {"D": ("head",), "norm": ("after gate",)}
_EMBEDDING = "embeddings"
_FLOOR = 1e-4
"""transformers' least dt of a fresh model."""


def from_transformers(config: Mapping[str, Any], weights: Weights) -> LanguageModel:
    """The model of a `config.json` and a state dict of `Mamba2ForCausalLM`, or of `Mamba2Model`: no prefix and no head.

    A `Mamba2Model` becomes a tied model, of which it is the backbone. A config that ties a head which differs from the
    embedding is a fault of older versions; as in transformers the head then stands on its own.

    Raises:
        ConfigError: settings that no `ModelConfig` can hold; all are named.
        CheckpointError: entries of the weights that are missing, unknown or of another shape; all are named.
    """
    ours, vocabulary, tied = _read(config)
    # The name of early checkpoints, which transformers reads as well.
    weights = {name.replace("embedding.", f"{_EMBEDDING}."): each for name, each in weights.items()}
    headless = not any(name.startswith("backbone.") for name in weights)
    names = model_names(ours.layers, embedding=_EMBEDDING, prefix="" if headless else "backbone.")
    if tied and HEAD in weights and _equal(weights[HEAD], weights.get(names["embedding.weight"])):
        del weights[HEAD]
    with torch.device("meta"):
        model = LanguageModel(ours, vocabulary=vocabulary, tied=headless or (tied and HEAD not in weights))
    return fill("transformers", model, names, weights)


def to_transformers(
    model: LanguageModel, *, head: bool = True
) -> tuple[dict[str, Any], dict[str, Float[Tensor, "..."]]]:
    """Config and state dict of `Mamba2ForCausalLM`, or of `Mamba2Model` without `head`; a tied head is written once.

    Raises:
        ConfigError: settings that transformers has no word for, all named; or an untied head that would be lost.
    """
    if not head and not model.tied:
        raise ConfigError("to_transformers: a Mamba2Model has no head; got an untied one. Write it with head=True.")
    config = model.config
    require_expressible("to_transformers", config, _EXPRESSIBLE)
    settings = {
        "architectures": ["Mamba2ForCausalLM" if head else "Mamba2Model"],
        "model_type": "mamba2",
        **their_values(_SETTINGS, config),
        "num_heads": config.n_heads,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied,
        "hidden_act": "silu",
        "time_step_min": config.dt_init[0],
        "time_step_max": config.dt_init[1],
        "time_step_floor": min(_FLOOR, config.dt_init[0]),
        "residual_in_fp32": True,
        # Not given they would be tokens 1, 0 and 2, at the last of which generation stops.
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    names = model_names(config.layers, embedding=_EMBEDDING, prefix="backbone." if head else "")
    return settings, export(model, names)


def _read(config: Mapping[str, Any]) -> tuple[ModelConfig, int, bool]:
    """Our config, the vocabulary, and whether the head is tied."""
    # Since version 5 the limit's infinity is written as {"__float__": "Infinity"}.
    limit = config.get("time_step_limit")
    if isinstance(limit, (list, tuple)):
        config = {**config, "time_step_limit": [_plain_float(each) for each in limit]}
    values, faults = read_settings(_SETTINGS, _FIXED, config)
    heads, inner = values["num_heads"] * values["head_dim"], values["expand"] * values["hidden_size"]
    if heads != inner:
        faults.append(f"num_heads·head_dim = {heads}, not expand·hidden_size = {inner}")
    fields = our_fields(_SETTINGS, values)
    fields["dt_init"] = (values["time_step_min"], values["time_step_max"])
    return make_config("transformers", fields, faults), values["vocab_size"], values["tie_word_embeddings"]


def _plain_float(value: Any) -> Any:
    return math.inf if value == {"__float__": "Infinity"} else value


def _equal(head: Float[Tensor, "..."], embedding: Float[Tensor, "..."] | None) -> bool:
    return embedding is not None and torch.equal(head, embedding)
