"""Bars of one instrument as a struct of arrays, and the way from DBN files to them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from mamba2.data.dbn import DbnFile, SymbolInterval, read_dbn
from mamba2.errors import DataError

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

INTERVAL_NAMES = {SECOND: "1s", MINUTE: "1m", HOUR: "1h", DAY: "1d"}
EXCHANGE = ZoneInfo("America/Chicago")

Records = NDArray[np.void]


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


class _Key(NamedTuple):
    """What makes a series: symbols and ids are both reused over the years, so neither is enough alone."""

    symbol: str
    publisher_id: int
    instrument_id: int


class _Part(NamedTuple):
    """What one file holds of a series."""

    path: Path
    records: Records


def utc(time: int) -> str:
    """A time in nanoseconds UTC as text, such as 2024-01-02T23:00:00Z."""
    return f"{np.datetime64(int(time), 'ns').astype('datetime64[s]')}Z"


def exchange_time(time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Wall time of the exchange, America/Chicago, of ascending times UTC; all in nanoseconds."""
    if len(time) == 0:
        return time
    hours = time // HOUR
    first, last = int(hours[0]), int(hours[-1])
    offsets = np.array([_utc_offset(hour) for hour in range(first, last + 1)])
    local: NDArray[np.int64] = time + offsets[hours - first]
    return local


@cache
def _utc_offset(hour: int) -> int:
    """Nanoseconds from UTC to exchange time; clocks change on whole hours, so one look-up serves each hour."""
    offset = datetime.fromtimestamp(hour * 3600, EXCHANGE).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * SECOND


def load_bars(paths: Sequence[Path]) -> Market:
    """Reads files of bars into one series per publisher, instrument id and raw symbol.

    The order of the paths does not matter. A bar without a symbol mapping on its UTC date gets the symbol '#<id>'.

    Raises:
        DataError: no file; a file that cannot be read; files with different intervals; times of a series that do
            not increase; two files with different bars for one time.
    """
    files = sorted(map(read_dbn, paths), key=lambda file: file.records["ts_event"].min(initial=np.iinfo(np.uint64).max))
    if not files:
        raise DataError("load_bars: at least one file is needed; got none. Name DBN files of bars.")
    for file in files[1:]:
        if file.interval != files[0].interval:
            here, there = (INTERVAL_NAMES.get(each.interval, f"{each.interval} ns") for each in (file, files[0]))
            raise DataError(
                f"{file.path}: all files must hold bars of one interval; got {here} bars, but {there} bars in "
                f"{files[0].path}. Load them apart."
            )
    parts: dict[_Key, list[_Part]] = {}
    for file in files:
        for key, records in _split(file):
            parts.setdefault(key, []).append(_Part(file.path, records))

    series, dropped = [], []
    for key, each in sorted(parts.items()):
        records = _merge(key.symbol, each)
        series.append(_bars(key, files[0].interval, records))
        repeated = sum(len(part.records) for part in each) - len(records)
        if repeated:
            dropped.append(Dropped(key.symbol, repeated, "that another file holds too"))
    return Market(len(files), sum(len(file.records) for file in files), tuple(series), tuple(dropped))


def _bars(key: _Key, interval: int, records: Records) -> Bars:
    names = ("ts_event", "open", "high", "low", "close", "volume")
    return Bars(*key, interval, *(records[name].astype(np.int64) for name in names))


def _split(file: DbnFile) -> Iterator[tuple[_Key, Records]]:
    """The records of each series in one file, in time order.

    Raises:
        DataError: the times of a series do not strictly increase.
    """
    keys, code = _series_codes(file)
    # In a type as small as will do: numpy sorts 8 and 16 bits by radix, several times faster.
    order = np.argsort(code.astype(np.min_scalar_type(len(keys))), kind="stable")
    records, code = file.records.take(order), code[order]  # an index in brackets copies field by field
    time = records["ts_event"]
    late = np.flatnonzero((code[1:] == code[:-1]) & (time[1:] <= time[:-1]))
    if len(late):
        first = late[np.argmin(order[late + 1])]
        raise DataError(
            f"{file.path}: the times of {keys[code[first]].symbol} must increase; record {order[first + 1]} at "
            f"{utc(time[first + 1])} comes after {utc(time[first])}. Sort the file or download it again."
        )
    counts = np.bincount(code, minlength=len(keys))
    ends = np.cumsum(counts)
    for key, start, end in zip(keys, ends - counts, ends, strict=True):
        yield key, records[start:end]


def _series_codes(file: DbnFile) -> tuple[list[_Key], NDArray[np.intp]]:
    """The series in a file, and for each record which of them it belongs to."""
    records = file.records
    # 16 bits of publisher, 32 of instrument and 16 of day, which last to the year 2149: one number to sort by.
    label = records["publisher_id"].astype(np.uint64) << 48
    label |= records["instrument_id"].astype(np.uint64) << 16
    label |= np.minimum(records["ts_event"] // DAY, 0xFFFF)
    labels = np.unique(label)
    intervals = _symbols_by_id(file.symbols)
    codes: dict[_Key, int] = {}
    lookup = []
    for value in labels.tolist():
        publisher, instrument, day = value >> 48, value >> 16 & 0xFFFFFFFF, value & 0xFFFF
        key = _Key(_symbol_on(intervals, instrument, day), publisher, instrument)
        lookup.append(codes.setdefault(key, len(codes)))
    return list(codes), np.array(lookup, np.intp)[np.searchsorted(labels, label)]


def _symbols_by_id(symbols: Mapping[str, Sequence[SymbolInterval]]) -> dict[int, list[tuple[int, int, str]]]:
    """For each instrument id its symbols: first day, day after the last, symbol; days since 1970."""
    epoch = date(1970, 1, 1).toordinal()
    by_id: dict[int, list[tuple[int, int, str]]] = {}
    for symbol, intervals in symbols.items():
        for each in intervals:
            days = each.start.toordinal() - epoch, each.end.toordinal() - epoch
            by_id.setdefault(each.instrument_id, []).append((*days, symbol))
    return by_id


def _symbol_on(intervals: Mapping[int, Sequence[tuple[int, int, str]]], instrument: int, day: int) -> str:
    found = (symbol for start, end, symbol in intervals.get(instrument, ()) if start <= day < end)
    return next(found, f"#{instrument}")


def _merge(symbol: str, parts: Sequence[_Part]) -> Records:
    """One series out of several files, without bars that come twice.

    Raises:
        DataError: two files hold different bars for one time.
    """
    if len(parts) == 1:
        return parts[0].records
    records: Records = np.concatenate([part.records for part in parts])
    time: NDArray[np.uint64] = records["ts_event"]
    if (time[1:] > time[:-1]).all():
        return records
    source = np.repeat(np.arange(len(parts)), [len(part.records) for part in parts])
    order = np.argsort(time, kind="stable")
    records, source, time = records.take(order), source[order], time[order]
    again = time[1:] == time[:-1]
    differing = np.flatnonzero(again & (records[1:] != records[:-1]))
    if len(differing):
        at = differing[0]
        raise DataError(
            f"{parts[source[at + 1]].path}: a bar that comes in two files must be the same in both; {symbol} at "
            f"{utc(time[at])} differs from {parts[source[at]].path}. Keep one of the files."
        )
    once: Records = records[np.concatenate([[True], ~again])]
    return once
