"""For all bars: nothing crosses a break, nothing sees the future, and one bar at a time gives what a batch gives."""

import tempfile
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mamba2.config import DataConfig
from mamba2.data.bars import DAY, MINUTE, Bars, Market, load_bars
from mamba2.data.dataset import Dataset, prepare
from mamba2.data.dbn import RECORD, SymbolInterval
from mamba2.data.features import Features, FeatureState, compute_features
from mamba2.data.selection import segment_starts, select, trading_day
from mamba2.data.synthetic import write_dbn
from mamba2.data.windows import Windows
from mamba2.errors import DataError

CHICAGO = ZoneInfo("America/Chicago")
BEGINNINGS = [int(np.datetime64(text, "ns").astype(np.int64)) for text in ("2024-01-02T20:00", "2024-03-08T20:00")]
"""The second is the last trading day before the clocks change."""

LIMIT = 30 * MINUTE
EXAMPLE_YEARS = (date(2024, 1, 1), date(2025, 1, 1))


@st.composite
def bars_of(draw: st.DrawFn, symbol: str, instrument_id: int, most: int = 60) -> Bars:
    """Bars with gaps short and long, prices that jump, and volumes from none to huge."""
    n = draw(st.integers(1, most))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 7, 30, 31, 400, 1440]), min_size=n, max_size=n))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    closes = 1.1e9 * np.exp(np.cumsum(rng.normal(0, 1e-3, n)))
    prices = np.sort(np.rint(closes * np.exp(rng.normal(0, 1e-3, (4, n)))).astype(np.int64), axis=0)
    flat = rng.random(n) < 0.1
    low, opened, close, high = np.where(flat, prices[0], prices)
    up = rng.random(n) < 0.5
    return Bars(
        symbol=symbol,
        publisher_id=1,
        instrument_id=instrument_id,
        interval=MINUTE,
        time=draw(st.sampled_from(BEGINNINGS)) + np.cumsum(steps) * MINUTE,
        open=np.where(up, opened, close),
        high=high,
        low=low,
        close=np.where(up, close, opened),
        volume=rng.integers(0, draw(st.sampled_from([2, 1000, 10**12])), n),
    )


@st.composite
def markets(draw: st.DrawFn) -> Market:
    """Two contracts and a spread."""
    symbols = ["6EH4", "6EM4", "6EH4-6EM4"]
    series = tuple(draw(bars_of(symbol, number)) for number, symbol in enumerate(symbols, 1))
    return Market(1, sum(map(len, series)), series, ())


configs = st.builds(
    DataConfig,
    contract=st.sampled_from(["front", "all", "6EH4"]),
    targets=st.just(("return", "range")),
    window=st.integers(1, 6),
    stride=st.none() | st.integers(1, 7),
    horizon=st.integers(1, 4),
    warm_up=st.integers(0, 8),
    validation_fraction=st.sampled_from([0.0, 0.2, 0.5]),
)


def prepare_market(market: Market, config: DataConfig) -> Dataset:
    """The market by way of a file, and its windows, if there are any."""
    records = np.concatenate([records_of(bars) for bars in market.series])
    symbols = {bars.symbol: (SymbolInterval(*EXAMPLE_YEARS, bars.instrument_id),) for bars in market.series}
    with tempfile.TemporaryDirectory() as folder:
        path = write_dbn(Path(folder) / "bars.dbn", records, symbols=symbols, compress=False)
        try:
            return prepare([path], config)
        except DataError as error:
            assume(not str(error).startswith(("no windows", "no training windows", "no validation windows")))
            raise


def records_of(bars: Bars) -> np.ndarray:
    records = np.zeros(len(bars), RECORD)
    records["length"], records["rtype"], records["publisher_id"] = 14, 33, 1
    records["instrument_id"], records["ts_event"] = bars.instrument_id, bars.time
    for name in ("open", "high", "low", "close", "volume"):
        records[name] = getattr(bars, name)
    return records


def session_of(time: int) -> date:
    """The trading day by the calendar, one bar at a time."""
    local = datetime.fromtimestamp(time // 10**9, CHICAGO)
    return local.date() + timedelta(days=local.hour >= 17)


def front_by_session(market: Market) -> dict[date, str | None]:
    """The front contract of each session, by counting one bar at a time."""
    volumes: dict[date, Counter[str]] = {}
    for bars in market.series:
        if "-" not in bars.symbol:
            for time, volume in zip(bars.time.tolist(), bars.volume.tolist(), strict=True):
                volumes.setdefault(session_of(time), Counter())[bars.symbol] += volume
    sessions = sorted(volumes)
    # A contract without a bar in a session is no candidate, even where all the others' volumes are 0.
    leaders = [max(sorted(volumes[session]), key=volumes[session].__getitem__) for session in sessions]
    return dict(zip(sessions, [None, *leaders], strict=False))


class Span(NamedTuple):
    """Where a window lies: its track, first bar and the bar after its last."""

    track: int
    first: int
    end: int


def spans(windows: Windows) -> list[Span]:
    pairs = zip(windows.track.tolist(), windows.start.tolist(), strict=True)
    return [Span(track, start, start + windows.length) for track, start in pairs]


@given(markets(), configs)
def test_no_window_crosses_a_gap_an_instrument_or_a_roll(market, config):
    dataset = prepare_market(market, config)
    front = front_by_session(market)

    for windows in (dataset.train, dataset.validation):
        for track, first, end in spans(windows):
            symbol, time = windows.tracks[track].symbol, windows.tracks[track].time[first:end]
            assert first >= config.warm_up
            assert len(time) == config.window
            assert np.isin(time, next(bars for bars in market.series if bars.symbol == symbol).time).all()
            assert (np.diff(time) <= LIMIT).all()
            assert "-" not in symbol
            assert config.contract != "6EH4" or symbol == "6EH4"
            assert config.contract != "front" or all(front[session_of(each)] == symbol for each in time.tolist())


@given(markets(), configs)
def test_a_target_is_valid_exactly_when_its_bar_is_in_the_same_segment(market, config):
    dataset = prepare_market(market, config)

    for track in dataset.train.tracks:
        bars = next(each for each in market.series if each.symbol == track.symbol)
        for bar, valid in enumerate(track.valid.tolist()):
            ahead = bar + config.horizon
            assert valid == (ahead < len(bars) and not track.starts[bar + 1 : ahead + 1].any())
            outcome = [
                np.log(bars.close[ahead] / bars.close[bar]) if valid else 0.0,
                np.log(bars.high[ahead] / bars.low[ahead]) if valid else 0.0,
            ]
            np.testing.assert_allclose(track.targets[bar], outcome / track.volatility[bar], rtol=1e-5, atol=1e-9)


@given(markets(), configs)
def test_nothing_a_training_window_sees_reaches_the_validation_part(market, config):
    dataset = prepare_market(market, config)
    assume(len(dataset.validation) > 0)
    begin = min(dataset.validation.tracks[track].time[first] for track, first, _ in spans(dataset.validation))

    for track, first, end in spans(dataset.train):
        time, valid = dataset.train.tracks[track].time, dataset.train.tracks[track].valid
        targets = time[config.horizon :][valid[: len(time) - config.horizon][first:end].nonzero()[0] + first]
        assert (targets < begin).all()
        assert time[end - 1] + (config.window + config.horizon) * MINUTE < begin


@given(markets(), configs)
def test_every_window_trains_validates_or_is_purged(market, config):
    dataset = prepare_market(market, config)
    train, validation = spans(dataset.train), spans(dataset.validation)

    assert len({*train, *validation}) == len(train) + len(validation) == dataset.sequences - dataset.purged
    assert config.validation_fraction > 0 or dataset.purged == 0


@given(markets(), st.integers(0, 10), st.integers(2, 1000))
def test_the_front_depends_on_the_past_only(market, sessions, factor):
    days = np.unique(np.concatenate([trading_day(bars.time) for bars in market.series if bars.is_outright]))
    now = days[min(sessions, len(days) - 1)]
    other = replace(market, series=tuple(change_volume(bars, now, factor) for bars in market.series))

    assert front_until(other, now) == front_until(market, now)


def change_volume(bars: Bars, day: int, factor: int) -> Bars:
    """Other volumes from that trading day on."""
    changed = bars.volume[::-1] // factor + bars.instrument_id * factor
    return replace(bars, volume=np.where(trading_day(bars.time) >= day, changed, bars.volume))


def front_until(market: Market, day: int) -> list[tuple[str, int]]:
    """Symbol and time of the bars chosen up to and with that trading day."""
    chosen = [(each.bars.symbol, each.bars.time[each.keep]) for each in select(market, "front").series]
    return [(symbol, time) for symbol, times in chosen for time in times[trading_day(times) <= day].tolist()]


def features_of(bars: Bars, state: FeatureState | None = None, starts: np.ndarray | None = None) -> Features:
    return compute_features(bars, all_starts(bars) if starts is None else starts, state)


def all_starts(bars: Bars) -> np.ndarray:
    return segment_starts(bars, np.ones(len(bars), bool), None)


def bits(features: Features) -> bytes:
    return features.values.tobytes() + features.volatility.tobytes()


@given(bars_of("6EH4", 1), st.data())
def test_features_are_finite_and_within_ten(bars, data):
    features = features_of(bars, starts=data.draw(st.sampled_from([all_starts(bars), np.zeros(len(bars), bool)])))

    assert (np.abs(features.values) <= 10).all()
    assert (features.volatility >= 1e-6).all()


@given(bars_of("6EH4", 1), bars_of("6EH4", 1), st.data())
def test_no_feature_sees_the_future(bars, future, data):
    cut = data.draw(st.integers(0, len(bars)))
    later = replace(future, time=future.time - future.time[0] + bars.time[-1] + MINUTE)
    other = join(bars[:cut], later)

    assert bits(features_of(bars[:cut])) == bits(first(features_of(bars), cut))
    assert bits(features_of(bars[:cut])) == bits(first(features_of(other), cut))


def first(features: Features, count: int) -> Features:
    return features._replace(values=features.values[:count], volatility=features.volatility[:count])


def join(past: Bars, future: Bars) -> Bars:
    names = ("time", "open", "high", "low", "close", "volume")
    return replace(past, **{name: np.concatenate([getattr(past, name), getattr(future, name)]) for name in names})


@given(bars_of("6EH4", 1), st.data())
def test_any_split_with_the_state_handed_on_gives_the_same_bits(bars, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(bars)), max_size=8)))
    check_split(bars, cuts)


@given(bars_of("6EH4", 1, most=300))
def test_one_bar_at_a_time_gives_the_same_bits(bars):
    check_split(bars, list(range(len(bars))))


def check_split(bars: Bars, cuts: list[int]) -> None:
    starts, state, pieces = all_starts(bars), None, []
    for begin, end in zip([0, *cuts], [*cuts, len(bars)], strict=True):
        pieces.append(features_of(bars[begin:end], state, starts[begin:end]))
        state = pieces[-1].state
    values = np.concatenate([piece.values for piece in pieces])
    volatility = np.concatenate([piece.volatility for piece in pieces])

    assert bits(Features(values, volatility, state)) == bits(features_of(bars))
    assert state == features_of(bars).state


@given(bars_of("6EH4", 1), st.randoms(use_true_random=False))
def test_bars_cut_into_files_are_the_same_bars(bars, random):
    day = bars.time // DAY
    symbols = {"6EH4": (SymbolInterval(*EXAMPLE_YEARS, 1),)}
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write_dbn(Path(folder) / f"{each}.dbn", records_of(bars)[day == each], symbols=symbols, compress=False)
            for each in np.unique(day)
        ]
        (loaded,) = load_bars(random.sample(paths, len(paths))).series

    assert records_of(loaded).tobytes() == records_of(bars).tobytes()
