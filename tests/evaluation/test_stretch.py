"""A stretch of bars, forecast as live."""

import numpy as np
import pytest
import torch

from mamba2.data.windows import Track
from mamba2.evaluation.stretch import Stretch, forecast_stretch
from mamba2.model.forecaster import Forecaster

MINUTE = 60 * 10**9


def track(starts: list[int], bars: int = 40, symbol: str = "TEST", opens: int = 0) -> Track:
    """A contract whose segments begin at `starts`, its first bar in the minute `opens`."""
    features = np.random.default_rng(opens).normal(size=(bars, 9)).astype(np.float32)
    begins = np.isin(np.arange(bars), starts)
    valid = ~np.append(begins[1:], True)
    targets = np.where(valid[:, None], features[:, :1], 0)
    return Track(symbol, (opens + np.arange(bars)) * MINUTE, features, targets, valid, np.ones(bars), begins)


def everything(each: Track) -> np.ndarray:
    return np.ones(len(each.time), bool)


def shown(model: Forecaster, *tracks: Track, first: int, keep: np.ndarray | None = None, bars: int = 10) -> Stretch:
    contracts = [(each, everything(each) if keep is None else keep) for each in tracks]
    stretch = forecast_stretch(model, contracts, first * MINUTE, bars=bars)
    assert stretch is not None
    return stretch


def test_it_is_centred_on_the_first_segment_start_there_is_room_for(model: Forecaster) -> None:
    stretch = shown(model, track([0, 12, 25]), first=10)

    assert stretch.time == [bar * MINUTE for bar in range(20, 30)]
    assert stretch.starts == [bar == 25 for bar in range(20, 30)]
    assert stretch.began == 12 * MINUTE


def test_without_such_a_start_it_begins_where_it_may(model: Forecaster) -> None:
    stretch = shown(model, track([0]), first=10)

    assert stretch.time == [bar * MINUTE for bar in range(10, 20)]
    assert (stretch.began, any(stretch.starts)) == (0, False)


def test_the_last_bar_of_a_segment_has_no_outcome(model: Forecaster) -> None:
    judged = track([0, 25])
    stretch = shown(model, judged, first=10)

    assert [bar for bar, value in zip(range(20, 30), stretch.actual, strict=True) if value is None] == [24]
    assert stretch.actual[0] == pytest.approx(float(judged.features[20, 0]))


def test_the_quantiles_are_those_of_one_forward_from_the_segment_start(model: Forecaster) -> None:
    judged = track([0, 25])
    stretch = shown(model, judged, first=10)
    whole = torch.from_numpy(judged.features)[None]
    with torch.no_grad():
        before, _ = model(whole[:, :25], model.initial_state(1))
        after, _ = model(whole[:, 25:], model.initial_state(1))
    expected = torch.cat((before.quantiles[0, 20:, 0], after.quantiles[0, :5, 0])).T

    torch.testing.assert_close(torch.tensor(stretch.quantiles), expected)
    assert stretch.levels == pytest.approx([0.1, 0.5, 0.9])


def test_bars_that_are_not_chosen_are_left_out(model: Forecaster) -> None:
    keep = np.ones(40, bool)
    keep[12:25] = False
    stretch = shown(model, track([0, 12, 25]), first=8, keep=keep)

    assert stretch.time == [bar * MINUTE for bar in (*range(8, 12), *range(25, 31))]
    assert not np.isnan(stretch.quantiles).any()


def test_a_roll_is_in_the_middle_and_named(model: Forecaster) -> None:
    old, new = track([0, 12], bars=30, symbol="OLD"), track([0], bars=30, symbol="NEW", opens=30)
    stretch = shown(model, old, new, first=5)
    with torch.no_grad():
        after, _ = model(torch.from_numpy(new.features)[None, :5], model.initial_state(1))

    assert stretch.time == [bar * MINUTE for bar in range(25, 35)]
    assert stretch.symbol == "OLD"
    assert [(bar, symbol) for bar, symbol in enumerate(stretch.rolls) if symbol] == [(5, "NEW")]
    assert stretch.starts == [bar == 5 for bar in range(10)]
    torch.testing.assert_close(torch.tensor(stretch.quantiles)[:, 5:].T, after.quantiles[0, :, 0])


def test_of_contracts_side_by_side_the_longest_is_shown(model: Forecaster) -> None:
    stretch = shown(model, track([0], bars=20, symbol="SHORT"), track([0], bars=25, symbol="LONG"), first=5)

    assert (stretch.symbol, any(stretch.rolls)) == ("LONG", False)
    assert stretch.time == [bar * MINUTE for bar in range(5, 15)]


def test_where_no_bar_follows_there_is_none(model: Forecaster) -> None:
    judged = track([0])

    assert forecast_stretch(model, [(judged, everything(judged))], 40 * MINUTE) is None
