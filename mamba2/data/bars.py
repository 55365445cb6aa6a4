"""Bars of one instrument as a struct of arrays, and the way from DBN files to them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.clock import DAY, EXCHANGE, HOUR, INTERVAL_NAMES, MINUTE, SECOND, exchange_time, utc
from mamba2.data.condition import find_conditions
from mamba2.data.folder import read_folder
from mamba2.data.merge import joined, merge
from mamba2.data.series import read_source, series_of
from mamba2.errors import DataError

__all__ = [
    "DAY",
    "EXCHANGE",
    "HOUR",
    "INTERVAL_NAMES",
    "MINUTE",
    "SECOND",
    "Bars",
    "Dropped",
    "Market",
    "exchange_time",
    "load_bars",
    "require_interval",
    "slabs",
    "utc",
]


_SLAB = 1 << 17


@dataclass(frozen=True, eq=False)
class Bars:
    """The bars of one series: one publisher, one instrument id, one raw symbol."""

    symbol: str
    publisher_id: int
    instrument_id: int
    interval: int
    """Nanoseconds that a bar spans."""
    time: NDArray[np.int64]
    """When each bar OPENS, nanoseconds UTC, strictly increasing; a bar is known at time + interval."""
    open: NDArray[np.int64]
    """Prices are in units of 1e-9."""
    high: NDArray[np.int64]
    low: NDArray[np.int64]
    close: NDArray[np.int64]
    volume: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, part: slice) -> "Bars":
        columns = (self.time, self.open, self.high, self.low, self.close, self.volume)
        return Bars(
            self.symbol, self.publisher_id, self.instrument_id, self.interval, *(column[part] for column in columns)
        )

    @property
    def is_outright(self) -> bool:
        """Whether the symbol names one contract; spreads are spelled with '-' or ':'."""
        return not any(mark in self.symbol for mark in "-:")


class Dropped(NamedTuple):
    """Bars that are not used, and why."""

    symbol: str
    bars: int
    why: str


@dataclass(frozen=True, eq=False)
class Market:
    """All series of some files, ordered by symbol."""

    files: int
    messages: int
    """Records in the files, before anything is dropped."""
    series: tuple[Bars, ...]
    dropped: tuple[Dropped, ...]
    conditions: Mapping[date, str] = field(default_factory=dict)
    """UTC days that Databento marks as degraded, pending or missing, among those that the files span."""
    folder: Path | None = None
    """Where there is room beside bars that stay on disk; None for bars in memory."""


def slabs(count: int) -> Iterator[slice]:
    """Consecutive parts of so many bars, none of them large: what is computed of bars on disk must not be, either."""
    for start in range(0, count, _SLAB):
        yield slice(start, min(start + _SLAB, count))


def load_bars(paths: Sequence[Path]) -> Market:
    """Reads files of bars into one series per publisher, instrument id and raw symbol.

    The order of the paths does not matter. A bar without a symbol mapping on its UTC date gets the symbol '#<id>'. A
    path may be a folder that `mamba2 prepare` wrote: its bars stay on disk, and the market is that of its files.

    Raises:
        DataError: no file; a file that cannot be read; files with different intervals; times of a series that do
            not increase; two files with different bars for one time.
    """
    sources = [read_folder(path) if path.is_dir() else read_source(path) for path in paths]
    series, dropped = [], []
    for key, parts in series_of(sources):
        columns = joined(list(merge(key.symbol, parts)))
        series.append(Bars(*key, sources[0].interval, *columns))
        repeated = sum(part.bars for part in parts) - columns.shape[1]
        repeated += sum(source.repeated.get(key, 0) for source in sources)
        if repeated:
            dropped.append(Dropped(key.symbol, repeated, "that another file holds too"))
    files, messages = sum(source.files for source in sources), sum(source.messages for source in sources)
    folder = next((source.path for source in sources if source.conditions is not None), None)
    return Market(files, messages, tuple(series), tuple(dropped), find_conditions(sources), folder)


def require_interval(who: str, interval: int, trained: int | None) -> None:
    """Bars come as often as those of the training; None where that is not known.

    Raises:
        DataError: they do not.
    """
    if trained is not None and interval != trained:
        raise DataError(
            f"{who}: bars must be of the training's interval, {trained // SECOND} s; got {interval // SECOND} s. "
            "Take the schema that the run was trained on."
        )
