"""A run that stops and goes on is the run that never stopped, bit for bit."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.train.checkpoint import make_model, newest
from mamba2.train.loop import Epoch, Saved, Step, fit


def untimed(events):
    """What happened, without seconds and paths."""
    steps = [event for event in events if isinstance(event, Step)]
    epochs = [(each.epoch, each.train_loss, each.validation_loss) for each in events if isinstance(each, Epoch)]
    return steps, epochs


def run(dataset: Dataset, config: RunConfig, out: Path, stops: list[int]):
    """Trains with a stop after each of these steps, each time with a new model and from the newest checkpoint."""
    events = []
    for last in [*stops, None]:
        torch.manual_seed(config.train.seed if not events else 1234)
        model, stop = make_model(config), Event()
        for event in fit(model, dataset, config, out, start=newest(out / "checkpoints"), stop=stop):
            events += [event] if event not in events else []  # the end of an epoch is told again after a stop there
            if isinstance(event, Step) and event.step == last:
                stop.set()
    return events, model.state_dict(), torch.load(newest(out / "checkpoints") / "training.pt", weights_only=True)


@pytest.mark.parametrize("carry_state", [False, True])
def test_stops_anywhere_change_nothing(
    carry_state: bool, dataset: Dataset, config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = replace(config, train=replace(config.train, epochs=3, batch=4, carry_state=carry_state))
    dataset = chained(dataset) if carry_state else dataset
    whole, weights, training = run(dataset, config, tmp_path_factory.mktemp("whole"), [])

    @settings(max_examples=6)
    @given(st.sets(st.integers(1, 8)).map(sorted))
    def check(stops: list[int]) -> None:
        events, again, training_again = run(dataset, config, tmp_path_factory.mktemp("stopped"), stops)

        assert untimed(events) == untimed(whole)
        assert sum(isinstance(event, Saved) for event in events) == sum(stop % 3 != 0 for stop in stops)
        assert all(torch.equal(each, again[name]) for name, each in weights.items())
        assert all(
            torch.equal(value, training_again["optimizer"]["state"][index][name])
            for index, values in training["optimizer"]["state"].items()
            for name, value in values.items()
        )

    check()


def chained(dataset: Dataset) -> Dataset:
    """The same windows, in segments of several windows each."""
    track = dataset.train.tracks[0]
    starts = track.starts & (torch.arange(len(track.time)).numpy() % 24 == 0)
    tracks = (track._replace(starts=starts),)
    return replace(
        dataset, train=replace(dataset.train, tracks=tracks), validation=replace(dataset.validation, tracks=tracks)
    )


def test_killed_after_an_epoch_was_saved_its_end_is_told_again(
    dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    first = next(event for event in fit(make_model(config), dataset, config, tmp_path) if isinstance(event, Epoch))
    again = next(fit(make_model(config), dataset, config, tmp_path, start=first.checkpoint))

    assert again == first


def test_a_finished_run_has_nothing_left_to_do(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    *_, last = fit(make_model(config), dataset, config, tmp_path)

    assert list(fit(make_model(config), dataset, config, tmp_path, start=tmp_path / "checkpoints" / "last")) == [
        last._replace(checkpoint=tmp_path / "checkpoints" / "last")
    ]


def test_checkpoints_come_every_so_many_steps_and_the_newest_are_kept(
    dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    config = replace(config, train=replace(config.train, save_every=2, keep=2))
    events = list(fit(make_model(config), dataset, config, tmp_path))

    assert [event.step for event in events if isinstance(event, Saved)] == [2, 4]
    assert (tmp_path / "checkpoints" / "last").read_text() == "epoch-002\n"
    assert {path.name for path in (tmp_path / "checkpoints").glob("epoch-*")} >= {"epoch-002-step-0000004", "epoch-002"}


def test_the_best_checkpoint_is_the_epoch_with_the_lowest_validation_loss(
    dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    epochs = [event for event in fit(make_model(config), dataset, config, tmp_path) if isinstance(event, Epoch)]
    best = min(epochs, key=lambda epoch: epoch.validation_loss)

    assert (tmp_path / "checkpoints" / "best").read_text() == f"{best.checkpoint.name}\n"
