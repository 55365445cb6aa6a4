"""Forecasts that cost nothing: what they say, and that they learn only from what they may."""

import numpy as np
import pytest

from mamba2.data.bars import MINUTE, Bars
from mamba2.evaluation.baselines import History, bars_since_start, fit_baselines, lagged, naive_name, own_past


def history(
    values: list[float] | np.ndarray, target: list[float] | np.ndarray, starts: tuple[int, ...] = (0,)
) -> History:
    number = np.arange(len(values))
    return History(np.array(values), np.isin(number, starts), np.full(len(values), 0.5), np.array(target))


def autoregressive(coefficient: float, n: int = 20_000) -> History:
    rng = np.random.default_rng(0)
    values = np.zeros(n)
    for t in range(1, n):
        values[t] = coefficient * values[t - 1] + 0.5 * rng.normal()
    return history(values, np.append(values[1:], 0.0) / 0.5)


def test_zero_persistence_and_mean() -> None:
    past = history([1.0, 2.0, -1.0], [1.0, 3.0, 5.0])
    found = fit_baselines([past], [np.array([True, True, False])])

    assert found["zero"](past).tolist() == [0.0, 0.0, 0.0]
    assert found["persistence"](past).tolist() == [2.0, 4.0, -2.0]
    assert found["train mean"](past).tolist() == [2.0, 2.0, 2.0]


def test_an_autoregression_finds_the_coefficient() -> None:
    past = autoregressive(0.3)
    forecast = fit_baselines([past], [np.ones(len(past.values), bool)])["AR(1) ridge"](past)

    assert np.cov(forecast, past.values / 0.5)[0, 1] / np.var(past.values / 0.5) == pytest.approx(0.3, abs=0.02)


def test_bars_that_are_not_fitted_on_change_nothing() -> None:
    past = autoregressive(0.3, 1000)
    fit = np.arange(1000) < 500
    other = past._replace(target=np.where(fit, past.target, 99.0))

    assert [each(past).tolist() for each in fit_baselines([past], [fit]).values()] == [
        each(past).tolist() for each in fit_baselines([other], [fit]).values()
    ]


def test_lags_stop_at_the_segment_start() -> None:
    assert lagged(history([1.0, 2.0, 3.0, 4.0], [0.0] * 4, starts=(0, 2)), 2).tolist() == [
        [2.0, 0.0, 1.0],
        [4.0, 2.0, 1.0],
        [6.0, 0.0, 1.0],
        [8.0, 6.0, 1.0],
    ]


def test_more_lags_than_bars_are_zero() -> None:
    assert lagged(history([1.0], [0.0]), 3).tolist() == [[2.0, 0.0, 0.0, 1.0]]


def test_without_bars_to_fit_on_nothing_is_forecast() -> None:
    past = history([1.0, 2.0], [1.0, 1.0])
    found = fit_baselines([past], [np.zeros(2, bool)])

    assert found["AR(10) ridge"](past).tolist() == [0.0, 0.0]
    assert found["train mean"](past).tolist() == [0.0, 0.0]


def test_the_past_of_a_target_is_its_own_series() -> None:
    prices = np.array([100, 110, 121]) * 10**9
    bars = Bars("6EH4", 1, 1, MINUTE, np.arange(3) * MINUTE, prices, prices * 2, prices, prices, np.ones(3, np.int64))

    assert own_past(bars, np.array([True, False, True]), "return") == pytest.approx([0.0, np.log(1.1), 0.0])
    assert own_past(bars, np.array([True, False, True]), "range") == pytest.approx([np.log(2)] * 3)


def test_a_range_is_measured_by_persistence() -> None:
    assert (naive_name("return"), naive_name("range")) == ("zero", "persistence")


def test_bars_since_start_counts_within_segments() -> None:
    assert bars_since_start(np.array([True, False, False, True, False])).tolist() == [0, 1, 2, 0, 1]
