"""`mamba2 evaluate` as typed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.data.dataset import prepare
from mamba2.data.dbn import read_dbn
from mamba2.data.planted import write_planted
from mamba2.data.synthetic import write_dbn
from mamba2.train.checkpoint import make_model
from mamba2.train.loop import fit
from mamba2.train.runs import find_checkpoint, record_files

Command = Callable[..., Any]
CONFIG = RunConfig(
    model=ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=16),
    data=DataConfig(contract="6EH4", targets=("return", "range"), window=30),
    train=TrainConfig(epochs=6, batch=8, learning_rate=2e-2),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on planted bars."""
    folder = tmp_path_factory.mktemp("run")
    file = write_planted(folder / "planted.dbn.zst", "ar1", bars=4500)
    torch.manual_seed(0)
    for _ in fit(make_model(CONFIG), prepare([file], CONFIG.data), CONFIG, folder):
        pass
    record_files(folder, [file])
    return folder


def test_the_table_fits_a_terminal(run: Path, command: Command) -> None:
    outcome = command("evaluate", run)
    *lines, page = outcome.out.splitlines()

    assert outcome.status == 0, outcome.err
    assert page.startswith("page: ")
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("(synthetic)")
    assert [line.split("  ")[0] for line in lines[4:11]] == [
        "model",
        "zero",
        "persistence",
        "train mean",
        "AR(1) ridge",
        "AR(10) ridge",
        "AR(60) ridge",
    ]


def test_a_run_and_its_checkpoint_are_judged_alike(run: Path, command: Command) -> None:
    assert command("evaluate", run).out == command("evaluate", find_checkpoint(run)).out


def test_json_holds_what_the_table_shows(run: Path, tmp_path: Path, command: Command) -> None:
    outcome = command("evaluate", run, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    model = found["targets"][0]["scores"][0]

    assert found["synthetic"] is True
    assert model["name"] == "model"
    assert f"{model['mse_ratio']['value']:.4f}" in outcome.out
    assert found["targets"][1]["scores"][0]["direction"] == {"value": None, "error": None}


def test_skill_on_files_without_the_mark_is_an_alarm(run: Path, tmp_path: Path, command: Command) -> None:
    planted = read_dbn(run / "planted.dbn.zst")
    real = write_dbn(tmp_path / "real.dbn.zst", planted.records, symbols=planted.symbols)
    outcome = command("evaluate", run, real)

    assert outcome.status == 1
    assert outcome.err.startswith(
        "mamba2: leak alarm: a return forecast on real bars must have an MSE ratio of at least "
    )
    assert "MSE ratio" in outcome.out


def test_a_page_and_its_values_are_left_in_the_run(run: Path, command: Command) -> None:
    outcome = command("evaluate", min((run / "checkpoints").glob("epoch-*")))
    page = run / "evaluation" / "report.html"

    assert outcome.out.splitlines()[-1] == f"page: {page}"
    assert "Next to forecasts that cost nothing: range" in page.read_text(encoding="utf-8")
    assert json.loads((run / "evaluation" / "report.json").read_text())["targets"][0]["target"] == "return"


def test_the_page_can_be_written_elsewhere(run: Path, tmp_path: Path, command: Command) -> None:
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    outcome = command("evaluate", run, "--report", tmp_path / "found.html")
    missing = command("evaluate", run, "--report", tmp_path / "missing" / "found.html")

    assert outcome.status == 0, outcome.err
    assert (tmp_path / "found.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (run / "evaluation").exists()
    assert missing.status == 1
    assert "the report cannot be written" in missing.err


def test_a_run_that_cannot_be_written_to_is_judged_all_the_same(run: Path, command: Command) -> None:
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    (run / "evaluation").touch()
    outcome = command("evaluate", run)
    (run / "evaluation").unlink()

    assert outcome.status == 0
    assert outcome.err.startswith(f"no page {run / 'evaluation' / 'report.html'}: FileExistsError: ")


def test_another_contract_is_judged_where_one_is_named(run: Path, tmp_path: Path, command: Command) -> None:
    planted = read_dbn(run / "planted.dbn.zst")
    ((symbol, intervals),) = planted.symbols.items()
    renamed = tmp_path / "later.dbn.zst"
    write_dbn(renamed, planted.records, symbols={"6EM4": intervals}, dataset=planted.dataset)

    refused = command("evaluate", run, renamed)
    judged = command("evaluate", run, renamed, "--symbol", "6EM4")

    assert symbol == "6EH4"
    assert "contract '6EH4': the files must hold this symbol as an outright; got 6EM4." in refused.err
    assert judged.out == command("evaluate", run).out


@pytest.mark.parametrize("how", [(), ("--folds", 2), ("--control", "surrogate")])
def test_a_contract_that_is_not_there_is_named_in_every_evaluation(
    how: tuple[object, ...], run: Path, command: Command
) -> None:
    outcome = command("evaluate", run, "--symbol", "6EZ9", *how)

    assert outcome.status == 1
    assert outcome.err.startswith("mamba2: contract '6EZ9': the files must hold this symbol as an outright; got 6EH4.")


def test_two_contracts_at_once_are_wrong_usage(run: Path, command: Command) -> None:
    assert command("evaluate", run, "--symbol", "6EH4", "--all").status == 2


def test_folds_are_shown_one_a_line(run: Path, command: Command) -> None:
    outcome = command("evaluate", run, "--folds", 2)
    *lines, page = outcome.out.splitlines()

    assert outcome.status == 0, outcome.err
    assert page == f"page: {run / 'walk-forward' / 'report.html'}"
    assert [line.split(":")[0] for line in lines[:2]] == ["fold 1", "fold 2"]
    assert max(map(len, lines)) <= 80


def test_the_surrogate_control_ends_with_its_verdict(run: Path, command: Command) -> None:
    outcome = command("evaluate", run, "--control", "surrogate", "--seed", 3)
    *_, last, page = outcome.out.splitlines()

    assert page == f"page: {run / 'surrogate' / 'report.html'}"
    assert last.startswith("surrogate control ")
    assert outcome.status == (0 if "passed" in last else 1)


def test_two_controls_at_once_are_wrong_usage(run: Path, command: Command) -> None:
    assert command("evaluate", run, "--control", "surrogate", "--folds", 2).status == 2


def test_a_folder_without_a_model_is_named(tmp_path: Path, command: Command) -> None:
    outcome = command("evaluate", tmp_path)

    assert (outcome.status, outcome.err) == (
        1,
        f"mamba2: {tmp_path}: must be a run or a checkpoint; it holds no model. Name the --out of mamba2 train.\n",
    )


def test_a_checkpoint_of_unknown_files_asks_for_them(run: Path, tmp_path: Path, command: Command) -> None:
    copy = tmp_path / "away" / "from" / "home"
    shutil.copytree(min((run / "checkpoints").glob("epoch-*")), copy)
    outcome = command("evaluate", copy)

    assert (outcome.status, outcome.err) == (
        1,
        f"mamba2: {copy}: the files it was trained on must be known; no files.json is there. Name the DBN files.\n",
    )


def test_a_damaged_note_of_the_files_is_named(run: Path, tmp_path: Path, command: Command) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "files.json").write_text("{")
    outcome = command("evaluate", copy)

    assert outcome.status == 1
    assert outcome.err.startswith(f"mamba2: {copy / 'files.json'}: must list the run's files; it is damaged: ")


def test_files_that_changed_since_the_training_are_refused(run: Path, tmp_path: Path, command: Command) -> None:
    changed = shutil.copytree(run, tmp_path / "changed")
    planted = read_dbn(run / "planted.dbn.zst")
    shorter = write_dbn(
        tmp_path / "shorter.dbn.zst", planted.records[:3000], symbols=planted.symbols, dataset=planted.dataset
    )
    record_files(changed, [shorter])
    outcome = command("evaluate", changed)

    assert outcome.status == 1
    assert "the data must be those of the run, digest " in outcome.err


def test_json_that_cannot_be_written_is_one_line_and_the_page_is_there(
    run: Path, tmp_path: Path, command: Command
) -> None:
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    outcome = command("evaluate", run, "--json", tmp_path / "missing" / "found.json")

    assert outcome.status == 1
    assert outcome.err.startswith(f"mamba2: {tmp_path / 'missing' / 'found.json'}: must be a file that can be written;")
    assert (run / "evaluation" / "report.html").is_file()


def test_bars_of_another_interval_are_refused(run: Path, tmp_path: Path, command: Command) -> None:
    planted = read_dbn(run / "planted.dbn.zst")
    records = planted.records[::60].copy()
    records["rtype"] = 34
    hours = write_dbn(
        tmp_path / "hours.dbn.zst", records, symbols=planted.symbols, dataset=planted.dataset, schema="ohlcv-1h"
    )
    outcome = command("evaluate", run, hours)

    assert outcome.status == 1
    assert "evaluate: bars must be of the training's interval, 60 s; got 3600 s." in outcome.err


@pytest.mark.parametrize(
    ("options", "message"), [(("--embargo", 5), "--embargo is of --folds."), (("--seed", 1), "--seed is of --control.")]
)
def test_an_option_of_another_way_to_judge_is_wrong_usage(
    options: tuple[object, ...], message: str, run: Path, command: Command
) -> None:
    outcome = command("evaluate", run, *options)

    assert outcome.status == 2
    assert message in outcome.err
