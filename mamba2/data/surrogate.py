"""The same bars in another order: whatever a pipeline still forecasts in them, it has from the future."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mamba2.data.bars import Bars, Market
from mamba2.data.selection import segment_starts


def surrogate_market(market: Market, max_gap_minutes: float | None, seed: int) -> Market:
    """The market with the bars of each segment in random order and the prices rebuilt from them.

    A bar keeps its candle and its volume, as ratios to the close before it; the times, and the first bar of each
    segment, stay where they are. Returns keep their distribution and lose their order.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return replace(market, series=tuple(_surrogate(bars, max_gap_minutes, rng) for bars in market.series))


def _surrogate(bars: Bars, max_gap_minutes: float | None, rng: np.random.Generator) -> Bars:
    if len(bars) == 0 or not bars.is_outright or bars.low.min() <= 0:
        return bars  # a spread, which is never forecast: ratios of its prices mean nothing
    starts = segment_starts(bars, np.ones(len(bars), bool), max_gap_minutes)
    firsts = np.flatnonzero(starts)
    order = np.arange(len(bars))
    for first, end in zip(firsts, np.append(firsts[1:], len(bars)), strict=True):
        order[first + 1 : end] = first + 1 + rng.permutation(end - first - 1)

    before = np.concatenate([bars.close[:1], bars.close[:-1]]).astype(np.float64)
    before[starts] = bars.close[starts]  # a first bar is its own anchor
    changes = np.log(bars.close / before)[order]
    level = _anchored(np.log(bars.close[starts].astype(np.float64)), changes, starts)
    base = np.where(starts, np.exp(level), np.exp(level - changes))

    def rebuilt(prices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rounding never falls, so low <= open, close <= high still holds."""
        again: NDArray[np.int64] = np.rint(base * (prices / before)[order]).astype(np.int64)
        return again

    return replace(
        bars,
        open=rebuilt(bars.open),
        high=rebuilt(bars.high),
        low=rebuilt(bars.low),
        close=rebuilt(bars.close),
        volume=bars.volume[order],
    )


def _anchored(
    anchors: NDArray[np.float64], changes: NDArray[np.float64], starts: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Running sums of the changes that begin at each start with its anchor."""
    total = np.cumsum(changes)
    segment = np.cumsum(starts) - 1
    level: NDArray[np.float64] = anchors[segment] + total - total[starts][segment]
    return level
