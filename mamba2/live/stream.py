"""Forecasts from databento.Live: one line for each completed bar, until the feed or the user ends it."""

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from databento_dbn import ErrorMsg, OHLCVMsg, SymbolMappingMsg

from mamba2.data.bars import DAY, HOUR, MINUTE, SECOND, utc
from mamba2.errors import DataError
from mamba2.live.engine import Bar, Engine, Key
from mamba2.live.lines import gap_line, prediction_line

INTERVALS = {"ohlcv-1s": SECOND, "ohlcv-1m": MINUTE, "ohlcv-1h": HOUR, "ohlcv-1d": DAY}
"""Nanoseconds that a bar of each schema spans."""

_RTYPES = {SECOND: 32, MINUTE: 33, HOUR: 34, DAY: 35}
_POLL = 0.1  # seconds from one look at the connection to the next


class Subscription(NamedTuple):
    """What to ask the gateway for."""

    dataset: str
    symbols: str
    stype_in: str
    schema: str


class Gateway(NamedTuple):
    """Where to connect to; without a host to Databento's own address of the dataset."""

    host: str | None = None
    port: int = 13000


def run_live(
    engine: Engine,
    subscription: Subscription,
    say: Callable[[str], None],
    *,
    key: str,
    gateway: Gateway,
    reconnects: int,
    pause: float,
) -> None:
    """Says one line of JSON for each prediction; after a lost connection one that marks the gap, and warms up again.

    Args:
        engine: is advanced bar by bar.
        subscription: of bars of the engine's interval.
        say: is given each line; what it raises ends the run.
        key: of the API; never shown.
        gateway: to connect to.
        reconnects: how often in a row to connect again without getting a bar.
        pause: seconds before each of them.

    Raises:
        DataError: a bar, the key or the subscription is refused, or the feed cannot be had again.
    """
    failures, first = 0, True
    while True:
        before = engine.state.clock
        why = _run_session(engine, subscription, say, key, gateway, first=first)
        first, failures = False, 1 if engine.state.clock > before else failures + 1
        last = engine.state.clock
        if failures > reconnects:
            raise DataError(
                f"live {subscription.dataset}: the feed must stay connected; {why}, after the bar of "
                f"{utc(last) if last >= 0 else 'no time'}. Check the network and Databento's status, then start again."
            )
        say(gap_line(last, why))
        engine.mark_gap()
        time.sleep(pause)


def _run_session(
    engine: Engine, subscription: Subscription, say: Callable[[str], None], key: str, gateway: Gateway, *, first: bool
) -> str:
    """Runs one connection to its end and returns what ended it; one that fails at once, the first time, is an error."""
    from databento import BentoError, Live

    client = Live(key=key, gateway=gateway.host, port=gateway.port)
    symbols: dict[int, str] = {}
    try:
        try:
            records = _connect(client, subscription)
        except BentoError as error:
            if first:
                raise DataError(
                    f"live {subscription.dataset}: the gateway must accept the connection; {_line(error, key)}. "
                    "Check DATABENTO_API_KEY and the network."
                ) from None  # the cause may hold the key
            return _line(error, key)
        try:
            for record in _until_closed(client, records):
                _handle(record, engine, symbols, say, subscription)
        except BentoError as error:
            return _line(error, key)
        return "the gateway closed the connection"
    finally:
        client.terminate()


def _connect(client: Any, subscription: Subscription) -> "queue.SimpleQueue[Any]":
    """Subscribes and starts; records go from the client's thread into the queue, for this one to handle.

    An error in a callback would only be reported, and the stream would go on without it.
    """
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.add_callback(records.put)
    client.subscribe(
        dataset=subscription.dataset,
        schema=subscription.schema,
        symbols=subscription.symbols,
        stype_in=subscription.stype_in,
    )
    client.start()
    return records


def _until_closed(client: Any, records: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    """Every record, then the error that closed the connection, if one did."""
    while True:
        connected = client.is_connected()  # asked first, so that nothing comes after the last look into the queue
        try:
            yield records.get(timeout=_POLL)
        except queue.Empty:
            if not connected:
                break
    client.block_for_close()


def _handle(
    record: Any, engine: Engine, symbols: dict[int, str], say: Callable[[str], None], subscription: Subscription
) -> None:
    if isinstance(record, SymbolMappingMsg):
        symbols[record.instrument_id] = record.stype_out_symbol
    elif isinstance(record, ErrorMsg):
        raise DataError(
            f"live {subscription.dataset}: the gateway must accept {subscription.symbols} ({subscription.stype_in}, "
            f"{subscription.schema}); {record.err}. Check symbol, schema and licence."
        )
    elif isinstance(record, OHLCVMsg):
        if int(record.rtype) != _RTYPES[engine.interval]:
            raise DataError(
                f"live {subscription.dataset}: bars must be {subscription.schema}; got rtype {int(record.rtype)}. "
                "Subscribe to the schema that the model was trained on."
            )
        prediction = engine.push(_bar(record, symbols), time.time_ns())
        if prediction is not None:
            say(prediction_line(prediction, engine.config))


def _bar(record: OHLCVMsg, symbols: dict[int, str]) -> Bar:
    symbol = symbols.get(record.instrument_id, f"#{record.instrument_id}")
    return Bar(
        Key(symbol, record.publisher_id, record.instrument_id),
        record.ts_event,
        record.open,
        record.high,
        record.low,
        record.close,
        record.volume,
    )


def _line(error: Exception, key: str) -> str:
    """The error in one line, without the key."""
    return " ".join(str(error).replace(key, "****").split()).rstrip(".")
