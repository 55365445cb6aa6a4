"""A state that is saved and loaded: stop, start, the same numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mamba2.config import RunConfig
from mamba2.data.bars import HOUR, MINUTE
from mamba2.errors import CheckpointError
from mamba2.live.engine import Bar, Engine, Key, Prediction
from mamba2.live.saved import load_engine, save_engine
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model

NOON = 1_704_196_800 * 10**9  # 2024-01-02 12:00 UTC
H4, M4 = Key("6EH4", 1, 1), Key("6EM4", 1, 2)


def bars(first: int, end: int) -> list[Bar]:
    """Bars of two instruments whose prices and volumes differ."""
    return [
        Bar(key, NOON + minute * MINUTE, close, close + 9, close - 9, close + 3, 5 + minute * key.instrument_id)
        for minute in range(first, end)
        for key, close in ((H4, 10**9 + 7919 * minute % 4001), (M4, 10**9 - 104729 * minute % 5003))
    ]


def numbers(said: list[Prediction | None]) -> list[tuple[object, ...]]:
    return [
        (each.bar, each.warm_up, each.since_start, each.volatility, each.mean.tolist(), each.quantiles.tolist())
        for each in said
        if each is not None
    ]


@pytest.fixture
def all_(config: RunConfig) -> RunConfig:
    return replace(config, data=replace(config.data, contract="all", warm_up=7))


def test_a_stopped_run_goes_on_with_the_same_numbers(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    whole = Engine(model, all_, interval=MINUTE)
    expected = [whole.push(each) for each in bars(0, 12)]

    first = Engine(model, all_, interval=MINUTE)
    said = [first.push(each) for each in bars(0, 6)]
    save_engine(tmp_path / "state", first)
    second = load_engine(tmp_path / "state", model, all_, interval=MINUTE)
    said += [second.push(each) for each in bars(6, 12)]

    assert numbers(said) == numbers(expected)


def test_front_session_and_volumes_are_kept(model: Forecaster, config: RunConfig, tmp_path: Path) -> None:
    front = replace(config, data=replace(config.data, contract="front"))
    engine = Engine(model, front, interval=MINUTE)
    for each in [*bars(0, 3), *bars(1440, 1442)]:
        engine.push(each)
    save_engine(tmp_path / "state", engine)
    again = load_engine(tmp_path / "state", model, front, interval=MINUTE).state

    assert again.front == M4
    assert (again.clock, again.session, again.volumes) == (
        engine.state.clock,
        engine.state.session,
        engine.state.volumes,
    )
    assert [each.features for each in again.instruments.values()] == [
        each.features for each in engine.state.instruments.values()
    ]


def test_an_engine_without_bars_is_saved_too(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    save_engine(tmp_path / "state", Engine(model, all_, interval=MINUTE))

    assert load_engine(tmp_path / "state", model, all_, interval=MINUTE).state.instruments == {}


def test_a_bar_from_before_the_stop_is_refused_after_it(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    engine = Engine(model, all_, interval=MINUTE)
    for each in bars(0, 3):
        engine.push(each)
    save_engine(tmp_path / "state", engine)

    with pytest.raises(ValueError, match="got a duplicate"):
        load_engine(tmp_path / "state", model, all_, interval=MINUTE).push(bars(0, 3)[-1])


def test_the_state_of_other_weights_is_refused(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    save_engine(tmp_path / "state", Engine(model, all_, interval=MINUTE))
    torch.manual_seed(5)

    with pytest.raises(CheckpointError, match=r"state: the state must be of this model, .* Start without it\.$"):
        load_engine(tmp_path / "state", make_model(all_), all_, interval=MINUTE)


def test_the_state_of_another_interval_is_refused(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    save_engine(tmp_path / "state", Engine(model, all_, interval=MINUTE))

    with pytest.raises(CheckpointError, match="the state must be of this interval, 3600000000000; got 60000000000"):
        load_engine(tmp_path / "state", model, all_, interval=HOUR)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"format": "mamba2-live-1"}'])
def test_a_damaged_state_is_refused(content: str, model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    save_engine(tmp_path / "state", Engine(model, all_, interval=MINUTE))
    (tmp_path / "state" / "engine.json").write_text(content)

    with pytest.raises(CheckpointError, match=r"state: must be a saved state; .* Start without it\.$"):
        load_engine(tmp_path / "state", model, all_, interval=MINUTE)


def test_the_numbers_in_the_file_are_exact(model: Forecaster, all_: RunConfig, tmp_path: Path) -> None:
    engine = Engine(model, all_, interval=MINUTE)
    for each in bars(0, 4):
        engine.push(each)
    save_engine(tmp_path / "state", engine)
    saved = json.loads((tmp_path / "state" / "engine.json").read_text())

    assert saved["instruments"][0]["features"] == list(engine.state.instruments[H4].features)
