"""Checkpoints: whole or not there, every byte checked, and nothing but the path to load one."""

import math
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mamba2.config import RunConfig, TrainConfig
from mamba2.errors import CheckpointError
from mamba2.model.files import write_checksums
from mamba2.model.forecaster import Forecaster
from mamba2.train import checkpoint
from mamba2.train.checkpoint import (
    Progress,
    checkpoint_name,
    load_model,
    load_training,
    newest,
    point_at,
    prune,
    save_checkpoint,
)
from mamba2.train.optim import make_optimizer


def save(folder: Path, model: Forecaster, config: RunConfig) -> None:
    save_checkpoint(folder, model, make_optimizer(model, TrainConfig()), config, Progress(step=3, data="abc"))


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

    assert (training["step"], training["data"]) == (3, "abc")


def test_a_checkpoint_of_the_same_name_is_replaced(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    with torch.no_grad():
        model.embed.bias.fill_(0.5)
    save(tmp_path / "epoch", model, config)

    assert load_model(tmp_path / "epoch")[0].embed.bias.tolist() == [0.5] * 8
    assert [path.name for path in tmp_path.iterdir()] == ["epoch"]


def test_killed_between_the_two_renames_the_old_checkpoint_is_still_found(
    model: Forecaster, config: RunConfig, tmp_path: Path
) -> None:
    save(tmp_path / "epoch-001", model, config)
    (tmp_path / "epoch-001").rename(tmp_path / ".epoch-001.replaced")
    loaded = load_model(tmp_path / "epoch-001")[0]

    assert torch.equal(loaded.embed.bias, model.embed.bias)
    assert newest(tmp_path) == tmp_path / "epoch-001"


def test_a_write_that_fails_at_any_call_leaves_the_old_checkpoint_or_the_new_one(
    model: Forecaster, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"left": 0}

    def fail_in_the_end(real):
        def call(*arguments, **options):
            calls["left"] -= 1
            if calls["left"] == 0:
                raise OSError(30, "Read-only file system")
            return real(*arguments, **options)

        return call

    for owner, name in ((os, "rename"), (os, "mkdir"), (os, "fsync"), (os, "open"), (torch, "save")):
        monkeypatch.setattr(owner, name, fail_in_the_end(getattr(owner, name)))
    save(tmp_path / "epoch", model, config)
    outcomes = []
    for number in range(1, 30):
        before = load_model(tmp_path / "epoch")[0].embed.bias[0].item()
        with torch.no_grad():
            model.embed.bias.fill_(number)
        calls["left"] = number
        try:
            save(tmp_path / "epoch", model, config)
            outcomes.append("written")
        except CheckpointError:
            outcomes.append("refused")
        calls["left"] = 0
        after = load_model(tmp_path / "epoch")[0].embed.bias[0].item()

        assert after == number if outcomes[-1] == "written" else after in (before, number)
    assert outcomes.count("refused") >= 8
    assert outcomes[-1] == "written"


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

    with pytest.raises(CheckpointError, match=rf"epoch: damaged: {missing} is missing\. Take another checkpoint\.$"):
        load_model(tmp_path / "epoch")


def test_weights_that_do_not_fit_are_all_listed(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    weights = load_file(tmp_path / "epoch" / "model.safetensors")
    weights["stranger"] = weights.pop("embed.bias")
    weights["head.bias"] = torch.zeros(7)
    save_file(weights, tmp_path / "epoch" / "model.safetensors", metadata={"format": "1"})
    write_checksums(tmp_path / "epoch")

    with pytest.raises(
        CheckpointError, match=r"embed.bias is missing; stranger is unknown; head.bias is \(7,\), not \(4,\)\.$"
    ):
        load_model(tmp_path / "epoch")


def test_a_newer_format_is_named(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    weights = load_file(tmp_path / "epoch" / "model.safetensors")
    save_file(weights, tmp_path / "epoch" / "model.safetensors", metadata={"format": "2"})
    write_checksums(tmp_path / "epoch")

    with pytest.raises(CheckpointError, match=r"epoch: the format must be 1; got 2\. Use the mamba2 that wrote it\.$"):
        load_model(tmp_path / "epoch")


@pytest.mark.parametrize("name", ["model.safetensors", "config.toml", "training.pt", "checksums"])
def test_a_flipped_byte_is_found_and_its_file_named(
    name: str, model: Forecaster, config: RunConfig, tmp_path: Path
) -> None:
    save(tmp_path / "epoch", model, config)
    path = tmp_path / "epoch" / name
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    named = "config.toml" if name == "checksums" else name  # the first that checksums lists

    with pytest.raises(CheckpointError, match=rf"epoch: damaged: {named} is not what was written \(SHA-256\)\."):
        load_model(tmp_path / "epoch")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('a checkpoint ran code')",)


def test_a_training_state_that_would_run_code_is_refused(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    for write in (torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb, protocol=2))):
        write(Bomb(), tmp_path / "epoch" / "training.pt")
        write_checksums(tmp_path / "epoch")

        with pytest.raises(
            CheckpointError, match=r"training\.pt: must hold tensors and numbers only; .* Nothing of it"
        ):
            load_training(tmp_path / "epoch", model, make_optimizer(model, config.train), config, "abc")


def test_a_run_goes_on_with_its_own_config_and_data_only(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch", model, config)
    other = RunConfig(model=config.model, data=config.data, train=TrainConfig(epochs=5, batch=4, keep=3))
    optimizer = make_optimizer(model, config.train)

    with pytest.raises(CheckpointError, match=r"own config; train\.epochs is 5, not the run's 2\. Leave that out"):
        load_training(tmp_path / "epoch", model, optimizer, other, "abc")
    with pytest.raises(CheckpointError, match=r"the data must be those of the run, digest abc; got xyz\."):
        load_training(tmp_path / "epoch", model, optimizer, config, "xyz")


def test_last_and_best_load_like_folders_and_survive_a_copy(
    model: Forecaster, config: RunConfig, tmp_path: Path
) -> None:
    save(tmp_path / "epoch-001", model, config)
    point_at(tmp_path, last="epoch-001", best="")
    moved = tmp_path.rename(tmp_path.with_name("moved"))

    assert load_model(moved / "last")[1] == config
    assert not (moved / "best").exists()


def test_the_newest_and_the_best_are_kept(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    for step in (5, 10, 15, 20, 25):
        save(tmp_path / checkpoint_name(step, 10), model, config)
    (tmp_path / ".epoch-009.unfinished").mkdir()
    point_at(tmp_path, last="epoch-003-step-0000025", best="epoch-001")
    prune(tmp_path, keep=2)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best",
        "epoch-001",
        "epoch-002",
        "epoch-003-step-0000025",
        "last",
    ]
    assert newest(tmp_path) == tmp_path / "epoch-003-step-0000025"


def test_without_a_number_to_keep_all_stay(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    save(tmp_path / "epoch-001", model, config)
    prune(tmp_path, keep=None)

    assert newest(tmp_path) == tmp_path / "epoch-001"
    assert newest(tmp_path / "nothing") is None


@pytest.mark.parametrize("content", [b"", b"../elsewhere", b"\x28\xb5\x2f\xfd" * 9999, b"epoch-001\0"])
def test_a_file_that_names_no_checkpoint_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "last").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"last: must be a checkpoint, or name one; it does neither\.") as raised:
        load_model(tmp_path / "last")
    assert len(str(raised.value).splitlines()) == 1


def test_a_validation_that_is_no_number_is_never_the_best() -> None:
    before = Progress(best=0.5, best_name="epoch-001")

    assert before.end_epoch(math.nan, 1.0, "epoch-002").best_name == "epoch-001"
