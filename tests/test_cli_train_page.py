"""The page that `mamba2 train` leaves in the run's folder."""

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mamba2.cli import pages
from mamba2.train import show
from mamba2.train.loop import Step
from mamba2.train.run import Begun, fit_files

Command = Callable[..., Any]
TINY = """
[model]
d_model = 16
layers = 1
headdim = 16
d_state = 4
[data]
contract = "6EH4"
[train]
batch = 32
epochs = 2
"""


@pytest.fixture
def run(example: list[Path], tmp_path: Path, command: Command) -> Callable[..., Any]:
    """`mamba2 train` of a small model into `run`."""
    (tmp_path / "tiny.toml").write_text(TINY)

    def typed(*options: str) -> Any:
        return command("train", *example, "--config", tmp_path / "tiny.toml", "--out", tmp_path / "run", *options)

    return typed


def report(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "run" / "report.json").read_text())


def test_a_finished_run_leaves_a_page_and_the_values_on_it(run: Callable[..., Any], tmp_path: Path) -> None:
    outcome = run()
    found, html = report(tmp_path), (tmp_path / "run" / "report.html").read_text()

    assert outcome.status == 0, outcome.err
    assert (found["outcome"], found["step"], found["steps"]) == ("finished", 6, 6)
    assert [epoch["checkpoint"] for epoch in found["epochs"]] == ["epoch-001", "epoch-002"]
    assert found["bars_per_second"] > 0
    assert f"{found['epochs'][1]['validation_loss']:.4f}" in html
    assert '<span class="result">finished</span>' in html


def test_a_stopped_run_leaves_one_too_and_resume_replaces_it(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any, **options: Any):
        for event in fit_files(*arguments, **options):
            if isinstance(event, Step) and event.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            yield event

    monkeypatch.setattr(show, "fit_files", stopped)
    outcome = run()
    at_stop = report(tmp_path)
    monkeypatch.setattr(show, "fit_files", fit_files)
    again = run("--resume")

    assert (outcome.status, at_stop["outcome"], at_stop["step"]) == (143, "stopped", 2)
    assert (again.status, report(tmp_path)["outcome"], report(tmp_path)["step"]) == (0, "finished", 6)


def test_a_run_that_fails_shows_its_error(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(*arguments: Any, **options: Any):
        for event in fit_files(*arguments, **options):
            if isinstance(event, Begun):
                event.dataset.train.tracks[0].features[:] = math.nan
            yield event

    monkeypatch.setattr(show, "fit_files", spoiled)
    outcome = run()
    html = (tmp_path / "run" / "report.html").read_text()

    assert outcome.status == 1
    assert outcome.err == f"mamba2: {report(tmp_path)['fault']}\n"
    assert "step 1: the loss is nan" in html
    assert '<p class="wrong">training: ' in html


def test_a_page_that_cannot_be_made_does_not_fail_the_run(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(pages, "write_values", refuse)
    outcome = run()

    assert outcome.status == 0
    assert outcome.err.endswith("report.html: RuntimeError: no fonts\n")


def test_what_is_refused_before_training_leaves_no_page(run: Callable[..., Any], tmp_path: Path) -> None:
    assert run("--window", "100000").status == 1
    assert not (tmp_path / "run").exists()


def test_the_page_is_about_the_device_that_was_gone_on_with(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run().status == 0
    asked: list[str] = []
    monkeypatch.setattr("mamba2.train.distributed.own_device", lambda name: asked.append(name) or "cpu")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda"'))
    pages.leave_train_page(tmp_path / "run", "cpu")

    assert 'device = "cuda"' in config.read_text()
    assert asked == ["cpu"]
    assert report(tmp_path)["device"] != "cuda"
