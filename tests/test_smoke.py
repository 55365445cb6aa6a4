"""The smoke test on the example files, and what it says when something is broken."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mamba2 import smoke
from mamba2.config import ModelConfig, RunConfig
from mamba2.model import block
from mamba2.smoke import CHECKS, run_smoke, smoke_config


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoke test's configuration with a small model."""
    model = ModelConfig(d_model=16, layers=2, headdim=16, d_state=8)

    def config(device: str, epochs: int) -> RunConfig:
        return RunConfig(model=model, data=smoke_config().data, train=smoke_config(device, epochs).train)

    monkeypatch.setattr(smoke, "smoke_config", config)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str], Path]:
    """One run as the command does it, with the reference model."""
    lines: list[str] = []
    out = tmp_path_factory.mktemp("smoke")
    return run_smoke([], out, say=lines.append), lines, out


def test_all_twelve_checks_pass(full: tuple[dict[str, Any], list[str], Path]) -> None:
    report, _, _ = full

    assert [(check["name"], check["passed"]) for check in report["checks"]] == [(name, True) for name in CHECKS]
    assert report["passed"] is True


def test_each_check_is_said_on_one_line_with_its_time(full: tuple[dict[str, Any], list[str], Path]) -> None:
    _, lines, _ = full

    assert [line[6:21].rstrip() for line in lines] == list(CHECKS)
    assert all(line.startswith("ok    ") and line[23:33].strip().endswith("s") for line in lines)


def test_the_data_are_those_of_the_failed_run_without_the_mixing(
    full: tuple[dict[str, Any], list[str], Path],
) -> None:
    report, _, _ = full

    assert report["data"] == {
        "files": 4,
        "messages": 7223,
        "instruments": report["data"]["instruments"],
        "bars": 5460,
        "sequences": 55,
        "train_sequences": 43,
        "validation_sequences": 11,
    }


def test_training_lowers_the_validation_loss(full: tuple[dict[str, Any], list[str], Path]) -> None:
    report, _, _ = full

    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 2, 3]
    assert report["epochs"][-1]["validation_loss"] < report["validation_loss_before"]


def test_the_report_is_written_as_returned(full: tuple[dict[str, Any], list[str], Path]) -> None:
    report, _, out = full

    assert json.loads((out / "report.json").read_text()) == report
    assert [Path(epoch["checkpoint"]).is_dir() for epoch in report["epochs"]] == [True] * 3


def test_the_page_shows_the_run(full: tuple[dict[str, Any], list[str], Path]) -> None:
    report, _, out = full
    html = (out / "report.html").read_text()
    losses = f"{report['validation_loss_before']:.3f} → {report['epochs'][-1]['validation_loss']:.3f}"

    assert [html.count(f'<span class="name">{name}</span>') for name in CHECKS] == [1] * len(CHECKS)
    assert losses in html
    assert html.count("<svg") == 4
    assert "bars a second" in html
    assert "memory at its peak" in html


@pytest.mark.usefixtures("tiny")
def test_a_second_run_has_the_same_losses(tmp_path: Path) -> None:
    runs = [run_smoke([], tmp_path / name, say=lambda _: None) for name in ("first", "second")]
    losses = [[(epoch["train_loss"], epoch["validation_loss"]) for epoch in run["epochs"]] for run in runs]

    assert losses[0] == losses[1]


@pytest.mark.usefixtures("tiny")
def test_the_old_fault_is_named_and_the_later_checks_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = block.prepare_scan_input

    def unbroadcast(
        x: torch.Tensor, dt: torch.Tensor, A_log: torch.Tensor, B: torch.Tensor, *others: torch.Tensor, **options: Any
    ) -> Any:
        return sound(x, dt, A_log, B[0], *others, **options)

    monkeypatch.setattr(block, "why_composed", lambda *_: "the fault is planted there")
    monkeypatch.setattr(block, "prepare_scan_input", unbroadcast)
    lines: list[str] = []
    report = run_smoke([], tmp_path, say=lines.append)
    verdicts = {check["name"]: check["passed"] for check in report["checks"]}
    failed = report["checks"][CHECKS.index("first batch")]["detail"]

    assert verdicts == dict.fromkeys(CHECKS[:6], True) | {"first batch": False} | dict.fromkeys(CHECKS[7:])
    assert failed.startswith(
        "ShapeError: prepare_scan_input: B must have 4 axes (batch time group state); got 3: (60, 1, 8)."
    )
    assert "hint: the batch is missing: expand B over it." in failed
    assert '<div class="box wrong"><strong>prepare_scan_input</strong>' in (tmp_path / "report.html").read_text()
    assert '<span class="axis bad">batch <b>32</b> <i>got none</i></span>' in (tmp_path / "report.html").read_text()
    assert lines[-1] == "-     checkpoints                 not run"
    assert report["passed"] is False


@pytest.mark.usefixtures("tiny")
def test_a_step_that_changes_nothing_fails_the_update_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda _: None)
    report = run_smoke([], tmp_path, say=lambda _: None)
    failed = report["checks"][CHECKS.index("weights updated")]

    assert failed["passed"] is False
    assert failed["detail"].startswith("TrainingError: smoke: the first step left embed.weight, embed.bias, ")


@pytest.mark.usefixtures("tiny")
def test_a_parameter_without_gradient_fails_the_gradient_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = block.Mamba2Block._skip
    monkeypatch.setattr(block, "why_composed", lambda *_: "the fault is planted there")
    monkeypatch.setattr(block.Mamba2Block, "_skip", lambda self, x: sound(self, x).detach())
    report = run_smoke([], tmp_path, say=lambda _: None)

    assert report["checks"][CHECKS.index("gradients")]["detail"] == (
        "TrainingError: smoke: every gradient must be finite; not so in backbone.blocks.0.D, backbone.blocks.1.D."
    )


def test_a_device_that_is_not_there_fails_the_second_check(tmp_path: Path) -> None:
    report = run_smoke([], tmp_path, device="cuda:99", say=lambda _: None)

    assert [check["passed"] for check in report["checks"]] == [True, False, *[None] * 10]
    assert report["checks"][1]["detail"].startswith("ConfigError: device: cuda:99 ")


def test_a_missing_package_fails_the_first_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "_IMPORTS", ("torch", "not-there"))
    report = run_smoke([], tmp_path, say=lambda _: None)

    assert report["checks"][0]["detail"] == "ModuleNotFoundError: No module named 'not_there'"
    assert report["versions"]["not-there"] == "not installed"


def test_files_without_the_contract_fail_the_data_checks(tmp_path: Path) -> None:
    report = run_smoke([tmp_path / "nothing.dbn"], tmp_path, say=lambda _: None)

    assert report["checks"][CHECKS.index("data")]["detail"].startswith(f"DataError: {tmp_path / 'nothing.dbn'}: ")


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, command: Any) -> None:
    (tmp_path / "file").touch()
    outcome = command("smoke", "--out", tmp_path / "file" / "within")

    assert outcome.status == 1
    assert outcome.err.startswith(f"mamba2: {tmp_path / 'file' / 'within'}: must be a folder that can be written;")
