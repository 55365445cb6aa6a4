"""Settings are checked when they are made, say which equation does not hold, and survive TOML."""

import math
import re
from dataclasses import FrozenInstanceError

import pytest

from mamba2.config import FEATURES, DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.errors import ConfigError

REFUSED = [
    (ModelConfig, {"layers": 0}, "layers = 0 is not a whole number of at least 1."),
    (ModelConfig, {"d_state": 16.0}, "d_state = 16.0 is not a whole number of at least 1."),
    (ModelConfig, {"chunk": True}, "chunk = True is not a whole number of at least 1."),
    (
        ModelConfig,
        {"d_model": 100, "headdim": 64},
        "d_inner = expand·d_model = 200 is not a multiple of headdim 64.",
    ),
    (ModelConfig, {"n_groups": 3}, "heads = expand·d_model / headdim = 8 is not a multiple of n_groups 3."),
    (ModelConfig, {"dt_range": (0.2, 0.1)}, "dt_range = (0.2, 0.1) is not (low, high) with 0 <= low <= high."),
    (ModelConfig, {"dt_range": (-1.0, 0.1)}, "dt_range = (-1.0, 0.1) is not (low, high) with 0 <= low <= high."),
    (ModelConfig, {"dt_range": (0.1,)}, "dt_range = (0.1,) is not (low, high) with 0 <= low <= high."),
    (ModelConfig, {"dt_range": (math.nan, 1.0)}, "dt_range = (nan, 1.0) is not (low, high) with 0 <= low <= high."),
    (ModelConfig, {"dt_init": (0.0, 0.1)}, "dt_init = (0.0, 0.1) is not (low, high) with 0 < low <= high < inf."),
    (
        ModelConfig,
        {"A_init": (1.0, math.inf)},
        "A_init = (1.0, inf) is not (low, high) with 0 < low <= high < inf.",
    ),
    (ModelConfig, {"D": "all"}, "D = 'all' is not one of ('head', 'channel', 'none')."),
    (ModelConfig, {"norm": "rms"}, "norm = 'rms' is not one of ('after gate', 'before gate', 'none')."),
    (ModelConfig, {"norm_eps": 0.0}, "norm_eps = 0.0 is not positive."),
    (ModelConfig, {"quantiles": ()}, "quantiles = () are not ascending within (0, 1)."),
    (ModelConfig, {"quantiles": (0.5, 0.5)}, "quantiles = (0.5, 0.5) are not ascending within (0, 1)."),
    (ModelConfig, {"quantiles": (0.5, 1.0)}, "quantiles = (0.5, 1.0) are not ascending within (0, 1)."),
    (DataConfig, {"window": 0}, "window = 0 is not a whole number of at least 1."),
    (DataConfig, {"horizon": 0}, "horizon = 0 is not a whole number of at least 1."),
    (DataConfig, {"warm_up": -1}, "warm_up = -1 is not a whole number of at least 0."),
    (DataConfig, {"stride": 0}, "stride = 0 is not a whole number of at least 1."),
    (DataConfig, {"contract": ""}, "contract is empty: name 'front', 'all' or a raw symbol."),
    (DataConfig, {"features": ()}, f"features = () are not different names out of {FEATURES}."),
    (DataConfig, {"features": ("rsi",)}, f"features = ('rsi',) are not different names out of {FEATURES}."),
    (
        DataConfig,
        {"targets": ("return", "return")},
        "targets = ('return', 'return') are not different names out of ('return', 'range').",
    ),
    (DataConfig, {"max_gap": 0.0}, "max_gap = 0.0 minutes is not positive."),
    (DataConfig, {"validation_fraction": 1.0}, "validation_fraction = 1.0 is not in [0, 1)."),
    (TrainConfig, {"epochs": 0}, "epochs = 0 is not a whole number of at least 1."),
    (TrainConfig, {"batch": 0}, "batch = 0 is not a whole number of at least 1."),
    (TrainConfig, {"warm_up_steps": -1}, "warm_up_steps = -1 is not a whole number of at least 0."),
    (TrainConfig, {"learning_rate": 0.0}, "learning_rate = 0.0 is not positive and finite."),
    (TrainConfig, {"max_grad_norm": math.inf}, "max_grad_norm = inf is not positive and finite."),
    (TrainConfig, {"weight_decay": -0.1}, "weight_decay = -0.1 is not 0 or more."),
    (TrainConfig, {"accumulate": 0}, "accumulate = 0 is not a whole number of at least 1."),
    (TrainConfig, {"precision": "fp8"}, "precision = 'fp8' is not one of ('float32', 'bf16')."),
    (TrainConfig, {"save_every": 0}, "save_every = 0 is not a whole number of at least 1."),
    (TrainConfig, {"keep": 0}, "keep = 0 is not a whole number of at least 1."),
    (
        RunConfig,
        {"data": DataConfig(window=60, stride=30), "train": TrainConfig(carry_state=True)},
        "carry_state needs windows end to end: stride = 30 is not the window 60.",
    ),
]


@pytest.mark.parametrize(("kind", "settings", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_setting_that_cannot_work_is_refused_with_what_must_hold(kind, settings, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        kind(**settings)


def test_the_sizes_of_the_reference_follow_from_its_settings():
    config = ModelConfig()

    assert (config.d_inner, config.n_heads, config.d_xBC, config.projection) == (512, 8, 544, (512, 544, 8))


def test_a_config_cannot_be_changed():
    config = ModelConfig()

    with pytest.raises(FrozenInstanceError):
        config.d_state = 8


def test_defaults_come_back_from_toml():
    assert RunConfig.from_toml(RunConfig().to_toml()) == RunConfig()


def test_every_kind_of_value_comes_back_from_toml():
    config = RunConfig(
        model=ModelConfig(dt_range=(0.01, math.inf), D="none", bias=True, norm_eps=1e-6, quantiles=(0.5,)),
        data=DataConfig(contract='6E"H4\\é', features=("ret", "gap"), stride=7, max_gap=90.0, targets=("range",)),
        train=TrainConfig(learning_rate=3e-4, seed=5),
    )

    assert RunConfig.from_toml(config.to_toml()) == config


def test_toml_is_written_section_by_section():
    assert RunConfig().to_toml().splitlines()[-12:] == [
        "[train]",
        "epochs = 3",
        "batch = 32",
        "learning_rate = 0.001",
        "warm_up_steps = 1",
        "weight_decay = 0.01",
        "max_grad_norm = 1.0",
        "seed = 0",
        'device = "cpu"',
        "accumulate = 1",
        "carry_state = false",
        'precision = "float32"',
    ]


def test_what_is_not_given_keeps_its_default():
    assert RunConfig.from_toml("[model]\nd_state = 8") == RunConfig(model=ModelConfig(d_state=8))


def test_a_whole_number_is_a_number():
    assert RunConfig.from_toml("[model]\ndt_range = [0, 1]").model.dt_range == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d_state = 8", "run.toml: unknown section 'd_state'; there are model, data, train."),
        ("model = 3", "run.toml: model is not a section: write [model] on a line of its own."),
        ("[train]\nlr = 1", "run.toml: [train]: unknown setting 'lr'; there are epochs, batch, learning_rate, "),
        ("[model]\nd_state = 8.0", "run.toml: [model] d_state = 8.0 is not a whole number."),
        ("[data]\nstride = true", "run.toml: [data] stride = True is not a whole number."),
        ("[train]\nlearning_rate = '1e-3'", "run.toml: [train] learning_rate = '1e-3' is not a number."),
        ("[model]\nbias = 1", "run.toml: [model] bias = 1 is not true or false."),
        ("[data]\ncontract = 6", "run.toml: [data] contract = 6 is not a text."),
        ("[data]\nfeatures = 'ret'", "run.toml: [data] features = 'ret' is not a list of texts."),
        ("[data]\nfeatures = [1]", "run.toml: [data] features = [1] is not a list of texts."),
        ("[model]\nquantiles = [true]", "run.toml: [model] quantiles = [True] is not a list of numbers."),
        ("[model]\nn_groups = 3", "run.toml: heads = expand·d_model / headdim = 8 is not a multiple of n_groups 3."),
        ("[model", "run.toml: not a TOML file: Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_toml_that_does_not_fit_is_refused_with_its_place(text, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        RunConfig.from_toml(text, "run.toml")


def test_a_config_is_read_from_its_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[train]\nepochs = 7", encoding="utf-8")

    assert RunConfig.load(path).train.epochs == 7


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "run.toml"

    with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}: cannot be read as a config: ')}.*No such file"):
        RunConfig.load(path)


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}: cannot be read as a config: ')}.*utf-8"):
        RunConfig.load(path)


def test_a_seed_that_torch_does_not_take_is_refused():
    with pytest.raises(ConfigError, match=re.escape(f"seed = {2**64} is not below 2**63.")):
        TrainConfig(seed=2**64)
