"""A config of the law book in the words of each mixer of transformers."""

from typing import Any

from mamba2.verify.case import Config

Settings = dict[str, Any]


def mamba2(config: Config) -> Settings:
    """`Mamba2Config`."""
    return {
        "hidden_size": config.d_model,
        "num_heads": config.n_heads,
        "head_dim": config.headdim,
        "n_groups": config.n_groups,
        "state_size": config.d_state,
        "conv_kernel": config.d_conv,
        "expand": config.expand,
        "chunk_size": config.chunk,
        "use_bias": config.bias,
        "use_conv_bias": config.conv_bias,
        "layer_norm_epsilon": config.norm_eps,
        "time_step_limit": config.dt_range,
        "time_step_min": config.dt_init[0],
        "time_step_max": config.dt_init[1],
        "num_hidden_layers": 1,
    }


def bamba(config: Config) -> Settings:
    """`BambaConfig`."""
    return {
        "hidden_size": config.d_model,
        "mamba_n_heads": config.n_heads,
        "mamba_d_head": config.headdim,
        "mamba_n_groups": config.n_groups,
        "mamba_d_state": config.d_state,
        "mamba_d_conv": config.d_conv,
        "mamba_expand": config.expand,
        "mamba_chunk_size": config.chunk,
        "mamba_proj_bias": config.bias,
        "mamba_conv_bias": config.conv_bias,
        "rms_norm_eps": config.norm_eps,
        "time_step_limit": config.dt_range,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }


def granite(config: Config) -> Settings:
    """`GraniteMoeHybridConfig`."""
    return bamba(config) | {"layer_types": ["mamba"]}


def falcon_h1(config: Config) -> Settings:
    """`FalconH1Config`, with every multiplier 1."""
    return bamba(config) | {
        "mamba_d_ssm": config.d_inner,
        "mamba_rms_norm": config.norm != "none",
        "mamba_norm_before_gate": config.norm == "before gate",
        "projectors_bias": config.bias,
        "ssm_in_multiplier": 1.0,
        "ssm_multipliers": [1.0] * 5,
    }


def zamba2(config: Config) -> Settings:
    """`Zamba2Config`, whose only limit of dt is the least."""
    return {
        "hidden_size": config.d_model,
        "n_mamba_heads": config.n_heads,
        "mamba_ngroups": config.n_groups,
        "mamba_d_state": config.d_state,
        "mamba_d_conv": config.d_conv,
        "mamba_expand": config.expand,
        "chunk_size": config.chunk,
        "add_bias_linear": config.bias,
        "time_step_min": config.dt_range[0],
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "layers_block_type": ["mamba"],
    }


def nemotron_h(config: Config) -> Settings:
    """`NemotronHConfig`, with no least dt but that of the limits."""
    return {
        "hidden_size": config.d_model,
        "mamba_num_heads": config.n_heads,
        "mamba_head_dim": config.headdim,
        "n_groups": config.n_groups,
        "ssm_state_size": config.d_state,
        "conv_kernel": config.d_conv,
        "expand": config.expand,
        "chunk_size": config.chunk,
        "use_bias": config.bias,
        "use_conv_bias": config.conv_bias,
        "layer_norm_epsilon": config.norm_eps,
        "time_step_limit": config.dt_range,
        "time_step_min": config.dt_range[0],
        "hybrid_override_pattern": "M",
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }


def language_model(config: Config) -> Settings:
    """What every language model has: a tied head and few tokens."""
    return {"num_hidden_layers": config.layers, "vocab_size": 7, "pad_token_id": 0, "tie_word_embeddings": True}


def mamba2_lm(config: Config) -> Settings:
    """`Mamba2Config` of a language model."""
    return mamba2(config) | language_model(config)


def bamba_lm(config: Config) -> Settings:
    """`BambaConfig` of a language model, whose last layer is attention."""
    layers = {"num_hidden_layers": config.layers + 1, "attn_layer_indices": [config.layers]}
    return bamba(config) | language_model(config) | layers | {"intermediate_size": 2, "head_dim": 8}


def granite_lm(config: Config) -> Settings:
    """`GraniteMoeHybridConfig` of a language model, whose last layer is attention, with every multiplier 1."""
    layers = {"num_hidden_layers": config.layers + 1, "layer_types": ["mamba"] * config.layers + ["attention"]}
    multipliers = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
    width = {"shared_intermediate_size": 2, "num_local_experts": 0}
    return granite(config) | language_model(config) | layers | width | dict.fromkeys(multipliers, 1.0)


def falcon_h1_lm(config: Config) -> Settings:
    """`FalconH1Config` of a language model, with every multiplier 1."""
    multipliers = ("embedding", "lm_head", "attention_in", "attention_out", "key", "ssm_out")
    return (
        falcon_h1(config)
        | language_model(config)
        | {"intermediate_size": 2, "head_dim": 8, "mlp_multipliers": [1.0, 1.0]}
        | {f"{each}_multiplier": 1.0 for each in multipliers}
    )


def zamba2_lm(config: Config) -> Settings:
    """`Zamba2Config` of a language model, whose last layer has attention as well."""
    types = ["mamba"] * (config.layers - 1) + ["hybrid"]
    return zamba2(config) | language_model(config) | {"layers_block_type": types, "intermediate_size": 2} | LEAST_DT


def nemotron_h_lm(config: Config) -> Settings:
    """`NemotronHConfig` of a language model, whose last layer is attention."""
    layers = {"num_hidden_layers": config.layers + 1, "hybrid_override_pattern": "M" * config.layers + "*"}
    return nemotron_h(config) | language_model(config) | layers | {"head_dim": 4} | LEAST_DT


LEAST_DT = {"time_step_min": 1e-30}
"""None, in models that take its logarithm."""
