"""Records of a file to columns of each series, and what several files hold of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.clock import DAY, INTERVAL_NAMES, utc
from mamba2.data.dbn import DbnHeader, SymbolInterval, open_dbn
from mamba2.data.records import Records, words_of
from mamba2.errors import DataError

Columns = NDArray[np.int64]
"""Bars of one series, [column, bar]: time, open, high, low, close, volume."""

_ID = np.uint64(1 << 32)  # what stands above this in a record's first word is the instrument
_FAR = np.iinfo(np.int64).max

_Lookup = Mapping[int, Sequence[tuple[int, int, str]]]


class Key(NamedTuple):
    """What makes a series: symbols and ids are both reused over the years, so neither is enough alone."""

    symbol: str
    publisher_id: int
    instrument_id: int


class Part(NamedTuple):
    """What one file holds of a series, in time order."""

    path: Path
    first: int
    """When the first bar opens, nanoseconds UTC."""
    last: int
    bars: int
    blocks: Iterable[Columns]
    """In time order, none of them empty."""


class Source(NamedTuple):
    """What a file, or a folder of prepared bars, holds."""

    path: Path
    interval: int
    """Nanoseconds a bar spans."""
    files: int
    messages: int
    """Records in the files."""
    parts: Mapping[Key, Part]
    repeated: Mapping[Key, int]
    """Bars of each series that were dropped before, for another of the files holds them too."""
    conditions: Mapping[date, str] | None
    """Of prepared bars: UTC days that are not what they should be, and what is said of them; None of a file."""

    @property
    def first(self) -> int:
        """When the first bar opens; without bars later than all."""
        return min((part.first for part in self.parts.values()), default=_FAR)

    @property
    def last(self) -> int:
        """When the last bar opens; without bars before all."""
        return max((part.last for part in self.parts.values()), default=-1)


def read_source(path: Path) -> Source:
    """Reads a DBN file into memory, a chunk at a time.

    Raises:
        DataError: the file is refused, or the times of an instrument do not strictly increase.
    """
    header, chunks = open_dbn(path)
    blocks: dict[Key, list[Columns]] = {}
    for key, columns in split(header, chunks):
        blocks.setdefault(key, []).append(columns)
    return source_of(path, header.interval, {key: part_of(path, each) for key, each in blocks.items()})


def source_of(path: Path, interval: int, parts: Mapping[Key, Part]) -> Source:
    """What one file holds."""
    return Source(path, interval, 1, sum(part.bars for part in parts.values()), parts, {}, None)


def part_of(path: Path, blocks: Sequence[Columns]) -> Part:
    """Blocks in time order, none of them empty."""
    return Part(path, int(blocks[0][0, 0]), int(blocks[-1][0, -1]), sum(each.shape[1] for each in blocks), blocks)


def series_of(sources: Sequence[Source]) -> list[tuple[Key, list[Part]]]:
    """Each series and what the sources hold of it, by symbol.

    Raises:
        DataError: there is no source, or their bars span different intervals.
    """
    if not sources:
        raise DataError("load_bars: at least one file is needed; got none. Name DBN files of bars.")
    first, *others = sorted(sources, key=lambda source: source.first)
    for other in others:
        if other.interval != first.interval:
            here, there = (INTERVAL_NAMES.get(each.interval, f"{each.interval} ns") for each in (other, first))
            raise DataError(
                f"{other.path}: all files must hold bars of one interval; got {here} bars, but {there} bars in "
                f"{first.path}. Load them apart."
            )
    parts: dict[Key, list[Part]] = {}
    for source in (first, *others):
        for key, part in source.parts.items():
            parts.setdefault(key, []).append(part)
    return sorted(parts.items())


def split(header: DbnHeader, chunks: Iterable[Records]) -> Iterator[tuple[Key, Columns]]:
    """The bars of each series in each chunk; those of one series come in time order.

    Raises:
        DataError: the times of an instrument do not strictly increase.
    """
    intervals, last, read = _symbols_by_id(header.symbols), dict[int, int](), 0
    known = np.array(sorted(intervals), np.uint64) * _ID  # what is announced, until the records say more
    for records in filter(len, chunks):
        words = words_of(records)
        known, code = _encode(words[:, 0], known if read else known | words[:1, 0] % _ID)
        # In a type as small as will do: numpy sorts 8 and 16 bits by radix, several times faster.
        order = np.argsort(code.astype(np.min_scalar_type(len(known))), kind="stable")
        words = words.take(order, axis=0)
        columns = np.ascontiguousarray(words.T[1:]).view(np.int64)
        starts = [0, *(np.flatnonzero(words[1:, 0] != words[:-1, 0]) + 1).tolist()]
        places = list(zip(words[starts, 0].tolist(), starts, [*starts[1:], len(words)], strict=True))
        before = np.empty(len(order), np.int64)
        before[1:] = columns[0, :-1]
        for head, start, _ in places:
            before[start] = last.get(head, -1)
        late = np.flatnonzero(columns[0] <= before)
        if len(late):
            at = late[np.argmin(order[late])]
            symbol, _ = _symbol_at(intervals, int(records["instrument_id"][order[at]]), int(columns[0, at]))
            raise DataError(
                f"{header.path}: the times of {symbol} must increase; record {read + order[at]} at "
                f"{utc(columns[0, at])} comes after {utc(before[at])}. Sort the file or download it again."
            )
        for head, start, end in places:
            last[head] = int(columns[0, end - 1])
            yield from _by_symbol(intervals, head >> 16 & 0xFFFF, head >> 32, columns[:, start:end])
        read += len(records)


def _encode(heads: NDArray[np.uint64], known: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """The known first words, with the new ones among them, and for each record which of them it begins with."""
    code = np.searchsorted(known, heads)
    new = known.take(code, mode="clip") != heads if len(known) else np.ones(len(heads), bool)
    if new.any():
        known = np.union1d(known, heads[new])
        code = np.searchsorted(known, heads)
    return known, code


def _by_symbol(intervals: _Lookup, publisher: int, instrument: int, columns: Columns) -> Iterator[tuple[Key, Columns]]:
    """Cuts the bars of an instrument where its symbol changes."""
    start, count = 0, columns.shape[1]
    while start < count:
        symbol, until = _symbol_at(intervals, instrument, int(columns[0, start]))
        end = count if columns[0, -1] < until else int(np.searchsorted(columns[0], until))
        yield Key(symbol, publisher, instrument), columns[:, start:end]
        start = end


def _symbols_by_id(symbols: Mapping[str, Sequence[SymbolInterval]]) -> _Lookup:
    """For each instrument id its symbols: first time, time after the last, symbol."""
    epoch = date(1970, 1, 1).toordinal()
    by_id: dict[int, list[tuple[int, int, str]]] = {}
    for symbol, intervals in symbols.items():
        for each in intervals:
            times = (each.start.toordinal() - epoch) * DAY, (each.end.toordinal() - epoch) * DAY
            by_id.setdefault(each.instrument_id, []).append((*times, symbol))
    return by_id


def _symbol_at(intervals: _Lookup, instrument: int, time: int) -> tuple[str, int]:
    """The symbol of an instrument on the UTC day of the time, '#<id>' without one, and until when it is sure to be."""
    symbol, until = f"#{instrument}", _FAR
    for start, end, name in reversed(intervals.get(instrument, ())):  # the first one that there is wins
        if time < start:
            until = min(until, start)
        elif time < end:
            symbol, until = name, min(until, end)
    return symbol, until
