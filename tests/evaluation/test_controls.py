"""Controls that train anew: the surrogate finds what looks ahead, and folds are judged by the past only."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.data import dataset
from mamba2.data.bars import Bars, Market, load_bars
from mamba2.data.dataset import make_tracks
from mamba2.data.features import Features, FeatureState, compute_features
from mamba2.data.planted import write_planted
from mamba2.data.surrogate import surrogate_market
from mamba2.errors import DataError
from mamba2.evaluation import controls
from mamba2.evaluation.controls import surrogate_control, walk_forward

CONFIG = RunConfig(
    model=ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=16),
    data=DataConfig(contract="all", window=30),
    train=TrainConfig(epochs=4, batch=8, learning_rate=1e-2),
)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return load_bars([write_planted(tmp_path_factory.mktemp("planted") / "a.dbn.zst", "ar1", bars=4500)])


def looking_ahead(bars: Bars, starts: np.ndarray, state: FeatureState | None = None) -> Features:
    """Features whose return is that of the next bar."""
    found = compute_features(bars, starts, state)
    values = found.values.copy()
    values[:-1, 0] = values[1:, 0]
    return found._replace(values=values)


def test_bars_in_random_order_cannot_be_forecast(market: Market) -> None:
    found = surrogate_control(market, CONFIG, seed=0)

    assert found.passed
    assert found.ratio is not None
    assert 0.999 <= found.ratio < 1.1


def test_a_feature_that_looks_ahead_fails_the_control(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "compute_features", looking_ahead)
    found = surrogate_control(market, CONFIG, seed=0)

    assert not found.passed
    assert found.ratio is not None
    assert found.ratio < 0.7


def test_a_drift_is_not_taken_for_a_leak(market: Market) -> None:
    (bars,) = market.series
    rising = np.exp(1e-4 * np.arange(len(bars)))
    prices = {name: np.rint(getattr(bars, name) * rising).astype(np.int64) for name in ("open", "high", "low", "close")}
    found = surrogate_control(replace(market, series=(replace(bars, **prices),)), CONFIG, seed=0)

    assert found.ratio is not None
    assert found.ratio < 0.99
    assert found.passed


def test_a_run_without_returns_has_no_surrogate(market: Market) -> None:
    config = replace(CONFIG, data=replace(CONFIG.data, targets=("range",)))

    with pytest.raises(
        DataError, match=r"^surrogate: the run must forecast returns, .* Train with the target 'return'"
    ):
        surrogate_control(market, config, seed=0)


def test_each_fold_is_judged_after_what_it_learned_from(market: Market) -> None:
    tracks = make_tracks(market, CONFIG.data)
    found = walk_forward(tracks, CONFIG, folds=2, embargo=5, synthetic=True)
    bars = [fold.targets[0].bars for fold in found.folds]

    assert found.folds[0].last < found.folds[1].first
    assert found.pooled.targets[0].bars == sum(bars)
    assert (found.pooled.first, found.pooled.last) == (found.folds[0].first, found.folds[1].last)
    assert found.pooled.targets[0].scores[1].mse_ratio.value == 1.0


def test_an_embargo_that_leaves_nothing_is_refused(market: Market) -> None:
    with pytest.raises(DataError, match=r"^walk-forward: fold 1 needs windows 9031 bars .* smaller --embargo"):
        walk_forward(make_tracks(market, CONFIG.data), CONFIG, folds=2, embargo=9000, synthetic=True)


def test_bars_of_degraded_days_are_not_shuffled_into_others(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Market] = []

    def looked_at(market: Market, *arguments: object) -> Market:
        seen.append(market)
        return surrogate_market(market, *arguments)

    monkeypatch.setattr(controls, "surrogate_market", looked_at)
    flawed = replace(market, conditions={date(2024, 1, 3): "degraded"})
    surrogate_control(flawed, replace(CONFIG, data=replace(CONFIG.data, skip_degraded=True)), seed=0)

    days = {str(day) for day in seen[0].series[0].time.astype("datetime64[ns]").astype("datetime64[D]")}
    assert "2024-01-03" not in days
    assert {"2024-01-02", "2024-01-04"} <= days
