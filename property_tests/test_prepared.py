"""For all files of bars: in chunks of any size, and prepared, they are what they are in memory; or refused alike."""

import tempfile
from dataclasses import astuple
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mamba2.data import dbn
from mamba2.data.bars import MINUTE, Market, load_bars
from mamba2.data.dbn import RECORD, SymbolInterval, read_dbn
from mamba2.data.preparing import prepare_folder
from mamba2.data.synthetic import Records, encode_header, write_dbn
from mamba2.errors import DataError

MONDAY = int(np.datetime64("2024-01-01", "ns").astype(np.int64))
DAYS = [date(2024, 1, day) for day in range(1, 6)]
SYMBOLS = {
    "6EH4": (SymbolInterval(DAYS[0], DAYS[3], 1),),
    "6EM4": (SymbolInterval(DAYS[0], DAYS[2], 2), SymbolInterval(DAYS[2], DAYS[4], 3)),
    "6EU4": (SymbolInterval(DAYS[2], DAYS[4], 2),),
    "6EH4-6EM4": (SymbolInterval(DAYS[0], DAYS[4], 4),),
}


@st.composite
def days_of_bars(draw: st.DrawFn) -> Records:
    """Up to 60 bars of four instruments and two publishers over four days, one a time, in time order."""
    minutes = draw(st.lists(st.integers(0, 4 * 1440 - 1), min_size=1, max_size=60, unique=True))
    records = np.zeros(len(minutes), RECORD)
    records["length"], records["rtype"] = 14, 33
    records["ts_event"] = MONDAY + np.sort(minutes) * MINUTE
    many = {"min_size": len(minutes), "max_size": len(minutes)}
    records["instrument_id"] = draw(st.lists(st.sampled_from([1, 2, 3, 4, 77]), **many))
    records["publisher_id"] = draw(st.lists(st.sampled_from([1, 2]), **many))
    records["volume"] = draw(st.lists(st.integers(0, 9), **many))
    records["close"] = draw(st.lists(st.integers(1, 10**9), **many))
    for name in ("open", "high", "low"):
        records[name] = records["close"]
    return records


@st.composite
def files_of(draw: st.DrawFn, folder: Path) -> list[Path]:
    """The bars in one to four files, each bar in at least one; some differ where they come again, are late or bad."""
    records, count = draw(days_of_bars()), draw(st.integers(1, 4))
    where = draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), min_size=len(records), max_size=len(records)))
    flawed = draw(st.sampled_from(["", "", "", "other", "swapped", "negative"]))
    paths = []
    for number in range(count):
        held = records[[number in each for each in where]]
        if len(held) > 1 and number == 0 and flawed:
            if flawed == "other":
                held["volume"][0] += 1
            elif flawed == "swapped":
                held = held[::-1]
            else:
                held["high"][-1] = -1
        paths.append(write_dbn(folder / f"{number}.dbn.zst", held, symbols=SYMBOLS, compress=draw(st.booleans())))
    return paths


def contents(market: Market) -> tuple[object, ...]:
    return (
        market.files,
        market.messages,
        market.dropped,
        [[each.tolist() if isinstance(each, np.ndarray) else each for each in astuple(bars)] for bars in market.series],
    )


def market_or_error(paths: list[Path]) -> object:
    try:
        return contents(load_bars(paths))
    except DataError as error:
        return str(error)


def prepared_or_error(paths: list[Path], out: Path) -> object:
    try:
        for _ in prepare_folder(paths, out):
            pass
        return contents(load_bars([out]))
    except DataError as error:
        return str(error)


@given(data=st.data(), records=st.integers(1, 20))
def test_prepared_bars_are_those_of_the_files_or_refused_alike(data: st.DataObject, records: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        paths = data.draw(files_of(Path(folder)))
        expected = market_or_error(paths)
        patch.setattr(dbn, "_CHUNK", records * RECORD.itemsize)

        assert prepared_or_error(paths, Path(folder) / "prepared") == expected
        assert market_or_error(paths) == expected


@given(data=st.data())
def test_a_folder_and_a_file_make_one_market(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = data.draw(files_of(Path(folder)))
        expected = market_or_error(paths)
        prepared = prepared_or_error(paths[1:], Path(folder) / "prepared") if len(paths) > 1 else ""
        if isinstance(prepared, str) or isinstance(expected, str):
            return
        found = market_or_error([paths[0], Path(folder) / "prepared"])

        assert isinstance(found, tuple)
        assert found[3] == expected[3]
        assert found[:2] == expected[:2]


@given(data=st.data(), cut=st.integers(0, 2000), chunk=st.integers(1, 20))
def test_chunks_of_any_size_give_the_same_records_or_the_same_refusal(
    data: st.DataObject, cut: int, chunk: int
) -> None:
    content = encode_header(symbols=SYMBOLS) + data.draw(days_of_bars()).tobytes()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "a.dbn"
        path.write_bytes(content[: len(content) - cut] or b"D")
        expected = records_or_error(path)
        patch.setattr(dbn, "_CHUNK", chunk * RECORD.itemsize)

        assert records_or_error(path) == expected


def records_or_error(path: Path) -> object:
    try:
        return read_dbn(path).records.tolist()
    except DataError as error:
        return str(error)
