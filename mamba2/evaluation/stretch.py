"""Some consecutive bars as plain values: what was forecast as live, and what happened."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.windows import Track, chosen_segments
from mamba2.evaluation.judge import segment_forecasts
from mamba2.model.forecaster import Forecaster

Contract = tuple[Track, NDArray[np.bool_]]
"""A contract, and which of its bars are chosen."""


class Stretch(NamedTuple):
    """Consecutive chosen bars, for the first target."""

    symbol: str
    """The first bar's contract."""
    began: int
    """When the segment of the first bar began, nanoseconds UTC."""
    time: list[int]
    """When each bar opens, nanoseconds UTC."""
    starts: list[bool]
    """Which bars begin a segment."""
    rolls: list[str]
    """The contract at each bar whose contract is not that of the bar before, else ""."""
    actual: list[float | None]
    """What happened, in units of the bar's volatility; None where the segment ends before."""
    levels: list[float]
    quantiles: list[list[float]]
    """One list a level, over the bars, in the same units."""


class _Rows(NamedTuple):
    """Bars of several contracts, in the order of time."""

    contract: NDArray[np.int64]
    bar: NDArray[np.int64]

    def at(self, rows: slice | NDArray[np.bool_]) -> "_Rows":
        return _Rows(self.contract[rows], self.bar[rows])


def forecast_stretch(
    model: Forecaster, contracts: Sequence[Contract], begin: int, *, bars: int = 180
) -> Stretch | None:
    """Forecasts as live, the state carried through each segment, around the first roll or else segment start.

    Of contracts that trade side by side the one with the most bars is shown.

    Args:
        model: of any training.
        contracts: those that the config chooses.
        begin: the time before which no bar is shown, nanoseconds UTC.
        bars: how many to show.

    Returns:
        None where no chosen bar follows.
    """
    rows = _rows(contracts, begin)
    if len(rows.bar) == 0:
        return None
    rolls = np.append(False, np.diff(rows.contract) != 0)
    starts = np.zeros(len(rolls), bool)
    for index, (track, _) in enumerate(contracts):
        here = rows.contract == index
        starts[here] = track.starts[rows.bar[here]]
    places = np.append(np.flatnonzero(rolls), np.flatnonzero(starts)) - bars // 2
    roomy = places[(places >= 0) & (places <= len(starts) - bars)]
    shown = slice(int(roomy[0]), int(roomy[0]) + bars) if len(roomy) else slice(bars)
    rows, starts, rolls = rows.at(shown), starts[shown], rolls[shown]
    bars_of = [(contracts[each][0], int(bar)) for each, bar in zip(*rows, strict=True)]
    track, first = bars_of[0]
    segments = chosen_segments(track, contracts[rows.contract[0]][1], warm_up=0)
    return Stretch(
        symbol=track.symbol,
        began=int(track.time[max(start for start, _ in segments if start <= first)]),
        time=[int(each.time[bar]) for each, bar in bars_of],
        starts=starts.tolist(),
        rolls=["", *(track.symbol if roll else "" for (track, _), roll in zip(bars_of[1:], rolls[1:], strict=True))],
        actual=[float(each.targets[bar, 0]) if each.valid[bar] else None for each, bar in bars_of],
        levels=model.levels.tolist(),
        quantiles=_quantiles(model, contracts, rows).T.tolist(),
    )


def _rows(contracts: Sequence[Contract], begin: int) -> _Rows:
    """All chosen bars from that time on; of contracts that overlap in time only the one with the most."""
    nothing = np.empty(0, np.int64)
    bars = [np.flatnonzero(keep & (track.time >= begin)) for track, keep in contracts]
    time = np.concatenate([nothing, *(track.time[each] for (track, _), each in zip(contracts, bars, strict=True))])
    rows = _Rows(
        np.concatenate([nothing, *(np.full(len(each), index) for index, each in enumerate(bars))]),
        np.concatenate([nothing, *bars]),
    )
    if len(np.unique(time)) < len(time):
        return rows.at(rows.contract == np.argmax(list(map(len, bars))))
    order = np.argsort(time)
    return _Rows(rows.contract[order], rows.bar[order])


def _quantiles(model: Forecaster, contracts: Sequence[Contract], rows: _Rows) -> NDArray[np.float64]:
    """[row, level]; only the segments that are shown are run, each from its start."""
    found = np.empty((len(rows.bar), len(model.levels)))
    for index in np.unique(rows.contract):
        track, keep = contracts[index]
        here = rows.contract == index
        bars = rows.bar[here]
        needed = np.zeros(len(keep), bool)
        for first, end in chosen_segments(track, keep, warm_up=0):
            needed[first:end] = first <= bars[-1] and end > bars[0]
        _, quantiles = segment_forecasts(model, track, needed)
        found[here] = quantiles[bars, 0]
    return found
