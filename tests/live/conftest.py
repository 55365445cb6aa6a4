"""A live gateway of Databento on loopback, which says to the real client what a test tells it to."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from databento.common.cram import get_challenge_response
from databento_dbn import ErrorMsg, Metadata, OHLCVMsg, RType, SType, SymbolMappingMsg, SystemMsg

KEY = "db-0123456789abcdefghijklmnopqrs"  # 32 characters, as the client asks for
CHALLENGE = "t7kNhwj4xqR0QYjzFKtBEG2ec2pXJ4FK"


@dataclass
class Script:
    """What the gateway does with one connection after another, and what it was asked."""

    sessions: Sequence[Sequence[bytes]]
    """For each connection, records to send; then it is closed. Later connections get the last one again."""
    abort: bool = False
    """Close with a reset, not properly."""
    port: int = 0
    requests: list[str] = field(default_factory=list)
    connections: int = 0


@contextmanager
def live_gateway(script: Script) -> Iterator[Script]:
    """Listens in a thread of its own; `script.port` says where."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    thread = threading.Thread(target=_serve, args=(loop, script, ready))
    thread.start()
    ready.wait(10)
    try:
        yield script
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _serve(loop: asyncio.AbstractEventLoop, script: Script, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _session(script, reader, writer)

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    script.port = server.sockets[0].getsockname()[1]
    ready.set()
    loop.run_forever()
    server.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


async def _session(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    records = script.sessions[min(script.connections, len(script.sessions) - 1)]
    script.connections += 1
    writer.write(f"lsg_version=0.4.0\ncram={CHALLENGE}\n".encode())
    answer = (await reader.readline()).decode()
    if f"auth={get_challenge_response(CHALLENGE, KEY)}" not in answer:
        writer.write(b"success=0|error=Authentication failed.\n")
        writer.close()
        return
    writer.write(b"success=1|session_id=1\n")
    while (line := (await reader.readline()).decode().strip()) and not line.startswith("start_session"):
        script.requests.append(line)
    writer.write(bytes(_metadata()) + b"".join(records))
    await writer.drain()
    if script.abort:
        writer.transport.abort()
    else:
        writer.close()


def _metadata() -> Metadata:
    return Metadata(
        dataset="GLBX.MDP3",
        start=0,
        end=0,
        version=3,
        stype_in=None,
        stype_out=SType.INSTRUMENT_ID,
        schema=None,
        symbols=[],
        partial=[],
        not_found=[],
        mappings=[],
    )


def mapping(symbol: str, instrument_id: int) -> bytes:
    """What a gateway says of an instrument before its bars."""
    return bytes(
        SymbolMappingMsg(
            publisher_id=1,
            instrument_id=instrument_id,
            ts_event=0,
            stype_in=SType.PARENT,
            stype_in_symbol="6E.FUT",
            stype_out=SType.RAW_SYMBOL,
            stype_out_symbol=symbol,
            start_ts=0,
            end_ts=0,
        )
    )


def error(text: str) -> bytes:
    """What a gateway says of a subscription that it refuses."""
    return bytes(ErrorMsg(ts_event=0, err=text))


def heartbeat() -> bytes:
    """What a gateway says when there is nothing to say."""
    return bytes(SystemMsg(ts_event=0, msg="Heartbeat"))


def bar(time: int, *, close: int = 10**9, instrument_id: int = 1, rtype: RType = RType.OHLCV_1M) -> bytes:
    """A bar of one price."""
    return bytes(
        OHLCVMsg(
            rtype=int(rtype),
            publisher_id=1,
            instrument_id=instrument_id,
            ts_event=time,
            open=close,
            high=close,
            low=close,
            close=close,
            volume=7,
        )
    )


@pytest.fixture
def wire() -> SimpleNamespace:
    """What can be sent, and the key that is accepted."""
    return SimpleNamespace(bar=bar, mapping=mapping, heartbeat=heartbeat, error=error, key=KEY)


@pytest.fixture
def gateway() -> Iterator[Callable[..., Script]]:
    """Starts a gateway that sends each connection its records; `port` says where it listens."""
    with ExitStack() as running:
        yield lambda *sessions, abort=False: running.enter_context(live_gateway(Script(sessions, abort)))
