"""For all markets: bar by bar gives what one forward over each whole segment gives, wherever the run stopped."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mamba2.config import DataConfig, ModelConfig, RunConfig
from mamba2.data.bars import MINUTE, Bars, Market
from mamba2.data.dataset import make_tracks
from mamba2.data.windows import chosen_segments
from mamba2.live.engine import Engine
from mamba2.live.replay import in_order
from mamba2.live.saved import load_engine, save_engine
from mamba2.train.checkpoint import make_model

CONFIG = RunConfig(
    model=ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=4, quantiles=(0.5,)),
    data=DataConfig(targets=("return", "range"), warm_up=5),
)
MODEL = make_model(CONFIG)
BEGINNINGS = [int(np.datetime64(text, "ns").astype(np.int64)) for text in ("2024-01-02T20:00", "2024-03-08T20:00")]
"""The second is the last trading day before the clocks change."""


@st.composite
def bars_of(draw: st.DrawFn, symbol: str, instrument_id: int, beginning: int) -> Bars:
    """Bars with gaps short and long, and volumes so few that they tie."""
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 30, 31, 400, 1440]), min_size=1, max_size=15))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prices = np.sort(np.rint(1.1e9 * np.exp(rng.normal(0, 1e-3, (4, len(steps))))).astype(np.int64), axis=0)
    time = beginning + np.cumsum(steps) * MINUTE
    volume = rng.integers(0, 3, len(steps))
    return Bars(symbol, 1, instrument_id, MINUTE, time, prices[1], prices[3], prices[0], prices[2], volume)


@st.composite
def markets(draw: st.DrawFn) -> Market:
    """Two contracts and a spread."""
    beginning = draw(st.sampled_from(BEGINNINGS))
    series = tuple(
        draw(bars_of(symbol, number, beginning)) for number, symbol in enumerate(("6EH4", "6EM4", "6EH4-6EM4"), 1)
    )
    return Market(1, sum(map(len, series)), series, ())


@settings(max_examples=25)
@given(markets(), st.sampled_from(["front", "all", "6EM4"]), st.integers(0, 45))
def test_bar_by_bar_gives_what_one_forward_over_each_segment_gives(market: Market, contract: str, stop: int) -> None:
    config = replace(CONFIG, data=replace(CONFIG.data, contract=contract))
    engine, said = Engine(MODEL, config, interval=MINUTE), {}
    for number, bar in enumerate(in_order(market)):
        if number == stop:
            with tempfile.TemporaryDirectory() as folder:
                save_engine(Path(folder) / "state", engine)
                engine = load_engine(Path(folder) / "state", MODEL, config, interval=MINUTE)
        said[bar.key.symbol, bar.time] = engine.push(bar)
    found = {place: each for place, each in said.items() if each is not None}

    tracks = make_tracks(market, config.data)
    for track, selected in zip(tracks.tracks, tracks.selection.series, strict=True):
        for first, end in chosen_segments(track, selected.keep, warm_up=0):
            with torch.no_grad():
                whole, _ = MODEL(torch.from_numpy(track.features[first:end])[None], MODEL.initial_state(1))
            live = [found.pop((track.symbol, time)) for time in track.time[first:end].tolist()]
            assert np.array_equal(np.stack([each.features for each in live]), track.features[first:end])
            assert np.abs(np.stack([each.mean for each in live]) - whole.mean[0].numpy()).max() < 1e-5
    assert found == {}
