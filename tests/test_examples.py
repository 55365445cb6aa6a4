"""The examples run as typed, and what they show is true."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mamba2.data.bars import load_bars
from mamba2.live.engine import Prediction
from mamba2.verify import Case

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> dict[str, Any]:
    """What is defined at the end of the example."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_each_is_short_and_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    lengths = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}

    assert len(lengths) == 4
    assert max(lengths.values()) < 60
    assert all(f'run("{name}", ' in here for name in lengths)


def test_a_model_learns_what_there_is_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = run("train_on_synthetic_bars", monkeypatch)["ratio"]

    # 0.91 is the best possible in the long run; on so few bars the outcomes' own noise moves it a little.
    assert 0.88 < ratio < 0.96


def test_a_transformers_checkpoint_continues_as_in_transformers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("continue_a_transformers_checkpoint", monkeypatch)

    assert len(found["ours"]) == 12
    assert len(set(found["ours"])) > 1
    assert found["ours"] == found["theirs"]
    assert f"mamba2        {found['ours']}\n" in capsys.readouterr().out


def test_a_wrong_scan_is_found_and_the_mended_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = run("verify_a_wrong_ssm", monkeypatch)["verdicts"]
    printed = capsys.readouterr().out

    assert [(each.target, each.law.id, each.outcome) for each in verdicts] == [
        ("tiled", "L4", "holds"),
        ("tiled", "L10", "broken"),
        ("mended", "L4", "holds"),
        ("mended", "L10", "holds"),
    ]
    assert verdicts[1].case == Case(group=2, head=4)
    assert "L10 tiled   broken  1 sequence of 1 step, 2 groups, 4 heads; all else is 1 or left out\n" in printed
    assert "        laws.head_h_reads_group_h_G_over_H(Tiled, Case(group=2, head=4))\n" in printed


def test_a_stream_forecasts_as_one_forward_over_each_segment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("stream_a_dbn_file", monkeypatch)
    seen: list[Prediction] = found["seen"]
    model, _, files = found["choose"]()
    features = torch.tensor([each.features.tolist() for each in seen[:1380]])[None]
    with torch.no_grad():
        whole, _ = model(features, model.initial_state(1))

    assert len(seen) == 1500
    assert [at for at, each in enumerate(seen) if each.since_start == 0] == [0, 1380]
    torch.testing.assert_close(torch.tensor([each.mean.tolist() for each in seen[:1380]]), whole.mean[0])
    first = next(line for line in capsys.readouterr().out.splitlines())
    assert first.startswith("6EH4 known at 2024-01-02T23:01:00Z: next return ")
    assert first.endswith(", a segment begins")
    assert load_bars(files).messages == 7223


def test_a_run_of_ones_own_can_be_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: list[Path]
) -> None:
    missing = tmp_path / "run"

    with pytest.raises(Exception, match="must be a run or a checkpoint; it holds no model"):
        run("stream_a_dbn_file", monkeypatch, missing, *example)
