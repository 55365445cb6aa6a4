"""Models and blocks of mamba_ssm are read and written in the layout of its own source.

mamba_ssm builds with a CUDA compiler only, so names and shapes are written out here from modules/mamba2.py,
models/mixer_seq_simple.py and models/config_mamba.py of version 2.3. That its mixer is the same function is tested with
the weights of transformers' mixer, which has the same parameters under the same names.
"""

import pytest
import torch
from torch.testing import assert_close

from mamba2.config import ModelConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.block import Mamba2Block
from mamba2.model.interop import block_from_mamba_ssm, block_to_mamba_ssm, from_mamba_ssm, to_mamba_ssm
from mamba2.model.language import LanguageModel
from mamba2.verify.strategies import randomised

MAMBA_SSM = {
    "d_model": 8,
    "d_intermediate": 0,
    "n_layer": 1,
    "vocab_size": 10,
    "ssm_cfg": {"layer": "Mamba2", "d_state": 3, "headdim": 4, "ngroups": 2},
    "attn_layer_idx": [],
    "attn_cfg": {},
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 16,
    "tie_embeddings": True,
}
MIXER = {  # d_inner 16, conv 16 + 2·2·3 = 28, heads 4
    "dt_bias": (4,),
    "A_log": (4,),
    "D": (4,),
    "in_proj.weight": (48, 8),
    "conv1d.weight": (28, 1, 4),
    "conv1d.bias": (28,),
    "norm.weight": (16,),
    "out_proj.weight": (8, 16),
}


def require_equal(actual, expected):
    """The same names, and under each the same bits."""
    assert_close(dict(actual), dict(expected), rtol=0, atol=0)


def mamba_ssm_weights(mixer=MIXER):
    shapes = {
        "backbone.embedding.weight": (16, 8),  # 10 tokens, up to a multiple of 16
        **{f"backbone.layers.0.mixer.{name}": shape for name, shape in mixer.items()},
        "backbone.layers.0.norm.weight": (8,),
        "backbone.norm_f.weight": (8,),
    }
    torch.manual_seed(0)
    weights = {name: torch.randn(shape) for name, shape in shapes.items()}
    return weights | {"lm_head.weight": weights["backbone.embedding.weight"]}


def test_the_published_layout_of_mamba_ssm_is_read_and_written_back():
    weights = mamba_ssm_weights()
    model = from_mamba_ssm(MAMBA_SSM, weights)
    config, written = to_mamba_ssm(model)

    assert (model.vocabulary, model.tied) == (16, True)
    assert model.config == ModelConfig(d_model=8, layers=1, d_state=3, headdim=4, n_groups=2, chunk=256)
    require_equal(written, weights)
    assert written["lm_head.weight"].data_ptr() == written["backbone.embedding.weight"].data_ptr()
    assert config == MAMBA_SSM | {
        "vocab_size": 16,
        "pad_vocab_size_multiple": 1,
        "ssm_cfg": {
            "layer": "Mamba2",
            "d_state": 3,
            "d_conv": 4,
            "expand": 2,
            "headdim": 4,
            "ngroups": 2,
            "A_init_range": [1.0, 16.0],
            "D_has_hdim": False,
            "rmsnorm": True,
            "norm_before_gate": False,
            "dt_min": 0.001,
            "dt_max": 0.1,
            "dt_init_floor": 0.0001,
            "dt_limit": [0.0, float("inf")],
            "bias": False,
            "conv_bias": True,
            "chunk_size": 256,
        },
    }


@pytest.mark.parametrize(
    ("options", "field", "shapes"),
    [
        ({"D_has_hdim": True}, {"D": "channel"}, {"D": (16,)}),
        ({"rmsnorm": False}, {"norm": "none"}, {"norm.weight": None}),
        ({"norm_before_gate": True}, {"norm": "before gate"}, {}),
        ({"bias": True}, {"bias": True}, {"in_proj.bias": (48,), "out_proj.bias": (8,)}),
        ({"conv_bias": False}, {"conv_bias": False}, {"conv1d.bias": None}),
        ({"dt_limit": [0.01, 0.1]}, {"dt_range": (0.01, 0.1)}, {}),
        ({"d_ssm": 16, "conv_init": 0.5, "layer_idx": 0, "device": None}, {}, {}),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else None,
)
def test_an_option_of_mamba_ssm_is_ours_and_goes_back(options, field, shapes):
    settings = {"d_model": 8, "d_state": 3, "headdim": 4, "ngroups": 2, **options}
    mixer = {name: shape for name, shape in (MIXER | shapes).items() if shape is not None}
    weights = {name: torch.randn(shape) for name, shape in mixer.items()}
    block = block_from_mamba_ssm(settings, weights)
    written = block_to_mamba_ssm(block)

    assert {name: getattr(block.config, name) for name in field} == field
    require_equal(written[1], weights)
    assert block_from_mamba_ssm(*written).config == block.config
    as_layer = MAMBA_SSM | {"ssm_cfg": MAMBA_SSM["ssm_cfg"] | options}
    assert from_mamba_ssm(as_layer, mamba_ssm_weights(mixer)).config == block.config


def test_the_skip_per_channel_is_read_channel_by_channel():
    config = ModelConfig(d_model=8, layers=1, d_state=3, headdim=4, D="channel")
    block = randomised(Mamba2Block(config), seed=0)
    settings, weights = block_to_mamba_ssm(block)
    weights["D"] = torch.zeros(16, dtype=torch.float64)
    weights["D"][5] = 1.0  # channel 1 of head 1
    u = torch.ones(1, 1, 8, dtype=torch.float64)
    skipped = []
    for scale in (0.0, 1.0):
        again = block_from_mamba_ssm(settings, weights | {"D": weights["D"] * scale})
        again.out_proj.register_forward_pre_hook(lambda _, args: skipped.append(args[0][0, 0]))
        again.norm_weight = None
        again.step(u, again.initial_state(1))

    assert (skipped[1] != skipped[0]).nonzero().flatten().tolist() == [5]


def test_settings_that_are_no_mapping_are_named():
    with pytest.raises(ConfigError, match=r"got ssm_cfg = \['Mamba2'\], not a mapping; layer = 'Mamba1', not 'Mamba2'"):
        from_mamba_ssm(MAMBA_SSM | {"ssm_cfg": ["Mamba2"]}, {})


def test_a_skip_that_mamba_ssm_leaves_in_float32_stays_so_beside_narrow_weights():
    weights = {name: each.bfloat16() for name, each in mamba_ssm_weights().items()}
    weights["backbone.layers.0.mixer.D"] = weights["backbone.layers.0.mixer.D"].float()
    model = from_mamba_ssm(MAMBA_SSM, weights)
    logits, _ = model(torch.tensor([[3, 1, 4]]), model.initial_state(1))

    require_equal(to_mamba_ssm(model)[1], weights)
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()


def test_all_settings_of_mamba_ssm_that_are_not_supported_are_named():
    config = MAMBA_SSM | {
        "d_intermediate": 32,
        "attn_layer_idx": [0],
        "rms_norm": False,
        "depth": 2,
        "ssm_cfg": {"layer": "Mamba1", "headdim": 5, "d_ssm": 8, "activation": "gelu", "D_has_hdim": 1},
    }
    with pytest.raises(ConfigError) as refused:
        from_mamba_ssm(config, {})

    assert str(refused.value) == (
        "mamba_ssm: each setting must be one that mamba2 supports; got d_intermediate = 32, not 0; "
        "attn_layer_idx = [0], not [] or None; rms_norm = False, not True; depth is unknown; "
        "D_has_hdim = 1, not true or false; layer = 'Mamba1', not 'Mamba2'; activation is unknown; "
        "d_ssm = 8, not expand·d_model = 16; d_inner = expand·d_model = 16 is not a multiple of headdim 5."
    )


def test_a_first_generation_config_is_no_mamba_2():
    with pytest.raises(ConfigError, match="got layer = 'Mamba1', not 'Mamba2'"):
        from_mamba_ssm({"d_model": 8, "n_layer": 1, "vocab_size": 10, "ssm_cfg": {}}, {})


def test_a_block_without_its_width_is_refused():
    with pytest.raises(ConfigError, match="d_model = None is not a whole number"):
        block_from_mamba_ssm({"headdim": 4}, {})


def test_a_head_that_mamba_ssm_ties_must_be_the_embedding():
    weights = mamba_ssm_weights() | {"lm_head.weight": torch.zeros(16, 8)}
    with pytest.raises(CheckpointError) as refused:
        from_mamba_ssm(MAMBA_SSM, weights)

    assert str(refused.value) == (
        "mamba_ssm: lm_head.weight must be backbone.embedding.weight, to which the config ties it; got another tensor."
    )


def test_a_small_start_of_dt_lowers_the_floor_of_mamba_ssm():
    written, _ = block_to_mamba_ssm(Mamba2Block(ModelConfig(d_model=8, headdim=4, dt_init=(1e-6, 0.1))))

    assert (written["dt_min"], written["dt_max"], written["dt_init_floor"]) == (1e-6, 0.1, 1e-6)


def test_all_settings_that_mamba_ssm_lacks_are_named():
    config = ModelConfig(d_model=8, headdim=4, layers=1, D="none", norm_eps=1e-3)
    with pytest.raises(ConfigError) as refused:
        to_mamba_ssm(LanguageModel(config, vocabulary=11, tied=True))

    assert str(refused.value) == (
        "to_mamba_ssm: each setting must be one that the other library has; got D = 'none', not 'head' or 'channel'; "
        "norm_eps = 0.001, not 1e-05."
    )
