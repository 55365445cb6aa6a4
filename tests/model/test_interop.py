"""Models of transformers are the same function here, and come back bit for bit."""

import json
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.testing import assert_close
from transformers import Mamba2Config, Mamba2ForCausalLM, Mamba2Model
from transformers.cache_utils import DynamicCache

from mamba2.model.interop import (
    cache_from_state,
    from_mamba_ssm,
    from_transformers,
    load_language_model,
    save_language_model,
    state_from_cache,
    to_mamba_ssm,
    to_transformers,
)
from mamba2.model.language import LanguageModel
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import randomised

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9]])
SIZES = {"hidden_size": 8, "num_heads": 4, "head_dim": 4, "state_size": 3, "num_hidden_layers": 3, "vocab_size": 11}
OPTIONS = [
    pytest.param({}, id="defaults"),
    pytest.param({"tie_word_embeddings": True, "use_bias": True}, id="tied, biases"),
    pytest.param({"use_conv_bias": False, "layer_norm_epsilon": 1e-2, "conv_kernel": 2}, id="no conv bias"),
    pytest.param({"tie_word_embeddings": True, "use_bias": True, "use_conv_bias": False, "expand": 4}, id="expand 4"),
]
GROUPS = pytest.mark.parametrize("n_groups", [1, 2, 4])
CHUNKS = pytest.mark.parametrize("chunk_size", [1, 3, 8, 256])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def theirs(kind=Mamba2ForCausalLM, dtype=torch.float32, **options):
    """A model of transformers with no parameter at its start."""
    sizes = SIZES | options
    sizes["num_heads"] = sizes.get("expand", 2) * sizes["hidden_size"] // sizes["head_dim"]
    return randomised(kind(Mamba2Config(**{"n_groups": 1, "chunk_size": 4} | sizes)).eval(), seed=0).to(dtype)


def config_of(model):
    """As its config.json has it."""
    return json.loads(model.config.to_json_string(use_diff=False))


def ours(model):
    return from_transformers(config_of(model), model.state_dict())


@contextmanager
def all_wide():
    """transformers casts norms, scan and logits to float32 by name: here that name means float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def run(model, tokens, **options):
    with torch.no_grad(), all_wide() if model.dtype == torch.float64 else nullcontext():
        return model(tokens, **options)


def require_equal(actual, expected):
    """The same names, and under each the same bits."""
    assert_close(dict(actual), dict(expected), rtol=0, atol=0)


@GROUPS
@CHUNKS
@DTYPES
@pytest.mark.parametrize("options", OPTIONS)
def test_every_hidden_state_and_the_logits_are_those_of_transformers(n_groups, chunk_size, dtype, options):
    sizes = {"n_groups": n_groups, "chunk_size": chunk_size, "time_step_limit": (0.01, 0.1)}
    peer = theirs(dtype=dtype, **sizes, **options)
    model = ours(peer)
    mixed, blocks = [], []
    for layer in peer.backbone.layers:
        layer.mixer.register_forward_hook(lambda *call: mixed.append(call[-1]))
    for block in model.backbone.blocks:
        block.register_forward_hook(lambda *call: blocks.append(call[-1][0]))
    expected = run(peer, TOKENS, output_hidden_states=True)
    with torch.no_grad():
        logits, _ = model(TOKENS, model.initial_state(2))
        residual = model.embedding(TOKENS)

    require_close("logits", logits, expected.logits)
    for index in range(3):
        residual = residual + blocks[index]
        require_close(f"output of mixer {index}", blocks[index], mixed[index])
        require_close(f"hidden state {index}", residual, expected.hidden_states[index])


@GROUPS
@CHUNKS
@DTYPES
@pytest.mark.parametrize("options", OPTIONS)
def test_cached_decoding_is_that_of_transformers(n_groups, chunk_size, dtype, options):
    # With a limit transformers' steps are another function than its full pass: since 5.15 they ignore it.
    peer = theirs(dtype=dtype, n_groups=n_groups, chunk_size=chunk_size, **options)
    model, cache = ours(peer), DynamicCache(config=peer.config)
    expected = [run(peer, TOKENS[:, :5], cache=cache, use_cache=True).logits]
    with torch.no_grad():
        logits, state = model(TOKENS[:, :5], model.initial_state(2))
        actual = [logits]
        for t in range(5, 13):
            expected.append(run(peer, TOKENS[:, t : t + 1], cache=cache, use_cache=True).logits)
            logits, state = model.step(TOKENS[:, t : t + 1], state)
            actual.append(logits)

    require_close("logits", torch.cat(actual, dim=1), torch.cat(expected, dim=1))
    for layer, block in zip(cache.layers, state, strict=True):
        cached = state_from_cache(layer.conv_states[0], layer.recurrent_states[0])
        require_close("conv state", block.conv, cached.conv)
        require_close("ssm state", block.ssm, cached.ssm)


def test_decoding_can_change_the_library_at_any_token():
    peer = theirs(n_groups=2)
    model, cache = ours(peer), DynamicCache(config=peer.config)
    whole = run(peer, TOKENS).logits
    run(peer, TOKENS[:, :5], cache=cache, use_cache=True)
    state = tuple(state_from_cache(each.conv_states[0], each.recurrent_states[0]) for each in cache.layers)
    with torch.no_grad():
        logits, state = model(TOKENS[:, 5:9], state)
    for layer, block in zip(cache.layers, state, strict=True):
        for mine, its in zip(cache_from_state(block), (layer.conv_states[0], layer.recurrent_states[0]), strict=True):
            its.copy_(mine)
    last = run(peer, TOKENS[:, 9:10], cache=cache, use_cache=True).logits

    require_close("logits of ours", logits, whole[:, 5:9])
    require_close("logits of transformers", last, whole[:, 9:10])


@GROUPS
@pytest.mark.parametrize("options", OPTIONS)
def test_weights_and_config_go_back_to_transformers_as_they_were(n_groups, options):
    peer = theirs(n_groups=n_groups, time_step_limit=(0.01, 0.1), **options)
    config, weights = to_transformers(ours(peer))
    expected = dict(peer.state_dict())
    if peer.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    tokens = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}

    require_equal(weights, expected)
    assert config.items() <= (config_of(peer) | tokens | {"architectures": ["Mamba2ForCausalLM"]}).items()


@pytest.mark.parametrize("limit", [(0.0, float("inf")), (0.01, 0.1)], ids=["free", "limited"])
@pytest.mark.parametrize("options", OPTIONS)
def test_transformers_reads_the_folder_that_was_written(limit, options, tmp_path):
    peer = theirs(n_groups=2, time_step_limit=limit, **options)
    save_language_model(tmp_path / "out", ours(peer), to="transformers")
    again, report = Mamba2ForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True, output_loading_info=True)

    assert not any(report.values()), report
    assert torch.equal(run(again, TOKENS).logits, run(peer, TOKENS).logits)
    require_equal(again.state_dict(), peer.state_dict())
    # transformers' own defaults would stop generation at token 2.
    assert (again.config.pad_token_id, again.config.bos_token_id, again.config.eos_token_id) == (None, None, None)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shard", ["5GB", "2KB"], ids=["one file", "shards"])
def test_a_folder_of_transformers_is_read(tied, shard, tmp_path):
    peer = theirs(tie_word_embeddings=tied)
    peer.save_pretrained(tmp_path, max_shard_size=shard)
    model = load_language_model(tmp_path)

    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "2KB")
    assert model.tied == tied
    require_equal(model.state_dict(), ours(peer).state_dict())


def test_a_pickled_state_dict_is_read(tmp_path):
    peer = theirs()
    peer.config.save_pretrained(tmp_path)
    torch.save(peer.state_dict(), tmp_path / "pytorch_model.bin")

    require_equal(load_language_model(tmp_path).state_dict(), ours(peer).state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_weights_keep_their_dtype_and_run_as_precisely_as_in_transformers(dtype):
    # With residual_in_fp32 its residual stream would be wider than ours.
    peer = theirs(dtype=dtype, residual_in_fp32=False)
    model = ours(peer)
    exact = LanguageModel(model.config, vocabulary=11, tied=False).double()
    exact.load_state_dict(model.state_dict())
    expected, _ = exact(TOKENS, exact.initial_state(2))
    actual, _ = model(TOKENS, model.initial_state(2))

    require_equal(to_transformers(model)[1], peer.state_dict())
    assert actual.dtype == dtype
    assert (actual - expected).abs().max() <= 2 * (run(peer, TOKENS).logits - expected).abs().max()


def test_a_model_without_a_head_is_the_backbone_of_a_tied_one():
    peer = theirs(Mamba2Model, n_groups=2)
    model = ours(peer)
    with torch.no_grad():
        hidden, _ = model.backbone(model.embedding(TOKENS), model.initial_state(2))

    require_close("hidden state", hidden, run(peer, TOKENS).last_hidden_state)
    require_equal(to_transformers(model, head=False)[1], peer.state_dict())
    assert to_transformers(model, head=False)[0]["architectures"] == ["Mamba2Model"]


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_the_same_weights_under_the_names_of_mamba_ssm_are_the_same_function(options):
    peer = theirs(n_groups=2, time_step_limit=(0.01, 0.1), **options)
    config = {
        "d_model": 8,
        "n_layer": 3,
        "vocab_size": 11,
        "pad_vocab_size_multiple": 1,
        "tie_embeddings": peer.config.tie_word_embeddings,
        "ssm_cfg": {
            "layer": "Mamba2",
            "d_state": 3,
            "headdim": 4,
            "ngroups": 2,
            "bias": peer.config.use_bias,
            "dt_limit": [0.01, 0.1],
            "chunk_size": 3,
        },
    }
    weights = {name.replace("embeddings.", "embedding."): each for name, each in peer.state_dict().items()}
    model = from_mamba_ssm(config, weights)

    require_close("logits", model(TOKENS, model.initial_state(2))[0], run(peer, TOKENS).logits)
    require_equal(to_mamba_ssm(model)[1], weights)


def test_a_head_that_an_old_config_ties_in_vain_stands_on_its_own():
    peer = theirs(tie_word_embeddings=False)
    model = from_transformers(config_of(peer) | {"tie_word_embeddings": True}, peer.state_dict())

    assert not model.tied
    require_close("logits", model(TOKENS, model.initial_state(2))[0], run(peer, TOKENS).logits)


def test_the_first_name_of_the_embedding_is_read():
    peer = theirs()
    weights = {name.replace("embeddings.", "embedding."): each for name, each in peer.state_dict().items()}

    require_equal(from_transformers(config_of(peer), weights).state_dict(), ours(peer).state_dict())


def test_a_model_shares_no_storage_with_the_weights_it_was_read_from():
    peer = theirs()
    model = ours(peer)
    with torch.no_grad():
        model.embedding.weight.zero_()

    assert (peer.backbone.embeddings.weight != 0).all()
