"""Bars in random order are the same bars, and nothing but their order is lost."""

import numpy as np
import pytest

from mamba2.data.bars import Bars, Market, load_bars
from mamba2.data.planted import write_planted
from mamba2.data.surrogate import surrogate_market


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return load_bars([write_planted(tmp_path_factory.mktemp("planted") / "a.dbn.zst", "ar1", bars=4000)])


def shapes(bars: Bars, part: slice) -> np.ndarray:
    """Candles after the part's first bar, over the close before; and those times the volume; each in sorted order."""
    before, volume = bars.close[part][:-1], bars.volume[part][1:]
    ratios = [each[part][1:] / before for each in (bars.open, bars.high, bars.low, bars.close)]
    return np.sort([*ratios, *(each * volume for each in ratios)])


def test_each_segment_keeps_its_bars(market: Market) -> None:
    (bars,), (other,) = market.series, surrogate_market(market, None, seed=0).series

    for part in (slice(0, 1320), slice(1320, 2700)):  # the first day begins at midnight UTC, and breaks at 22:00
        assert shapes(other, part) == pytest.approx(shapes(bars, part), rel=1e-8)
    assert not np.array_equal(other.volume, bars.volume)


def test_times_and_first_bars_stay(market: Market) -> None:
    (bars,), (other,) = market.series, surrogate_market(market, None, seed=0).series
    first = np.array([0, 1320, 2700])

    assert np.array_equal(other.time, bars.time)
    for name in ("open", "high", "low", "close", "volume"):
        assert np.array_equal(getattr(other, name)[first], getattr(bars, name)[first])


def test_prices_keep_their_order(market: Market) -> None:
    (other,) = surrogate_market(market, None, seed=0).series

    assert (other.low <= np.minimum(other.open, other.close)).all()
    assert (other.high >= np.maximum(other.open, other.close)).all()


def test_returns_lose_their_autocorrelation(market: Market) -> None:
    def lag_one(bars: Bars) -> float:
        change = np.diff(np.log(bars.close.astype(float)))
        return float(np.corrcoef(change[1:], change[:-1])[0, 1])

    assert lag_one(market.series[0]) == pytest.approx(0.3, abs=0.05)
    assert lag_one(surrogate_market(market, None, seed=0).series[0]) == pytest.approx(0.0, abs=0.05)


def test_a_seed_is_an_order(market: Market) -> None:
    one, again, two = (surrogate_market(market, None, seed=seed).series[0].close for seed in (1, 1, 2))

    assert np.array_equal(one, again)
    assert not np.array_equal(one, two)
