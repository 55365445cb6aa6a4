"""Measures of forecasts, against values worked out by hand."""

import numpy as np
import pytest

from mamba2.evaluation.metrics import Estimate, Observations, by_position, coverage, estimate, pool, ranks, score


def seen(target: list[float], forecast: list[float], days: list[int] | None = None, scale: float = 1.0) -> Observations:
    n = len(target)
    return Observations(
        time=np.arange(n),
        target=np.array(target),
        naive=np.zeros(n),
        naive_error=np.full(n, 2.0),
        volatility=np.full(n, scale),
        day=np.zeros(n, int) if days is None else np.array(days),
        position=np.arange(n),
        forecasts={"model": np.array(forecast)},
        quantiles=np.array(forecast)[:, None],
    )


def test_ratios_are_to_the_naive_forecast() -> None:
    found = score("model", seen([1.0, -3.0], [0.0, -1.0]), signed=True)

    assert found.mse_ratio.value == 5 / 10
    assert found.mae_ratio.value == 3 / 4
    assert found.mase.value == 3 / 4  # mean error 1.5 over 2 on the training bars


def test_the_raw_ratio_weighs_bars_by_their_variance() -> None:
    observed = seen([1.0, -3.0], [0.0, -1.0])._replace(volatility=np.array([3.0, 1.0]))

    assert score("model", observed, signed=True).raw_mse_ratio.value == (9 * 1 + 4) / (9 * 1 + 9)


def test_direction_leaves_out_bars_without_a_move_or_a_forecast() -> None:
    found = score("model", seen([1.0, -1.0, 0.0, 2.0], [1.0, 1.0, 1.0, 0.0]), signed=True)

    assert found.direction.value == 1 / 2


def test_a_range_has_no_direction() -> None:
    assert score("model", seen([1.0, 2.0], [1.0, 1.0]), signed=False).direction == Estimate(None, None)


def test_ic_is_the_correlation_and_rank_ic_that_of_ranks() -> None:
    found = score("model", seen([1.0, 2.0, 3.0, 10.0], [1.0, 3.0, 2.0, 4.0]), signed=True)

    assert found.ic.value == pytest.approx(np.corrcoef([1, 2, 3, 10], [1, 3, 2, 4])[0, 1])
    assert found.rank_ic.value == pytest.approx(0.8)


def test_a_constant_forecast_has_no_ic() -> None:
    assert score("model", seen([1.0, 2.0, 4.0], [0.1, 0.1, 0.1]), signed=True).ic == Estimate(None, None)


def test_a_ratio_to_nothing_is_undefined() -> None:
    assert score("model", seen([0.0, 0.0], [1.0, 1.0]), signed=True).mse_ratio == Estimate(None, None)


def test_the_standard_error_leaves_out_one_day_after_the_other() -> None:
    found = score("model", seen([1.0, 1.0, 2.0, 2.0], [0.0, 1.0, 0.0, 2.0], days=[0, 0, 1, 2]), signed=True)

    without = np.array([4 / 8, 1 / 6, 5 / 6])  # each day's squared errors left out in turn
    assert found.mse_ratio.value == 5 / 10
    assert found.mse_ratio.error == pytest.approx(np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum()))


def test_one_day_has_no_standard_error() -> None:
    assert score("model", seen([1.0, 2.0], [0.0, 0.0]), signed=True).mse_ratio == Estimate(1.0, None)


def test_the_standard_error_of_independent_days_is_that_of_their_mean() -> None:
    values = np.random.default_rng(0).normal(size=50)
    found = estimate(np.stack([values, np.ones(50)], 1), np.arange(50), lambda sums: sums[..., 0] / sums[..., 1])

    assert found.error == pytest.approx(values.std(ddof=1) / np.sqrt(50))


def test_nothing_observed_is_undefined() -> None:
    assert estimate(np.empty((0, 2)), np.empty(0, int), lambda sums: sums[..., 0]) == Estimate(None, None)


def test_coverage_counts_outcomes_at_or_below_the_quantile() -> None:
    (found,) = coverage(seen([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]), (0.5,))

    assert (found.level, found.share.value) == (0.5, 0.5)


def test_errors_by_position_are_apart() -> None:
    found = by_position("model", seen([1.0] * 10, [1.0] * 4 + [0.0] * 6), window=4)

    assert [(each.first, each.end, each.bars, each.mse_ratio.value) for each in found] == [
        (0, 1, 1, 0.0),
        (1, 2, 1, 0.0),
        (2, 4, 2, 0.0),
        (4, 8, 4, 1.0),
        (8, 16, 2, 1.0),
    ]


def test_equal_values_share_a_rank() -> None:
    assert ranks(np.array([2.0, 1.0, 2.0, 5.0])).tolist() == [1.5, 0.0, 1.5, 3.0]


def test_pooled_rows_are_those_of_all_parts() -> None:
    whole = seen([1.0, 2.0, 3.0], [0.0, 0.5, 1.0])
    parts = [whole.at(np.array([True, False, False])), whole.at(np.array([False, True, True]))]
    pooled = pool(parts)

    assert pooled.target.tolist() == [1.0, 2.0, 3.0]
    assert pooled.forecasts["model"].tolist() == [0.0, 0.5, 1.0]
    assert pooled.quantiles.tolist() == [[0.0], [0.5], [1.0]]
