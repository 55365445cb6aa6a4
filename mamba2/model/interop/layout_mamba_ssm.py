"""The layout of mamba_ssm's `MambaLMHeadModel` and of its lone block `Mamba2`, as of version 2.3.

Settings of a fresh model that `ModelConfig` lacks (conv_init, dt_init_floor) and of kernels and devices (device, dtype,
use_mem_eff_path, fused_add_norm …) are left alone. `residual_in_fp32` is read either way and written as true, as
`Backbone` has it; it matters only for weights narrower than float32.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mamba2.config import ModelConfig
from mamba2.errors import CheckpointError
from mamba2.model.block import Mamba2Block
from mamba2.model.files import Weights
from mamba2.model.interop.names import BLOCK, HEAD, export, fill, model_names
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

_BLOCK = (
    Setting("d_state", 128, "d_state"),
    Setting("d_conv", 4, "d_conv"),
    Setting("expand", 2, "expand"),
    Setting("headdim", 64, "headdim"),
    Setting("ngroups", 1, "n_groups"),
    Setting("A_init_range", (1.0, 16.0), "A_init"),
    Setting("dt_limit", (0.0, math.inf), "dt_range"),
    Setting("bias", False, "bias"),
    Setting("conv_bias", True, "conv_bias"),
    Setting("chunk_size", 256, "chunk"),
    Setting("D_has_hdim", False),
    Setting("rmsnorm", True),
    Setting("norm_before_gate", False),
    Setting("dt_min", 0.001),
    Setting("dt_max", 0.1),
)
_BLOCK_IDLE = ("conv_init", "dt_init_floor", "use_mem_eff_path", "layer_idx", "process_group", "sequence_parallel")
_DEVICE_IDLE = ("device", "dtype")
_LAYER = Fixed("layer", "Mamba1", ("Mamba2",))
_MODEL = (
    Setting("d_model", 2560),
    Setting("n_layer", 64),
    Setting("vocab_size", 50277),
    Setting("pad_vocab_size_multiple", 8),
    Setting("tie_embeddings", True),
)
_MODEL_FIXED = (
    Fixed("d_intermediate", 0, (0,)),
    Fixed("attn_layer_idx", [], ([], None)),
    Fixed("rms_norm", True, (True,)),
)
_MODEL_IDLE = ("ssm_cfg", "attn_cfg", "residual_in_fp32", "fused_add_norm")
_EXPRESSIBLE = {"D": ("head", "channel"), "norm_eps": (1e-5,)}
_EMBEDDING = "embedding"
_FLOOR = 1e-4
"""mamba_ssm's least dt of a fresh model."""


def from_mamba_ssm(config: Mapping[str, Any], weights: Weights) -> LanguageModel:
    """The model of a `config.json` and a state dict of `MambaLMHeadModel`; its vocabulary is the one with padding.

    Raises:
        ConfigError: settings that no `ModelConfig` can hold; all are named.
        CheckpointError: entries of the weights that are missing, unknown or of another shape; all are named.
    """
    values, faults = read_settings(_MODEL, _MODEL_FIXED, config)
    faults += _unknown(config, {*values, *(each.theirs for each in _MODEL_FIXED), *_MODEL_IDLE})
    block = config.get("ssm_cfg", {})
    if not isinstance(block, Mapping):
        faults.append(f"ssm_cfg = {block!r}, not a mapping")
        block = {}
    ours = _config(block, (_LAYER,), {"d_model": values["d_model"], "layers": values["n_layer"]}, faults)
    multiple = max(1, values["pad_vocab_size_multiple"])
    names = model_names(ours.layers, embedding=_EMBEDDING)
    weights, tied = dict(weights), values["tie_embeddings"]
    if tied:
        _drop_tied_head(weights, names["embedding.weight"])
    with torch.device("meta"):
        model = LanguageModel(ours, vocabulary=-(-values["vocab_size"] // multiple) * multiple, tied=tied)
    return fill("mamba_ssm", model, names, weights)


def to_mamba_ssm(model: LanguageModel) -> tuple[dict[str, Any], dict[str, Float[Tensor, "..."]]]:
    """Config and state dict of `MambaLMHeadModel`, with a tied head under both names, as it is loaded there.

    Raises:
        ConfigError: settings that mamba_ssm has no word for; all are named.
    """
    config = model.config
    settings = {
        "d_model": config.d_model,
        "d_intermediate": 0,
        "n_layer": config.layers,
        "vocab_size": model.vocabulary,
        "ssm_cfg": {"layer": "Mamba2", **_block_settings("to_mamba_ssm", config)},
        "attn_layer_idx": [],
        "attn_cfg": {},
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 1,
        "tie_embeddings": model.tied,
    }
    weights = export(model, model_names(config.layers, embedding=_EMBEDDING))
    return settings, {**weights, HEAD: weights[f"backbone.{_EMBEDDING}.weight"]} if model.tied else weights


def block_from_mamba_ssm(settings: Mapping[str, Any], weights: Weights) -> Mamba2Block:
    """The block of the arguments and the state dict of a lone `mamba_ssm.Mamba2`.

    Raises:
        ConfigError: settings that no `ModelConfig` can hold; all are named.
        CheckpointError: entries of the weights that are missing, unknown or of another shape; all are named.
    """
    block = {name: value for name, value in settings.items() if name != "d_model"}
    config = _config(block, (), {"d_model": settings.get("d_model"), "layers": 1}, [])
    with torch.device("meta"):
        module = Mamba2Block(config)
    return fill("mamba_ssm", module, BLOCK, weights)


def block_to_mamba_ssm(block: Mamba2Block) -> tuple[dict[str, Any], dict[str, Float[Tensor, "..."]]]:
    """Arguments and state dict of a lone `mamba_ssm.Mamba2`.

    Raises:
        ConfigError: settings that mamba_ssm has no word for; all are named.
    """
    settings = _block_settings("block_to_mamba_ssm", block.config)
    return {"d_model": block.config.d_model, **settings}, export(block, BLOCK)


def _config(
    given: Mapping[str, Any], fixed: tuple[Fixed, ...], sizes: dict[str, Any], faults: list[str]
) -> ModelConfig:
    """Our config of a block's arguments; whatever is wrong with them is named beside the faults found so far."""
    values, more = read_settings(_BLOCK, fixed, given)
    known = {*values, *(each.theirs for each in fixed), "d_ssm", *_BLOCK_IDLE, *_DEVICE_IDLE}
    faults = [*faults, *more, *_unknown(given, known)]
    d_model, d_ssm = sizes["d_model"], given.get("d_ssm")
    if d_ssm is not None and type(d_model) is int and d_ssm != values["expand"] * d_model:
        faults.append(f"d_ssm = {d_ssm!r}, not expand·d_model = {values['expand'] * d_model}")
    gated = "before gate" if values["norm_before_gate"] else "after gate"
    fields = {
        **our_fields(_BLOCK, values),
        **sizes,
        "D": "channel" if values["D_has_hdim"] else "head",
        "norm": gated if values["rmsnorm"] else "none",
        "dt_init": (values["dt_min"], values["dt_max"]),
    }
    return make_config("mamba_ssm", fields, faults)


def _block_settings(where: str, config: ModelConfig) -> dict[str, Any]:
    """The arguments of a `mamba_ssm.Mamba2`, d_model aside."""
    require_expressible(where, config, _EXPRESSIBLE)
    return {
        **their_values(_BLOCK, config),
        "D_has_hdim": config.D == "channel",
        "rmsnorm": config.norm != "none",
        "norm_before_gate": config.norm == "before gate",
        "dt_min": config.dt_init[0],
        "dt_max": config.dt_init[1],
        "dt_init_floor": min(_FLOOR, config.dt_init[0]),
    }


def _drop_tied_head(weights: dict[str, Float[Tensor, "..."]], embedding: str) -> None:
    """Takes away the second name of a tied embedding."""
    head = weights.pop(HEAD, None)
    if head is not None and not (embedding in weights and torch.equal(head, weights[embedding])):
        raise CheckpointError(
            f"mamba_ssm: {HEAD} must be {embedding}, to which the config ties it; got another tensor."
        )


def _unknown(given: Mapping[str, Any], known: set[str]) -> list[str]:
    return [f"{name} is unknown" for name in given if name not in known]
