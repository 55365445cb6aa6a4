"""What `mamba2 live` does: a checkpoint and a source of bars to lines, with the state kept between runs."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mamba2.config import RunConfig
from mamba2.data.api import api_key, infer_stype
from mamba2.data.bars import load_bars, require_interval
from mamba2.data.degraded import without_degraded
from mamba2.data.selection import select
from mamba2.errors import ConfigError
from mamba2.live.engine import Engine
from mamba2.live.lines import prediction_line
from mamba2.live.replay import replay
from mamba2.live.saved import load_engine, save_engine
from mamba2.live.stream import INTERVALS, Gateway, Subscription, run_live
from mamba2.model.files import existing
from mamba2.model.forecaster import Forecaster

Say = Callable[[str], None]


def replay_session(
    model: Forecaster,
    config: RunConfig,
    files: Sequence[Path],
    say: Say,
    *,
    state: Path | None,
    trained_interval: int | None = None,
) -> None:
    """Says a line for each forecast on the files' bars; the state is saved when all of them are through.

    Degraded days are left out where the run's training left them out.

    Raises:
        Mamba2Error: the state, a file or a bar is refused, or no bar is of the run's contract.
    """
    market = load_bars(files)
    if not market.series:
        return  # of a holiday; the state stays as it is
    select(market, config.data.contract)  # which refuses files without it
    require_interval("live", market.series[0].interval, trained_interval)
    engine = _engine(model, config, market.series[0].interval, state)
    if config.data.skip_degraded:
        market = without_degraded(market)
    for prediction in replay(engine, market):
        say(prediction_line(prediction, config))
    if state is not None:
        save_engine(state, engine)


def subscribe_to(dataset: str, symbols: str, schema: str) -> Subscription:
    """What to ask the gateway for, the kind of symbols included.

    Raises:
        ConfigError: the schema is not one of bars, or the symbols are of several kinds.
    """
    if schema not in INTERVALS:
        raise ConfigError(
            f"--schema: must be one of {', '.join(INTERVALS)}; got {schema}. Choose the one of the training."
        )
    return Subscription(dataset, symbols, infer_stype(symbols), schema)


def feed_session(
    model: Forecaster,
    config: RunConfig,
    wanted: Subscription,
    say: Say,
    *,
    state: Path | None,
    gateway: Gateway,
    reconnects: int,
    pause: float,
    trained_interval: int | None = None,
) -> None:
    """Says a line for each forecast on the feed's bars, until the user interrupts; in any case the state is saved.

    Raises:
        Mamba2Error: the state, the key, the subscription or a bar is refused, or the feed is lost.
    """
    key = api_key()
    require_interval("live", INTERVALS[wanted.schema], trained_interval)
    engine = _engine(model, config, INTERVALS[wanted.schema], state)
    try:
        with suppress(KeyboardInterrupt):
            run_live(engine, wanted, say, key=key, gateway=gateway, reconnects=reconnects, pause=pause)
    finally:
        if state is not None:  # after an error too: a refused bar has changed nothing
            save_engine(state, engine)


def _engine(model: Forecaster, config: RunConfig, interval: int, state: Path | None) -> Engine:
    if state is not None and existing(state).exists():
        return load_engine(state, model, config, interval=interval)
    return Engine(model, config, interval=interval)
