"""Checkpoints: whole or not there, and nothing but the path to load one."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mamba2.config import RunConfig, TrainConfig
from mamba2.errors import CheckpointError
from mamba2.model.forecaster import Forecaster
from mamba2.train import checkpoint
from mamba2.train.checkpoint import load_model, save_checkpoint
from mamba2.train.optim import make_optimizer


def save(folder: Path, model: Forecaster, config: RunConfig) -> None:
    save_checkpoint(folder, model, make_optimizer(model, TrainConfig()), config, epoch=1, step=3)


def test_a_checkpoint_loads_the_same_weights_and_config(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    loaded, loaded_config = load_model(tmp_path / "epoch")

    assert loaded_config == config
    assert all(torch.equal(each, model.state_dict()[name]) for name, each in loaded.state_dict().items())


def test_the_training_state_is_read_without_executing_anything(
    model: Forecaster, config: RunConfig, tmp_path: Path
) -> None:
    save(tmp_path / "epoch", model, config)
    training = torch.load(tmp_path / "epoch" / "training.pt", weights_only=True)

    assert (training["epoch"], training["step"]) == (1, 3)


def test_a_checkpoint_of_the_same_name_is_replaced(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    with torch.no_grad():
        model.embed.bias.fill_(0.5)
    save(tmp_path / "epoch", model, config)

    assert load_model(tmp_path / "epoch")[0].embed.bias.tolist() == [0.5] * 8
    assert [path.name for path in tmp_path.iterdir()] == ["epoch"]


def test_a_failed_write_leaves_the_old_checkpoint(
    model: Forecaster, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "epoch", model, config)
    bias = model.embed.bias.tolist()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full_disk)
    with torch.no_grad():
        model.embed.bias.fill_(0.5)

    with pytest.raises(CheckpointError, match=r"epoch: the checkpoint cannot be written: .*No space left on device"):
        save(tmp_path / "epoch", model, config)
    assert load_model(tmp_path / "epoch")[0].embed.bias.tolist() == bias


@pytest.mark.parametrize("missing", ["config.toml", "model.safetensors"])
def test_a_checkpoint_with_a_part_missing_is_refused(
    missing: str, model: Forecaster, config: RunConfig, tmp_path: Path
) -> None:
    save(tmp_path / "epoch", model, config)
    (tmp_path / "epoch" / missing).unlink()

    with pytest.raises(CheckpointError, match=rf"epoch: not a whole checkpoint: .*{missing}"):
        load_model(tmp_path / "epoch")


def test_weights_that_do_not_fit_are_all_listed(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    weights = load_file(tmp_path / "epoch" / "model.safetensors")
    weights["stranger"] = weights.pop("embed.bias")
    weights["head.bias"] = torch.zeros(7)
    save_file(weights, tmp_path / "epoch" / "model.safetensors", metadata={"format": "1"})

    with pytest.raises(
        CheckpointError, match=r"embed.bias is missing; stranger is unknown; head.bias is \(7,\), not \(4,\)\.$"
    ):
        load_model(tmp_path / "epoch")


def test_a_newer_format_is_named(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    weights = load_file(tmp_path / "epoch" / "model.safetensors")
    save_file(weights, tmp_path / "epoch" / "model.safetensors", metadata={"format": "2"})

    with pytest.raises(CheckpointError, match=r"epoch: the format must be 1; got 2\. Use the mamba2 that wrote it\.$"):
        load_model(tmp_path / "epoch")
