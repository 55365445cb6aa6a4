"""What the layout of transformers cannot say, or says and is not supported, is refused with every fault by name."""

import pytest
import torch

from mamba2.config import ModelConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.interop import from_transformers, to_transformers
from mamba2.model.language import LanguageModel


def test_all_settings_of_transformers_that_are_not_supported_are_named():
    config = {
        "hidden_size": 8,
        "head_dim": 4,
        "model_type": "mamba",
        "hidden_act": "gelu",
        "num_heads": 3,
        "use_bias": "yes",
        "time_step_limit": ["low", 1.0],
        "layer_norm_epsilon": None,
        "state_size": 3.0,
        "chunk_size": 0,
    }
    with pytest.raises(ConfigError) as refused:
        from_transformers(config, {})

    assert str(refused.value) == (
        "transformers: each setting must be one that mamba2 supports; got state_size = 3.0, not a whole number; "
        "time_step_limit = ['low', 1.0], not 2 numbers; use_bias = 'yes', not true or false; "
        "layer_norm_epsilon = None, not a number; model_type = 'mamba', not 'mamba2'; "
        "hidden_act = 'gelu', not 'silu' or 'swish'; num_heads·head_dim = 12, not expand·hidden_size = 16; "
        "chunk = 0 is not a whole number of at least 1."
    )


def test_all_weights_that_do_not_fit_are_named():
    model = LanguageModel(ModelConfig(d_model=8, d_state=3, headdim=4, layers=1), vocabulary=11, tied=True)
    config, weights = to_transformers(model)
    mixer = "backbone.layers.0.mixer"
    weights["stranger"] = weights.pop(f"{mixer}.D")
    weights[f"{mixer}.conv1d.weight"] = torch.zeros(22, 4)
    weights[f"{mixer}.A_log"] = torch.zeros(4, dtype=torch.int8)
    with pytest.raises(CheckpointError) as refused:
        from_transformers(config, weights)

    assert str(refused.value) == (
        f"transformers: the weights do not fit the config: {mixer}.D is missing; stranger is unknown; "
        f"{mixer}.conv1d.weight is (22, 4), not (22, 1, 4); {mixer}.A_log is torch.int8, not floating-point."
    )


def test_an_untied_head_is_not_left_out():
    model = LanguageModel(ModelConfig(d_model=8, headdim=4, layers=1), vocabulary=11, tied=False)
    with pytest.raises(ConfigError) as refused:
        to_transformers(model, head=False)

    assert str(refused.value) == (
        "to_transformers: a Mamba2Model has no head; got an untied one. Write it with head=True."
    )


def test_a_small_start_of_dt_lowers_the_floor_of_transformers():
    config = ModelConfig(d_model=8, headdim=4, layers=1, dt_init=(1e-6, 0.1))
    written, _ = to_transformers(LanguageModel(config, vocabulary=11, tied=True))

    assert (written["time_step_min"], written["time_step_max"], written["time_step_floor"]) == (1e-6, 0.1, 1e-6)


def test_all_settings_that_transformers_lacks_are_named():
    config = ModelConfig(d_model=8, headdim=4, layers=1, D="channel", norm="none")
    with pytest.raises(ConfigError) as refused:
        to_transformers(LanguageModel(config, vocabulary=11, tied=True))

    assert str(refused.value) == (
        "to_transformers: each setting must be one that the other library has; got D = 'channel', not 'head'; "
        "norm = 'none', not 'after gate'."
    )
