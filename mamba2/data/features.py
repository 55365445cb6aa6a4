"""What the network sees of a bar, and what it is to forecast: one function for a batch and for one bar.

Bit-equality of both rests on four rules: logs only by numpy, which gives the same for arrays and scalars (`math.log`
does not); averages as s + a·(x - s) in this order; prices divided by 1e9, never multiplied by 1e-9; and a bar is scaled
by the state before it, which it changes only afterwards.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.config import FEATURES
from mamba2.data.bars import MINUTE, Bars, exchange_time, utc
from mamba2.errors import DataError

CLIP = 10.0
VOLATILITY_FLOOR = 1e-6
RETURN_RATE = 1.0 - 0.5 ** (1 / 60)
"""Weight of a new bar in the volatility: half-life 60 bars."""
VOLUME_RATE = 1.0 - 0.5 ** (1 / 240)
"""Weight of a new bar in the volume's mean and variance: half-life 240 bars."""
VOLUME_VARIANCE_START = 1.0
"""Minute volumes vary by about a factor e; starting at 0 would blow up vol_z for the first hours of a contract."""

_ANGLE = 2 * np.pi * np.arange(1440) / 1440
_TIME_OF_DAY = np.stack([np.sin(_ANGLE), np.cos(_ANGLE)])

Floats = NDArray[np.float64]


class FeatureState(NamedTuple):
    """What the next bar of a contract needs to know of the bars before it."""

    close: float
    time: int
    variance: float
    """Average of squared log returns, before the floor."""
    volume_mean: float
    volume_variance: float


class Features(NamedTuple):
    """Features of consecutive bars and the state after the last of them."""

    values: NDArray[np.float32]
    """[bar, feature], in the order of `config.FEATURES`."""
    volatility: Floats
    """[bar], s of each bar: what its targets are divided by."""
    state: FeatureState | None
    """None only before the first bar of a contract."""


def compute_features(bars: Bars, starts: NDArray[np.bool_], state: FeatureState | None = None) -> Features:
    """Features of each bar t from the bars up to t; in any split, with the state handed on, bit for bit the same.

        ret      log(C_t / C_{t-1}) / s_{t-1}, 0 at a segment start
        range    log(H_t / L_t) / s_{t-1}
        body     log(C_t / O_t) / s_{t-1}
        loc      ((C - L) - (H - C)) / (H - L), 0 when H = L
        vol_z    (log1p(V_t) - m_{t-1}) / sqrt(q_{t-1} + 1e-4)
        log_s    log(s_t)
        tod_*    sine and cosine of the minute of the day, exchange time
        gap      log2(minutes since the previous bar), 0 at a segment start

    all clipped to ±10. s² is the average of squared log returns, from log(H/L)² of the first bar on, unchanged at a
    segment start; m and q are mean and variance of log1p(V).

    Args:
        bars: of one contract.
        starts: [bar], which bars begin a segment; the first bar of a contract always does.
        state: after the bar before; None at the first bar of a contract.

    Raises:
        DataError: a price is not positive.
    """
    if len(bars) == 0:
        return Features(np.empty((0, len(FEATURES)), np.float32), np.empty(0), state)
    opened, high, low, close = _prices(bars)
    log_range, log_body = np.log(high / low), np.log(close / opened)
    log_volume = np.log1p(bars.volume)
    if state is None:
        variance = float(log_range[0] * log_range[0])
        state = FeatureState(float(close[0]), int(bars.time[0]), variance, float(log_volume[0]), VOLUME_VARIANCE_START)
        starts = np.concatenate([[True], starts[1:]])

    log_return = np.where(starts, 0.0, np.log(close / _shift(close, state.close)))
    minutes = (bars.time - _shift(bars.time, state.time)) / MINUTE
    minute_of_day = exchange_time(bars.time) // MINUTE % 1440
    variances = _average_squares(log_return, starts, state.variance)
    means, volume_variances = _average_volume(log_volume, state.volume_mean, state.volume_variance)
    s = np.maximum(np.sqrt(variances), VOLATILITY_FLOOR)

    columns = (
        log_return / s[:-1],
        log_range / s[:-1],
        log_body / s[:-1],
        ((close - low) - (high - close)) / np.where(high == low, 1.0, high - low),
        (log_volume - means[:-1]) / np.sqrt(volume_variances[:-1] + 1e-4),
        np.log(s[1:]),
        *_TIME_OF_DAY[:, minute_of_day],
        np.log2(np.where(starts, 1.0, minutes)),
    )
    values = np.minimum(np.maximum(np.array(columns), -CLIP), CLIP).T.astype(np.float32, order="C")
    after = FeatureState(
        float(close[-1]), int(bars.time[-1]), float(variances[-1]), float(means[-1]), float(volume_variances[-1])
    )
    return Features(values, s[1:], after)


def compute_targets(
    bars: Bars, starts: NDArray[np.bool_], volatility: Floats, *, horizon: int, names: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What is to be forecast at each bar t, and whether bar t + horizon is in the same segment; where it is not, 0.

        return   log(C_{t+h} / C_t) / s_t
        range    log(H_{t+h} / L_{t+h}) / s_t

    Returns:
        [bar, target] in the order of `names`, and [bar].

    Raises:
        DataError: a price is not positive.
    """
    _, high, low, close = _prices(bars)
    count = max(len(bars) - horizon, 0)
    segment = np.cumsum(starts)
    valid = np.zeros(len(bars), bool)
    valid[:count] = segment[horizon:] == segment[:count]
    outcomes = {
        "return": np.log(close[horizon:] / close[:count]),
        "range": np.log(high[horizon:] / low[horizon:]),
    }
    targets = np.zeros((len(bars), len(names)), np.float32)
    for column, name in enumerate(names):
        targets[:count, column] = np.where(valid[:count], outcomes[name] / volatility[:count], 0.0)
    return targets, valid


def _prices(bars: Bars) -> Floats:
    """Open, high, low and close as rows, in the currency of the contract."""
    prices = np.array([bars.open, bars.high, bars.low, bars.close])
    if len(bars) and prices.min() <= 0:
        first = int(np.argmax((prices <= 0).any(axis=0)))
        raise DataError(
            f"{bars.symbol} at {utc(bars.time[first])}: prices must be positive, for logs are taken of them; got "
            f"{prices[:, first].min() / 1e9}. Choose an outright contract."
        )
    return prices / 1e9


def _shift(values: NDArray[Any], before: float) -> NDArray[Any]:
    """The value before each one."""
    shifted = np.empty_like(values)
    shifted[0] = before
    shifted[1:] = values[:-1]
    return shifted


def _average_squares(log_return: Floats, starts: NDArray[np.bool_], average: float) -> Floats:
    """The average before the first bar and after each; a bar that begins a segment does not change it."""
    averages = [average]
    for change, is_start in zip(log_return.tolist(), starts.tolist(), strict=True):
        if not is_start:
            average += RETURN_RATE * (change * change - average)
        averages.append(average)
    return np.array(averages)


def _average_volume(log_volume: Floats, mean: float, variance: float) -> tuple[Floats, Floats]:
    """Mean and variance before the first bar and after each."""
    means, variances = [mean], [variance]
    for value in log_volume.tolist():
        deviation = value - mean
        mean += VOLUME_RATE * deviation
        variance += VOLUME_RATE * (deviation * deviation - variance)
        means.append(mean)
        variances.append(variance)
    return np.array(means), np.array(variances)
