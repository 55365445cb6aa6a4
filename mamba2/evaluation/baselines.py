"""What a forecast must beat: zero, the last value again, the mean, and autoregressions fitted by ridge.

All of them see of a bar what the model may see, the bars up to it in its segment, and forecast in units of its
volatility, as the model does.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.bars import Bars

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

AR_LAGS = (1, 10, 60)
"""Lags of the autoregressions."""

RIDGE = 1e-3
"""Added to each coefficient's variance, mean penalty a bar; lags are in units of the volatility, about 1."""


class History(NamedTuple):
    """One contract as the baselines see it, a row a bar."""

    values: Floats
    """The target's own past: log return, 0 at a segment start, or log range; not yet over the volatility."""
    starts: Mask
    volatility: Floats
    target: Floats
    """Only of use where the target is known."""


Baseline = Callable[[History], Floats]
"""Forecasts at every bar of a contract."""


def own_past(bars: Bars, starts: Mask, target: str) -> Floats:
    """The series that a target continues: log(C_t / C_{t-1}), 0 at a segment start, or log(H_t / L_t)."""
    if target == "range":
        spread: Floats = np.log(bars.high / bars.low)
        return spread
    change = np.zeros(len(bars))
    change[1:] = np.log(bars.close[1:] / bars.close[:-1])
    return np.where(starts, 0.0, change)


def naive_name(target: str) -> str:
    """The forecast to be measured by: nothing moves, or the range stays; a range of zero would be no match."""
    return "persistence" if target == "range" else "zero"


def fit_baselines(histories: Sequence[History], fits: Sequence[Mask]) -> dict[str, Baseline]:
    """All baselines by name, fitted on the bars that the masks choose.

    Args:
        histories: of the contracts to fit on.
        fits: for each, [bar], which bars and targets may be used.
    """
    outcomes = np.concatenate([each.target[fit] for each, fit in zip(histories, fits, strict=True)] or [np.empty(0)])
    mean = float(outcomes.mean()) if len(outcomes) else 0.0
    found: dict[str, Baseline] = {
        "zero": lambda history: np.zeros(len(history.target)),
        "persistence": lambda history: history.values / history.volatility,
        "train mean": lambda history: np.full(len(history.target), mean),
    }
    for name, baseline in _autoregressions(histories, fits, outcomes):
        found[name] = baseline
    return found


def _autoregressions(
    histories: Sequence[History], fits: Sequence[Mask], outcomes: Floats
) -> Iterator[tuple[str, Baseline]]:
    for lags in AR_LAGS:
        parts = [lagged(each, lags)[fit] for each, fit in zip(histories, fits, strict=True)]
        weights = _ridge(np.concatenate([np.empty((0, lags + 1)), *parts]), outcomes)

        def forecast(history: History, lags: int = lags, weights: Floats = weights) -> Floats:
            return np.asarray(lagged(history, lags) @ weights)

        yield f"AR({lags}) ridge", forecast


def lagged(history: History, lags: int) -> Floats:
    """[bar, lag + 1]: a bar's value and those before it in its segment, else 0, over its volatility; and a constant."""
    position = bars_since_start(history.starts)
    columns = np.ones((len(position), lags + 1))
    for lag in range(lags):
        before = np.zeros(len(position))
        before[lag:] = history.values[: len(position) - lag] if lag < len(position) else 0.0
        columns[:, lag] = np.where(position >= lag, before, 0.0) / history.volatility
    return columns


def bars_since_start(starts: Mask) -> NDArray[np.int64]:
    """How many bars of its segment come before each bar.

    >>> bars_since_start(np.array([True, False, False, True])).tolist()
    [0, 1, 2, 0]
    """
    number = np.arange(len(starts))
    return number - np.maximum.accumulate(np.where(starts, number, 0))


def _ridge(inputs: Floats, outcomes: Floats) -> Floats:
    """Least squares with a penalty on all coefficients but the constant, the last."""
    count = inputs.shape[1]
    if len(outcomes) == 0:
        return np.zeros(count)
    penalty = np.full(count, RIDGE)
    penalty[-1] = 1e-12  # of a constant column too, the system stays solvable
    moments = inputs.T @ inputs / len(outcomes) + np.diag(penalty)
    return np.asarray(np.linalg.solve(moments, inputs.T @ outcomes / len(outcomes)), np.float64)
