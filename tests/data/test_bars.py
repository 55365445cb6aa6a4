"""Bars out of files: series, merging, the contract, segments."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mamba2.data import bars as bars_module
from mamba2.data.bars import DAY, HOUR, MINUTE, SECOND, Bars, Dropped, Market, exchange_time, load_bars
from mamba2.data.dbn import RECORD, SymbolInterval
from mamba2.data.selection import SeriesRow, describe, segment_starts, select, trading_day
from mamba2.data.synthetic import write_dbn, write_example
from mamba2.errors import DataError

JANUARY = (date(2024, 1, 1), date(2024, 2, 1))
SYMBOLS = {
    "6EH4": (SymbolInterval(*JANUARY, 1),),
    "6EM4": (SymbolInterval(*JANUARY, 2),),
    "6EH4-6EM4": (SymbolInterval(*JANUARY, 3),),
}


def at(text: str) -> int:
    return int(np.datetime64(text, "ns").astype(np.int64))


FIXTURES = Path(__file__).parents[2] / "fixtures"
NOON = at("2024-01-02T12:00")


def record_array(rows: Sequence[tuple[int, int, int]], *, publisher: int = 1, rtype: int = 33) -> np.ndarray:
    """Records of (instrument id, time, close), all prices alike."""
    records = np.zeros(len(rows), RECORD)
    records["length"], records["rtype"], records["publisher_id"], records["volume"] = 14, rtype, publisher, 5
    for record, (instrument_id, time, close) in zip(records, rows, strict=True):
        record["instrument_id"], record["ts_event"] = instrument_id, time
        for name in ("open", "high", "low", "close"):
            record[name] = close
    return records


def make_bars(symbol: str, time: Sequence[int], volume: Sequence[int] | None = None, **identity: int) -> Bars:
    ones = np.ones(len(time), np.int64)
    identity = {"publisher_id": 1, "instrument_id": 1, "interval": MINUTE, **identity}
    return Bars(
        symbol=symbol,
        time=np.array(time, np.int64),
        open=ones,
        high=ones,
        low=ones,
        close=ones,
        volume=ones if volume is None else np.array(volume),
        **identity,
    )


def make_market(*series: Bars) -> Market:
    return Market(1, sum(map(len, series)), series, ())


def kept(market: Market, contract: str) -> dict[str, list[int]]:
    return {each.bars.symbol: each.bars.time[each.keep].tolist() for each in select(market, contract).series}


def test_a_file_is_split_by_instrument(tmp_path):
    rows = [(1, NOON, 100), (2, NOON, 200), (1, NOON + MINUTE, 101)]
    path = write_dbn(tmp_path / "day.dbn", record_array(rows), symbols=SYMBOLS)

    market = load_bars([path])

    assert (market.files, market.messages, market.dropped) == (1, 3, ())
    assert [bars.symbol for bars in market.series] == ["6EH4", "6EM4"]
    assert market.series[0].time.tolist() == [NOON, NOON + MINUTE]
    assert market.series[0].close.tolist() == [100, 101]
    assert market.series[1].close.tolist() == [200]
    assert market.series[0].interval == MINUTE


def test_the_example_has_five_series(tmp_path):
    market = load_bars(write_example(tmp_path))

    assert (market.files, market.messages) == (4, 7223)
    assert {bars.symbol: len(bars) for bars in market.series} == {
        "6EH4": 5460,
        "6EH4-6EM4": 338,
        "6EM4": 1403,
        "6EU4": 15,
        "6EZ4": 7,
    }


def test_files_are_merged_in_time_order_whatever_their_order(tmp_path):
    late = write_dbn(tmp_path / "a.dbn", record_array([(1, NOON + MINUTE, 101)]), symbols=SYMBOLS)
    early = write_dbn(tmp_path / "b.dbn", record_array([(1, NOON, 100)]), symbols=SYMBOLS)

    (bars,) = load_bars([late, early]).series

    assert bars.close.tolist() == [100, 101]


def test_a_bar_that_comes_in_two_files_is_kept_once_and_counted(tmp_path):
    rows = [(1, NOON, 100), (1, NOON + MINUTE, 101), (1, NOON + 2 * MINUTE, 102)]
    first = write_dbn(tmp_path / "a.dbn", record_array(rows[:2]), symbols=SYMBOLS)
    second = write_dbn(tmp_path / "b.dbn", record_array(rows[1:]), symbols=SYMBOLS)

    market = load_bars([first, second])

    assert market.series[0].close.tolist() == [100, 101, 102]
    assert market.dropped == (Dropped("6EH4", 1, "that another file holds too"),)


def test_different_bars_for_one_time_are_refused(tmp_path):
    first = write_dbn(tmp_path / "a.dbn", record_array([(1, NOON, 100)]), symbols=SYMBOLS)
    second = write_dbn(tmp_path / "b.dbn", record_array([(1, NOON, 999)]), symbols=SYMBOLS)

    with pytest.raises(DataError) as caught:
        load_bars([first, second])

    assert str(caught.value) == (
        f"{second}: a bar that comes in two files must be the same in both; 6EH4 at 2024-01-02T12:00:00Z differs from "
        f"{first}. Keep one of the files."
    )


def test_times_that_do_not_increase_are_refused(tmp_path):
    rows = [(1, NOON, 100), (2, NOON + MINUTE, 200), (1, NOON + MINUTE, 101), (2, NOON, 201)]
    path = write_dbn(tmp_path / "day.dbn", record_array(rows), symbols=SYMBOLS)

    with pytest.raises(DataError) as caught:
        load_bars([path])

    assert str(caught.value) == (
        f"{path}: the times of 6EM4 must increase; record 3 at 2024-01-02T12:00:00Z comes after 2024-01-02T12:01:00Z. "
        "Sort the file or download it again."
    )


def test_a_time_twice_in_one_file_is_refused(tmp_path):
    path = write_dbn(tmp_path / "day.dbn", record_array([(1, NOON, 100), (1, NOON, 100)]), symbols=SYMBOLS)

    with pytest.raises(DataError, match="record 1 at 2024-01-02T12:00:00Z comes after 2024-01-02T12:00:00Z"):
        load_bars([path])


def test_files_of_different_intervals_are_refused(tmp_path):
    minutes = write_dbn(tmp_path / "m.dbn", record_array([(1, NOON, 100)]), symbols=SYMBOLS)
    hour = record_array([(1, NOON + HOUR, 100)], rtype=34)
    hours = write_dbn(tmp_path / "h.dbn", hour, symbols=SYMBOLS, schema="ohlcv-1h")

    with pytest.raises(DataError) as caught:
        load_bars([hours, minutes])

    assert str(caught.value) == (
        f"{hours}: all files must hold bars of one interval; got 1h bars, but 1m bars in {minutes}. Load them apart."
    )


def test_no_files_are_refused():
    with pytest.raises(DataError, match="load_bars: at least one file is needed; got none"):
        load_bars([])


def test_a_symbol_is_looked_up_by_the_utc_date_of_the_bar(tmp_path):
    symbols = {
        "ESH1": (SymbolInterval(date(2024, 1, 1), date(2024, 1, 3), 1),),
        "ESM1": (SymbolInterval(date(2024, 1, 3), date(2024, 1, 9), 1),),
    }
    rows = [(1, at("2024-01-02T23:59"), 100), (1, at("2024-01-03T00:00"), 200)]
    path = write_dbn(tmp_path / "day.dbn", record_array(rows), symbols=symbols)

    market = load_bars([path])

    assert {bars.symbol: bars.close.tolist() for bars in market.series} == {"ESH1": [100], "ESM1": [200]}


def test_a_symbol_of_two_ids_is_two_series(tmp_path):
    symbols = {
        "ESH1": (
            SymbolInterval(date(2024, 1, 1), date(2024, 1, 3), 1),
            SymbolInterval(date(2024, 1, 3), date(2024, 1, 9), 2),
        )
    }
    rows = [(1, at("2024-01-02T12:00"), 100), (2, at("2024-01-03T12:00"), 200)]
    path = write_dbn(tmp_path / "day.dbn", record_array(rows), symbols=symbols)

    series = load_bars([path]).series

    assert [(bars.symbol, bars.instrument_id) for bars in series] == [("ESH1", 1), ("ESH1", 2)]


def test_a_bar_without_a_symbol_goes_by_its_id(tmp_path):
    path = write_dbn(tmp_path / "day.dbn", record_array([(77, NOON, 100)]), symbols=SYMBOLS)

    assert [bars.symbol for bars in load_bars([path]).series] == ["#77"]


def test_a_file_without_records_has_no_series():
    market = load_bars([FIXTURES / "good" / "zero-records.dbn.zst"])

    assert (market.files, market.messages, market.series, market.dropped) == (1, 0, (), ())


def test_a_slice_of_bars_is_bars():
    part = make_bars("6EH4", [10, 20, 30])[1:]

    assert part.symbol == "6EH4"
    assert part.time.tolist() == [20, 30]
    assert len(part.volume) == 2


@pytest.mark.parametrize("symbol", ["6EH4-6EM4", "ES:BF H4-M4-U4", "UD:1V: VT 2912937"])
def test_a_spread_is_no_outright(symbol):
    assert not make_bars(symbol, [0]).is_outright
    assert make_bars("6EH4", [0]).is_outright


@pytest.mark.parametrize(
    ("utc", "local"),
    [
        ("2024-01-02T23:00", "2024-01-02T17:00"),
        ("2024-03-10T07:59", "2024-03-10T01:59"),
        ("2024-03-10T08:00", "2024-03-10T03:00"),
        ("2024-11-03T06:59", "2024-11-03T01:59"),
        ("2024-11-03T07:00", "2024-11-03T01:00"),
    ],
)
def test_exchange_time_follows_daylight_saving(utc, local):
    assert exchange_time(np.array([at(utc)])).tolist() == [at(local)]


@pytest.mark.parametrize(
    ("utc", "day"),
    [
        ("2024-01-02T22:59", "2024-01-02"),
        ("2024-01-02T23:00", "2024-01-03"),
        ("2024-03-07T22:59", "2024-03-07"),
        ("2024-03-07T23:00", "2024-03-08"),
        ("2024-03-11T21:59", "2024-03-11"),
        ("2024-03-11T22:00", "2024-03-12"),
    ],
)
def test_a_trading_day_begins_at_17_00_in_chicago(utc, day):
    assert trading_day(np.array([at(utc)])).tolist() == [at(day) // DAY]


def test_the_front_has_the_most_volume_of_the_session_before():
    days = [NOON, NOON + DAY, NOON + 2 * DAY]
    old = make_bars("6EH4", days, [50, 40, 10])
    new = make_bars("6EM4", days, [10, 60, 90], instrument_id=2)
    market = make_market(old, new)

    assert kept(market, "front") == {"6EH4": [days[1]], "6EM4": [days[2]]}
    assert select(market, "front").dropped == (
        Dropped("6EH4", 1, "in the first session, which has no past to choose the front contract by"),
        Dropped("6EH4", 1, "while another contract was the front"),
        Dropped("6EM4", 1, "in the first session, which has no past to choose the front contract by"),
        Dropped("6EM4", 1, "while another contract was the front"),
    )


def test_a_contract_without_a_bar_in_a_session_is_behind_one_whose_bars_have_no_volume():
    absent = make_bars("6EH4", [NOON + DAY], [40])
    quiet = make_bars("6EM4", [NOON, NOON + DAY], [0, 50], instrument_id=2)

    assert kept(make_market(absent, quiet), "front") == {"6EM4": [NOON + DAY]}


def test_the_front_changes_at_the_start_of_the_session_not_at_midnight():
    evening = at("2024-01-02T22:59")
    old = make_bars("6EH4", [NOON, evening, evening + MINUTE], [9, 9, 9])

    assert kept(make_market(old), "front") == {"6EH4": [evening + MINUTE]}


def test_the_volume_of_a_session_is_that_of_all_its_slabs(monkeypatch):
    monkeypatch.setattr(bars_module, "_SLAB", 2)
    old = make_bars("6EH4", [NOON, NOON + MINUTE, NOON + 2 * MINUTE, NOON + DAY], [5, 5, 5, 1])
    new = make_bars("6EM4", [NOON, NOON + DAY], [9, 1], instrument_id=2)

    assert kept(make_market(old, new), "front") == {"6EH4": [NOON + DAY]}


def test_a_half_day_ends_a_segment_and_the_next_session_is_another_day():
    # Early close at 12:15 in Chicago on 3 July; trading goes on at 17:00, an hour after a whole day's close.
    times = [at("2024-07-03T17:13"), at("2024-07-03T17:14"), at("2024-07-03T22:00"), at("2024-07-03T22:01")]
    bars = make_bars("ESU4", times)

    assert segment_starts(bars, np.ones(4, bool), None).tolist() == [True, False, True, False]
    assert trading_day(bars.time).tolist() == [at("2024-07-03") // DAY] * 2 + [at("2024-07-04") // DAY] * 2


@pytest.mark.parametrize("slab", [1, 2, 3])
def test_segments_are_the_same_in_slabs_of_any_size(monkeypatch, slab):
    monkeypatch.setattr(bars_module, "_SLAB", slab)
    bars = make_bars("6EH4", [NOON, NOON + MINUTE, NOON + HOUR, NOON + 2 * HOUR])

    assert segment_starts(bars, np.ones(4, bool), None).tolist() == [True, False, True, True]


def test_a_spread_is_never_the_front():
    days = [NOON, NOON + DAY]
    market = make_market(make_bars("6EH4", days, [5, 5]), make_bars("6EH4-6EM4", days, [900, 900], instrument_id=3))

    assert kept(market, "front") == {"6EH4": [days[1]]}
    assert Dropped("6EH4-6EM4", 2, "of a spread") in select(market, "front").dropped


def test_all_keeps_every_outright():
    market = make_market(make_bars("6EH4", [NOON]), make_bars("6EH4-6EM4", [NOON]), make_bars("6EM4", [NOON]))

    assert kept(market, "all") == {"6EH4": [NOON], "6EM4": [NOON]}
    assert select(market, "all").dropped == (Dropped("6EH4-6EM4", 1, "of a spread"),)


def test_a_symbol_keeps_its_bars_and_counts_the_others():
    market = make_market(make_bars("6EH4", [NOON]), make_bars("6EM4", [NOON, NOON + MINUTE]))

    assert kept(market, "6EM4") == {"6EM4": [NOON, NOON + MINUTE]}
    assert select(market, "6EM4").dropped == (Dropped("6EH4", 1, "of another contract than the one asked for"),)


@pytest.mark.parametrize("contract", ["6EZ9", "6EH4-6EM4"])
def test_an_unknown_symbol_and_a_spread_are_refused_with_the_symbols_there_are(contract):
    market = make_market(make_bars("6EH4", [NOON]), make_bars("6EH4-6EM4", [NOON]))

    with pytest.raises(DataError) as caught:
        select(market, contract)

    assert str(caught.value) == (
        f"contract {contract!r}: the files must hold this symbol as an outright; got 6EH4, 6EH4-6EM4. Name an outright."
    )


@pytest.mark.parametrize(("series", "got"), [((), "no bars"), ((make_bars("A-B", [NOON]),), "A-B")])
def test_files_without_outrights_are_refused(series, got):
    with pytest.raises(DataError) as caught:
        select(make_market(*series), "front")

    assert str(caught.value) == (
        f"contract 'front': the files must hold an outright contract; got {got}. Add files with outrights."
    )


@pytest.mark.parametrize("contract", ["front", "all", "AAPL"])
def test_a_contract_of_two_publishers_is_refused(contract):
    market = make_market(make_bars("AAPL", [NOON], publisher_id=22), make_bars("AAPL", [NOON], publisher_id=2))

    with pytest.raises(DataError) as caught:
        select(market, contract)

    assert str(caught.value) == (
        "contract 'AAPL': its bars must come from one publisher; got publishers 2, 22. Use files of one publisher."
    )


def test_a_contract_of_one_publisher_is_chosen_beside_one_of_two():
    market = make_market(
        make_bars("AAPL", [NOON], publisher_id=22),
        make_bars("AAPL", [NOON], publisher_id=2),
        make_bars("MSFT", [NOON], publisher_id=2),
    )

    assert kept(market, "MSFT") == {"MSFT": [NOON]}


@pytest.mark.parametrize(
    ("interval", "max_gap", "step", "breaks"),
    [
        (MINUTE, None, 30 * MINUTE, False),
        (MINUTE, None, 31 * MINUTE, True),
        (SECOND, None, 30 * MINUTE, False),
        (HOUR, None, HOUR, False),
        (HOUR, None, 2 * HOUR, True),
        (DAY, None, 4 * DAY, False),
        (DAY, None, 5 * DAY, True),
        (MINUTE, 1.0, MINUTE, False),
        (MINUTE, 1.0, 2 * MINUTE, True),
    ],
)
def test_a_gap_begins_a_segment(interval, max_gap, step, breaks):
    bars = make_bars("6EH4", [NOON, NOON + step], interval=interval)

    assert segment_starts(bars, np.array([True, True]), max_gap).tolist() == [True, breaks]


def test_a_segment_begins_where_the_choice_changes():
    bars = make_bars("6EH4", [NOON + i * MINUTE for i in range(5)])
    keep = np.array([False, False, True, True, False])

    assert segment_starts(bars, keep, None).tolist() == [True, False, True, False, True]


def test_describe_tells_what_is_there_and_what_is_used():
    days = [NOON, NOON + DAY]
    market = make_market(make_bars("6EH4", days, [5, 5]), make_bars("6EM4", [NOON], [1], instrument_id=2))

    assert describe(market, select(market, "front"), None) == (
        SeriesRow("6EH4", 2, "2024-01-02T12:00:00Z", "2024-01-03T12:00:00Z", gaps=1, kept=1),
        SeriesRow("6EM4", 1, "2024-01-02T12:00:00Z", "2024-01-02T12:00:00Z", gaps=0, kept=0),
    )
