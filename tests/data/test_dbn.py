"""Every kind of DBN file of bars is read for what it is."""

from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from databento_dbn import Metadata, Schema, SType

from mamba2.data.dbn import RECORD, SymbolInterval, read_dbn
from mamba2.data.synthetic import write_dbn

FIXTURES = Path(__file__).parents[2] / "fixtures"
H4 = SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 4916)
M4 = SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 10382)
SYMBOLS = {"6EH4": (H4,)}

FIVE_BARS = [  # length, rtype, publisher, instrument, time, open, high, low, close, volume
    (14, 33, 1, 4916, 1704205800_000000000, 1_095000000, 1_095150000, 1_094950000, 1_095100000, 120),
    (14, 33, 1, 4916, 1704205860_000000000, 1_095100000, 1_095200000, 1_095050000, 1_095050000, 75),
    (14, 33, 1, 4916, 1704205920_000000000, 1_095050000, 1_095050000, 1_094500000, 1_094600000, 310),
    (14, 33, 1, 4916, 1704205980_000000000, 1_094650000, 1_094800000, 1_094600000, 1_094750000, 42),
    (14, 33, 1, 4916, 1704206040_000000000, 1_094750000, 1_094950000, 1_094750000, 1_094950000, 1),
]


def bars(count: int) -> np.ndarray:
    return np.resize(np.array(FIVE_BARS, RECORD), count)


def mapping_header(stype_in: str, key: str, value: str) -> bytes:
    """A header that maps one key to one value for 2024-01-02."""
    interval = SimpleNamespace(start_date=H4.start, end_date=H4.end, symbol=value)
    return bytes(
        Metadata(
            dataset="GLBX.MDP3",
            start=0,
            stype_in=SType.from_str(stype_in),
            stype_out=SType.from_str("raw_symbol" if stype_in == "instrument_id" else "instrument_id"),
            schema=Schema.from_str("ohlcv-1m"),
            mappings=[SimpleNamespace(raw_symbol=key, intervals=[interval])],
        )
    )


@pytest.mark.parametrize("name", ["v1.dbn", "v1.dbn.zst", "v2.dbn", "v2.dbn.zst", "v3.dbn", "v3.dbn.zst"])
def test_each_version_gives_the_same_bars(name):
    file = read_dbn(FIXTURES / "good" / name)

    assert file.records.tolist() == FIVE_BARS
    assert (file.path.name, file.version, file.dataset, file.interval) == (name, int(name[1]), "GLBX.MDP3", 60 * 10**9)
    assert dict(file.symbols) == SYMBOLS


@pytest.mark.parametrize("name", ["no-checksum.dbn.zst", "two-frames.dbn.zst", "no-mappings.dbn"])
def test_each_packing_gives_the_same_bars(name):
    assert read_dbn(FIXTURES / "good" / name).records.tolist() == FIVE_BARS


@pytest.mark.parametrize(
    ("name", "seconds", "first"),
    [
        ("1s.dbn", 1, "2024-01-02T14:30:00"),
        ("1h.dbn", 3600, "2024-01-02T14:00:00"),
        ("1d.dbn", 86400, "2024-01-02T00:00:00"),
    ],
)
def test_each_interval_is_told(name, seconds, first):
    file = read_dbn(FIXTURES / "good" / name)

    assert file.interval == seconds * 10**9
    assert file.records["ts_event"][0].astype("datetime64[ns]") == np.datetime64(first)


def test_instruments_keep_their_order_and_symbols():
    file = read_dbn(FIXTURES / "good" / "two-instruments.dbn.zst")

    assert file.records["instrument_id"].tolist() == [4916, 10382] * 5
    assert dict(file.symbols) == {"6EH4": (H4,), "6EM4": (M4,)}


def test_publishers_are_kept_apart():
    assert read_dbn(FIXTURES / "good" / "several-publishers.dbn.zst").records["publisher_id"].tolist() == [
        20,
        22,
        23,
        30,
    ]


def test_a_file_without_records_is_a_file():
    file = read_dbn(FIXTURES / "good" / "zero-records.dbn.zst")

    assert file.records.shape == (0,)
    assert file.records.dtype == RECORD
    assert dict(file.symbols) == SYMBOLS


def test_a_file_without_mappings_has_no_symbols():
    assert dict(read_dbn(FIXTURES / "good" / "no-mappings.dbn").symbols) == {}


def test_nothing_of_a_file_can_be_changed():
    file = read_dbn(FIXTURES / "good" / "v3.dbn.zst")

    with pytest.raises(ValueError, match="read-only"):
        file.records["close"][0] = 0
    with pytest.raises(TypeError, match="does not support item assignment"):
        file.symbols["6EH4"] = ()


def test_a_symbol_can_stand_for_several_instruments_in_turn(tmp_path):
    intervals = (H4, SymbolInterval(date(2024, 1, 3), date(2024, 1, 9), 5))
    path = write_dbn(tmp_path / "a.dbn", bars(1), symbols={"6EH4": intervals})

    assert read_dbn(path).symbols["6EH4"] == intervals


def test_symbols_are_sorted(tmp_path):
    names = [f"6E{month}{year}" for month in "ZUMH" for year in "4321"]
    path = write_dbn(tmp_path / "a.dbn", bars(1), symbols=dict.fromkeys(names, (H4,)))

    assert list(read_dbn(path).symbols) == sorted(names)


def test_days_on_which_a_symbol_stands_for_nothing_are_left_out(tmp_path):
    path = tmp_path / "a.dbn"
    path.write_bytes(mapping_header("raw_symbol", "6EH4", "") + bars(1).tobytes())

    assert dict(read_dbn(path).symbols) == {}


def test_a_request_by_instrument_id_gives_symbols_too(tmp_path):
    path = tmp_path / "a.dbn"
    path.write_bytes(mapping_header("instrument_id", "4916", "6EH4") + bars(1).tobytes())

    assert dict(read_dbn(path).symbols) == SYMBOLS
