"""One record of DBN files of bars: its layout, and what every one of them must be."""

from pathlib import Path

import numpy as np
from databento_dbn import UNDEF_PRICE, OHLCVMsg, RType
from numpy.typing import NDArray

from mamba2.errors import DataError

__all__ = [
    "PRICE_SCALE",
    "RECORD",
    "RTYPES",
    "UNDEF_PRICE",
    "Records",
    "check_layout",
    "check_values",
    "kind_of",
    "words_of",
]

PRICE_SCALE = 1e9
"""Prices are whole numbers: divide by this for the price."""

RECORD = np.dtype(OHLCVMsg._dtypes)
"""One bar as every version stores it: 56 bytes, little endian; `ts_event` is the bar's open, UTC nanoseconds."""

RTYPES = {"ohlcv-1s": 32, "ohlcv-1m": 33, "ohlcv-1h": 34, "ohlcv-1d": 35}
"""What the records of each schema say that they are."""

Records = NDArray[np.void]

_LENGTH = RECORD.itemsize // 4
_TWO_BYTES = np.uint64(0xFFFF)
_BLOCK = 1 << 14  # records checked at once: their temporaries stay in the cache


def words_of(records: Records) -> NDArray[np.uint64]:
    """[record, word]: length, type, publisher and instrument in the first; time; open, high, low, close; volume."""
    return records.view(np.uint64).reshape(-1, RECORD.itemsize // 8)


def kind_of(rtype: int) -> str:
    names = {int(each): str(each) for each in RType.variants()} | {0: "trades"}
    return names.get(rtype, f"rtype {rtype}")


def check_layout(path: Path, records: Records, schema: str, before: int) -> None:
    """Length and type of each record; `before` are the records of the file before these."""
    wanted = np.uint64(_LENGTH | RTYPES[schema] << 8)  # the first two bytes
    for start in range(0, len(records), _BLOCK):
        bad = words_of(records[start : start + _BLOCK])[:, 0] & _TWO_BYTES != wanted
        if bad.any():
            index = start + int(bad.argmax())
            raise DataError(f"{path}: record {before + index} {_misfit(records[index], schema)}")


def _misfit(record: np.void, schema: str) -> str:
    length, rtype = int(record["length"]), int(record["rtype"])
    if record.tobytes().startswith(b"DBN"):
        return "must be a bar; another DBN file starts there. Files were joined: give each one by itself."
    if length == _LENGTH and rtype in RTYPES.values():
        return f"must be {schema} as the header says; it is {kind_of(rtype)}. Header and bars do not belong together."
    return (
        f"must have length {_LENGTH} and rtype {RTYPES[schema]} ({schema}); it has length {length} "
        f"and rtype {rtype}. The file is damaged: fetch it again."
    )


def check_values(path: Path, records: Records, before: int) -> None:
    """Prices, time and volume of each record; `before` are the records of the file before these."""
    for start in range(0, len(records), _BLOCK):
        _, time, opened, high, low, close, volume = words_of(records[start : start + _BLOCK]).view(np.int64).T
        bad = (low > np.minimum(opened, close)) | (high < np.maximum(opened, close))
        bad |= high == UNDEF_PRICE  # any other undefined price breaks the order above
        bad |= (time | volume) < 0  # undefined, or beyond an int64
        if bad.any():
            index = start + int(bad.argmax())
            flaw = _flaw(before + index, records[index])
            raise DataError(f"{path}: {flaw} The bar is bad: fetch the file again or leave it out.")


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
