"""Files of bars as the live feed would have brought them."""

from collections.abc import Iterator

import numpy as np

from mamba2.data.bars import Market
from mamba2.live.engine import Bar, Engine, Key, Prediction


def replay(engine: Engine, market: Market) -> Iterator[Prediction]:
    """Pushes every bar of all series, in the order of time, and yields what the engine says to them.

    Raises:
        DataError: a bar is refused.
    """
    for bar in in_order(market):
        prediction = engine.push(bar)
        if prediction is not None:
            yield prediction


def in_order(market: Market) -> Iterator[Bar]:
    """All bars by time; those of one time by series."""
    series = market.series
    nothing = np.empty(0, np.int64)
    which = np.repeat(np.arange(len(series)), [len(bars) for bars in series])
    row = np.concatenate([nothing, *(np.arange(len(bars)) for bars in series)])
    time = np.concatenate([nothing, *(bars.time for bars in series)])
    keys = [Key(bars.symbol, bars.publisher_id, bars.instrument_id) for bars in series]
    columns = [(bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume) for bars in series]
    for place in np.argsort(time, kind="stable"):
        index, bar = int(which[place]), int(row[place])
        yield Bar(keys[index], *(int(column[bar]) for column in columns[index]))
