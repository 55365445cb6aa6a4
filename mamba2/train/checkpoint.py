"""A checkpoint is a folder: weights, the config that built them, and what training needs to go on.

model.safetensors   the weights
config.toml         the run's config
training.pt         optimizer, epoch and step, read with weights_only
"""

import os
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mamba2.config import RunConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.forecaster import Forecaster

FORMAT = "1"
"""Of the folder; a reader refuses any other."""


def make_model(config: RunConfig) -> Forecaster:
    """An untrained forecaster of the config's sizes."""
    return Forecaster(config.model, features=len(config.data.features), targets=len(config.data.targets))


def save_checkpoint(
    folder: Path, model: Forecaster, optimizer: torch.optim.Optimizer, config: RunConfig, *, epoch: int, step: int
) -> None:
    """Writes the folder aside and renames it, so that it is there whole or not at all; one of that name is replaced.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    aside = folder.with_name(f".{folder.name}.unfinished")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        weights = {name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}
        save_file(weights, aside / "model.safetensors", metadata={"format": FORMAT})
        (aside / "config.toml").write_text(config.to_toml(), encoding="utf-8")
        torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}, aside / "training.pt")
        for path in aside.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    except OSError as error:
        raise CheckpointError(f"{folder}: the checkpoint cannot be written: {error}.") from error


def load_model(folder: Path) -> tuple[Forecaster, RunConfig]:
    """The model and config of a checkpoint; nothing but the path is needed.

    Raises:
        CheckpointError: a part is missing or damaged, or the weights do not fit the config.
    """
    try:
        config = RunConfig.load(folder / "config.toml")
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            found = (file.metadata() or {}).get("format")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (ConfigError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint: {error}") from error
    if found != FORMAT:
        raise CheckpointError(f"{folder}: the format must be {FORMAT}; got {found}. Use the mamba2 that wrote it.")
    model = make_model(config)
    _require_same(folder, {name: each.shape for name, each in model.state_dict().items()}, weights)
    model.load_state_dict(weights)
    return model, config


def _require_same(folder: Path, wanted: dict[str, torch.Size], got: dict[str, torch.Tensor]) -> None:
    faults = [f"{name} is missing" for name in wanted if name not in got]
    faults += [f"{name} is unknown" for name in got if name not in wanted]
    faults += [
        f"{name} is {tuple(got[name].shape)}, not {tuple(shape)}"
        for name, shape in wanted.items()
        if name in got and got[name].shape != shape
    ]
    if faults:
        raise CheckpointError(f"{folder}: the weights do not fit the config: {'; '.join(faults)}.")
