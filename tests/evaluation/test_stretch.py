"""A stretch of validation bars, forecast as live."""

import numpy as np
import pytest
import torch

from mamba2.data.windows import Track, Windows
from mamba2.evaluation.stretch import Stretch, forecast_stretch
from mamba2.model.forecaster import Forecaster

MINUTE = 60 * 10**9


def windows(starts: list[int], first: int, bars: int = 40) -> Windows:
    """One validation window at bar `first` of a track whose segments begin at `starts`."""
    features = np.random.default_rng(0).normal(size=(bars, 9)).astype(np.float32)
    begins = np.isin(np.arange(bars), starts)
    valid = ~np.append(begins[1:], True)
    targets = np.where(valid[:, None], features[:, :1], 0)
    track = Track("TEST", np.arange(bars) * MINUTE, features, targets, valid, np.ones(bars), begins)
    return Windows((track,), 8, np.zeros(1, np.int64), np.array([first]))


def shown(model: Forecaster, validation: Windows, keep: np.ndarray | None = None, bars: int = 10) -> Stretch:
    everything = np.ones(len(validation.tracks[0].time), bool)
    stretch = forecast_stretch(model, validation, everything if keep is None else keep, bars=bars)
    assert stretch is not None
    return stretch


def test_it_is_centred_on_the_first_segment_start_there_is_room_for(model: Forecaster) -> None:
    stretch = shown(model, windows([0, 12, 25], first=10))

    assert stretch.time == [bar * MINUTE for bar in range(20, 30)]
    assert stretch.starts == [bar == 25 for bar in range(20, 30)]
    assert stretch.began == 12 * MINUTE


def test_without_such_a_start_it_begins_with_validation(model: Forecaster) -> None:
    stretch = shown(model, windows([0], first=10))

    assert stretch.time == [bar * MINUTE for bar in range(10, 20)]
    assert (stretch.began, any(stretch.starts)) == (0, False)


def test_the_last_bar_of_a_segment_has_no_outcome(model: Forecaster) -> None:
    validation = windows([0, 25], first=10)
    stretch = shown(model, validation)

    assert [bar for bar, value in zip(range(20, 30), stretch.actual, strict=True) if value is None] == [24]
    assert stretch.actual[0] == pytest.approx(float(validation.tracks[0].features[20, 0]))


def test_the_quantiles_are_those_of_one_forward_from_the_segment_start(model: Forecaster) -> None:
    validation = windows([0, 25], first=10)
    stretch = shown(model, validation)
    whole = torch.from_numpy(validation.tracks[0].features)[None]
    with torch.no_grad():
        before, _ = model(whole[:, :25], model.initial_state(1))
        after, _ = model(whole[:, 25:], model.initial_state(1))
    expected = torch.cat((before.quantiles[0, 20:, 0], after.quantiles[0, :5, 0])).T

    torch.testing.assert_close(torch.tensor(stretch.quantiles), expected)
    assert stretch.levels == pytest.approx([0.1, 0.5, 0.9])


def test_bars_that_are_not_chosen_are_left_out(model: Forecaster) -> None:
    keep = np.ones(40, bool)
    keep[12:25] = False
    stretch = shown(model, windows([0, 12, 25], first=8), keep)

    assert stretch.time == [bar * MINUTE for bar in (*range(8, 12), *range(25, 31))]
    assert not np.isnan(stretch.quantiles).any()


def test_without_validation_there_is_none(model: Forecaster) -> None:
    validation = windows([0], first=10).subset(np.zeros(1, bool))

    assert forecast_stretch(model, validation, np.ones(40, bool)) is None
