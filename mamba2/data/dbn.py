"""Reads Databento's DBN files of OHLCV bars, and refuses by name whatever is not one."""

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import zstandard
from databento_dbn import DBN_VERSION, UNDEF_PRICE, Metadata, OHLCVMsg, RType, VersionUpgradePolicy
from numpy.typing import NDArray

from mamba2.errors import DataError

__all__ = ["PRICE_SCALE", "RECORD", "UNDEF_PRICE", "DbnFile", "SymbolInterval", "read_dbn"]

PRICE_SCALE = 1e9
"""Prices are whole numbers: divide by this for the price."""

RECORD = np.dtype(OHLCVMsg._dtypes)
"""One bar as every version stores it: 56 bytes, little endian; `ts_event` is the bar's open, UTC nanoseconds."""

_NEEDED = "ohlcv-1s, -1m, -1h or -1d is needed"
_INTERVALS = {"ohlcv-1s": 10**9, "ohlcv-1m": 60 * 10**9, "ohlcv-1h": 3600 * 10**9, "ohlcv-1d": 86400 * 10**9}
_RTYPES = {"ohlcv-1s": 32, "ohlcv-1m": 33, "ohlcv-1h": 34, "ohlcv-1d": 35}
_AS_IS: Any = VersionUpgradePolicy.AS_IS  # the stubs of databento_dbn call it an int
_LENGTH = RECORD.itemsize // 4

_ZSTD = b"\x28\xb5\x2f\xfd"
_DBZ = b"\x50\x2a\x4d\x18"
_PREFIX = 8  # b"DBN", the version in one byte, the length of the metadata in four
_LEAST_METADATA = 104  # databento_dbn panics, where it should raise, on 100 to 103 bytes
_PADDING = 8  # metadata may be padded to a multiple of this
_PIECE = 1 << 16
_BLOCK = 1 << 14  # records checked at once: their temporaries stay in the cache


class SymbolInterval(NamedTuple):
    """The instrument a raw symbol stands for on the UTC days from `start` to the day before `end`."""

    start: date
    end: date
    instrument_id: int


@dataclass(frozen=True, eq=False)
class DbnFile:
    """The bars of one file, every record checked, and what the file says about them."""

    path: Path
    version: int
    dataset: str
    interval: int
    """Nanoseconds a bar spans."""
    symbols: Mapping[str, tuple[SymbolInterval, ...]]
    """By raw symbol; empty when the file maps none."""
    records: NDArray[np.void]
    """Of dtype `RECORD`, read-only, in file order."""


def read_dbn(path: Path) -> DbnFile:
    """Reads a .dbn or .dbn.zst file of version 1, 2 or 3 and checks all of it.

    Each record must have the length and type that the header announces, a time, four prices, and
    low <= open, close <= high. That times increase is for whoever knows the series to check.

    Raises:
        DataError: the file cannot be read, is damaged, or holds something other than OHLCV bars.
    """
    data = _content(path)
    metadata, start = _metadata(path, data)
    schema = _schema(path, metadata, data[start:] if metadata.schema is None else b"")
    records = np.frombuffer(data, RECORD, count=(len(data) - start) // RECORD.itemsize, offset=start)
    _check_layout(path, records, schema)
    left_over = (len(data) - start) % RECORD.itemsize
    if left_over:
        raise DataError(
            f"{path}: records must be whole; record {len(records)} has {left_over} of {RECORD.itemsize} bytes. "
            f"The file was cut: fetch it again."
        )
    _check_values(path, records)
    symbols = MappingProxyType(_symbols(path, metadata))
    return DbnFile(path, metadata.version, metadata.dataset, _INTERVALS[schema], symbols, records)


def _content(path: Path) -> bytes:
    """The DBN bytes of the file, decompressed where they have to be."""
    try:
        special = path.exists() and not path.is_file()  # a folder, or a pipe, which could be read for ever
        data = b"" if special else path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: must be a readable file; {reason}. Check the path and its permissions.") from error
    if special:
        raise DataError(f"{path}: must be a file; it is a folder or a device. Name the DBN files one by one.")
    if not data:
        raise DataError(f"{path}: must be a DBN file; it is empty, as a failed download leaves it. Fetch it again.")
    if data.startswith(_DBZ):
        raise DataError(
            f"{path}: must be a .dbn or .dbn.zst file; it is DBZ, the format before DBN. "
            f"Download it again, or convert it with Databento's dbn command."
        )
    return _decompressed(path, data) if data.startswith(_ZSTD) else data


def _decompressed(path: Path, data: bytes) -> bytes:
    """All zstd frames of the data; unlike a stream reader, this notices a frame that ends early."""
    try:
        zstd = zstandard.ZstdDecompressor()
        head = zstd.stream_reader(data, read_across_frames=True).read(3)
        _require_dbn(path, head, b"DBN"[: len(head)])
        content = io.BytesIO()
        frame = zstd.decompressobj()
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            while piece:
                if frame.eof:
                    frame = zstd.decompressobj()
                content.write(frame.decompress(piece))
                piece = frame.unused_data if frame.eof else b""
    except zstandard.ZstdError as error:
        raise DataError(f"{path}: must be whole zstd data; it is damaged: {_line(error)}. Fetch it again.") from error
    if not frame.eof:
        raise DataError(f"{path}: must be whole zstd data; the compressed data ends early. Fetch it again.")
    return content.getvalue()


def _require_dbn(path: Path, head: bytes, expected: bytes = b"DBN") -> None:
    if head != expected:
        raise DataError(
            f"{path}: must be a DBN file; its content starts with {head!r}, not b'DBN'. "
            f"Download with encoding dbn, not csv or json."
        )


def _metadata(path: Path, data: bytes) -> tuple[Metadata, int]:
    """The decoded header, and where the records start."""
    _require_dbn(path, data[:3])
    length = int.from_bytes(data[4:_PREFIX], "little")
    start = _PREFIX + length
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
    if length < _LEAST_METADATA:
        raise _damaged_metadata(path, f"{length} bytes are too few")
    try:
        metadata = Metadata.decode(data[:start], upgrade_policy=_AS_IS)
        needed = len(bytes(metadata))
    except Exception as error:  # databento_dbn documents DBNError, and raises ValueError as well
        raise _damaged_metadata(path, _line(error)) from error
    if abs(needed - start) >= _PADDING:
        # A damaged length or count would otherwise swallow records, or symbols, unseen.
        raise _damaged_metadata(path, f"its content takes {needed} bytes, its length says {start}")
    return metadata, start


def _damaged_metadata(path: Path, what: str) -> DataError:
    return DataError(f"{path}: metadata must be readable; it is damaged: {what}. Fetch the file again.")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _schema(path: Path, metadata: Metadata, body: bytes) -> str:
    """The schema's name, once it is sure that it is one of bars."""
    schema = metadata.schema
    if schema is None:
        raise DataError(
            f"{path}: must hold one schema; it is mixed, as a live recording is, and has {_kinds(body)}. "
            f"Download one schema from the historical API: {_NEEDED}."
        )
    if str(schema) not in _INTERVALS:
        raise DataError(f"{path}: must hold bars; its schema is {schema}. Download again: {_NEEDED}.")
    if metadata.ts_out:
        raise DataError(
            f"{path}: must have plain records; send times are appended to these (ts_out). Record without ts_out."
        )
    return str(schema)


def _kinds(body: bytes) -> str:
    """What a mixed body holds, such as '20 symbol-mapping, 2 ohlcv-1m'."""
    found: Counter[str] = Counter()
    at = 0
    while at + 2 <= len(body) and body[at]:
        found[_kind(body[at + 1])] += 1
        at += 4 * body[at]
    return ", ".join(f"{count} {kind}" for kind, count in found.most_common()) or "no records"


def _kind(rtype: int) -> str:
    names = {int(each): str(each) for each in RType.variants()} | {0: "trades"}
    return names.get(rtype, f"rtype {rtype}")


def _symbols(path: Path, metadata: Metadata) -> dict[str, tuple[SymbolInterval, ...]]:
    """Intervals by raw symbol, sorted; the side of the mapping that is no instrument id is the symbol."""
    by_id = str(metadata.stype_in) == "instrument_id"
    found: dict[str, list[SymbolInterval]] = {}
    try:
        mappings = metadata.mappings
    except ValueError as error:  # a date that the decoder let pass
        raise _damaged_metadata(path, _line(error)) from error
    for key, intervals in mappings.items():
        for each in intervals:
            symbol, number = (each["symbol"], key) if by_id else (key, each["symbol"])
            if not each["symbol"]:  # the symbol stood for nothing on these days
                continue
            if not (number.isascii() and number.isdigit() and int(number) < 2**32):
                raise _damaged_metadata(path, f"symbol {symbol!r} maps to {number!r}, which is no instrument id")
            found.setdefault(symbol, []).append(SymbolInterval(each["start_date"], each["end_date"], int(number)))
    return {symbol: tuple(found[symbol]) for symbol in sorted(found)}


def _check_layout(path: Path, records: NDArray[np.void], schema: str) -> None:
    rtype = _RTYPES[schema]
    for start in range(0, len(records), _BLOCK):
        block = records[start : start + _BLOCK]
        bad = (block["length"] != _LENGTH) | (block["rtype"] != rtype)
        if bad.any():
            index = start + int(bad.argmax())
            raise DataError(f"{path}: record {index} {_misfit(records[index], schema)}")


def _misfit(record: np.void, schema: str) -> str:
    length, rtype = int(record["length"]), int(record["rtype"])
    if record.tobytes().startswith(b"DBN"):
        return "must be a bar; another DBN file starts there. Files were joined: give each one by itself."
    if length == _LENGTH and rtype in _RTYPES.values():
        return f"must be {schema} as the header says; it is {_kind(rtype)}. Header and bars do not belong together."
    return (
        f"must have length {_LENGTH} and rtype {_RTYPES[schema]} ({schema}); it has length {length} "
        f"and rtype {rtype}. The file is damaged: fetch it again."
    )


def _check_values(path: Path, records: NDArray[np.void]) -> None:
    for start in range(0, len(records), _BLOCK):
        block = records[start : start + _BLOCK]
        high, low = block["high"], block["low"]
        bad = (low > np.minimum(block["open"], block["close"])) | (high < np.maximum(block["open"], block["close"]))
        bad |= high == UNDEF_PRICE  # any other undefined price breaks the order above
        bad |= (block["ts_event"] | block["volume"]) >> np.uint64(63) != 0  # undefined, or beyond an int64
        if bad.any():
            index = start + int(bad.argmax())
            raise DataError(
                f"{path}: {_flaw(index, records[index])} The bar is bad: fetch the file again or leave it out."
            )


def _flaw(index: int, record: np.void) -> str:
    """What is wrong with the first bad bar: record, time, value."""
    time = int(record["ts_event"])
    if time >= 2**63:
        return f"record {index} must have a time; ts_event is {time}, undefined."
    where = f"record {index} at {np.datetime_as_string(np.datetime64(time, 'ns'), unit='auto')}Z"
    prices = {name: int(record[name]) for name in ("open", "high", "low", "close")}
    for name, price in prices.items():
        if price == UNDEF_PRICE:
            return f"{where} must have four prices; {name} is {price}, undefined."
    if record["volume"] >= 2**63:
        return f"{where} must have a volume below 2**63; it is {record['volume']}."
    listed = ", ".join(f"{name} {price / PRICE_SCALE}" for name, price in prices.items())
    return f"{where} must have low <= open, close <= high; got {listed}."
