"""What is written for another library is read back as the same model, bit for bit, whatever its options and dtype."""

import json
from dataclasses import replace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from mamba2.config import ModelConfig
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.interop import (
    block_from_mamba_ssm,
    block_to_mamba_ssm,
    cache_from_state,
    from_mamba_ssm,
    from_transformers,
    state_from_cache,
    to_mamba_ssm,
    to_transformers,
)
from mamba2.model.language import LanguageModel
from mamba2.verify.strategies import Source, all_sizes, model_configs, randomised, seeds

starts = st.sampled_from([(1e-3, 1e-1), (1e-5, 1e-5), (0.5, 2.0)])
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Every option that both libraries have; quantiles are a forecaster's."""
    return replace(draw(model_configs()), quantiles=ModelConfig().quantiles, dt_init=draw(starts))


@st.composite
def transformers_configs(draw: st.DrawFn) -> ModelConfig:
    """Every option of transformers."""
    return replace(draw(configs()), D="head", norm="after gate")


@st.composite
def mamba_ssm_configs(draw: st.DrawFn) -> ModelConfig:
    """Every option of mamba_ssm."""
    config = replace(draw(configs()), norm_eps=1e-5, A_init=draw(st.sampled_from([(1.0, 16.0), (0.5, 0.5)])))
    return config if config.D != "none" else replace(config, D="channel")


@st.composite
def models(draw: st.DrawFn, config: ModelConfig) -> LanguageModel:
    """A language model in any dtype."""
    model = LanguageModel(config, vocabulary=draw(st.integers(1, 20)), tied=draw(st.booleans()))
    return randomised(model, draw(seeds)).to(draw(dtypes))


def as_files(config: dict[str, Any], weights: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config after a trip through JSON."""
    return json.loads(json.dumps(config)), weights


def require_same(actual: LanguageModel, expected: LanguageModel) -> None:
    assert (actual.config, actual.vocabulary, actual.tied) == (expected.config, expected.vocabulary, expected.tied)
    assert_close(dict(actual.state_dict()), dict(expected.state_dict()), rtol=0, atol=0)


@given(transformers_configs().flatmap(models))
def test_to_transformers_and_back_is_the_same_model(model):
    config, weights = as_files(*to_transformers(model))
    back = from_transformers(config, weights)

    require_same(back, model)
    assert to_transformers(back)[0] == config


@given(mamba_ssm_configs().flatmap(models))
def test_to_mamba_ssm_and_back_is_the_same_model(model):
    config, weights = as_files(*to_mamba_ssm(model))
    back = from_mamba_ssm(config, weights)

    require_same(back, model)
    assert to_mamba_ssm(back)[0] == config


@given(mamba_ssm_configs(), seeds, dtypes)
def test_a_block_to_mamba_ssm_and_back_is_the_same_block(config, seed, dtype):
    block = randomised(Mamba2Block(replace(config, layers=1)), seed).to(dtype)
    back = block_from_mamba_ssm(*as_files(*block_to_mamba_ssm(block)))

    assert back.config == block.config
    assert_close(dict(back.state_dict()), dict(block.state_dict()), rtol=0, atol=0)


@given(transformers_configs().flatmap(models))
def test_from_one_library_to_the_other_and_back_changes_nothing(model):
    model = LanguageModel(replace(model.config, norm_eps=1e-5), vocabulary=model.vocabulary, tied=model.tied)
    there = from_mamba_ssm(*to_mamba_ssm(from_transformers(*to_transformers(model))))

    require_same(from_transformers(*to_transformers(there)), model)


@given(model_configs(), all_sizes(), seeds)
def test_a_state_to_a_cache_and_back_is_the_same_state(config, sizes, seed):
    source = Source(seed)
    state = BlockState(*(source.normal(*each.shape) for each in Mamba2Block(config).initial_state(sizes.batch)))
    conv, ssm = cache_from_state(state)
    back = state_from_cache(conv, ssm)

    assert conv.shape == (sizes.batch, config.d_xBC, config.d_conv)
    assert torch.equal(back.conv, state.conv)
    assert torch.equal(back.ssm, state.ssm)
