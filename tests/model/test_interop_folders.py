"""Folders of language models: three kinds, each whole or not there, each told from the others by what lies in it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from mamba2.config import ModelConfig, RunConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.forecaster import Forecaster
from mamba2.model.interop import folders, load_language_model, save_language_model
from mamba2.model.language import LanguageModel
from mamba2.train.checkpoint import Progress, save_checkpoint
from mamba2.train.optim import make_optimizer
from mamba2.verify.strategies import randomised


def require_equal(actual, expected):
    """The same names, and under each the same bits."""
    assert_close(dict(actual), dict(expected), rtol=0, atol=0)


@pytest.fixture
def small() -> LanguageModel:
    """A language model of one block."""
    torch.manual_seed(0)
    return LanguageModel(ModelConfig(d_model=8, headdim=4, layers=1), vocabulary=11, tied=True)


@pytest.mark.parametrize("to", ["transformers", "mamba_ssm", "mamba2"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_folder_of_each_kind_holds_the_whole_model(to, tied, tmp_path):
    config = ModelConfig(d_model=8, layers=2, d_state=3, headdim=4, n_groups=2, dt_range=(0.01, 0.1), bias=True)
    model = randomised(LanguageModel(config, vocabulary=11, tied=tied), seed=0)
    save_language_model(tmp_path / "a" / "b", model, to=to)
    again = load_language_model(tmp_path / "a" / "b")

    assert (again.config, again.vocabulary, again.tied) == (config, 11, tied)
    require_equal(again.state_dict(), model.state_dict())
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_our_folder_is_weights_and_a_section_of_settings(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="mamba2")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.toml", "model.safetensors"]
    assert (tmp_path / "out" / "config.toml").read_text().startswith("[model]\nd_model = 8\n")
    assert "[data]" not in (tmp_path / "out" / "config.toml").read_text()
    require_equal(load_file(tmp_path / "out" / "model.safetensors"), small.state_dict())


def test_the_current_folder_can_be_written(small, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    save_language_model(Path(), small, to="mamba2")

    require_equal(load_language_model(tmp_path / "here").state_dict(), small.state_dict())


def test_weights_for_transformers_say_that_they_are_of_torch(small, tmp_path):
    # Versions before 5 refuse a file that does not.
    save_language_model(tmp_path / "out", small, to="transformers")
    with safe_open(tmp_path / "out" / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()

    assert metadata == {"format": "pt"}


def test_an_unknown_kind_is_refused(small, tmp_path):
    with pytest.raises(ConfigError) as refused:
        save_language_model(tmp_path / "out", small, to="onnx")

    assert str(refused.value) == ("save_language_model: to must be one of transformers, mamba_ssm, mamba2; got 'onnx'.")
    assert list(tmp_path.iterdir()) == []


def refusal(folder: Path) -> str:
    """Why a folder cannot be read, after its name."""
    with pytest.raises(CheckpointError) as refused:
        load_language_model(folder)
    return str(refused.value).removeprefix(f"{folder}: ")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert refusal(tmp_path / "none").startswith("must be a language model of transformers, mamba_ssm or mamba2: ")


@pytest.mark.parametrize("config", [[], {"d_model": 8}], ids=str)
def test_a_config_of_no_known_kind_is_refused(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert refusal(tmp_path) == "config.json must name a model_type (transformers) or an ssm_cfg (mamba_ssm)."


def test_a_damaged_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mam')

    assert refusal(tmp_path).startswith("must be a language model of transformers, mamba_ssm or mamba2: Unterminated")


def test_a_config_without_weights_is_refused(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="transformers")
    (tmp_path / "out" / "model.safetensors").unlink()

    assert refusal(tmp_path / "out") == (
        "there must be model.safetensors or pytorch_model.bin, or an index of shards of either."
    )


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize(("to", "name"), [("transformers", "model.safetensors"), ("mamba_ssm", "pytorch_model.bin")])
def test_weights_that_end_early_are_refused(to, name, size, small, tmp_path):
    save_language_model(tmp_path / "out", small, to=to)
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes()[:size])

    assert refusal(tmp_path / "out").startswith(
        ("must be a language model of transformers", "pytorch_model.bin cannot be read as weights: ")
    )


def test_a_pickle_of_something_else_is_refused(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="mamba_ssm")
    torch.save({"model": {}}, tmp_path / "out" / "pytorch_model.bin")

    assert refusal(tmp_path / "out") == "pytorch_model.bin must hold a state dict; got something else."


def test_a_pickle_that_would_run_code_is_refused(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="mamba_ssm")
    torch.save({"model": Path()}, tmp_path / "out" / "pytorch_model.bin")

    assert refusal(tmp_path / "out").startswith("pytorch_model.bin cannot be read as weights: Weights only load failed")


def test_a_shard_that_is_missing_is_named(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="transformers")
    (tmp_path / "out" / "model.safetensors").rename(tmp_path / "out" / "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "out" / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "b.safetensors" in refusal(tmp_path / "out")


def test_an_index_leads_to_no_file_outside_its_folder(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="transformers")
    (tmp_path / "out" / "model.safetensors").rename(tmp_path / "a.safetensors")
    index = {"weight_map": {"x": "../a.safetensors"}}
    (tmp_path / "out" / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "a.safetensors" in refusal(tmp_path / "out")


@pytest.mark.parametrize("index", [[], {}, {"weight_map": ["a"]}], ids=str)
def test_an_index_without_a_map_is_refused(index, small, tmp_path):
    save_language_model(tmp_path / "out", small, to="transformers")
    (tmp_path / "out" / "model.safetensors").unlink()
    (tmp_path / "out" / "model.safetensors.index.json").write_text(json.dumps(index))

    assert refusal(tmp_path / "out") == "model.safetensors.index.json must have a weight_map; got none."


def test_a_forecaster_is_no_language_model(model: Forecaster, config: RunConfig, tmp_path):
    save_checkpoint(tmp_path / "epoch", model, make_optimizer(model, config.train), config, Progress(step=3))

    assert refusal(tmp_path / "epoch") == (
        "the format must be language-model-1; got 1. A forecaster has no vocabulary to convert."
    )


def test_weights_of_ours_that_do_not_fit_are_all_named(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="mamba2")
    weights = load_file(tmp_path / "out" / "model.safetensors")
    weights["stranger"] = weights.pop("backbone.last_norm_weight")
    save_file(weights, tmp_path / "out" / "model.safetensors", metadata={"format": folders.FORMAT})

    assert refusal(tmp_path / "out") == (
        "mamba2: the weights do not fit the config: backbone.last_norm_weight is missing; stranger is unknown."
    )


def test_settings_that_are_not_supported_are_named_after_the_folder(small, tmp_path):
    save_language_model(tmp_path / "out", small, to="transformers")
    path = tmp_path / "out" / "config.json"
    path.write_text(path.read_text().replace("silu", "relu"))
    with pytest.raises(ConfigError) as refused:
        load_language_model(tmp_path / "out")

    assert str(refused.value) == (
        f"{tmp_path / 'out'}: transformers: each setting must be one that mamba2 supports; "
        "got hidden_act = 'relu', not 'silu' or 'swish'."
    )


@pytest.mark.parametrize("to", ["transformers", "mamba_ssm", "mamba2"])
def test_a_failed_write_leaves_the_old_folder_and_nothing_beside_it(to, small, tmp_path, monkeypatch):
    save_language_model(tmp_path / "out", small, to=to)
    with torch.no_grad():
        small.embedding.weight.add_(1.0)

    def full_disk(*_: object) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(folders.torch, "save", full_disk)
    monkeypatch.setattr(folders, "write_safetensors", full_disk)
    with pytest.raises(CheckpointError, match=r"out: the checkpoint cannot be written: PytorchStreamWriter failed"):
        save_language_model(tmp_path / "out", small, to=to)

    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not torch.equal(load_language_model(tmp_path / "out").embedding.weight, small.embedding.weight)
