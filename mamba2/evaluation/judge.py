"""Judges a forecaster as it would have run live, next to forecasts that cost nothing.

As live, the state is zero at the start of each segment and carried within it, so the forecast of a bar is the output
there of one forward over its whole segment. Bars of the warm-up are input and are not judged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mamba2.config import RunConfig
from mamba2.data.bars import utc
from mamba2.data.dataset import Dataset, Tracks
from mamba2.data.selection import Selected, trading_day
from mamba2.data.windows import Track, chosen_segments
from mamba2.errors import DataError
from mamba2.evaluation.baselines import Baseline, History, bars_since_start, fit_baselines, naive_name, own_past
from mamba2.evaluation.folds import Fold, bars_before
from mamba2.evaluation.metrics import Coverage, Observations, PositionError, Score, by_position, coverage, pool, score
from mamba2.model.forecaster import Forecaster

MODEL = "model"
LEAK_BELOW = 0.98
"""A return forecast better than this, on real bars, has seen the future until it is explained."""

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class TargetReport(NamedTuple):
    """What was found for one target."""

    target: str
    naive: str
    """The forecast that ratios are taken to."""
    bars: int
    days: int
    scores: tuple[Score, ...]
    """The model first."""
    coverage: tuple[Coverage, ...]
    by_position: tuple[PositionError, ...]
    verdict: str
    suspected_leak: bool


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was found, for each target of the model."""

    first: str
    """Open of the first bar judged, UTC."""
    last: str
    synthetic: bool
    """Whether all bars are marked as made up."""
    targets: tuple[TargetReport, ...]


@torch.no_grad()
def segment_forecasts(model: Forecaster, track: Track, keep: Mask) -> tuple[Floats, Floats]:
    """Mean [bar, target] and quantiles [bar, target, quantile], each segment in one forward; NaN where not chosen."""
    model.eval()
    device = model.levels.device
    means = np.full((len(track.time), model.targets), np.nan)
    quantiles = np.full((*means.shape, len(model.levels)), np.nan)
    for first, end in chosen_segments(track, keep, warm_up=0):
        features = torch.from_numpy(track.features[first:end])[None].to(device)
        forecast, _ = model(features, model.initial_state(1))
        means[first:end] = forecast.mean[0].cpu().numpy()
        quantiles[first:end] = forecast.quantiles[0].cpu().numpy()
    return means, quantiles


def held_back(tracks: Tracks, dataset: Dataset) -> Fold:
    """The time that training left out: from its first validation window on, or all that follows its last bar."""
    windows = dataset.validation
    opens = [windows.tracks[i].time[bar] for i, bar in zip(windows.track, windows.start, strict=True)]
    after = max(int(track.time[-1]) for track in tracks.tracks) + tracks.market.series[0].interval
    return Fold(min(map(int, opens), default=after), np.iinfo(np.int64).max)


def observe(
    model: Forecaster, judged: Tracks, learned: Tracks, fold: Fold, config: RunConfig, *, embargo: int = 0
) -> dict[str, Observations]:
    """Outcomes and forecasts of each target at the bars of the fold.

    Args:
        model: was trained before the fold.
        judged: bars of the fold, and those before them in their segments.
        learned: bars that the baselines are fitted on, as far as they lie before the fold.
        fold: the time to judge.
        config: of the model.
        embargo: bars to leave out before the fold, beside window + horizon.

    Raises:
        DataError: there is no bar to judge.
    """
    interval, purge = learned.market.series[0].interval, config.data.window + config.data.horizon + embargo
    fits = [
        _usable(track, each, config.data.warm_up) & bars_before(track, fold.start, purge, interval)
        for track, each in _contracts(learned)
    ]
    forecasts = [segment_forecasts(model, track, each.keep) for track, each in _contracts(judged)]
    chosen = [
        _usable(track, each, config.data.warm_up) & (track.time >= fold.start) & (track.time < fold.end)
        for track, each in _contracts(judged)
    ]
    if not any(each.any() for each in chosen):
        raise DataError(
            f"evaluation: there must be bars with a known outcome after {utc(fold.start)}, where training ended; got "
            "none. Add files of later days, or train with a validation_fraction."
        )
    found = {}
    for column, target in enumerate(config.data.targets):
        histories = [_history(track, each, target, column) for track, each in _contracts(learned)]
        baselines = fit_baselines(histories, fits)
        naive = baselines[naive_name(target)]
        errors = [np.abs(each.target - naive(each))[fit] for each, fit in zip(histories, fits, strict=True)]
        naive_error = float(np.concatenate(errors).mean()) if any(map(len, errors)) else np.nan
        parts = [
            _observations(track, _history(track, each, target, column), target, baselines, naive_error, said).at(here)
            for (track, each), here, said in zip(
                _contracts(judged), chosen, (_column(each, column) for each in forecasts), strict=True
            )
        ]
        found[target] = pool(parts)
    return found


def report(observed: dict[str, Observations], config: RunConfig, *, synthetic: bool) -> Evaluation:
    """Measures what was observed."""
    times = np.concatenate([seen.time for seen in observed.values()])
    return Evaluation(
        first=utc(times.min()),
        last=utc(times.max()),
        synthetic=synthetic,
        targets=tuple(_report(target, seen, config, synthetic) for target, seen in observed.items()),
    )


def _report(target: str, seen: Observations, config: RunConfig, synthetic: bool) -> TargetReport:
    scores = tuple(score(name, seen, signed=target == "return") for name in seen.forecasts)
    ratio = scores[0].mse_ratio.value
    leaks = target == "return" and not synthetic and ratio is not None and ratio < LEAK_BELOW
    return TargetReport(
        target=target,
        naive=naive_name(target),
        bars=len(seen.target),
        days=len(np.unique(seen.day)),
        scores=scores,
        coverage=coverage(seen, config.model.quantiles),
        by_position=by_position(MODEL, seen, config.data.window),
        verdict=_verdict(scores[0], naive_name(target)),
        suspected_leak=leaks,
    )


def _verdict(model: Score, naive: str) -> str:
    """What follows "The model is"."""
    ratio, error = model.mse_ratio
    if ratio is None:
        return f"not to be compared: the {naive} forecast makes no error"
    if ratio > 1:
        return f"worse than the {naive} forecast"
    if error is None:
        return f"better than the {naive} forecast, on too few days to tell chance from skill"
    if ratio + 2 * error >= 1:
        return f"no better than the {naive} forecast within two standard errors"
    return f"better than the {naive} forecast by {100 * (1 - ratio):.1f} % of squared error"


def _contracts(tracks: Tracks) -> Iterator[tuple[Track, Selected]]:
    return zip(tracks.tracks, tracks.selection.series, strict=True)


def _usable(track: Track, selected: Selected, warm_up: int) -> Mask:
    """Bars that are chosen, past the contract's warm-up, and whose outcome is known."""
    usable: Mask = selected.keep & track.valid & (np.arange(len(track.time)) >= warm_up)
    return usable


def _history(track: Track, selected: Selected, target: str, column: int) -> History:
    past = own_past(selected.bars, track.starts, target)
    return History(past, track.starts, track.volatility, track.targets[:, column].astype(np.float64))


def _column(forecasts: tuple[Floats, Floats], column: int) -> tuple[Floats, Floats]:
    """Mean [bar] and quantiles [bar, level] of one target."""
    means, quantiles = forecasts
    return means[:, column], quantiles[:, column]


def _observations(
    track: Track,
    history: History,
    target: str,
    baselines: dict[str, Baseline],
    naive_error: float,
    model_says: tuple[Floats, Floats],
) -> Observations:
    """Every bar of a contract, judged or not."""
    mean, quantiles = model_says
    forecasts = {MODEL: mean} | {name: baseline(history) for name, baseline in baselines.items()}
    return Observations(
        time=track.time,
        target=history.target,
        naive=forecasts[naive_name(target)],
        naive_error=np.full(len(track.time), naive_error),
        volatility=track.volatility,
        day=trading_day(track.time),
        position=bars_since_start(track.starts),
        forecasts=forecasts,
        quantiles=quantiles,
    )
