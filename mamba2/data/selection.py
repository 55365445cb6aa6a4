"""Which bars are used: the contract, the front month, and segments without a break."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.bars import DAY, HOUR, MINUTE, Bars, Dropped, Market, exchange_time, slabs, utc
from mamba2.errors import DataError

SESSION_START = 17 * HOUR
"""A trading day begins at this exchange time, on the evening before."""


@dataclass(frozen=True, eq=False)
class Selected:
    """A whole series, whose bars may serve as the past, and which of its bars are chosen."""

    bars: Bars
    keep: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Selection:
    """The series with at least one chosen bar, and what was left out."""

    series: tuple[Selected, ...]
    dropped: tuple[Dropped, ...]


class SeriesRow(NamedTuple):
    """One line of the table of series."""

    symbol: str
    bars: int
    first: str
    last: str
    gaps: int
    kept: int


def select(market: Market, contract: str) -> Selection:
    """Chooses the bars of 'all' outrights, of one raw symbol, or of the 'front' contract.

    The front contract of a trading session is the outright with the most volume in the session before, so it is known
    before the session starts; the first session has none. Spreads are never chosen: their prices may be negative.

    Raises:
        DataError: there is no outright, the symbol is unknown or a spread, or a candidate has several publishers.
    """
    outrights = [bars for bars in market.series if bars.is_outright]
    spreads = [Dropped(bars.symbol, len(bars), "of a spread") for bars in market.series if not bars.is_outright]
    candidates = outrights if contract in ("front", "all") else [bars for bars in outrights if bars.symbol == contract]
    _require_choice(contract, candidates, market)
    _require_one_publisher(candidates)
    if contract == "front":
        series, dropped = _front(outrights)
    else:
        series = [Selected(bars, np.ones(len(bars), bool)) for bars in candidates]
        others = [bars for bars in outrights if bars not in candidates]
        dropped = [Dropped(bars.symbol, len(bars), "of another contract than the one asked for") for bars in others]
    return Selection(tuple(series), tuple(dropped + spreads))


def _require_choice(contract: str, candidates: Sequence[Bars], market: Market) -> None:
    if candidates:
        return
    symbols = ", ".join(dict.fromkeys(bars.symbol for bars in market.series)) or "no bars"
    if contract in ("front", "all"):
        raise DataError(
            f"contract {contract!r}: the files must hold an outright contract; got {symbols}. Add files with outrights."
        )
    raise DataError(
        f"contract {contract!r}: the files must hold this symbol as an outright; got {symbols}. Name an outright."
    )


def _require_one_publisher(candidates: Sequence[Bars]) -> None:
    publishers: dict[str, set[int]] = {}
    for bars in candidates:
        publishers.setdefault(bars.symbol, set()).add(bars.publisher_id)
    for symbol, ids in publishers.items():
        if len(ids) > 1:
            raise DataError(
                f"contract {symbol!r}: its bars must come from one publisher; got publishers "
                f"{', '.join(map(str, sorted(ids)))}. Use files of one publisher."
            )


def _front(outrights: Sequence[Bars]) -> tuple[list[Selected], list[Dropped]]:
    sessions = [_sessions(bars.time) for bars in outrights]
    days = np.unique(np.concatenate([of for of, _ in sessions]))
    # A contract that has no bar in a session is behind one whose bars have no volume: live, nothing is known of it.
    volumes = np.full((len(outrights), len(days)), -1, np.int64)
    for volume, bars, (of, firsts) in zip(volumes, outrights, sessions, strict=True):
        volume[np.searchsorted(days, of)] = np.add.reduceat(bars.volume, firsts)
    nobody = [-1]
    front = np.concatenate([nobody, np.argmax(volumes, axis=0)[:-1]])

    series, dropped = [], []
    for index, (bars, (of, firsts)) in enumerate(zip(outrights, sessions, strict=True)):
        counts = np.diff(firsts, append=len(bars))
        ordinals = np.searchsorted(days, of)
        keep = np.repeat(front[ordinals] == index, counts)
        early = int(counts[ordinals == 0].sum())
        if keep.any():
            series.append(Selected(bars, keep))
        for count, why in (
            (early, "in the first session, which has no past to choose the front contract by"),
            (len(bars) - early - int(keep.sum()), "while another contract was the front"),
        ):
            if count:
                dropped.append(Dropped(bars.symbol, count, why))
    return series, dropped


def _sessions(time: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The trading days of ascending times, and the first bar of each."""
    changes = [np.empty(0, np.int64)]
    last = -1
    for part in slabs(len(time)):
        day = trading_day(time[part])
        changes.append(part.start + np.flatnonzero(np.diff(day, prepend=last)))
        last = int(day[-1])
    firsts = np.concatenate(changes)
    return trading_day(time[firsts]), firsts


def trading_day(time: NDArray[np.int64]) -> NDArray[np.int64]:
    """The day since 1970 on which the trading session of each time ends; `time` is in nanoseconds UTC."""
    return (exchange_time(time) + (DAY - SESSION_START)) // DAY


def gap_limit(interval: int, max_gap_minutes: float | None) -> int:
    """Nanoseconds from one bar's open to the next, beyond which a new segment begins.

    When not given: 30 minutes for bars up to a minute, an hour up to an hour, four days above.
    """
    if max_gap_minutes is not None:
        return round(max_gap_minutes * MINUTE)
    if interval <= MINUTE:
        return 30 * MINUTE
    return HOUR if interval <= HOUR else 4 * DAY


def segment_starts(bars: Bars, keep: NDArray[np.bool_], max_gap_minutes: float | None) -> NDArray[np.bool_]:
    """Marks the bars that begin a segment: the first one, one after a gap, and one where `keep` changes."""
    starts = after_gap(bars, max_gap_minutes)
    starts[:1] = True
    starts[1:] |= keep[1:] != keep[:-1]
    return starts


def after_gap(bars: Bars, max_gap_minutes: float | None) -> NDArray[np.bool_]:
    """Marks the bars that come more than the limit after the one before them."""
    limit, late = gap_limit(bars.interval, max_gap_minutes), np.zeros(len(bars), bool)
    for part in slabs(len(bars) - 1):
        late[part.start + 1 : part.stop + 1] = bars.time[part.start + 1 : part.stop + 1] - bars.time[part] > limit
    return late


def describe(market: Market, selection: Selection, max_gap_minutes: float | None) -> tuple[SeriesRow, ...]:
    """The table of all series: how many bars from when to when, with how many gaps, and how many are chosen."""
    kept = {id(each.bars): int(each.keep.sum()) for each in selection.series}
    return tuple(
        SeriesRow(
            symbol=bars.symbol,
            bars=len(bars),
            first=utc(bars.time[0]),
            last=utc(bars.time[-1]),
            gaps=int(np.count_nonzero(after_gap(bars, max_gap_minutes))),
            kept=kept.get(id(bars), 0),
        )
        for bars in market.series
    )
