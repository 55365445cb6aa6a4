"""Whole runs: what they leave in their folder, how they stop, and what they refuse."""

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.data.bars import MINUTE
from mamba2.data.dataset import Dataset, prepare
from mamba2.errors import CheckpointError, ConfigError, TrainingError
from mamba2.model.forecaster import Forecaster
from mamba2.train import preflight as preflight_module
from mamba2.train import show
from mamba2.train.checkpoint import load_model, make_model
from mamba2.train.failure import replay
from mamba2.train.loop import Epoch, Saved, Step, fit
from mamba2.train.records import data_digest, list_runs, read_metrics
from mamba2.train.run import Begun, Diverging, fit_files, warned

Command = Callable[..., Any]


@pytest.fixture
def small() -> RunConfig:
    """A run of 22 steps on the example files."""
    model = ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=20)
    data = DataConfig(contract="6EH4", window=20, stride=60)
    return RunConfig(model=model, data=data, train=TrainConfig(epochs=2, batch=8))


def in_float64(dataset: Dataset) -> Dataset:
    track = dataset.train.tracks[0]
    tracks = (track._replace(features=track.features.astype(np.float64), targets=track.targets.astype(np.float64)),)
    return replace(
        dataset, train=replace(dataset.train, tracks=tracks), validation=replace(dataset.validation, tracks=tracks)
    )


def untimed(out: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_metrics(out)]


def test_a_stopped_run_leaves_the_same_records_as_one_that_never_stopped(
    example: list[Path], small: RunConfig, tmp_path: Path
) -> None:
    whole = list(fit_files(example, small, tmp_path / "whole"))
    for last in (3, 9, None):
        stop = Event()
        for event in fit_files(example, small, tmp_path / "stopped", resume=True, stop=stop):
            if isinstance(event, Step) and event.step == last:
                stop.set()
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')  # as a process killed here would leave it
    again = list(fit_files(example, small, tmp_path / "stopped", resume=True))
    weights = [load_model(tmp_path / name / "checkpoints" / "last")[0].state_dict() for name in ("whole", "stopped")]

    assert [type(event) for event in again] == [Begun, Epoch]
    assert untimed(tmp_path / "stopped") == untimed(tmp_path / "whole")
    assert sum(isinstance(event, Step) for event in whole) == whole[0].steps
    assert all(torch.equal(each, weights[1][name]) for name, each in weights[0].items())


def test_a_run_says_how_it_came_to_be(example: list[Path], small: RunConfig, tmp_path: Path) -> None:
    list(fit_files(example, small, tmp_path))
    record = json.loads((tmp_path / "run.json").read_text())
    dataset = prepare(example, small.data)

    assert RunConfig.load(tmp_path / "config.toml") == small
    assert record["data"] == {
        "digest": data_digest(dataset),
        "files": [path.name for path in example],
        "interval": MINUTE,
        "messages": 7223,
        "bars": 5460,
        "sequences": dataset.sequences,
        "train_sequences": len(dataset.train),
        "validation_sequences": len(dataset.validation),
    }
    assert record["parameters"] == sum(each.numel() for each in make_model(small).parameters())
    assert (record["seed"], record["versions"]["torch"]) == (0, torch.__version__)
    assert record["git"] is None or len(record["git"]["commit"]) == 40


def test_another_config_or_other_data_are_refused_on_resume(
    example: list[Path], small: RunConfig, tmp_path: Path
) -> None:
    list(fit_files(example, small, tmp_path))
    other = replace(small, data=replace(small.data, window=30))

    with pytest.raises(CheckpointError, match=r"goes on with its own config; data\.window is 30, not the run's 20\."):
        list(fit_files(example, other, tmp_path, resume=True))
    with pytest.raises(CheckpointError, match=r"last|epoch-002: the data must be those of the run, digest "):
        list(fit_files(example[:3], small, tmp_path, resume=True))


def test_one_changed_feature_changes_the_digest(dataset: Dataset) -> None:
    before = data_digest(dataset)
    dataset.train.tracks[0].features[3, 2] += 1e-3

    assert data_digest(dataset) != before


def test_sigterm_finishes_the_step_and_resume_goes_on(
    example: list[Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(TINY)

    def stopped_at(step: int, number: int):
        def events(*arguments: Any, **options: Any):
            for event in fit_files(*arguments, **options):
                if isinstance(event, Step) and event.step == step:
                    os.kill(os.getpid(), number)
                yield event

        return events

    run = ("train", *example, "--symbol", "6EH4", "--out", tmp_path / "run")
    outcomes = []
    for step, number in ((2, signal.SIGTERM), (4, signal.SIGINT)):
        monkeypatch.setattr(show, "fit_files", stopped_at(step, number))
        outcomes.append(command(*run, *(("--config", tiny) if step == 2 else ("--resume",))))
    monkeypatch.setattr(show, "fit_files", fit_files)
    last = command(*run, "--resume")

    assert [outcome.status for outcome in (*outcomes, last)] == [143, 130, 0], last.err
    assert "parameters, about " in outcomes[0].out
    assert "epoch-001-step-0000002: the same command with --resume goes on from there" in outcomes[0].out
    assert "going on from" in last.out
    assert [line["step"] for line in read_metrics(tmp_path / "run") if line["kind"] == "step"][:5] == [1, 2, 3, 4, 5]


def test_every_way_to_train_can_be_typed(example: list[Path], tmp_path: Path, command: Command) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    options = ("--carry-state", "--accumulate", 2, "--precision", "bf16", "--save-every", 3, "--keep", 1, "--epochs", 1)
    out = tmp_path / "run"
    outcome = command("train", *example, "--config", tmp_path / "tiny.toml", "--symbol", "6EH4", *options, "--out", out)
    train = load_model(out / "checkpoints" / "best")[1].train

    assert outcome.status == 0, outcome.err
    assert (train.carry_state, train.accumulate, train.precision) == (True, 2, "bf16")
    assert (train.save_every, train.keep) == (3, 1)
    assert [path.name for path in (out / "checkpoints").glob("epoch-*")] == ["epoch-001"]


TINY = """
[model]
d_model = 16
layers = 1
headdim = 16
d_state = 4
[train]
batch = 8
epochs = 2
"""


def test_a_step_that_is_not_finite_is_kept_and_can_be_taken_again(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    dataset.train.tracks[0].features[9 * 8 + 5, 4] = math.inf  # the tenth window
    with pytest.raises(TrainingError, match=r"^training: step \d: the loss is nan; .*mamba2 replay .*failed-batch"):
        list(fit(model, dataset, config, tmp_path))
    result = replay(tmp_path / "failed-batch")

    assert result.first == "the batch's features"
    assert result.again == result.failed.partition(": ")[2]
    assert load_model(tmp_path / "failed-batch")[1] == config


def test_a_module_that_breaks_a_finite_batch_is_named(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    with torch.no_grad():
        model.head.weight.fill_(3e38)
    with pytest.raises(TrainingError):
        list(fit(model, dataset, config, tmp_path))

    assert replay(tmp_path / "failed-batch").first == "head"


def test_a_state_that_is_not_finite_stops_training(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Forecaster.forward

    def spoiled(self, *arguments):
        forecast, state = real(self, *arguments)
        return forecast, (state[0], state[1]._replace(ssm=state[1].ssm / 0.0))

    monkeypatch.setattr(Forecaster, "forward", spoiled)
    with pytest.raises(TrainingError, match=r"step 1: a state is not finite; in the state of block 1\."):
        list(fit(model, dataset, config, tmp_path))


def test_replay_says_what_is_found_and_fails(
    model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path, command: Command
) -> None:
    dataset.train.tracks[0].features[:] = math.nan
    with pytest.raises(TrainingError):
        list(fit(model, dataset, config, tmp_path))
    outcome = command("replay", tmp_path / "failed-batch")

    assert outcome.status == 1
    assert outcome.out.splitlines()[0].startswith("failed: step 1: the loss is nan; first in the gradient of ")
    assert outcome.out.splitlines()[2] == "first:  the batch's features"


def test_what_is_no_failed_batch_is_refused_by_name(tmp_path: Path, command: Command) -> None:
    assert command("replay", tmp_path).err == (
        f"mamba2: {tmp_path}: must be what a step that was not finite left; it holds no failure.json. "
        "Name RUN/failed-batch.\n"
    )


def test_a_loss_that_doubles_is_warned_of_once() -> None:
    losses = [1.0] * 30 + [3.0] * 60
    steps = [Step(1, number + 1, 90, loss, 0.1, 1.0, 8) for number, loss in enumerate(losses)]
    warnings = [event for event in warned(iter(steps)) if isinstance(event, Diverging)]

    # the mean of twenty passes 2 with the eleventh step of 3
    assert warnings == [Diverging(41, pytest.approx(2.1), pytest.approx(1.0))]


def test_runs_are_listed_with_the_settings_in_which_they_differ(
    example: list[Path], small: RunConfig, tmp_path: Path, command: Command
) -> None:
    for name, rate in (("a", 1e-3), ("b", 3e-3)):
        list(fit_files(example, replace(small, train=replace(small.train, learning_rate=rate)), tmp_path / name))
    listed = list_runs(tmp_path)
    outcome = command("runs", tmp_path)

    assert [(run.name, run.step, run.settings) for run in listed] == [
        ("a", listed[0].steps, {"train.learning_rate": 1e-3}),
        ("b", listed[0].steps, {"train.learning_rate": 3e-3}),
    ]
    assert "learning_rate = 0.003" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert command("runs", tmp_path / "nothing").err.startswith(f"mamba2: {tmp_path / 'nothing'}: must hold runs ")


def test_what_cannot_fit_is_refused_before_anything_is_written(
    example: list[Path], small: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight_module, "free_memory", lambda _: 1000)

    with pytest.raises(ConfigError, match=r"^memory: cpu must have about 0\.0 GB free; got 0\.0 GB\. Raise accumulate"):
        list(fit_files(example, small, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_accumulated_parts_give_the_gradient_of_the_large_batch(
    parts: int, dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    found = []
    for accumulate in (1, parts):
        settings = replace(config, train=replace(config.train, batch=7, accumulate=accumulate))
        torch.manual_seed(0)
        model = make_model(config).double()
        step = next(fit(model, in_float64(dataset), settings, tmp_path))
        gradients = torch.cat([each.grad.flatten() for each in model.parameters()])
        found.append(torch.cat((torch.tensor([step.loss, step.gradient_norm]), gradients)))

    assert torch.allclose(*found, rtol=0, atol=1e-10)


def test_bf16_trains_float32_weights(model: Forecaster, dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    settings = replace(config, train=replace(config.train, precision="bf16", epochs=4))
    events = list(fit(model, dataset, settings, tmp_path))
    validations = [event.validation_loss for event in events if isinstance(event, Epoch)]
    full = next(fit(type(model)(config.model, features=9, targets=1), dataset, config, tmp_path / "full"))

    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert validations[-1] < validations[0]
    assert not any(isinstance(event, Saved) for event in events)
    assert full.loss != events[0].loss


def test_a_validation_loss_that_is_not_finite_ends_the_run(
    dataset: Dataset, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mamba2.train.loop.validate", lambda *_: math.nan)

    with pytest.raises(TrainingError, match=r"^epoch 1: the validation loss must be finite; got nan\."):
        list(fit(make_model(config), dataset, config, tmp_path))


def test_a_damaged_line_of_the_metrics_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n')

    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 must be JSON; .* Take the line out\.$"):
        read_metrics(tmp_path)


def test_names_in_brackets_are_shown_as_they_are(
    example: list[Path], small: RunConfig, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "one[x]"
    show.train(example, replace(small, train=replace(small.train, epochs=1)), out, resume=False)

    assert f"{out}/checkpoints/epoch-001" in capsys.readouterr().out
    assert "one[x]" in command("runs", tmp_path).out
