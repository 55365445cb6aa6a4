"""Records to series across the chunks of a file, and across the edges of symbol mappings."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mamba2.data import dbn
from mamba2.data.bars import MINUTE, load_bars
from mamba2.data.dbn import RECORD, SymbolInterval
from mamba2.data.synthetic import Records, Symbols, write_dbn
from mamba2.errors import DataError

NOON = int(np.datetime64("2024-01-02T12:00", "ns").astype(np.int64))
DAYS = [date(2024, 1, day) for day in range(1, 6)]
SYMBOLS = {"6EH4": (SymbolInterval(DAYS[0], DAYS[4], 1),), "6EM4": (SymbolInterval(DAYS[0], DAYS[4], 2),)}


def records_at(*rows: tuple[int, int]) -> Records:
    """Bars of (instrument id, minute)."""
    records = np.zeros(len(rows), RECORD)
    records["length"], records["rtype"], records["publisher_id"] = 14, 33, 1
    records["instrument_id"] = [number for number, _ in rows]
    records["ts_event"] = [NOON + minute * MINUTE for _, minute in rows]
    return records


@pytest.fixture
def in_chunks_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbn, "_CHUNK", 2 * RECORD.itemsize)


def minutes(path: Path) -> dict[str, list[int]]:
    return {bars.symbol: ((bars.time - NOON) // MINUTE).tolist() for bars in load_bars([path]).series}


def write(folder: Path, records: Records, symbols: Symbols = SYMBOLS) -> Path:
    return write_dbn(folder / "a.dbn", records, symbols=symbols, compress=False)


@pytest.mark.usefixtures("in_chunks_of_two")
def test_a_series_goes_on_from_chunk_to_chunk(tmp_path: Path) -> None:
    path = write(tmp_path, records_at((1, 0), (2, 0), (1, 1), (1, 2), (2, 2), (7, 2), (1, 3)))

    assert minutes(path) == {"#7": [2], "6EH4": [0, 1, 2, 3], "6EM4": [0, 2]}


@pytest.mark.usefixtures("in_chunks_of_two")
@pytest.mark.parametrize(("minute", "after"), [(3, "12:03"), (1, "12:03")])
def test_times_that_do_not_increase_from_chunk_to_chunk_are_refused(tmp_path: Path, minute: int, after: str) -> None:
    path = write(tmp_path, records_at((1, 0), (1, 3), (2, 4), (2, 5), (1, minute), (1, 9)))

    with pytest.raises(DataError) as caught:
        load_bars([path])
    assert str(caught.value) == (
        f"{path}: the times of 6EH4 must increase; record 4 at 2024-01-02T12:0{minute}:00Z comes after "
        f"2024-01-02T{after}:00Z. Sort the file or download it again."
    )


def test_an_instrument_goes_by_its_id_until_its_symbol_begins_and_after_it_ends(tmp_path: Path) -> None:
    day = 1440
    path = write(
        tmp_path,
        records_at((1, 0), (1, day), (1, day + 1), (1, 2 * day), (1, 2 * day + 1)),
        {"6EH4": (SymbolInterval(DAYS[2], DAYS[3], 1),)},
    )

    assert minutes(path) == {"#1": [0, 2 * day, 2 * day + 1], "6EH4": [day, day + 1]}


def test_of_two_symbols_on_one_day_the_first_by_name_counts(tmp_path: Path) -> None:
    both: Symbols = {name: (SymbolInterval(DAYS[0], DAYS[4], 1),) for name in ("6EZ4", "6EH4", "6EM4")}

    assert minutes(write(tmp_path, records_at((1, 0), (1, 1)), both)) == {"6EH4": [0, 1]}
