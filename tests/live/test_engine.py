"""The engine: the rules of training, bar by bar, and what it refuses by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mamba2.config import RunConfig
from mamba2.data.bars import MINUTE, Bars, Market, load_bars
from mamba2.data.dataset import make_tracks
from mamba2.data.planted import write_planted
from mamba2.data.windows import chosen_segments
from mamba2.errors import DataError
from mamba2.live.engine import Bar, Engine, Key, Prediction
from mamba2.live.replay import in_order, replay
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model

NOON = 1_704_196_800 * 10**9  # 2024-01-02 12:00 UTC
H4, M4, SPREAD = Key("6EH4", 1, 1), Key("6EM4", 1, 2), Key("6EH4-6EM4", 1, 3)


def bar(minute: int, close: int = 1_000_000_000, key: Key = H4, volume: int = 5) -> Bar:
    return Bar(key, NOON + minute * MINUTE, close, close + 10, close - 10, close, volume)


def settings(config: RunConfig, contract: str, **data: int) -> RunConfig:
    return replace(config, data=replace(config.data, contract=contract, warm_up=3, **data))


@pytest.fixture
def engine(model: Forecaster, config: RunConfig) -> Engine:
    return Engine(model, settings(config, "6EH4"), interval=MINUTE)


def refusal(engine: Engine, bars: Sequence[Bar], received: int | None = None) -> str:
    """Why the last bar is refused; that leaves the engine as it was."""
    for each in bars[:-1]:
        engine.push(each)
    before = engine.state
    with pytest.raises(DataError) as caught:
        engine.push(bars[-1], received)
    assert engine.state is before
    return str(caught.value)


@pytest.fixture
def market(example: list[Path]) -> Market:
    """Half an hour on both sides of the example's first two breaks, all instruments."""
    whole = load_bars(example[:3])
    return replace(whole, series=tuple(part for bars in whole.series if len(part := near_breaks(bars))))


def near_breaks(bars: Bars) -> Bars:
    since = (bars.time - NOON) // MINUTE
    mask = (np.abs(since - 630) < 60) | (np.abs(since - 630 - 1440) < 60)  # the middle of a break is at 22:30 UTC
    columns = {name: getattr(bars, name)[mask] for name in ("time", "open", "high", "low", "close", "volume")}
    return replace(bars, **columns)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Market:
    whole = load_bars([write_planted(tmp_path_factory.mktemp("planted") / "a.dbn.zst", "regime", bars=1400)])
    return replace(whole, series=(whole.series[0][1200:],))


def compare(market: Market, model: Forecaster, config: RunConfig) -> int:
    """A replay gives, per segment, the outputs of one forward over it; returns how many bars were compared."""
    live = {
        (each.bar.key.symbol, each.bar.time): each for each in replay(Engine(model, config, interval=MINUTE), market)
    }
    tracks, compared = make_tracks(market, config.data), 0
    for track, selected in zip(tracks.tracks, tracks.selection.series, strict=True):
        for first, end in chosen_segments(track, selected.keep, warm_up=0):
            with torch.no_grad():
                whole, _ = model(torch.from_numpy(track.features[first:end])[None], model.initial_state(1))
            said = [live.pop((track.symbol, time)) for time in track.time[first:end].tolist()]
            assert np.array_equal(np.stack([each.features for each in said]), track.features[first:end])
            assert np.abs(np.stack([each.mean for each in said]) - whole.mean[0].numpy()).max() < 1e-5
            assert np.abs(np.stack([each.quantiles for each in said]) - whole.quantiles[0].numpy()).max() < 1e-5
            assert [each.since_start for each in said] == list(range(end - first))
            assert [each.volatility for each in said] == track.volatility[first:end].tolist()
            assert [each.warm_up for each in said] == [bar < config.data.warm_up for bar in range(first, end)]
            compared += end - first
    assert not live
    return compared


@pytest.mark.parametrize("contract", ["6EH4", "front", "all"])
def test_a_replay_gives_the_outputs_of_one_forward_over_each_segment(
    contract: str, market: Market, model: Forecaster, config: RunConfig
) -> None:
    chosen = settings(config, contract)

    assert compare(market, model, chosen) == make_tracks(market, chosen.data).bars > 50


def test_a_front_that_changes_is_followed_as_in_training(market: Market, model: Forecaster, config: RunConfig) -> None:
    late = market.series[0].time[40]
    busier = replace(
        market,
        series=tuple(
            replace(bars, volume=bars.volume * np.where((bars.symbol == "6EM4") & (bars.time > late), 1000, 1))
            for bars in market.series
        ),
    )
    chosen = settings(config, "front")

    assert {each.bars.symbol for each in make_tracks(busier, chosen.data).selection.series} == {"6EH4", "6EM4"}
    assert compare(busier, model, chosen) > 20


def test_several_targets_and_features_are_followed_too(planted: Market, config: RunConfig) -> None:
    data = replace(config.data, contract="all", targets=("return", "range"), features=("gap", "ret", "vol_z"))
    config = replace(config, data=data)
    torch.manual_seed(1)

    assert compare(planted, make_model(config), config) == 200


def test_a_prediction_says_when_it_can_be_known(engine: Engine) -> None:
    said = engine.push(bar(0))

    assert said is not None
    assert said.available_at == NOON + MINUTE


def test_the_state_is_zero_after_a_break(engine: Engine) -> None:
    said = [engine.push(bar(minute)) for minute in (0, 1, 31, 62)]

    assert [each and each.since_start for each in said] == [0, 1, 2, 0]  # a gap of 30 minutes still holds together


def test_the_first_bars_of_a_contract_are_marked_as_warm_up(engine: Engine) -> None:
    said = [engine.push(bar(minute)) for minute in range(5)]

    assert [each and each.warm_up for each in said] == [True, True, True, False, False]


def test_a_marked_gap_warms_up_again(engine: Engine) -> None:
    for minute in range(5):
        engine.push(bar(minute))
    engine.mark_gap()
    said = engine.push(bar(5))

    assert said is not None
    assert (said.warm_up, said.since_start) == (True, 0)


def test_a_gap_does_not_make_an_old_bar_acceptable(engine: Engine) -> None:
    engine.push(bar(5))
    engine.mark_gap()

    assert "got it late" in refusal(engine, [bar(4)])


def test_other_contracts_and_spreads_have_no_forecast(engine: Engine) -> None:
    assert engine.push(bar(0, key=M4)) is None
    assert engine.push(bar(0, close=-5, key=SPREAD)) is None
    assert engine.state.clock == -1


def test_a_duplicate_is_refused(engine: Engine) -> None:
    assert refusal(engine, [bar(0), bar(0)]) == (
        "6EH4 at 2024-01-02T12:00:00Z: each bar must come once; got a duplicate. Leave the second one out."
    )


def test_a_bar_out_of_order_is_refused(engine: Engine) -> None:
    assert refusal(engine, [bar(0), bar(2), bar(1)]) == (
        "6EH4 at 2024-01-02T12:01:00Z: bars of an instrument must come in order; got it out of order, after "
        "2024-01-02T12:02:00Z. Sort the bars, or start anew."
    )


def test_a_late_bar_of_another_instrument_is_refused(model: Forecaster, config: RunConfig) -> None:
    engine = Engine(model, settings(config, "all"), interval=MINUTE)

    assert refusal(engine, [bar(0), bar(2), bar(1, key=M4)]) == (
        "6EM4 at 2024-01-02T12:01:00Z: bars must come before those of later times; got it late, after another "
        "instrument's of 2024-01-02T12:02:00Z. Sort the bars, or start anew."
    )


def test_a_bar_that_is_not_complete_is_refused(engine: Engine) -> None:
    assert refusal(engine, [bar(0)], received=NOON + MINUTE // 2) == (
        "6EH4 at 2024-01-02T12:00:00Z: only completed bars are taken; this one ends at 2024-01-02T12:01:00Z and came "
        "at 2024-01-02T12:00:30Z. Check the clock of this machine."
    )


def test_a_clock_that_is_half_a_second_behind_is_no_fault(engine: Engine) -> None:
    assert engine.push(bar(0), received=NOON + MINUTE - 500_000_000) is not None


def test_a_bar_off_the_grid_is_refused(engine: Engine) -> None:
    assert refusal(engine, [bar(0)._replace(time=NOON + 1)]) == (
        "6EH4 at 2024-01-02T12:00:00Z: bars must open on the grid of their interval, 60 s; got a time 1 ns off. Check "
        "the schema of the subscription."
    )


@pytest.mark.parametrize(
    "bad", [{"low": 0}, {"high": 2**63 - 1}, {"close": 2**63 - 1}, {"open": 1}, {"low": -5}, {"high": 5}]
)
def test_prices_that_cannot_be_are_refused(bad: dict[str, int], engine: Engine) -> None:
    assert "must have 0 < low <= open, close <= high; got open " in refusal(engine, [bar(0)._replace(**bad)])


def test_a_price_of_zero_of_another_contract_than_the_front_ends_nothing(model: Forecaster, config: RunConfig) -> None:
    day = 24 * 60
    bars = [bar(0), bar(0, key=M4, volume=1), *(bar(day + minute) for minute in range(3))]
    bars.insert(4, bar(day + 1, close=5, key=M4, volume=70)._replace(open=0, low=0))
    engine, other = (Engine(model, settings(config, "front"), interval=MINUTE) for _ in range(2))
    found = [engine.push(each) for each in bars]
    expected = [other.push(each) for each in bars if each.low > 0]

    assert found.pop(4) is None
    assert [each is None for each in found] == [True, True, False, False, False]
    assert [each and each.mean.tolist() for each in found] == [each and each.mean.tolist() for each in expected]
    assert engine.state.volumes[M4] == 70
    assert "must have 0 < low" in refusal(engine, [bar(day + 5)._replace(low=0)])


def test_a_second_publisher_is_refused(engine: Engine) -> None:
    assert refusal(engine, [bar(0), bar(1, key=Key("6EH4", 2, 1))]) == (
        "6EH4 at 2024-01-02T12:01:00Z: bars must come from one publisher; got 1 and 2. Subscribe to one dataset."
    )


def test_a_replay_is_in_the_order_of_time(example: list[Path]) -> None:
    times = [each.time for each in in_order(load_bars(example))]

    assert len(times) == 7223
    assert times == sorted(times)


def test_a_prediction_does_not_know_the_next_bar(engine: Engine) -> None:
    said: list[Prediction | None] = [engine.push(bar(0)), engine.push(bar(1))]
    other = Engine(engine.model, engine.config, interval=MINUTE)
    again = [other.push(bar(0)), other.push(bar(1, close=2_000_000_000))]

    assert said[0] is not None
    assert again[0] is not None
    assert said[0].mean.tolist() == again[0].mean.tolist()
