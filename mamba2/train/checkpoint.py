"""A checkpoint is a folder: weights, the config that built them, and what training needs to go on.

model.safetensors   the weights
config.toml         the run's config
training.pt         optimizer, epoch and step, read with weights_only
"""

from pathlib import Path

import torch
from safetensors import SafetensorError

from mamba2.config import RunConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.files import misfits, read_safetensors, require_fit, whole_folder, write_safetensors
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
    with whole_folder(folder) as aside:
        write_safetensors(aside / "model.safetensors", model.state_dict(), {"format": FORMAT})
        (aside / "config.toml").write_text(config.to_toml(), encoding="utf-8")
        torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}, aside / "training.pt")


def load_model(folder: Path) -> tuple[Forecaster, RunConfig]:
    """The model and config of a checkpoint; nothing but the path is needed.

    Raises:
        CheckpointError: a part is missing or damaged, or the weights do not fit the config.
    """
    try:
        config = RunConfig.load(folder / "config.toml")
        weights, metadata = read_safetensors(folder / "model.safetensors")
    except (ConfigError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint: {error}") from error
    found = metadata.get("format")
    if found != FORMAT:
        raise CheckpointError(f"{folder}: the format must be {FORMAT}; got {found}. Use the mamba2 that wrote it.")
    model = make_model(config)
    require_fit(str(folder), misfits({name: each.shape for name, each in model.state_dict().items()}, weights))
    model.load_state_dict(weights)
    return model, config
