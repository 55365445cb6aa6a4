"""Fixtures shared by the tests: a tiny model, tiny windows, and the command line run in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from mamba2.__main__ import main
from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.data.dataset import Dataset
from mamba2.data.windows import Track, Windows
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model

FIXTURES = Path(__file__).parent.parent / "fixtures"


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `mamba2 …` in this process."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["mamba2", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            sys.exit(main())
        return Outcome(int(stopped.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def example() -> list[Path]:
    """The four example files."""
    return sorted((FIXTURES / "6E.FUT").glob("*.dbn.zst"))


@pytest.fixture
def config() -> RunConfig:
    """A run of a tiny model on windows of 8 bars."""
    model = ModelConfig(d_model=8, layers=2, d_state=4, headdim=4, n_groups=2, chunk=4, quantiles=(0.1, 0.5, 0.9))
    return RunConfig(model=model, data=DataConfig(window=8), train=TrainConfig(epochs=2, batch=4))


@pytest.fixture
def model(config: RunConfig) -> Forecaster:
    """The same model each time."""
    torch.manual_seed(0)
    return make_model(config)


@pytest.fixture
def dataset() -> Dataset:
    """Ten training and four validation windows of 8 bars, whose target is half of their first feature."""
    rng, bars = np.random.default_rng(0), 14 * 8
    features = rng.normal(size=(bars, 9)).astype(np.float32)
    valid = np.arange(bars) % 8 < 7
    targets = np.where(valid[:, None], 0.5 * features[:, :1], 0).astype(np.float32)
    starts = np.arange(bars) % 8 == 0
    track = Track("TEST", np.arange(bars) * 60_000_000_000, features, targets, valid, np.ones(bars), starts)
    windows = Windows((track,), 8, np.zeros(14, np.int64), np.arange(14) * 8)
    train, validation = windows.subset(np.arange(14) < 10), windows.subset(np.arange(14) >= 10)
    return Dataset(1, bars, 1, bars, train, validation, 14, 0, ())
