"""The feed: the real databento.Live against a gateway on loopback."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mamba2.config import RunConfig
from mamba2.data.bars import MINUTE
from mamba2.errors import DataError
from mamba2.live.engine import Bar, Engine, Key
from mamba2.live.lines import prediction_line
from mamba2.live.saved import load_engine
from mamba2.live.session import feed_session
from mamba2.live.stream import Gateway, Subscription, run_live
from mamba2.model.forecaster import Forecaster

NOON = 1_704_196_800 * 10**9  # 2024-01-02 12:00 UTC
WANTED = Subscription("GLBX.MDP3", "6E.FUT", "parent", "ohlcv-1m")


@pytest.fixture
def engine(model: Forecaster, config: RunConfig) -> Engine:
    return Engine(model, replace(config, data=replace(config.data, contract="6EH4", warm_up=2)), interval=MINUTE)


def run(engine: Engine, port: int, key: str, *, reconnects: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The lines said until the feed is given up, and the error then."""
    lines: list[str] = []
    with pytest.raises(DataError) as caught:
        run_live(
            engine, WANTED, lines.append, key=key, gateway=Gateway("127.0.0.1", port), reconnects=reconnects, pause=0.0
        )
    return [json.loads(line) for line in lines], str(caught.value)


def test_each_bar_of_the_contract_gets_one_line(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    others = [wire.mapping("6EM4", 2), wire.mapping("6EH4-6EM4", 3), wire.heartbeat()]
    bars = [
        wire.bar(NOON),
        wire.bar(NOON, instrument_id=2),
        wire.bar(NOON, close=-5, instrument_id=3),
        wire.bar(NOON + MINUTE),
    ]
    served = gateway([wire.mapping("6EH4", 1), *others, *bars])
    lines, _ = run(engine, served.port, wire.key)

    assert [(line["symbol"], line["time"], line["available_at"]) for line in lines] == [
        ("6EH4", "2024-01-02T12:00:00Z", "2024-01-02T12:01:00Z"),
        ("6EH4", "2024-01-02T12:01:00Z", "2024-01-02T12:02:00Z"),
    ]
    assert "schema=ohlcv-1m|stype_in=parent|symbols=6E.FUT" in served.requests[0]


def test_lines_are_those_of_the_engine(engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace) -> None:
    closes = [10**9, 10**9 + 50_000, 10**9 - 50_000]
    bars = [wire.bar(NOON + minute * MINUTE, close=close) for minute, close in enumerate(closes)]
    lines, _ = run(engine, gateway([wire.mapping("6EH4", 1), *bars]).port, wire.key)

    again = Engine(engine.model, engine.config, interval=MINUTE)
    for minute, (line, close) in enumerate(zip(lines, closes, strict=True)):
        said = again.push(Bar(Key("6EH4", 1, 1), NOON + minute * MINUTE, close, close, close, close, 7))
        assert said is not None
        assert line == json.loads(prediction_line(said, engine.config))


def test_a_feed_that_closes_ends_the_run_with_the_last_bar(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    _, error = run(engine, gateway([wire.mapping("6EH4", 1), wire.bar(NOON)]).port, wire.key)

    assert error == (
        "live GLBX.MDP3: the feed must stay connected; the gateway closed the connection, after the bar of "
        "2024-01-02T12:00:00Z. Check the network and Databento's status, then start again."
    )


def test_a_reconnect_leaves_the_gap_marked_and_warms_up_again(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    first = [wire.mapping("6EH4", 1), *(wire.bar(NOON + minute * MINUTE) for minute in range(3))]
    second = [wire.mapping("6EH4", 1), wire.bar(NOON + 3 * MINUTE)]
    lines, _ = run(engine, gateway(first, second, []).port, wire.key, reconnects=1)

    assert [line.get("warm_up") for line in lines] == [True, True, False, None, True, None]
    assert lines[3] == {"gap_after": "2024-01-02T12:02:00Z", "why": "the gateway closed the connection"}
    assert lines[4]["bars_since_segment_start"] == 0


def test_a_connection_that_breaks_is_a_gap_too(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    served = gateway([wire.mapping("6EH4", 1)], abort=True)
    lines, error = run(engine, served.port, wire.key, reconnects=2)

    assert [line["gap_after"] for line in lines] == [None, None]
    assert served.connections == 3
    assert "the feed must stay connected; " in error


def test_a_bar_that_is_refused_ends_the_run(engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace) -> None:
    bars = [wire.bar(NOON + MINUTE), wire.bar(NOON), wire.bar(NOON + 2 * MINUTE)]
    lines, error = run(engine, gateway([wire.mapping("6EH4", 1), *bars]).port, wire.key, reconnects=5)

    assert len(lines) == 1
    assert "got it out of order, after 2024-01-02T12:01:00Z" in error


def test_an_error_of_whoever_takes_the_lines_ends_the_run(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    def broken(_: str) -> None:
        raise BrokenPipeError("nobody reads")

    served = gateway([wire.mapping("6EH4", 1), wire.bar(NOON)])
    with pytest.raises(BrokenPipeError, match="nobody reads"):
        run_live(
            engine, WANTED, broken, key=wire.key, gateway=Gateway("127.0.0.1", served.port), reconnects=5, pause=0.0
        )


def test_a_wrong_key_is_refused_and_not_shown(engine: Engine, gateway: Callable[..., Any]) -> None:
    wrong = "db-wrongwrongwrongwrongwrongwron"
    _, error = run(engine, gateway([]).port, wrong, reconnects=5)

    assert error.startswith("live GLBX.MDP3: the gateway must accept the connection; ")
    assert "Authentication failed" in error
    assert wrong not in error


def test_a_refused_subscription_is_named(engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace) -> None:
    _, error = run(engine, gateway([wire.error("no licence for GLBX.MDP3")]).port, wire.key, reconnects=5)

    assert error == (
        "live GLBX.MDP3: the gateway must accept 6E.FUT (parent, ohlcv-1m); no licence for GLBX.MDP3. Check symbol, "
        "schema and licence."
    )


def test_bars_of_another_interval_are_refused(
    engine: Engine, gateway: Callable[..., Any], wire: SimpleNamespace
) -> None:
    _, error = run(engine, gateway([wire.mapping("6EH4", 1), wire.bar(NOON, rtype=32)]).port, wire.key)

    assert error == (
        "live GLBX.MDP3: bars must be ohlcv-1m; got rtype 32. Subscribe to the schema that the model was trained on."
    )


def test_a_gateway_that_is_not_there_is_named(engine: Engine, wire: SimpleNamespace) -> None:
    _, error = run(engine, 1, wire.key, reconnects=5)

    assert error.startswith("live GLBX.MDP3: the gateway must accept the connection; Connection to 127.0.0.1:1 failed")


def test_an_interrupt_saves_the_state(
    engine: Engine,
    gateway: Callable[..., Any],
    wire: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("DATABENTO_API_KEY", wire.key)
    served = gateway([wire.mapping("6EH4", 1), wire.bar(NOON)])
    feed_session(
        engine.model,
        engine.config,
        WANTED,
        interrupt,
        state=tmp_path / "state",
        gateway=Gateway("127.0.0.1", served.port),
        reconnects=5,
        pause=0.0,
    )

    assert load_engine(tmp_path / "state", engine.model, engine.config, interval=MINUTE).state.clock == NOON
