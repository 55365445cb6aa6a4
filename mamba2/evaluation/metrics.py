"""How good forecasts are, next to a naive one, with standard errors that know that the bars of a day hang together.

Every measure is a function of sums over bars, so its standard error is that of leaving out one day after the other (the
jackknife; Efron 1982): se² = (D - 1)/D·Σ (θ₋d - mean θ₋)² over D trading days.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Estimate(NamedTuple):
    """A measure and its standard error over days; None where it is undefined, as with one day."""

    value: float | None
    error: float | None


class Score(NamedTuple):
    """What one forecaster achieves on one target."""

    name: str
    mse_ratio: Estimate
    """Σ e² / Σ e² of the naive forecast, in units of the volatility; below 1 is better than naive."""
    raw_mse_ratio: Estimate
    """The same of log returns or log ranges as they are, which weighs wild hours more."""
    mae_ratio: Estimate
    """Σ |e| / Σ |e| of the naive forecast."""
    mase: Estimate
    """Mean |e| over the mean |e| of the naive forecast on the training bars (Hyndman & Koehler 2006)."""
    direction: Estimate
    """Share of moves whose sign was forecast, unchanged prices left out; of returns, if one is forecast."""
    ic: Estimate
    """Correlation of forecast and outcome."""
    rank_ic: Estimate
    """Correlation of their ranks."""


class Coverage(NamedTuple):
    """How often the outcome lies at or below the forecast quantile; close to the level when the quantile is right."""

    level: float
    share: Estimate


class PositionError(NamedTuple):
    """The MSE ratio of bars at a distance from their segment's start, where the state is zero."""

    first: int
    """Bars since the start."""
    end: int
    bars: int
    mse_ratio: Estimate


class Observations(NamedTuple):
    """Outcomes of one target and what was forecast of them, a row a bar."""

    time: Ints
    """When the bar opens, nanoseconds UTC."""
    target: Floats
    """In units of the volatility."""
    naive: Floats
    """The forecast that the others are measured by."""
    naive_error: Floats
    """Mean |e| of the naive forecast on the training bars."""
    volatility: Floats
    day: Ints
    """The trading day."""
    position: Ints
    """Bars since the segment's start."""
    forecasts: dict[str, Floats]
    """By forecaster."""
    quantiles: Floats
    """[bar, level], the model's."""

    def at(self, bars: NDArray[np.bool_]) -> "Observations":
        """The rows that a mask chooses."""
        columns = {name: column[bars] for name, column in self._columns().items()}
        return Observations(forecasts={name: each[bars] for name, each in self.forecasts.items()}, **columns)

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {name: column for name, column in self._asdict().items() if name != "forecasts"}


def pool(parts: Sequence[Observations]) -> Observations:
    """The rows of all parts, which have the same forecasters."""
    columns = {name: np.concatenate([part._columns()[name] for part in parts]) for name in parts[0]._columns()}
    forecasts = {name: np.concatenate([part.forecasts[name] for part in parts]) for name in parts[0].forecasts}
    return Observations(forecasts=forecasts, **columns)


def score(name: str, seen: Observations, *, signed: bool) -> Score:
    """All measures of one forecaster.

    Args:
        name: of the forecaster, a key of `seen.forecasts`.
        seen: outcomes and forecasts.
        signed: whether the target has a direction, as returns do.
    """
    forecast, target = seen.forecasts[name], seen.target
    error, naive = target - forecast, target - seen.naive
    raw = seen.volatility**2
    hit = (np.sign(forecast) == np.sign(target)) & (target != 0)
    moved = (target != 0) & (forecast != 0)

    def ratio(above: Floats, below: Floats) -> Estimate:
        return estimate(np.stack([above, below], 1), seen.day, _quotient)

    def correlation(a: Floats, b: Floats) -> Estimate:
        a, b = a - a.mean(), b - b.mean()  # about their means, or the sums of squares would cancel
        return estimate(np.stack([np.ones_like(a), a, b, a * a, b * b, a * b], 1), seen.day, _correlation)

    undefined = Estimate(None, None)
    return Score(
        name=name,
        mse_ratio=ratio(error**2, naive**2),
        raw_mse_ratio=ratio(error**2 * raw, naive**2 * raw),
        mae_ratio=ratio(np.abs(error), np.abs(naive)),
        mase=ratio(np.abs(error), seen.naive_error),
        direction=ratio((hit & moved).astype(float), moved.astype(float)) if signed else undefined,
        ic=correlation(forecast, target),
        rank_ic=correlation(ranks(forecast), ranks(target)),
    )


def coverage(seen: Observations, levels: tuple[float, ...]) -> tuple[Coverage, ...]:
    """How often each quantile was not exceeded."""
    below = (seen.target[:, None] <= seen.quantiles).astype(float)
    ones = np.ones(len(below))
    return tuple(
        Coverage(level, estimate(np.stack([column, ones], 1), seen.day, _quotient))
        for level, column in zip(levels, below.T, strict=True)
    )


def by_position(name: str, seen: Observations, window: int) -> tuple[PositionError, ...]:
    """The MSE ratio by the bar's distance from the segment's start: quarter windows first, then ever twice as far."""
    last = int(seen.position.max(initial=0))
    edges = sorted({0, window // 4, window // 2, window})
    while edges[-1] <= last:
        edges.append(2 * edges[-1])
    error, naive = seen.target - seen.forecasts[name], seen.target - seen.naive
    found = []
    for first, end in pairwise(edges):
        here = (seen.position >= first) & (seen.position < end)
        if here.any():
            sums = np.stack([error[here] ** 2, naive[here] ** 2], 1)
            found.append(PositionError(first, end, int(here.sum()), estimate(sums, seen.day[here], _quotient)))
    return tuple(found)


def estimate(rows: Floats, day: Ints, statistic: Callable[[Floats], Floats]) -> Estimate:
    """A statistic of the column sums of the rows [bar, column], and its jackknife standard error over days."""
    if len(rows) == 0:
        return Estimate(None, None)
    _, which = np.unique(day, return_inverse=True)
    sums = np.zeros((which.max() + 1, rows.shape[1]))
    np.add.at(sums, which, rows)
    total = sums.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, without = float(statistic(total)), statistic(total - sums)
    if not np.isfinite(value):
        return Estimate(None, None)
    days = len(sums)
    error = float(np.sqrt((days - 1) / days * np.square(without - without.mean()).sum()))
    return Estimate(value, error if days > 1 and np.isfinite(error) else None)


def ranks(values: Floats) -> Floats:
    """Ranks from 0 on; equal values share the mean of theirs.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middles: Floats = ends - (counts + 1) / 2
    shared: Floats = middles[which]
    return shared


def _quotient(sums: Floats) -> Floats:
    above, below = np.moveaxis(sums, -1, 0)
    quotient: Floats = above / below
    return quotient


def _correlation(sums: Floats) -> Floats:
    n, a, b, aa, bb, ab = np.moveaxis(sums, -1, 0)
    va, vb = aa - a * a / n, bb - b * b / n
    # A constant has no correlation; what rounding leaves of its variance is no variance.
    constant = (va <= 1e-12 * aa) | (vb <= 1e-12 * bb)
    correlation: Floats = np.where(constant, np.nan, (ab - a * b / n) / np.sqrt(np.where(constant, 1.0, va * vb)))
    return correlation
