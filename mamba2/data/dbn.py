"""Reads Databento's DBN files of OHLCV bars, and refuses by name whatever is not one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from databento_dbn import DBN_VERSION, Metadata, VersionUpgradePolicy

from mamba2.data.content import line_of, read_content
from mamba2.data.records import PRICE_SCALE, RECORD, UNDEF_PRICE, Records, check_layout, check_values, kind_of
from mamba2.errors import DataError

__all__ = [
    "PRICE_SCALE",
    "RECORD",
    "UNDEF_PRICE",
    "DbnFile",
    "DbnHeader",
    "SymbolInterval",
    "count_records",
    "open_dbn",
    "read_dbn",
]

_NEEDED = "ohlcv-1s, -1m, -1h or -1d is needed"
_INTERVALS = {"ohlcv-1s": 10**9, "ohlcv-1m": 60 * 10**9, "ohlcv-1h": 3600 * 10**9, "ohlcv-1d": 86400 * 10**9}
_AS_IS: Any = VersionUpgradePolicy.AS_IS  # the stubs of databento_dbn call it an int

_PREFIX = 8  # b"DBN", the version in one byte, the length of the metadata in four
_LEAST_METADATA = 104  # databento_dbn panics, where it should raise, on 100 to 103 bytes
_PADDING = 8  # metadata may be padded to a multiple of this
_CHUNK = RECORD.itemsize << 16  # bytes of records read at once


class SymbolInterval(NamedTuple):
    """The instrument a raw symbol stands for on the UTC days from `start` to the day before `end`."""

    start: date
    end: date
    instrument_id: int


@dataclass(frozen=True, eq=False)
class DbnHeader:
    """What a file of bars says about them."""

    path: Path
    version: int
    dataset: str
    interval: int
    """Nanoseconds a bar spans."""
    symbols: Mapping[str, tuple[SymbolInterval, ...]]
    """By raw symbol; empty when the file maps none."""


@dataclass(frozen=True, eq=False)
class DbnFile(DbnHeader):
    """The bars of one file, every record checked, and what the file says about them."""

    records: Records
    """Of dtype `RECORD`, read-only, in file order."""


def read_dbn(path: Path) -> DbnFile:
    """Reads a whole file; see `open_dbn`.

    Raises:
        DataError: the file cannot be read, is damaged, or holds something other than OHLCV bars.
    """
    header, chunks = open_dbn(path)
    first, *more = chunks
    records = np.frombuffer(b"".join(each.data for each in (first, *more)), RECORD) if more else first
    return DbnFile(header.path, header.version, header.dataset, header.interval, header.symbols, records)


def count_records(path: Path) -> int:
    """How many records a file has; all of them are read and checked, none is kept.

    Raises:
        DataError: as `open_dbn`.
    """
    return sum(map(len, open_dbn(path)[1]))


def open_dbn(path: Path) -> tuple[DbnHeader, Iterator[Records]]:
    """The header of a .dbn or .dbn.zst file of version 1, 2 or 3, and its records, read and checked a chunk at a time.

    Each record must have the length and type that the header announces, a time, four prices, and
    low <= open, close <= high. That times increase is for whoever knows the series to check. There is at least one
    chunk, which may be empty; only when all have been taken, the file is known to be whole.

    Raises:
        DataError: the file cannot be read, is damaged, or holds something other than OHLCV bars; while the records
            are taken, too.
    """
    content = read_content(path, _CHUNK)
    head = _head(path, content)
    metadata, start = _metadata(path, head)
    chunks = _chunks(head[start:], content)
    schema = _schema(path, metadata, chunks)
    symbols = MappingProxyType(_symbols(path, metadata))
    header = DbnHeader(path, metadata.version, metadata.dataset, _INTERVALS[schema], symbols)
    return header, _records(path, schema, chunks)


def _head(path: Path, content: Iterator[bytes]) -> bytes:
    """The content up to the piece with the end of the metadata, or all of it."""
    head = next(content, b"")
    while len(head) < _PREFIX and (piece := next(content, b"")):
        head += piece
    _require_dbn(path, head[:3])  # before a length is believed that is none
    parts, missing = [head], _end_of_metadata(head) - len(head)
    while missing > 0 and (piece := next(content, b"")):
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)


def _end_of_metadata(head: bytes) -> int:
    return _PREFIX + int.from_bytes(head[4:_PREFIX], "little")


def _chunks(rest: bytes, content: Iterator[bytes]) -> Iterator[memoryview]:
    """The rest and all content after it in chunks of whole records, but for what is left over in the last."""
    parts, count = [rest], len(rest)
    for piece in content:
        if count >= _CHUNK:
            joined = memoryview(b"".join(parts))
            whole = count - count % RECORD.itemsize
            yield joined[:whole]
            parts, count = [bytes(joined[whole:])], count - whole
        parts.append(piece)
        count += len(piece)
    yield memoryview(b"".join(parts))


def _records(path: Path, schema: str, chunks: Iterator[memoryview]) -> Iterator[Records]:
    read = 0
    for chunk in chunks:
        records = np.frombuffer(chunk, RECORD, count=len(chunk) // RECORD.itemsize)
        check_layout(path, records, schema, read)
        left_over = len(chunk) % RECORD.itemsize
        if left_over:
            raise DataError(
                f"{path}: records must be whole; record {read + len(records)} has {left_over} of {RECORD.itemsize} "
                f"bytes. The file was cut: fetch it again."
            )
        check_values(path, records, read)
        read += len(records)
        yield records


def _require_dbn(path: Path, head: bytes) -> None:
    if head != b"DBN":
        raise DataError(
            f"{path}: must be a DBN file; its content starts with {head!r}, not b'DBN'. "
            f"Download with encoding dbn, not csv or json."
        )


def _metadata(path: Path, data: bytes) -> tuple[Metadata, int]:
    """The decoded header, and where the records start."""
    start = _end_of_metadata(data)
    if len(data) < start:
        raise DataError(
            f"{path}: metadata must be whole; it takes {start} bytes, the file has {len(data)}. "
            f"The file was cut: fetch it again."
        )
    if data[3] > DBN_VERSION:
        raise DataError(
            f"{path}: must be DBN version {DBN_VERSION} or older; it is the newer version {data[3]}. "
            f"Update databento-dbn, or fetch the file again if that one is new enough."
        )
    if start < _PREFIX + _LEAST_METADATA:
        raise _damaged_metadata(path, f"{start - _PREFIX} bytes are too few")
    try:
        metadata = Metadata.decode(data[:start], upgrade_policy=_AS_IS)
        needed = len(bytes(metadata))
    except Exception as error:  # databento_dbn documents DBNError, and raises ValueError as well
        raise _damaged_metadata(path, line_of(error)) from error
    if abs(needed - start) >= _PADDING:
        # A damaged length or count would otherwise swallow records, or symbols, unseen.
        raise _damaged_metadata(path, f"its content takes {needed} bytes, its length says {start}")
    return metadata, start


def _damaged_metadata(path: Path, what: str) -> DataError:
    return DataError(f"{path}: metadata must be readable; it is damaged: {what}. Fetch the file again.")


def _schema(path: Path, metadata: Metadata, chunks: Iterator[memoryview]) -> str:
    """The schema's name, once it is sure that it is one of bars."""
    schema = metadata.schema
    if schema is None:
        raise DataError(
            f"{path}: must hold one schema; it is mixed, as a live recording is, and has {_kinds(next(chunks))}. "
            f"Download one schema from the historical API: {_NEEDED}."
        )
    if str(schema) not in _INTERVALS:
        raise DataError(f"{path}: must hold bars; its schema is {schema}. Download again: {_NEEDED}.")
    if metadata.ts_out:
        raise DataError(
            f"{path}: must have plain records; send times are appended to these (ts_out). Record without ts_out."
        )
    return str(schema)


def _kinds(body: memoryview) -> str:
    """What the first chunk of a mixed body holds, such as '20 symbol-mapping, 2 ohlcv-1m'."""
    found: Counter[str] = Counter()
    at = 0
    while at + 2 <= len(body) and body[at]:
        found[kind_of(body[at + 1])] += 1
        at += 4 * body[at]
    return ", ".join(f"{count} {kind}" for kind, count in found.most_common()) or "no records"


def _symbols(path: Path, metadata: Metadata) -> dict[str, tuple[SymbolInterval, ...]]:
    """Intervals by raw symbol, sorted; the side of the mapping that is no instrument id is the symbol."""
    by_id = str(metadata.stype_in) == "instrument_id"
    found: dict[str, list[SymbolInterval]] = {}
    try:
        mappings = metadata.mappings
    except ValueError as error:  # a date that the decoder let pass
        raise _damaged_metadata(path, line_of(error)) from error
    for key, intervals in mappings.items():
        for each in intervals:
            symbol, number = (each["symbol"], key) if by_id else (key, each["symbol"])
            if not each["symbol"]:  # the symbol stood for nothing on these days
                continue
            if not (number.isascii() and number.isdigit() and int(number) < 2**32):
                raise _damaged_metadata(path, f"symbol {symbol!r} maps to {number!r}, which is no instrument id")
            found.setdefault(symbol, []).append(SymbolInterval(each["start_date"], each["end_date"], int(number)))
    return {symbol: tuple(found[symbol]) for symbol in sorted(found)}
