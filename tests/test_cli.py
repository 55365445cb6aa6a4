"""The command line as typed: what it prints, and its exit status."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mamba2.config import RunConfig
from mamba2.train.checkpoint import load_model

Command = Callable[..., Any]
FIXTURES = Path(__file__).parent.parent / "fixtures"

TINY = """
[model]
d_model = 16
layers = 1
headdim = 16
d_state = 4
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A config file of a small model."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_help_answers_without_importing_torch() -> None:
    code = (
        "import sys; from mamba2.__main__ import main\n"
        "sys.argv = ['mamba2', '--help']\n"
        "try: main()\n"
        "except SystemExit: print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize("name", ["smoke", "train", "bars", "check", "runs", "replay", "evaluate", "live", "download"])
def test_every_command_explains_itself_with_an_example(name: str, command: Command) -> None:
    outcome = command(name, "--help")

    assert outcome.status == 0
    assert f"Example: mamba2 {name}" in outcome.out


def test_train_ends_with_a_checkpoint_for_each_epoch(
    example: list[Path], tiny: Path, tmp_path: Path, command: Command
) -> None:
    outcome = command("train", *example, "--config", tiny, "--symbol", "6EH4", "--epochs", 2, "--out", tmp_path / "run")

    assert outcome.status == 0, outcome.err
    assert [line.split("  ")[0] for line in outcome.out.splitlines()[2:4]] == ["epoch 1", "epoch 2"]
    assert outcome.out.splitlines()[4:] == [f"page: {tmp_path / 'run' / 'report.html'}"]
    assert load_model(tmp_path / "run" / "checkpoints" / "epoch-002")[1].data.contract == "6EH4"


def test_options_win_over_the_config_file(example: list[Path], tiny: Path, tmp_path: Path, command: Command) -> None:
    tiny.write_text(TINY + "[data]\nwindow = 20\nstride = 10\n[train]\nepochs = 3\n")
    out = tmp_path / "run"
    options = ("--window", 30, "--warm-up", 10, "--epochs", 1, "--all", "--no-validation")
    outcome = command("train", *example, "--config", tiny, *options, "--out", out)
    data = RunConfig.load(out / "checkpoints" / "epoch-001" / "config.toml").data

    assert outcome.status == 0, outcome.err
    assert (data.window, data.stride, data.warm_up, data.contract, data.validation_fraction) == (30, 10, 10, "all", 0.0)


def test_two_ways_to_choose_the_contract_are_wrong_usage(example: list[Path], tmp_path: Path, command: Command) -> None:
    outcome = command("train", *example, "--all", "--front", "--out", tmp_path / "run")

    assert outcome.status == 2
    assert "exclude one another" in outcome.err


def test_a_run_is_never_written_over(example: list[Path], tmp_path: Path, command: Command) -> None:
    (tmp_path / "something").touch()
    outcome = command("train", *example, "--out", tmp_path)

    assert (outcome.status, outcome.err) == (
        1,
        f"mamba2: {tmp_path}: must be a new or empty folder, a run is never written over. Choose another --out, "
        "or go on with --resume.\n",
    )


def test_smoke_says_where_its_report_is(tmp_path: Path, command: Command) -> None:
    outcome = command("smoke", tmp_path / "missing.dbn", "--out", tmp_path / "smoke")

    assert outcome.status == 1
    assert outcome.out.splitlines()[-2:] == [
        f"page: {tmp_path / 'smoke' / 'report.html'}",
        f"FAILED: {tmp_path / 'smoke' / 'report.json'}",
    ]


def test_bars_shows_every_instrument_and_what_is_dropped(example: list[Path], command: Command) -> None:
    outcome = command("bars", *example)
    words = [line.split() for line in outcome.out.splitlines() if line.strip()]
    table = {row[0]: row for row in words}

    assert outcome.status == 0
    assert table["6EH4"][1:] == ["5,460", "2024-01-02", "00:00", "2024-01-05", "21:59", "3", "4,140"]
    assert "  6EH4: 1,320 bars in the first session, which has no past to choose the front contract by" in outcome.out


def test_bars_shows_the_table_even_where_no_contract_can_be_chosen(command: Command) -> None:
    outcome = command("bars", FIXTURES / "good" / "several-publishers.dbn.zst")

    assert outcome.status == 1
    assert outcome.out.count("2 ") >= 2
    assert "its bars must come from one publisher; got publishers" in outcome.err


def test_bars_of_a_file_without_records_says_so(command: Command) -> None:
    outcome = command("bars", FIXTURES / "good" / "zero-records.dbn.zst")

    assert outcome.status == 1
    assert outcome.err == "mamba2: contract 'front': the files must hold an outright contract; got no bars. " + (
        "Add files with outrights.\n"
    )


def test_check_takes_a_step_without_data(tiny: Path, command: Command) -> None:
    outcome = command("check", "--config", tiny)

    assert outcome.status == 0
    assert outcome.out.startswith("ok: one training step on 32 sequences of 60 bars with 9 features through ")
    assert outcome.out.splitlines()[-1] == "blocks run in the fast form."


def test_check_says_why_the_fast_form_is_not_used(tiny: Path, command: Command) -> None:
    tiny.write_text(TINY + '[train]\nprecision = "bf16"\n')
    outcome = command("check", "--config", tiny)

    assert outcome.out.splitlines()[-1] == "blocks run in the composed form: autocast is on."


def test_check_names_a_size_that_does_not_fit(tiny: Path, command: Command) -> None:
    tiny.write_text("[model]\nd_model = 16\n")
    outcome = command("check", "--config", tiny)

    assert (outcome.status, outcome.err) == (
        1,
        f"mamba2: {tiny}: d_inner = expand·d_model = 32 is not a multiple of headdim 64.\n",
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Path.exists, "No such file"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(_example()[:-10]), "ends early"),
        (lambda path: path.write_bytes(_flipped(_example())), "damaged"),
        (lambda path: path.write_bytes((FIXTURES / "bad" / "trades.dbn.zst").read_bytes()), "trades"),
    ],
    ids=["missing", "empty", "truncated", "flipped", "wrong schema"],
)
@pytest.mark.parametrize("name", ["train", "bars"])
def test_bad_files_get_one_line_and_leave_nothing(
    make: Callable[[Path], None], says: str, name: str, tmp_path: Path, command: Command
) -> None:
    path, out = tmp_path / "day.dbn.zst", tmp_path / "run"
    make(path)
    outcome = command(name, path, *(("--out", out) if name == "train" else ()))

    assert outcome.status == 1
    assert outcome.err.startswith(f"mamba2: {path}: ")
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert not out.exists()


def test_a_file_too_short_for_a_window_names_the_rule(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "run"
    outcome = command("train", FIXTURES / "good" / "two-instruments.dbn.zst", "--all", "--out", out)

    assert outcome.status == 1
    assert "longest segment after the 60 warm-up bars has 0 bars, a window needs 60" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not out.exists()


def _example() -> bytes:
    return min((FIXTURES / "6E.FUT").iterdir()).read_bytes()


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
