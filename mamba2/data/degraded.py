"""Bars of days on which Databento says that its data have flaws: how many there are, and leaving them out."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mamba2.data.bars import DAY, Bars, Dropped, Market
from mamba2.data.condition import opening
from mamba2.data.tables import new_table


class DayRow(NamedTuple):
    """A UTC day that is not what it should be, and how many bars the files have of it."""

    day: date
    condition: str
    bars: int


def degraded_days(market: Market) -> tuple[DayRow, ...]:
    """The days of `condition.json` that the files have bars of."""
    rows = [
        DayRow(day, what, sum(place.stop - place.start for place in (_place(bars, day) for bars in market.series)))
        for day, what in market.conditions.items()
    ]
    return tuple(row for row in rows if row.bars)


def without_degraded(market: Market) -> Market:
    """The market as if its files had no bars of these days."""
    days = [row.day for row in degraded_days(market)]
    kept = [_without(bars, days, market.folder) for bars in market.series]
    dropped = [
        Dropped(bars.symbol, len(bars) - len(rest), "of days that Databento marks as degraded")
        for bars, rest in zip(market.series, kept, strict=True)
        if len(rest) < len(bars)
    ]
    return replace(market, series=tuple(filter(len, kept)), dropped=(*market.dropped, *dropped))


def _place(bars: Bars, day: date) -> slice:
    """Which bars open on the UTC day."""
    first, end = np.searchsorted(bars.time, [opening(day), opening(day) + DAY]).tolist()
    return slice(first, end)


def _without(bars: Bars, days: Iterable[date], folder: Path | None) -> Bars:
    places = [place for place in (_place(bars, day) for day in days) if place.start < place.stop]
    if not places:
        return bars
    edges = [0, *(edge for place in places for edge in (place.start, place.stop)), len(bars)]
    kept = [slice(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    columns = new_table((6, sum(each.stop - each.start for each in kept)), np.int64, folder)
    at = 0
    for each in kept:
        rows = slice(at, at := at + each.stop - each.start)
        for column, values in zip(
            columns, (bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume), strict=True
        ):
            column[rows] = values[each]
    return Bars(bars.symbol, bars.publisher_id, bars.instrument_id, bars.interval, *columns)
