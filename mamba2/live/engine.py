"""Forecasts bar by bar: one state for each instrument, with the rules of training applied as bars arrive."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mamba2.config import FEATURES, RunConfig
from mamba2.data.bars import SECOND, Bars, utc
from mamba2.data.features import FeatureState, compute_features
from mamba2.data.selection import gap_limit, trading_day
from mamba2.errors import DataError
from mamba2.model.backbone import BackboneState
from mamba2.model.forecaster import Forecaster

CLOCK_SKEW = SECOND
"""A bar may be received so much before its end: clocks differ."""


class Key(NamedTuple):
    """What makes an instrument: symbols and ids are both reused."""

    symbol: str
    publisher_id: int
    instrument_id: int


class Bar(NamedTuple):
    """One completed bar; prices in units of 1e-9."""

    key: Key
    time: int
    """When it OPENS, nanoseconds UTC."""
    open: int
    high: int
    low: int
    close: int
    volume: int


class Prediction(NamedTuple):
    """What is expected after a completed bar of a chosen instrument."""

    bar: Bar
    available_at: int
    """The bar's open + interval, before which nobody can know it; nanoseconds UTC."""
    warm_up: bool
    """The bar is one of the first of its instrument, or since a lost connection: such bars were not trained on."""
    since_start: int
    """Bars of the segment before this one; at 0 the state was zero."""
    volatility: float
    """What targets are divided by: a forecast times this is a log return or a log range."""
    features: NDArray[np.float32]
    """[feature], in the order of the config."""
    mean: NDArray[np.float32]
    """[target], in units of the volatility."""
    quantiles: NDArray[np.float32]
    """[target, level]"""


class Instrument(NamedTuple):
    """What the next bar of an instrument needs to know."""

    features: FeatureState
    model: BackboneState
    bars: int
    """Since its first, or since a lost connection."""
    since_start: int
    """Bars of the segment so far."""
    chosen: bool
    """Whether the last bar was the configured contract's."""


@dataclass(frozen=True)
class EngineState:
    """All that decides the next forecasts, beside model and config."""

    clock: int = -1
    """Open of the newest bar, nanoseconds UTC."""
    session: int | None = None
    """The trading day under way."""
    front: Key | None = None
    """The outright with the most volume in the session before; None in the first one."""
    volumes: dict[Key, int] = field(default_factory=dict)
    """Of the session under way."""
    instruments: dict[Key, Instrument] = field(default_factory=dict)


class Engine:
    """Takes completed bars of all instruments in the order of their times, and forecasts after each chosen one.

    What is chosen, where a segment starts and when the state is zero follow the rules of `data.selection`, so that the
    forecasts are those of one forward over each whole segment. A refused bar changes nothing.

    Args:
        model: on any device.
        config: of the model.
        interval: nanoseconds that a bar spans.
        state: to go on from; a new one when not given.
    """

    def __init__(
        self, model: Forecaster, config: RunConfig, *, interval: int, state: EngineState | None = None
    ) -> None:
        self.model = model.eval()
        self.config = config
        self.interval = interval
        self.state = state or EngineState()
        self._columns = [FEATURES.index(name) for name in config.data.features]
        self._limit = gap_limit(interval, config.data.max_gap)

    def push(self, bar: Bar, received: int | None = None) -> Prediction | None:
        """Takes one completed bar; returns what follows from it, or None when its instrument is not the chosen one.

        Args:
            bar: the next in time, of any instrument.
            received: when it arrived, nanoseconds UTC; not given in a replay.

        Raises:
            DataError: the bar is not on the grid of its interval, not complete, a duplicate, out of order, late, has a
                second publisher, or prices that cannot be.
        """
        if not self._is_candidate(bar):
            return None
        self._require_valid(bar, received)
        self._require_next(bar)
        session, front, volumes = self._session_with(bar)
        chosen = self.config.data.contract != "front" or bar.key == front
        if bar.low > 0 or chosen:
            _require_prices(bar, least=1)
            prediction, instrument = self._advance(bar, chosen)
            instruments = self.state.instruments | {bar.key: instrument}
        else:  # logs cannot be taken, and need not be: its volume counts, and its past begins anew
            prediction = None
            instruments = {key: each for key, each in self.state.instruments.items() if key != bar.key}
        self.state = EngineState(clock=bar.time, session=session, front=front, volumes=volumes, instruments=instruments)
        return prediction

    def mark_gap(self) -> None:
        """Forgets what was, for what happened since is unknown: each instrument warms up again from its next bar.

        The order of bars, the session's volumes so far and its front contract stay.
        """
        self.state = EngineState(self.state.clock, self.state.session, self.state.front, self.state.volumes)

    def _is_candidate(self, bar: Bar) -> bool:
        """Spreads never are; with one symbol asked for, only that is."""
        symbol, contract = bar.key.symbol, self.config.data.contract
        return not any(mark in symbol for mark in "-:") and contract in ("front", "all", symbol)

    def _require_valid(self, bar: Bar, received: int | None) -> None:
        where = f"{bar.key.symbol} at {utc(bar.time)}"
        if bar.time % self.interval:
            raise DataError(
                f"{where}: bars must open on the grid of their interval, {self.interval // SECOND} s; got a time "
                f"{bar.time % self.interval} ns off. Check the schema of the subscription."
            )
        if received is not None and bar.time + self.interval > received + CLOCK_SKEW:
            raise DataError(
                f"{where}: only completed bars are taken; this one ends at {utc(bar.time + self.interval)} and came at "
                f"{utc(received)}. Check the clock of this machine."
            )
        _require_prices(bar, least=-(2**63))
        for key in self.state.instruments:
            if key.symbol == bar.key.symbol and key.publisher_id != bar.key.publisher_id:
                raise DataError(
                    f"{where}: bars must come from one publisher; got {key.publisher_id} and {bar.key.publisher_id}. "
                    "Subscribe to one dataset."
                )

    def _require_next(self, bar: Bar) -> None:
        """The bar follows those before it."""
        where = f"{bar.key.symbol} at {utc(bar.time)}"
        known = self.state.instruments.get(bar.key)
        if known is not None and bar.time == known.features.time:
            raise DataError(f"{where}: each bar must come once; got a duplicate. Leave the second one out.")
        if known is not None and bar.time < known.features.time:
            raise DataError(
                f"{where}: bars of an instrument must come in order; got it out of order, after "
                f"{utc(known.features.time)}. Sort the bars, or start anew."
            )
        if bar.time < self.state.clock:
            raise DataError(
                f"{where}: bars must come before those of later times; got it late, after another instrument's of "
                f"{utc(self.state.clock)}. Sort the bars, or start anew."
            )

    def _session_with(self, bar: Bar) -> tuple[int, Key | None, dict[Key, int]]:
        """Session, front contract and volumes with the bar; a session's front is known before its first bar."""
        state, session = self.state, int(trading_day(np.array([bar.time]))[0])
        front, volumes = state.front, state.volumes
        if state.session is not None and session != state.session:
            # Of equal volumes the first key wins, as in the selection for training.
            front, volumes = max(sorted(volumes), key=volumes.__getitem__), {}
        return session, front, volumes | {bar.key: volumes.get(bar.key, 0) + bar.volume}

    @torch.inference_mode()
    def _advance(self, bar: Bar, chosen: bool) -> tuple[Prediction | None, Instrument]:
        """The forecast after the bar, if it is chosen, and the instrument's state with it."""
        known = self.state.instruments.get(bar.key)
        starts = known is None or known.chosen != chosen or bar.time - known.features.time > self._limit
        found = compute_features(
            _one(bar, self.interval), np.array([starts]), None if known is None else known.features
        )
        assert found.state is not None  # there was a bar
        if known is None or starts:
            state, since_start = self.model.initial_state(1), 0
        else:
            state, since_start = known.model, known.since_start
        bars = 0 if known is None else known.bars
        prediction = None
        if chosen:
            features = found.values[0, self._columns]
            seen = torch.from_numpy(features)[None, None].to(self.model.levels.device)
            forecast, state = self.model.step(seen, state)
            prediction = Prediction(
                bar=bar,
                available_at=bar.time + self.interval,
                warm_up=bars < self.config.data.warm_up,
                since_start=since_start,
                volatility=float(found.volatility[0]),
                features=features,
                mean=forecast.mean[0, 0].cpu().numpy(),
                quantiles=forecast.quantiles[0, 0].cpu().numpy(),
            )
        return prediction, Instrument(found.state, state, bars + 1, since_start + 1, chosen)


def _require_prices(bar: Bar, least: int) -> None:
    if least <= bar.low <= min(bar.open, bar.close) and max(bar.open, bar.close) <= bar.high < 2**63 - 1:
        return
    prices = ", ".join(f"{name} {getattr(bar, name) / 1e9}" for name in ("open", "high", "low", "close"))
    where = f"{bar.key.symbol} at {utc(bar.time)}"
    raise DataError(f"{where}: must have 0 < low <= open, close <= high; got {prices}. Leave the bar out.")


def _one(bar: Bar, interval: int) -> Bars:
    columns = ([value] for value in (bar.time, bar.open, bar.high, bar.low, bar.close, bar.volume))
    return Bars(*bar.key, interval, *(np.array(each, np.int64) for each in columns))
