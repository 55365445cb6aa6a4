"""Downloads: the real databento.Historical against a server on loopback."""

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from mamba2.data.api import KEY, api_key, infer_stype
from mamba2.data.dbn import RECORD, SymbolInterval, read_dbn
from mamba2.data.download import Quote, Request, download, is_there, make_client, quote
from mamba2.data.synthetic import compress_dbn, encode_header
from mamba2.errors import ConfigError, DataError

SECRET = "db-0123456789abcdefghijklmnopqrs"
REQUEST = Request("GLBX.MDP3", "6E.FUT", "ohlcv-1m", "2024-01-02", "2024-01-03")


def content(bars: int = 3) -> bytes:
    records = np.zeros(bars, RECORD)
    records["length"], records["rtype"], records["publisher_id"], records["instrument_id"] = 14, 33, 1, 4916
    records["ts_event"] = 1_704_205_800 * 10**9 + np.arange(bars) * 60 * 10**9
    for name in ("open", "high", "low", "close"):
        records[name] = 10**9
    symbols = {"6EH4": (SymbolInterval(date(2024, 1, 2), date(2024, 1, 3), 4916),)}
    return compress_dbn(encode_header(symbols=symbols) + records.tobytes())


@dataclass
class Server:
    """What the API answers, and what it was asked."""

    body: bytes = field(default_factory=content)
    records: int = 3
    cut: int | None = None
    """Bytes after which the connection breaks."""
    status: int = 200
    conditions: list[dict[str, Any]] = field(default_factory=lambda: [{"date": "2024-01-02", "condition": "available"}])
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, form: str) -> None:
            path = self.path.partition("?")[0]
            state.asked.append((path, {name: values[0] for name, values in parse_qs(form).items()}))
            body = {
                "/v0/metadata.get_cost": b"1.25",
                "/v0/metadata.get_record_count": str(state.records).encode(),
                "/v0/metadata.get_dataset_condition": json.dumps(state.conditions).encode(),
                "/v0/timeseries.get_range": state.body,
            }[path]
            if state.status != 200:
                body = b'{"detail": "None of the symbols could be resolved"}'
            self.send_response(state.status)
            self.send_header("Content-Length", str(len(body)))
            if state.status != 200:
                self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body[: state.cut] if path.endswith("get_range") else body)

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def do_GET(self) -> None:
            self.answer(self.path.partition("?")[2])

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def client(server: Server) -> Any:
    return make_client(SECRET, gateway=server.url)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_quote_has_cost_and_records(client: Any, server: Server) -> None:
    assert quote(client, REQUEST) == Quote(1.25, 3)
    assert server.asked[0][1]["stype_in"] == "parent"
    assert server.asked[0][1]["schema"] == "ohlcv-1m"


def test_a_download_is_the_file_that_was_sent(client: Any, server: Server, tmp_path: Path) -> None:
    download(client, REQUEST, tmp_path / REQUEST.name, 3)

    assert (tmp_path / REQUEST.name).read_bytes() == server.body
    assert files(tmp_path) == ["glbx-mdp3-6E.FUT-2024-01-02-2024-01-03.ohlcv-1m.dbn.zst"]
    assert [path for path, _ in server.asked] == ["/v0/metadata.get_dataset_condition", "/v0/timeseries.get_range"]
    assert server.asked[1] == (
        "/v0/timeseries.get_range",
        server.asked[1][1] | {"symbols": "6E.FUT", "stype_in": "parent", "schema": "ohlcv-1m", "compression": "zstd"},
    )


def test_a_connection_that_breaks_leaves_no_file(client: Any, server: Server, tmp_path: Path) -> None:
    server.cut = 100

    with pytest.raises(DataError, match=r"^download 6E.FUT of GLBX.MDP3: the API must answer; .*IncompleteRead"):
        download(client, REQUEST, tmp_path / "a.dbn.zst", 3)
    assert files(tmp_path) == []


def test_what_a_killed_download_left_is_no_hindrance(client: Any, tmp_path: Path) -> None:
    (tmp_path / ".a.dbn.zst.part").write_bytes(b"")
    download(client, REQUEST, tmp_path / "a.dbn.zst", 3)

    assert len(read_dbn(tmp_path / "a.dbn.zst").records) == 3
    assert files(tmp_path) == ["a.dbn.zst"]


def test_fewer_records_than_announced_are_refused(client: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        download(client, REQUEST, tmp_path / "a.dbn.zst", 4)

    assert str(caught.value) == (
        f"{tmp_path / 'a.dbn.zst'}: the download must have 4 records, as announced; got 3. Try again; align the range "
        "to ten minutes, without which the announcement may be too high."
    )
    assert files(tmp_path) == []


def test_a_damaged_download_is_refused(client: Any, server: Server, tmp_path: Path) -> None:
    middle = len(server.body) // 2
    server.body = server.body[:middle] + bytes([server.body[middle] ^ 255]) + server.body[middle + 1 :]

    with pytest.raises(DataError):
        download(client, REQUEST, tmp_path / "a.dbn.zst", 3)
    assert files(tmp_path) == []


def test_degraded_days_are_kept_beside_the_file(client: Any, server: Server, tmp_path: Path) -> None:
    server.conditions = [
        {"date": "2024-01-02", "condition": "degraded"},
        {"date": "2024-01-03", "condition": "available"},
    ]
    download(client, REQUEST, tmp_path / "a.dbn.zst", 3)

    assert files(tmp_path) == ["a.dbn.zst", "a.dbn.zst.condition.json"]
    assert json.loads((tmp_path / "a.dbn.zst.condition.json").read_text()) == server.conditions[:1]


def test_a_file_that_is_there_is_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.dbn.zst"
    assert not is_there(path, 3)

    path.write_bytes(content())
    assert is_there(path, 3)
    with pytest.raises(DataError, match=r"must hold the 4 records asked for, or not exist; it has 3\. Move it away\."):
        is_there(path, 4)


@pytest.mark.parametrize("status", [401, 422, 500])
def test_errors_of_the_api_are_one_line_without_the_key(status: int, client: Any, server: Server) -> None:
    server.status = status

    with pytest.raises(DataError) as caught:
        quote(client, REQUEST)
    assert str(caught.value).startswith("download 6E.FUT of GLBX.MDP3: the API must answer; ")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_only_bars_are_downloaded(client: Any, server: Server) -> None:
    with pytest.raises(ConfigError, match=r"^--schema: must be one of ohlcv-1s, .*; got trades"):
        quote(client, REQUEST._replace(schema="trades"))
    assert server.asked == []


@pytest.mark.parametrize("symbols", ["", "6EH4,", "ALL_SYMBOLS"])
def test_everything_there_is_cannot_be_asked_for(symbols: str) -> None:
    with pytest.raises(ConfigError, match=r"^symbols: each must be named; got "):
        infer_stype(symbols)


def test_symbols_of_two_kinds_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        infer_stype("6E.FUT,ES.v.0")

    assert str(caught.value) == (
        "symbols: all must be of one kind; 6E.FUT is parent, ES.v.0 is continuous. Ask for each kind by itself."
    )


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    assert api_key() == SECRET

    monkeypatch.delenv(KEY)
    with pytest.raises(ConfigError) as caught:
        api_key()
    assert str(caught.value) == f"{KEY}: the environment must hold your key; it is not set. Export it in this shell."


def test_a_key_that_cannot_be_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")

    with pytest.raises(ConfigError) as caught:
        api_key()
    assert str(caught.value) == f"{KEY}: must be 32 characters that begin with db-; got 6. Copy it again."


@pytest.mark.parametrize(("start", "end"), [("2024-01-02T10:00", "2024-01-03"), ("2024-01-03", "2024-01-03")])
def test_days_are_between_two_dates(start: str, end: str) -> None:
    with pytest.raises(ConfigError, match=r"^--daily: "):
        REQUEST._replace(start=start, end=end).days()


class TestCommand:
    """`mamba2 download` as typed."""

    @pytest.fixture
    def run(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:
        monkeypatch.setenv(KEY, SECRET)
        asked = ("6E.FUT", "--start", "2024-01-02", "--end", "2024-01-03", "--out", tmp_path, "--gateway", server.url)
        return lambda *options: command("download", *asked, *options)

    def test_it_says_the_cost_and_where_the_file_is(self, run: Any, tmp_path: Path) -> None:
        outcome = run("--max-cost", 2)

        assert outcome.status == 0, outcome.err
        assert outcome.out.splitlines() == [
            "6E.FUT (parent), ohlcv-1m: 3 records in 1 files for 1.25 USD; 0 files are there",
            str(tmp_path / REQUEST.name),
        ]

    def test_it_is_not_bought_twice(self, run: Any, server: Server) -> None:
        run("--yes")
        again = run()

        assert again.out == "6E.FUT (parent), ohlcv-1m: 0 records in 0 files for 0.00 USD; 1 files are there\n"
        assert [path for path, _ in server.asked].count("/v0/timeseries.get_range") == 1

    def test_by_the_day_it_goes_on_where_it_stopped(self, run: Any, server: Server, tmp_path: Path) -> None:
        (tmp_path / REQUEST.name).write_bytes(content())
        outcome = run("--daily", "--end", "2024-01-04", "--yes")
        bought = [form for path, form in server.asked if path == "/v0/timeseries.get_range"]

        assert outcome.status == 0, outcome.err
        assert [(form["start"], form["end"]) for form in bought] == [("2024-01-03", "2024-01-04")]
        assert files(tmp_path) == [REQUEST.name, REQUEST._replace(start="2024-01-03", end="2024-01-04").name]

    def test_above_the_limit_nothing_is_bought(self, run: Any, server: Server) -> None:
        outcome = run("--max-cost", 1)

        assert outcome.status == 1
        assert outcome.err == (
            "mamba2: download: the cost must be at most --max-cost 1.00 USD; it is 1.25. Ask for less, or raise the "
            "limit.\n"
        )
        assert "/v0/timeseries.get_range" not in [path for path, _ in server.asked]

    def test_without_a_limit_and_a_terminal_nothing_is_bought(
        self, run: Any, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        outcome = run()

        assert outcome.status == 1
        assert "1.25 USD must be agreed to; they were not. Add --max-cost or --yes." in outcome.err
        assert "/v0/timeseries.get_range" not in [path for path, _ in server.asked]
