"""The example has the make-up of a real parent file, and its planted signal."""

from datetime import date
from hashlib import sha256

import numpy as np
import pytest
from databento_dbn import DBNError

from mamba2.data.dbn import DbnFile, SymbolInterval, read_dbn
from mamba2.data.synthetic import TICK, ar1_returns, example_records, minute_bars, write_dbn, write_example
from mamba2.errors import DataError

SYMBOLS = {"6EH4": (SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 4916),)}


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> list[DbnFile]:
    return [read_dbn(path) for path in write_example(tmp_path_factory.mktemp("example") / "6E.FUT")]


def of_symbol(file: DbnFile, symbol: str) -> np.ndarray:
    return file.records[file.records["instrument_id"] == file.symbols[symbol][0].instrument_id]


def counts(example: list[DbnFile], symbol: str) -> list[int]:
    return [len(of_symbol(file, symbol)) for file in example]


def whole(example: list[DbnFile], symbol: str) -> np.ndarray:
    return np.concatenate([of_symbol(file, symbol) for file in example])


def test_the_example_is_four_files_named_as_databento_does(example):
    assert [file.path.name for file in example] == [
        "glbx-mdp3-20240102.ohlcv-1m.dbn.zst",
        "glbx-mdp3-20240103.ohlcv-1m.dbn.zst",
        "glbx-mdp3-20240104.ohlcv-1m.dbn.zst",
        "glbx-mdp3-20240105.ohlcv-1m.dbn.zst",
    ]


def test_the_example_has_7223_one_minute_bars_of_version_3(example):
    assert [len(file.records) for file in example] == [1831, 1846, 1818, 1728]
    assert {(file.version, file.dataset, file.interval) for file in example} == {(3, "SYNTHETIC", 60 * 10**9)}


def test_each_contract_has_its_bars(example):
    assert counts(example, "6EH4") == [1380, 1380, 1380, 1320]
    assert counts(example, "6EM4") == [358, 371, 349, 325]
    assert counts(example, "6EH4-6EM4") == [86, 90, 83, 79]
    assert counts(example, "6EU4") == [5, 3, 4, 3]
    assert counts(example, "6EZ4") == [2, 2, 2, 1]


def test_each_file_maps_every_symbol_for_its_day(example):
    assert dict(example[3].symbols) == {
        "6EH4": (SymbolInterval(date(2024, 1, 5), date(2024, 1, 6), 4916),),
        "6EH4-6EM4": (SymbolInterval(date(2024, 1, 5), date(2024, 1, 6), 42003068),),
        "6EM4": (SymbolInterval(date(2024, 1, 5), date(2024, 1, 6), 10382),),
        "6EU4": (SymbolInterval(date(2024, 1, 5), date(2024, 1, 6), 16427),),
        "6EZ4": (SymbolInterval(date(2024, 1, 5), date(2024, 1, 6), 24091),),
    }


def test_the_front_month_trades_each_minute_but_those_of_the_break(example):
    tuesday, friday = (of_symbol(example[day], "6EH4")["ts_event"].astype("datetime64[ns]") for day in (0, 3))
    minutes = np.arange("2024-01-02T00:00", "2024-01-03T00:00", dtype="datetime64[m]")

    assert np.array_equal(tuesday, minutes[(minutes < minutes[22 * 60]) | (minutes >= minutes[23 * 60])])
    assert np.array_equal(friday, minutes[: 22 * 60] + np.timedelta64(3, "D"))


def test_bars_are_in_time_order_and_by_instrument_within_a_minute(example):
    keys = [(int(row["ts_event"]), int(row["instrument_id"])) for row in np.concatenate([f.records for f in example])]

    assert keys == sorted(set(keys))


def test_all_prices_are_on_the_tick(example):
    records = np.concatenate([file.records for file in example])

    assert not any((records[name] % 50_000).any() for name in ("open", "high", "low", "close"))
    assert TICK == 50_000


def test_spread_prices_are_negative_and_small(example):
    closes = whole(example, "6EH4-6EM4")["close"] / 1e9

    assert closes.min() == -0.005
    assert closes.max() == -0.00435


def test_the_front_month_trades_far_more_than_the_second(example):
    front, second = (whole(example, symbol)["volume"].sum() for symbol in ("6EH4", "6EM4"))

    assert front > 50 * second


def test_new_york_trades_more_than_asia(example):
    front = whole(example, "6EH4")
    hour = front["ts_event"] // (3600 * 10**9) % 24

    assert front["volume"][hour == 14].mean() > 5 * front["volume"][hour == 3].mean()


def test_the_planted_signal_is_in_the_written_closes(example):
    returns = np.diff(np.log(whole(example, "6EH4")["close"] / 1e9))
    slope = (returns[1:] @ returns[:-1]) / (returns[:-1] @ returns[:-1])

    assert slope == pytest.approx(0.3, abs=0.02)
    assert returns.std() == pytest.approx(2.5e-4, rel=0.02)


def test_the_example_never_changes():
    digest = sha256(example_records().tobytes()).hexdigest()

    assert digest == "285f7fc0bae32be4f6d1ed78462ec1971964e1133f344f44ca6385d8af60634f"


def test_another_seed_is_another_path():
    assert not np.array_equal(example_records(1)["close"], example_records(2)["close"])


def test_ar1_returns_are_what_the_recurrence_says():
    returns = ar1_returns(np.random.default_rng(0), 100_000, coefficient=0.5, std=2.0)
    noise = returns[1:] - 0.5 * returns[:-1]

    assert returns.std() == pytest.approx(2.0, rel=0.01)
    assert noise.std() == pytest.approx(2.0 * 0.75**0.5, rel=0.01)
    assert np.corrcoef(noise, returns[:-1])[0, 1] == pytest.approx(0.0, abs=0.01)


def test_no_returns_are_no_returns():
    assert len(ar1_returns(np.random.default_rng(0), 0, std=1.0)) == 0


def test_a_bar_of_one_contract_has_one_price():
    times, closes = np.arange(4) * 60 * 10**9, np.array([10, 12, 9, 9])
    records = minute_bars(np.random.default_rng(0), times, closes, instrument_id=7, volume=np.zeros(4))

    assert [tuple(map(int, row)) for row in records[["open", "high", "low", "close", "volume"]]] == [
        (500_000, 500_000, 500_000, 500_000, 1),
        (600_000, 600_000, 600_000, 600_000, 1),
        (450_000, 450_000, 450_000, 450_000, 1),
        (450_000, 450_000, 450_000, 450_000, 1),
    ]


def test_writing_leaves_nothing_else_behind(tmp_path):
    write_dbn(tmp_path / "a.dbn", example_records()[:3], symbols=SYMBOLS)
    write_dbn(tmp_path / "a.dbn", example_records()[:2], symbols=SYMBOLS)

    assert [path.name for path in tmp_path.iterdir()] == ["a.dbn"]
    assert len(read_dbn(tmp_path / "a.dbn").records) == 2


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none/a\.dbn: must be writable; No such file or directory\. Check the folder"):
        write_dbn(tmp_path / "none" / "a.dbn", example_records()[:1], symbols=SYMBOLS)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(DataError, match=r"file: must be a folder; File exists\. Name one that can be written\."):
        write_example(tmp_path / "file")


def test_a_symbol_too_long_for_the_version_is_refused(tmp_path):
    with pytest.raises(DBNError, match="cannot be longer than 21 characters"):
        write_dbn(tmp_path / "a.dbn", example_records()[:1], symbols={"S" * 22: SYMBOLS["6EH4"]}, version=1)
