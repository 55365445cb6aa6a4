"""`python memory.py BATCH WINDOW D_MODEL D_STATE LAYERS PRECISION`: bytes of three steps as estimated, and as used."""

import sys
from pathlib import Path

import torch

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.train.checkpoint import make_model
from mamba2.train.evaluate import TensorBatch
from mamba2.train.optim import make_optimizer
from mamba2.train.preflight import preflight
from mamba2.train.step import compute_gradients


def config(batch: int, window: int, d_model: int, d_state: int, layers: int, precision: str) -> RunConfig:
    """Of these sizes, else as by default."""
    return RunConfig(
        model=ModelConfig(d_model=d_model, d_state=d_state, layers=layers),
        data=DataConfig(window=window),
        train=TrainConfig(batch=batch, precision=precision),
    )


def train(run: RunConfig) -> None:
    """Three steps on noise."""
    model, settings, sizes = make_model(run), run.train, (run.train.batch, run.data.window)
    optimizer = make_optimizer(model, settings)
    for _ in range(3):
        features, targets = torch.randn(*sizes, len(run.data.features)), torch.randn(*sizes, len(run.data.targets))
        batch = TensorBatch(features, targets, torch.ones(sizes, dtype=torch.bool))
        compute_gradients(model, batch, settings.max_grad_norm, precision=settings.precision)
        optimizer.step()


def resident(which: str) -> int:
    """Bytes that this process has now (`VmRSS`) or had at its peak (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(which))
    return int(kilobytes) * 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    *sizes, precision = sys.argv[1:]
    run = config(*map(int, sizes), precision)
    estimate = preflight(run).memory
    train(config(2, 16, 64, 16, 1, precision))  # so that libraries are loaded
    before = resident("VmRSS")
    train(run)
    print(estimate, resident("VmHWM") - before)
