"""What TensorBoard is given is what `metrics.jsonl` holds."""

import shutil
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.errors import ConfigError
from mamba2.train.checkpoint import newest
from mamba2.train.records import read_metrics
from mamba2.train.run import fit_files

RUN = RunConfig(
    model=ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=20),
    data=DataConfig(contract="6EH4", window=20, stride=120),
    train=TrainConfig(epochs=2, batch=8),
)


def test_the_board_shows_the_metrics_of_a_run_that_went_on(example: list[Path], tmp_path: Path) -> None:
    list(fit_files(example, RUN, tmp_path, tensorboard=True))
    shutil.rmtree(newest(tmp_path / "checkpoints"))
    list(fit_files(example, RUN, tmp_path, resume=True, tensorboard=True))  # the second epoch again

    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    lines = read_metrics(tmp_path)
    columns = {
        "loss/step": ("step", "loss"),
        "learning rate": ("step", "learning_rate"),
        "gradient norm": ("step", "gradient_norm"),
        "loss/train": ("epoch", "train_loss"),
        "loss/validation": ("epoch", "validation_loss"),
    }

    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert sorted(board.Tags()["scalars"]) == sorted(columns)
    for tag, (kind, column) in columns.items():
        expected = {line["step"]: line[column] for line in lines if line["kind"] == kind}
        found = board.Scalars(tag)
        assert {each.step: each.value for each in found} == pytest.approx(expected, rel=1e-6)
        assert len(found) == len(expected) + (kind == "epoch")


def test_without_the_extra_one_line_says_how_to_get_it(
    example: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)

    with pytest.raises(ConfigError, match=r"pip install 'mamba2\[tensorboard\]'\.$"):
        list(fit_files(example, RUN, tmp_path / "run", tensorboard=True))
    assert not (tmp_path / "run").exists()
