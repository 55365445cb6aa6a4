"""Long files of one contract whose best possible forecast is known, to see whether a model learns.

    ar1      r[t+1] = 0.3·r[t] + e[t+1]; seen in the last bar alone; the best forecast leaves 1 - 0.3² = 0.910
    regime   r[t+1] = ±0.3·e[t] + e[t+1]; a rare burst of volume sets the sign, which stays until the next burst; the
             best forecast leaves 1 / (1 + 0.3²) = 0.917

The signs of `regime` are equally frequent, so that its returns have no autocorrelation at any lag (with r[t] in place
of the noise e[t] the one at lag two would be 0.3² under both signs): an autoregression finds nothing, and only a model
that remembers the last burst is better than zero.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count
from pathlib import Path

import numpy as np

from mamba2.data.dbn import SymbolInterval
from mamba2.data.synthetic import (
    AR1_COEFFICIENT,
    SYNTHETIC,
    Floats,
    Ints,
    Records,
    ar1_returns,
    minute_bars,
    session_minutes,
    write_dbn,
)
from mamba2.errors import DataError

SIGNALS = ("ar1", "regime")
SYMBOL, INSTRUMENT = "6EH4", 4916

BURST_EVERY = (100, 200)
"""Least and most bars from one burst of volume to the next; longer ones would leave the signs out of balance."""

BURST_VOLUME = (60.0, 3600.0)
"""Times the usual volume: the first kind of burst sets +0.3, the second -0.3; volumes scatter by far less."""

_FIRST_DAY = date(2024, 1, 2)
_FIRST_CLOSE = 22_040  # ticks
_STD = 5e-4  # eleven ticks a bar, so that rounding to ticks hardly adds noise
_VOLUME = 20.0


def planted_records(signal: str, *, bars: int = 40_000, seed: int = 20240102) -> Records:
    """One-minute bars of one contract, in sessions of 23 hours, with the signal of that name.

    Raises:
        DataError: there is no such signal.
    """
    if signal not in SIGNALS:
        raise DataError(f"planted signal: must be one of {', '.join(SIGNALS)}; got {signal!r}. Choose one of them.")
    rng = np.random.Generator(np.random.PCG64(seed))
    times = _trading_minutes(bars)
    if signal == "ar1":
        returns, burst = ar1_returns(rng, bars, std=_STD), np.ones(bars)
    else:
        returns, burst = _regime_returns(rng, bars)
    closes = np.rint(_FIRST_CLOSE * np.exp(np.cumsum(returns))).astype(np.int64)
    return minute_bars(rng, times, closes, instrument_id=INSTRUMENT, volume=_VOLUME * burst)


def write_planted(path: Path, signal: str, *, bars: int = 40_000, seed: int = 20240102) -> Path:
    """Writes `planted_records` as a DBN file that says it is synthetic; returns the path.

    Raises:
        DataError: there is no such signal, or the file cannot be written.
    """
    records = planted_records(signal, bars=bars, seed=seed)
    last = date(1970, 1, 1) + timedelta(days=int(records["ts_event"][-1] // (86_400 * 10**9)) + 1)
    return write_dbn(
        path, records, symbols={SYMBOL: (SymbolInterval(_FIRST_DAY, last, INSTRUMENT),)}, dataset=SYNTHETIC
    )


def _regime_returns(rng: np.random.Generator, bars: int) -> tuple[Floats, Floats]:
    """Returns, and how many times the usual volume each bar has; the kinds of burst take turns."""
    least, most = BURST_EVERY
    bursts = np.cumsum(rng.integers(least, most + 1, bars // least + 1)) - least
    is_burst = np.isin(np.arange(bars), bursts)
    kind = np.cumsum(is_burst) % 2  # 0 up to the first burst
    coefficients = np.where(kind == 1, AR1_COEFFICIENT, -AR1_COEFFICIENT)
    noise = rng.normal(0.0, _STD / np.sqrt(1 + AR1_COEFFICIENT**2), bars)
    returns = noise.copy()
    returns[1:] += coefficients[:-1] * noise[:-1]  # the burst at t rules the step from t to t + 1
    volume = np.where(is_burst, np.where(kind == 1, *BURST_VOLUME), 1.0)
    return returns, volume


def _trading_minutes(bars: int) -> Ints:
    """Opening times of the first so many bars."""
    found: list[Ints] = []
    missing = bars
    for day in _days():
        if missing <= 0:
            break
        found.append(session_minutes(day)[:missing])
        missing -= len(found[-1])
    return np.concatenate([np.empty(0, np.int64), *found])


def _days() -> Iterator[date]:
    """Days on which anything trades; Saturdays are left out, and Sundays, whose evening hour hardly counts."""
    return (day for number in count() if (day := _FIRST_DAY + timedelta(days=number)).weekday() < 5)
