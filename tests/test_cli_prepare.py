"""Bars prepared for training, and days left out, as typed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
FIXTURES = Path(__file__).parent.parent / "fixtures"
SMALL = "[model]\nd_model = 16\nlayers = 1\nheaddim = 16\nd_state = 4\n[train]\nepochs = 1\n"


@pytest.fixture
def days(example: list[Path], tmp_path: Path) -> list[Path]:
    """The example beside a condition.json that calls its second day degraded."""
    folder = tmp_path / "days"
    folder.mkdir()
    (folder / "condition.json").write_text(json.dumps([{"date": "2024-01-03", "condition": "degraded"}]))
    return [Path(shutil.copy(path, folder)) for path in example]


def test_prepare_says_what_it_read_and_what_it_made(example: list[Path], tmp_path: Path, command: Command) -> None:
    outcome = command("prepare", example[0], example[1], example[0], "--out", tmp_path / "bars")

    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [
        f"{example[0]}: 1,831 records",
        f"{example[1]}: 1,846 records",
        f"{example[0]}: 1,831 records, read before",
        f"{tmp_path / 'bars'}: 3,677 bars of 5 instruments out of 5,508 records, 1,831 of them twice",
    ]


def test_prepare_explains_itself_with_an_example(command: Command) -> None:
    assert "Example: mamba2 prepare" in command("prepare", "--help").out


def test_a_prepared_folder_is_shown_as_its_files_are(example: list[Path], tmp_path: Path, command: Command) -> None:
    command("prepare", *example, "--out", tmp_path / "bars")

    assert command("bars", tmp_path / "bars").out == command("bars", *example).out


def test_training_on_a_prepared_folder_is_training_on_its_files(
    example: list[Path], tmp_path: Path, command: Command
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    command("prepare", *example, "--out", tmp_path / "bars")
    for name, files in (("a", example), ("b", [tmp_path / "bars"])):
        outcome = command("train", *files, "--config", tmp_path / "small.toml", "--out", tmp_path / name)
        assert outcome.status == 0, outcome.err
    weights = [tmp_path / name / "checkpoints" / "epoch-001" / "model.safetensors" for name in "ab"]

    assert weights[0].read_bytes() == weights[1].read_bytes()
    found = [command("evaluate", tmp_path / name).out.replace(str(tmp_path / name), "") for name in "ab"]
    assert found[0] == found[1]


def test_a_bad_file_is_one_line_and_leaves_no_folder(tmp_path: Path, command: Command) -> None:
    bad = FIXTURES / "bad" / "cut.dbn.zst"
    outcome = command("prepare", bad, "--out", tmp_path / "bars")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == (f"mamba2: {bad}: must be whole zstd data; the compressed data ends early. Fetch it again.\n")
    assert not (tmp_path / "bars").exists()


def test_bars_lists_degraded_days(days: list[Path], command: Command) -> None:
    outcome = command("bars", *days)

    assert "2024-01-03: degraded, 1,846 bars, used without --skip-degraded" in outcome.out.splitlines()


def test_bars_leaves_degraded_days_out(days: list[Path], command: Command) -> None:
    lines = command("bars", *days, "--skip-degraded").out.splitlines()

    assert "2024-01-03: degraded, 1,846 bars, left out" in lines
    assert "  6EH4: 1,380 bars of days that Databento marks as degraded" in lines


def test_training_warns_of_degraded_days_or_leaves_them_out(days: list[Path], tmp_path: Path, command: Command) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    options = ("--config", tmp_path / "small.toml", "--out")
    warned = command("train", *days, *options, tmp_path / "a")
    skipped = command("train", *days, "--skip-degraded", *options, tmp_path / "b")

    assert warned.out.splitlines()[0] == (
        "warning: 1,846 bars are of days that condition.json marks; --skip-degraded leaves them out"
    )
    assert skipped.out.startswith("2,760 of 7,223 bars, ")
    assert "skip_degraded = true" in (tmp_path / "b" / "config.toml").read_text()
