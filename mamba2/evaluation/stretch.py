"""Some consecutive bars of the validation part as plain values: what was forecast, and what happened."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.windows import Windows, chosen_segments
from mamba2.evaluation.judge import segment_forecasts
from mamba2.model.forecaster import Forecaster


class Stretch(NamedTuple):
    """Consecutive bars of one contract, for the first target."""

    symbol: str
    began: int
    """When the segment of the first bar began, nanoseconds UTC."""
    time: list[int]
    """When each bar opens, nanoseconds UTC."""
    starts: list[bool]
    """Which bars begin a segment."""
    actual: list[float | None]
    """What happened, in units of the bar's volatility; None where the segment ends before."""
    levels: list[float]
    quantiles: list[list[float]]
    """One list a level, over the bars, in the same units."""


def forecast_stretch(
    model: Forecaster, validation: Windows, keep: NDArray[np.bool_], *, bars: int = 180
) -> Stretch | None:
    """Forecasts as live, the state carried through each segment, around the first segment start there is room for.

    Args:
        model: of any training.
        validation: whose first window says where the validation part begins.
        keep: [bar], which bars of that window's track are chosen.
        bars: how many to show.

    Returns:
        None where there is no validation window.
    """
    if len(validation) == 0:
        return None
    track = validation.tracks[validation.track[0]]
    segments = chosen_segments(track, keep, warm_up=0)
    begin = int(validation.start[validation.track == validation.track[0]].min())
    # Bars that are not chosen may lie between two segments; they are not forecast, so they are not shown.
    rows = [bar for first, end in segments for bar in range(max(first, begin), end)]
    starts = [at - bars // 2 for at, bar in enumerate(rows) if track.starts[bar]]
    offset = next((start for start in starts if 0 <= start <= len(rows) - bars), 0)
    shown = rows[offset : offset + bars]
    needed = np.zeros(len(keep), bool)
    for first, end in segments:
        needed[first:end] = first <= shown[-1] and end > shown[0]
    _, quantiles = segment_forecasts(model, track, needed)
    return Stretch(
        symbol=track.symbol,
        began=int(track.time[max(first for first, _ in segments if first <= shown[0])]),
        time=track.time[shown].tolist(),
        starts=track.starts[shown].tolist(),
        actual=[float(track.targets[bar, 0]) if track.valid[bar] else None for bar in shown],
        levels=model.levels.tolist(),
        quantiles=quantiles[shown, 0].T.tolist(),
    )
