"""`mamba2 live` as typed."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from mamba2.config import RunConfig
from mamba2.data.bars import DAY
from mamba2.data.dbn import SymbolInterval
from mamba2.data.planted import planted_records
from mamba2.data.synthetic import write_dbn
from mamba2.train.checkpoint import Progress, make_model, save_checkpoint
from mamba2.train.optim import make_optimizer
from mamba2.train.runs import record_files

Command = Callable[..., Any]
SYMBOLS = {"6EH4": (SymbolInterval(date(2024, 1, 2), date(2024, 1, 4), 4916),)}


@pytest.fixture
def run(tmp_path: Path, config: RunConfig) -> Path:
    return write_run(tmp_path / "run", config)


def write_run(folder: Path, config: RunConfig, skip_degraded: bool = False) -> Path:
    """A checkpoint of an untrained model."""
    torch.manual_seed(0)
    data = replace(config.data, contract="6EH4", targets=("return", "range"), warm_up=2, skip_degraded=skip_degraded)
    config = replace(config, data=data)
    model = make_model(config)
    save_checkpoint(folder, model, make_optimizer(model, config.train), config, Progress())
    return folder


@pytest.fixture
def days(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one contract, the second right after the first."""
    records = planted_records("ar1", bars=12)
    first = write_dbn(tmp_path / "one.dbn", records[:5], symbols=SYMBOLS)
    return first, write_dbn(tmp_path / "two.dbn", records[5:], symbols=SYMBOLS)


def test_a_replay_prints_one_line_of_json_a_bar(run: Path, days: tuple[Path, Path], command: Command) -> None:
    outcome = command("live", run, "--replay", *days)
    lines = [json.loads(line) for line in outcome.out.splitlines()]

    assert outcome.status == 0, outcome.err
    assert len(lines) == 12
    assert (lines[0]["time"], lines[0]["available_at"]) == ("2024-01-02T00:00:00Z", "2024-01-02T00:01:00Z")
    assert [line["warm_up"] for line in lines[:4]] == [True, True, False, False]
    assert list(lines[0]["forecast"]) == ["return", "range"]


def test_forecasts_stand_in_target_units_and_raw(run: Path, days: tuple[Path, Path], command: Command) -> None:
    line = json.loads(command("live", run, "--replay", days[0]).out.splitlines()[-1])
    forecast = line["forecast"]["return"]

    assert list(forecast["quantiles"]) == ["0.1", "0.5", "0.9"]
    assert forecast["raw"]["mean"] == forecast["mean"] * line["volatility"]
    assert forecast["raw"]["quantiles"] == {
        level: value * line["volatility"] for level, value in forecast["quantiles"].items()
    }


def test_a_run_that_stops_goes_on_with_the_same_lines(
    run: Path, days: tuple[Path, Path], tmp_path: Path, command: Command
) -> None:
    whole = command("live", run, "--replay", *days).out
    parts = [command("live", run, "--replay", day, "--state", tmp_path / "state").out for day in days]

    assert "".join(parts) == whole


def test_a_replay_leaves_out_the_days_that_training_left_out(
    tmp_path: Path, config: RunConfig, days: tuple[Path, Path], command: Command
) -> None:
    flawed = planted_records("ar1", bars=5)
    flawed["ts_event"] += DAY
    whole = [*days, write_dbn(tmp_path / "flawed.dbn", flawed, symbols=SYMBOLS)]
    (tmp_path / "condition.json").write_text('[{"date": "2024-01-03", "condition": "degraded"}]', encoding="utf-8")

    picky = write_run(tmp_path / "picky", config, skip_degraded=True)
    assert command("live", picky, "--replay", *whole).out == command("live", picky, "--replay", *days).out
    plain = write_run(tmp_path / "plain", config)
    assert len(command("live", plain, "--replay", *whole).out.splitlines()) == 17


def test_bars_that_the_state_has_seen_are_refused(
    run: Path, days: tuple[Path, Path], tmp_path: Path, command: Command
) -> None:
    command("live", run, "--replay", *days, "--state", tmp_path / "state")
    outcome = command("live", run, "--replay", days[0], "--state", tmp_path / "state")

    assert outcome.status == 1
    assert "got it out of order, after 2024-01-02T00:11:00Z" in outcome.err


@pytest.mark.parametrize("options", [(), ("--replay",), ("--live",), ("--live", "--replay"), ("--symbols", "6E.FUT")])
def test_a_source_of_bars_must_be_named(options: tuple[str, ...], run: Path, command: Command) -> None:
    outcome = command("live", run, *options)

    assert outcome.status == 2
    assert "either --replay and FILEs, or --live and --symbols." in " ".join(outcome.err.replace("│", " ").split())


def test_a_feed_needs_a_key(run: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABENTO_API_KEY", raising=False)
    outcome = command("live", run, "--live", "--symbols", "6E.FUT")

    assert outcome.status == 1
    assert outcome.err.startswith("mamba2: DATABENTO_API_KEY: the environment must hold your key")


def test_a_feed_of_something_else_than_bars_is_refused(run: Path, command: Command) -> None:
    outcome = command("live", run, "--live", "--symbols", "6E.FUT", "--schema", "trades")

    assert outcome.status == 1
    assert outcome.err.startswith(
        "mamba2: --schema: must be one of ohlcv-1s, ohlcv-1m, ohlcv-1h, ohlcv-1d; got trades."
    )


def test_a_state_whose_replacing_was_cut_off_is_gone_on_from(
    run: Path, days: tuple[Path, Path], tmp_path: Path, command: Command
) -> None:
    whole = command("live", run, "--replay", *days).out
    first = command("live", run, "--replay", days[0], "--state", tmp_path / "state").out
    (tmp_path / "state").rename(tmp_path / ".state.replaced")

    assert first + command("live", run, "--replay", days[1], "--state", tmp_path / "state").out == whole


def test_a_replay_without_a_bar_of_the_contract_is_refused(run: Path, tmp_path: Path, command: Command) -> None:
    symbols = {"ESU4": SYMBOLS["6EH4"]}
    file = write_dbn(tmp_path / "es.dbn", planted_records("ar1", bars=3), symbols=symbols)
    outcome = command("live", run, "--replay", file)

    assert outcome.status == 1
    assert "contract '6EH4': the files must hold this symbol as an outright; got ESU4." in outcome.err


def test_a_file_without_bars_leaves_the_state_as_it_is(
    run: Path, days: tuple[Path, Path], tmp_path: Path, command: Command
) -> None:
    empty = write_dbn(tmp_path / "empty.dbn", planted_records("ar1", bars=3)[:0], symbols=SYMBOLS)
    command("live", run, "--replay", days[0], "--state", tmp_path / "state")
    before = (tmp_path / "state" / "engine.json").read_bytes()
    outcome = command("live", run, "--replay", empty, "--state", tmp_path / "state")

    assert (outcome.status, outcome.out) == (0, ""), outcome.err
    assert (tmp_path / "state" / "engine.json").read_bytes() == before


def test_bars_of_another_interval_than_the_trainings_are_refused(
    run: Path, days: tuple[Path, Path], command: Command
) -> None:
    record_files(run, days)
    (run / "run.json").write_text('{"data": {"interval": 3600000000000}}')
    outcome = command("live", run, "--replay", days[0])

    assert outcome.status == 1
    assert "live: bars must be of the training's interval, 3600 s; got 60 s." in outcome.err
