"""What each process of the distributed tests runs: `python workers.py equal OUT` or `… restart OUT FILES…`."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from mamba2.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from mamba2.data.dataset import Dataset
from mamba2.data.windows import Track, Windows
from mamba2.train.checkpoint import make_model
from mamba2.train.distributed import ALONE, Processes, joined
from mamba2.train.loop import Epoch, Step, fit
from mamba2.train.run import fit_files

MODEL = ModelConfig(d_model=8, layers=2, d_state=4, headdim=4, n_groups=2, chunk=4, quantiles=(0.1, 0.5, 0.9))


def config(*, carry_state: bool) -> RunConfig:
    """Eleven windows in batches of five: the last batch has one, so that all processes but one have nothing to do."""
    train = TrainConfig(epochs=2, batch=5, accumulate=2, carry_state=carry_state, max_grad_norm=0.5, save_every=2)
    return RunConfig(model=MODEL, data=DataConfig(window=8), train=train)


def dataset() -> Dataset:
    """In float64; segments of three windows, and not the same number of valid bars in each."""
    rng, bars = np.random.default_rng(0), 16 * 8
    features = rng.normal(size=(bars, 9))
    valid = rng.random(bars) < 0.7
    targets = np.where(valid[:, None], 0.5 * features[:, :1], 0)
    starts = np.arange(bars) % 24 == 0
    track = Track("TEST", np.arange(bars) * 60_000_000_000, features, targets, valid, np.ones(bars), starts)
    windows = Windows((track,), 8, np.zeros(16, np.int64), np.arange(16) * 8)
    train, validation = windows.subset(np.arange(16) < 11), windows.subset(np.arange(16) >= 11)
    return Dataset(1, bars, 1, bars, train, validation, 16, 0, ())


def trained(out: Path, processes: Processes = ALONE) -> list[torch.Tensor]:
    """Losses and gradient norms of steps, losses of epochs, last gradients, weights; without and with carried state."""
    found = []
    for carry_state in (False, True):
        torch.manual_seed(0)
        model = make_model(config(carry_state=carry_state)).double()
        run = config(carry_state=carry_state)
        events = list(fit(model, dataset(), run, out / f"{carry_state}", processes=processes))
        steps = [(event.loss, event.gradient_norm) for event in events if isinstance(event, Step)]
        epochs = [(event.train_loss, event.validation_loss) for event in events if isinstance(event, Epoch)]
        found += [torch.tensor(steps, dtype=torch.float64), torch.tensor(epochs, dtype=torch.float64)]
        found += [each.grad for each in model.parameters()] + [each.detach() for each in model.parameters()]
    return found


def equal(out: Path) -> None:
    """Trains and leaves what each process found."""
    with joined() as processes:
        torch.save(trained(out, processes), out / f"rank-{processes.rank}.pt")


def restart(out: Path, files: list[Path]) -> None:
    """Trains on files; in the first start of the group one process dies without a word in the middle of an epoch."""
    data = DataConfig(contract="6EH4", window=20, stride=60)
    run = RunConfig(model=replace(MODEL, layers=1), data=data, train=TrainConfig(epochs=2, batch=8, save_every=2))
    for event in fit_files(files, run, out, resume=True):
        is_first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "MAMBA2_NOBODY_DIES" not in os.environ
        if isinstance(event, Step) and event.step == 7 and os.environ["RANK"] == "1" and is_first_start:
            os._exit(9)


if __name__ == "__main__":
    torch.set_num_threads(1)
    work, out, *files = sys.argv[1:]
    if work == "equal":
        equal(Path(out))
    else:
        restart(Path(out), [Path(file) for file in files])
