"""Evaluation: as live, next to forecasts that cost nothing, and not to be flattered."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from mamba2.config import DataConfig, ModelConfig, RunConfig
from mamba2.data.bars import Market, load_bars
from mamba2.data.dataset import Tracks, make_tracks, split
from mamba2.data.planted import write_planted
from mamba2.errors import DataError
from mamba2.evaluation.folds import Fold
from mamba2.evaluation.judge import Evaluation, held_back, observe, report, segment_forecasts
from mamba2.evaluation.metrics import Observations
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model

MODEL = ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=16)
CONFIG = RunConfig(model=MODEL, data=DataConfig(contract="all", targets=("return", "range"), window=30, warm_up=60))


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    return load_bars([write_planted(tmp_path_factory.mktemp("planted") / "a.dbn.zst", "ar1", bars=4500)])


@pytest.fixture(scope="module")
def tracks(market: Market) -> Tracks:
    return make_tracks(market, CONFIG.data)


@pytest.fixture
def model() -> Forecaster:
    torch.manual_seed(0)
    return make_model(CONFIG)


@pytest.fixture
def fold(tracks: Tracks) -> Fold:
    return held_back(tracks, split(tracks, CONFIG.data))


def with_forecast(observed: dict[str, Observations], change: Callable[[Observations], np.ndarray]) -> Evaluation:
    """The report, had the model forecast something else of the return."""
    seen = observed["return"]
    changed = seen._replace(forecasts=seen.forecasts | {"model": change(seen)})
    return report({"return": changed}, replace(CONFIG, data=replace(CONFIG.data, targets=("return",))), synthetic=False)


def test_forecasts_are_those_of_stepping_through_each_segment(model: Forecaster, tracks: Tracks) -> None:
    track, keep = tracks.tracks[0], tracks.selection.series[0].keep
    means, _ = segment_forecasts(model, track, keep)

    with torch.no_grad():
        state = model.initial_state(1)
        for bar in [*range(30), *range(1320, 1350)]:
            if track.starts[bar]:
                state = model.initial_state(1)
            forecast, state = model.step(torch.from_numpy(track.features[bar])[None, None], state)
            assert means[bar] == pytest.approx(forecast.mean[0, 0].numpy(), abs=1e-6)


def test_bars_that_are_not_chosen_have_no_forecast(model: Forecaster, tracks: Tracks) -> None:
    keep = np.arange(4500) >= 1320
    means, _ = segment_forecasts(model, tracks.tracks[0], keep)

    assert np.isnan(means).any(1).tolist() == (~keep).tolist()


def test_only_bars_after_the_training_are_judged(model: Forecaster, tracks: Tracks, fold: Fold) -> None:
    times = observe(model, tracks, tracks, fold, CONFIG)["return"].time
    windows = split(tracks, CONFIG.data).validation

    assert times.min() == windows.tracks[0].time[windows.start.min()]
    assert len(times) == (tracks.tracks[0].valid & (tracks.tracks[0].time >= fold.start)).sum()


def test_without_validation_windows_what_follows_the_last_bar_is_judged(tracks: Tracks) -> None:
    whole = held_back(tracks, split(tracks, replace(CONFIG.data, validation_fraction=0.0)))

    assert whole.start == tracks.tracks[0].time[-1] + 60 * 10**9


def test_nothing_to_judge_is_refused(model: Forecaster, tracks: Tracks) -> None:
    late = Fold(int(tracks.tracks[0].time[-1]) + 60 * 10**9, np.iinfo(np.int64).max)

    with pytest.raises(DataError, match=r"^evaluation: there must be bars .*; got none. Add files of later days"):
        observe(model, tracks, tracks, late, CONFIG)


def test_the_zero_forecast_has_ratio_one_and_an_autoregression_the_planted_one(
    model: Forecaster, tracks: Tracks, fold: Fold
) -> None:
    found = report(observe(model, tracks, tracks, fold, CONFIG), CONFIG, synthetic=True).targets[0]
    ratios = {each.name: each.mse_ratio.value for each in found.scores}

    assert list(ratios) == [
        "model",
        "zero",
        "persistence",
        "train mean",
        "AR(1) ridge",
        "AR(10) ridge",
        "AR(60) ridge",
    ]
    assert ratios["zero"] == 1.0
    assert ratios["AR(1) ridge"] == pytest.approx(0.91, abs=0.03)
    assert ratios["persistence"] == pytest.approx(1.4, abs=0.1)  # 2 - 2·0.3


def test_a_range_is_measured_by_its_persistence(model: Forecaster, tracks: Tracks, fold: Fold) -> None:
    found = report(observe(model, tracks, tracks, fold, CONFIG), CONFIG, synthetic=True).targets[1]
    ratios = {each.name: each.mse_ratio.value for each in found.scores}

    assert (found.target, found.naive) == ("range", "persistence")
    assert ratios["persistence"] == 1.0


def test_later_bars_change_no_baseline(model: Forecaster, market: Market, tracks: Tracks, fold: Fold) -> None:
    late = market.series[0].time >= fold.start
    other = replace(market.series[0], close=np.where(late, market.series[0].high, market.series[0].close))
    learned = make_tracks(replace(market, series=(other,)), CONFIG.data)
    one = observe(model, tracks, tracks, fold, CONFIG)["return"].forecasts
    two = observe(model, tracks, learned, fold, CONFIG)["return"].forecasts

    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_forecast_of_noise_is_said_to_be_worse_than_zero(model: Forecaster, tracks: Tracks, fold: Fold) -> None:
    observed = observe(model, tracks, tracks, fold, CONFIG)
    noise = np.random.default_rng(0).normal(size=len(observed["return"].target))
    found = with_forecast(observed, lambda _: noise).targets[0]

    assert found.verdict == "worse than the zero forecast"
    assert not found.suspected_leak


def test_a_forecast_too_good_on_real_bars_is_a_suspected_leak(model: Forecaster, tracks: Tracks, fold: Fold) -> None:
    observed = observe(model, tracks, tracks, fold, CONFIG)
    found = with_forecast(observed, lambda seen: 0.5 * seen.target).targets[0]

    assert found.suspected_leak
    assert found.verdict.startswith("better than the zero forecast")


@pytest.mark.parametrize(("share", "suspected"), [(0.0099, False), (0.0102, True)])
def test_the_alarm_is_at_a_ratio_of_098(
    share: float, suspected: bool, model: Forecaster, tracks: Tracks, fold: Fold
) -> None:
    observed = observe(model, tracks, tracks, fold, CONFIG)
    found = with_forecast(observed, lambda seen: share * seen.target)  # leaves (1 - share)² of the error

    assert found.targets[0].suspected_leak == suspected


def test_synthetic_bars_raise_no_alarm(model: Forecaster, tracks: Tracks, fold: Fold) -> None:
    seen = observe(model, tracks, tracks, fold, CONFIG)["return"]
    perfect = seen._replace(forecasts=seen.forecasts | {"model": seen.target})

    assert not report({"return": perfect}, CONFIG, synthetic=True).targets[0].suspected_leak
