"""Writes DBN files: deterministic, realistic bars with a planted signal, and whatever a test asks for."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import zstandard
from databento_dbn import Metadata, Schema, SType
from numpy.typing import NDArray

from mamba2.data.dbn import RECORD, SymbolInterval, open_dbn
from mamba2.data.folder import read_manifest
from mamba2.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = NDArray[np.void]
Symbols = Mapping[str, tuple[SymbolInterval, ...]]

SYNTHETIC = "SYNTHETIC"
"""The dataset that the header of a made-up file names, as a real one says GLBX.MDP3: the mark survives every copy."""

TICK = 50_000
"""The price step of Euro FX futures, 0.00005, in units of 1e-9."""

MINUTE = 60 * 10**9
"""In nanoseconds."""

AR1_COEFFICIENT = 0.3
"""Of the planted signal: r[t+1] = 0.3·r[t] + noise, so that the best forecast leaves 0.91 of the variance."""


class Child(NamedTuple):
    """One instrument of the example."""

    symbol: str
    instrument_id: int
    bars: tuple[int, int, int, int]
    """How many on each of the four days."""
    volume: float
    """Typical contracts a minute, at the busiest time of day."""


EXAMPLE_DAYS = (date(2024, 1, 2), date(2024, 1, 3), date(2024, 1, 4), date(2024, 1, 5))
"""Tuesday to Friday; Chicago is six hours behind UTC, and trading rests from 22:00 to 23:00 UTC."""

FRONT = Child("6EH4", 4916, (1380, 1380, 1380, 1320), 180.0)
SECOND = Child("6EM4", 10382, (358, 371, 349, 325), 6.0)
SPREAD = Child("6EH4-6EM4", 42003068, (86, 90, 83, 79), 9.0)
STRAYS = (Child("6EU4", 16427, (5, 3, 4, 3), 1.0), Child("6EZ4", 24091, (2, 2, 2, 1), 1.0))
CHILDREN = (FRONT, SECOND, SPREAD, *STRAYS)
"""7,223 bars in the make-up of a parent file: two outrights, their calendar spread, and stray far months."""


def encode_header(
    *,
    symbols: Symbols,
    version: int = 3,
    schema: str | None = "ohlcv-1m",
    dataset: str = "GLBX.MDP3",
    parent: str | None = None,
    ts_out: bool = False,
) -> bytes:
    """The header of a DBN file; it covers the days of its symbols, and names one schema or, with None, a mixture.

    Raises:
        databento_dbn.DBNError: a symbol is too long for the version (21 characters in 1, 70 in 2 and 3).
    """
    intervals = [each for of_symbol in symbols.values() for each in of_symbol]
    return bytes(
        Metadata(
            dataset=dataset,
            start=_midnight(min((each.start for each in intervals), default=EXAMPLE_DAYS[0])),
            end=_midnight(max((each.end for each in intervals), default=EXAMPLE_DAYS[0])),
            version=version,
            stype_in=SType.from_str("raw_symbol" if parent is None else "parent"),
            stype_out=SType.from_str("instrument_id"),
            schema=None if schema is None else Schema.from_str(schema),
            symbols=list(symbols) if parent is None else [parent],
            partial=[],
            not_found=[],
            mappings=[_mapping(symbol, of_symbol) for symbol, of_symbol in symbols.items()],
            ts_out=ts_out,
        )
    )


def write_dbn(
    path: Path,
    records: Records,
    *,
    symbols: Symbols,
    version: int = 3,
    compress: bool = True,
    checksum: bool = True,
    schema: str | None = "ohlcv-1m",
    dataset: str = "GLBX.MDP3",
    parent: str | None = None,
) -> Path:
    """Writes records, whole or not at all, as a file that `read_dbn` gives back; returns the path.

    Records are written as they are, so that files with flaws can be made as well.

    Raises:
        DataError: the file cannot be written.
        databento_dbn.DBNError: a symbol is too long for the version.
    """
    header = encode_header(symbols=symbols, version=version, schema=schema, dataset=dataset, parent=parent)
    content = header + records.tobytes()
    replace_file(path, compress_dbn(content, checksum=checksum) if compress else content)
    return path


def compress_dbn(content: bytes, *, checksum: bool = True) -> bytes:
    """One zstd frame that does not tell its size, as Databento writes it."""
    frame = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    return frame.compress(content) + frame.flush()


def replace_file(path: Path, content: bytes) -> None:
    """Writes beside the path, then renames: nobody ever sees half a file.

    Raises:
        DataError: the file cannot be written.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{path}: must be writable; {error.strerror}. Check the folder and its permissions.") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def ar1_returns(rng: np.random.Generator, n: int, *, coefficient: float = AR1_COEFFICIENT, std: float) -> Floats:
    """Draws n stationary values of r[t+1] = coefficient·r[t] + noise, with the given standard deviation."""
    shocks = rng.normal(0.0, std * np.sqrt(1 - coefficient**2), n)
    shocks[:1] = rng.normal(0.0, std, min(n, 1))
    return np.fromiter(accumulate(shocks, lambda past, shock: coefficient * past + shock), np.float64, n)


def minute_bars(rng: np.random.Generator, times: Ints, closes: Ints, *, instrument_id: int, volume: Floats) -> Records:
    """One-minute bars with the given opening times (ns) and closes (ticks); each opens within a tick of the last close.

    Volumes scatter log-normally around `volume`, and are at least one contract; a bar of one contract has one price.
    """
    n = len(times)
    volumes = np.maximum(1, np.rint(volume * rng.lognormal(0.0, 0.5, n)))
    opens = np.concatenate([closes[:1], closes[:-1]]) + rng.integers(-1, 2, n)
    opens = np.where(volumes == 1, closes, opens)
    above, below = np.where(volumes == 1, 0, rng.geometric(0.5, (2, n)) - 1)
    records = np.zeros(n, RECORD)
    records["length"] = RECORD.itemsize // 4
    records["rtype"] = 33
    records["publisher_id"] = 1
    records["instrument_id"] = instrument_id
    records["ts_event"] = times
    records["open"] = opens * TICK
    records["high"] = (np.maximum(opens, closes) + above) * TICK
    records["low"] = (np.minimum(opens, closes) - below) * TICK
    records["close"] = closes * TICK
    records["volume"] = volumes
    return records


def example_records(seed: int = 20240102) -> Records:
    """The example's 7,223 bars, in time order and by instrument within a minute.

    The front month's log returns from close to close follow r[t+1] = 0.3·r[t] + noise, with a standard deviation of
    2.5e-4, five ticks; the other contracts move with it, at their distance.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    times = np.concatenate([session_minutes(day) for day in EXAMPLE_DAYS])
    front = np.rint(22_040 * np.exp(np.cumsum(ar1_returns(rng, len(times), std=2.5e-4)))).astype(np.int64)
    spread = -90 + np.cumsum(rng.choice([-1, 0, 1], len(times), p=[0.01, 0.98, 0.01]))
    activity = _activity(times)
    parts = [minute_bars(rng, times, front, instrument_id=FRONT.instrument_id, volume=FRONT.volume * activity)]
    for child, path in ((SECOND, front - spread), (SPREAD, spread), (STRAYS[0], front + 172), (STRAYS[1], front + 255)):
        traded = _traded(rng, times, activity, child)
        closes = path + rng.integers(-1, 2, len(times))
        every = minute_bars(rng, times, closes, instrument_id=child.instrument_id, volume=child.volume * activity)
        parts.append(every[traded])
    records = np.concatenate(parts)
    return records[np.lexsort((records["instrument_id"], records["ts_event"]))]


def example_files(seed: int = 20240102) -> Iterator[tuple[str, Records, Symbols]]:
    """Name, records and symbols of each of the example's four files, one for a UTC day."""
    records = example_records(seed)
    for day in EXAMPLE_DAYS:
        tomorrow = day + timedelta(days=1)
        of_day = (records["ts_event"] >= _midnight(day)) & (records["ts_event"] < _midnight(tomorrow))
        symbols: Symbols = {child.symbol: (SymbolInterval(day, tomorrow, child.instrument_id),) for child in CHILDREN}
        yield f"glbx-mdp3-{day:%Y%m%d}.ohlcv-1m.dbn.zst", records[of_day], symbols


def write_example(folder: Path) -> list[Path]:
    """Writes the embedded example, four days of 6E.FUT in 7,223 one-minute bars; the bars are always the same.

    Raises:
        DataError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: must be a folder; {error.strerror}. Name one that can be written.") from error
    return [
        write_dbn(folder / name, records, symbols=symbols, dataset=SYNTHETIC, parent="6E.FUT")
        for name, records, symbols in example_files()
    ]


def session_minutes(day: date) -> Ints:
    """Opening times of a day's bars: all minutes but the break from 22:00 UTC, which on a Friday lasts to the end."""
    minute = np.arange(1440)
    open_ = (minute < 22 * 60) | ((minute >= 23 * 60) & (day.weekday() != 4))
    return _midnight(day) + minute[open_] * MINUTE


def are_synthetic(paths: Sequence[Path]) -> bool:
    """Whether every file, or every file that a prepared folder was made of, says that it is made up.

    Raises:
        DataError: a file cannot be read.
    """
    return all(dataset == SYNTHETIC for path in paths for dataset in _datasets(path))


def _datasets(path: Path) -> list[str]:
    if path.is_dir():
        return [each["dataset"] for each in read_manifest(path)["files"]]
    header, _ = open_dbn(path)
    return [header.dataset]


def _midnight(day: date) -> int:
    return int(np.datetime64(day, "ns").astype(np.int64))


def _mapping(symbol: str, intervals: Sequence[SymbolInterval]) -> SimpleNamespace:
    parts = [SimpleNamespace(start_date=a, end_date=b, symbol=str(number)) for a, b, number in intervals]
    return SimpleNamespace(raw_symbol=symbol, intervals=parts)


def _activity(times: Ints) -> Floats:
    """Share of the busiest minute's volume, by the hour in UTC: quiet Asia, London from 7, New York from 13."""
    hours = [10, 10, 9, 8, 8, 9, 18, 40, 52, 48, 42, 40, 55, 95, 100, 98, 80, 50, 38, 32, 24, 12, 0, 8]
    return np.array(hours)[times // (60 * MINUTE) % 24] / 100


def _traded(rng: np.random.Generator, times: Ints, activity: Floats, child: Child) -> Ints:
    """Indices of the minutes in which a child trades, more of them at busy times."""
    chosen = []
    for day, count in zip(EXAMPLE_DAYS, child.bars, strict=True):
        of_day = np.flatnonzero(times // (1440 * MINUTE) == _midnight(day) // (1440 * MINUTE))
        weights = activity[of_day] / activity[of_day].sum()
        chosen.append(np.sort(rng.choice(of_day, count, replace=False, p=weights)))
    return np.concatenate(chosen)
