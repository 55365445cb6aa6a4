"""A checkpoint is a folder: weights, the config that built them, and what training needs to go on.

model.safetensors   the weights
config.toml         the run's config
training.pt         optimizer, position, random states; tensors and numbers, read with weights_only
checksums           SHA-256 of the others, as `sha256sum -c` reads it

Beside them stand two small files, `last` and `best`, that hold the name of one of the folders and load like it.
"""

import math
import pickle
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError

from mamba2.config import RunConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.backbone import BackboneState
from mamba2.model.block import BlockState
from mamba2.model.files import (
    existing,
    misfits,
    read_safetensors,
    require_fit,
    require_unchanged,
    whole_folder,
    write_checksums,
    write_safetensors,
    write_whole,
)
from mamba2.model.forecaster import Forecaster

FORMAT = "1"
"""Of the folder; a reader refuses any other."""

MAY_CHANGE = ("device", "save_every", "keep")
"""Settings of [train] that may be others when a run goes on: they do not change what is computed."""

_NAME = re.compile(r"epoch-(\d+)(?:-step-(\d+))?")
_LONGEST_NAME = 64
"""Bytes, far more than any has."""


class Progress(NamedTuple):
    """How far a run has come: with the optimizer and the weights, all that decides how it goes on."""

    step: int = 0
    """Optimizer steps taken. Epoch, learning rate and place in the data follow from it."""
    loss_sum: float = 0.0
    """Over the steps of the epoch under way, or of the one that has just ended."""
    seconds: float = 0.0
    """That the last epoch took, since it began or was gone on with."""
    validation: float | None = None
    """At the end of the last epoch."""
    best: float = math.inf
    """The lowest validation loss of an epoch, and the checkpoint of it."""
    best_name: str = ""
    state: BackboneState = ()
    """With `carry_state`, the state of each lane; else empty."""
    data: str = ""
    """Digest of the data that the run is made of."""

    def end_epoch(self, validation: float | None, seconds: float, name: str) -> "Progress":
        """At the end of an epoch, whose checkpoint has that name."""
        ended = self._replace(validation=validation, seconds=seconds)
        if validation is None or not validation < self.best:
            return ended
        return ended._replace(best=validation, best_name=name)


def make_model(config: RunConfig) -> Forecaster:
    """An untrained forecaster of the config's sizes."""
    return Forecaster(config.model, features=len(config.data.features), targets=len(config.data.targets))


def save_checkpoint(
    folder: Path, model: Forecaster, optimizer: torch.optim.Optimizer, config: RunConfig, progress: Progress
) -> None:
    """Writes the folder aside and renames it, so that it is there whole or not at all; one of that name is replaced.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    training = progress._asdict() | {
        "optimizer": optimizer.state_dict(),
        "state": [tuple(block) for block in progress.state],
        "random": torch.get_rng_state(),
        "cuda_random": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    with whole_folder(folder) as aside:
        write_safetensors(aside / "model.safetensors", model.state_dict(), {"format": FORMAT})
        (aside / "config.toml").write_text(config.to_toml(), encoding="utf-8")
        torch.save(training, aside / "training.pt")
        write_checksums(aside)


def load_model(folder: Path) -> tuple[Forecaster, RunConfig]:
    """The model and config of a checkpoint, or of the one that `last` or `best` names; only the path is needed.

    Raises:
        CheckpointError: a part is missing or damaged, or the weights do not fit the config.
    """
    folder = named(folder)
    try:
        require_unchanged(folder)
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


def load_training(
    folder: Path, model: Forecaster, optimizer: torch.optim.Optimizer, config: RunConfig, data: str
) -> Progress:
    """Puts a checkpoint's weights, optimizer and random states in place; returns how far the run had come.

    Args:
        data: digest of the data to go on with.

    Raises:
        CheckpointError: a part is missing or damaged, or config or data are not those of the run.
    """
    saved, saved_config = load_model(folder)
    require_same_run(named(folder), saved_config, config)
    training = _read_training(named(folder) / "training.pt")
    _require_same_data(folder, training, data)
    model.load_state_dict(saved.state_dict())
    optimizer.load_state_dict(training["optimizer"])
    torch.set_rng_state(training["random"])
    if torch.cuda.is_available() and len(training["cuda_random"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(training["cuda_random"])
    device = next(model.parameters()).device
    state = tuple(BlockState(*(each.to(device) for each in block)) for block in training["state"])
    return Progress(**{name: training[name] for name in Progress._fields})._replace(state=state)


def require_same_data(folder: Path, data: str) -> None:
    """The data of this digest are those that the checkpoint was trained on.

    Raises:
        CheckpointError: they are others, or the checkpoint cannot be read.
    """
    _require_same_data(folder, _read_training(named(folder) / "training.pt"), data)


def _require_same_data(folder: Path, training: dict[str, Any], data: str) -> None:
    if training["data"] != data:
        raise CheckpointError(
            f"{folder}: the data must be those of the run, digest {training['data'][:12]}; got {data[:12]}. "
            "Name the run's own files, or start another run."
        )


def _read_training(path: Path) -> dict[str, Any]:
    """
    Raises:
        CheckpointError: the file cannot be read, or holds anything but tensors, numbers, texts and lists of them.
    """
    try:
        training: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path}: must hold tensors and numbers only; got something that runs code or is damaged. "
            "Nothing of it was run: take a checkpoint from a source you trust."
        ) from error
    except (OSError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"{path}: cannot be read as a training state: {error}") from error
    missing = [name for name in (*Progress._fields, "optimizer", "random", "cuda_random") if name not in training]
    if missing:
        raise CheckpointError(f"{path}: must hold {', '.join(missing)}. Use the mamba2 that wrote it.")
    return training


def require_same_run(where: Path, saved: RunConfig, config: RunConfig) -> None:
    """
    Raises:
        CheckpointError: a setting differs from the run's that changes what is computed; all such are named.
    """
    differences = [
        f"{name} is {ours!r}, not the run's {theirs!r}"
        for name, ours, theirs in differing(config, saved)
        if name.removeprefix("train.") not in MAY_CHANGE
    ]
    if differences:
        raise CheckpointError(
            f"{where}: a run goes on with its own config; {'; '.join(differences)}. Leave that out or start anew."
        )


def differing(one: RunConfig, other: RunConfig) -> list[tuple[str, Any, Any]]:
    """Every setting that differs: its name such as `data.window`, and both values."""
    there = asdict(other)
    return [
        (f"{section}.{name}", value, there[section][name])
        for section, values in asdict(one).items()
        for name, value in values.items()
        if value != there[section][name]
    ]


def checkpoint_name(step: int, per_epoch: int) -> str:
    """`epoch-002` at the end of the second epoch, `epoch-002-step-0000015` within it.

    >>> checkpoint_name(20, 10), checkpoint_name(15, 10)
    ('epoch-002', 'epoch-002-step-0000015')
    """
    epoch = f"epoch-{math.ceil(step / per_epoch):03d}"
    return epoch if step % per_epoch == 0 else f"{epoch}-step-{step:07d}"


def named(path: Path) -> Path:
    """The checkpoint's folder, also where the path is that of `last` or `best`."""
    if path.is_file():
        with path.open("rb") as file:
            name = file.read(_LONGEST_NAME).decode("utf-8", errors="replace").strip()
        if not _NAME.fullmatch(name):
            raise CheckpointError(f"{path}: must be a checkpoint, or name one; it does neither. Name a run.")
        return existing(path.with_name(name))
    return existing(path)


def newest(folder: Path) -> Path | None:
    """The checkpoint of a run's folder `checkpoints` that was written last; None where there is none."""
    found = _in_order(folder)
    return found[-1] if found else None


def _in_order(folder: Path) -> list[Path]:
    """All checkpoints, oldest first; those under way have other names."""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name.removeprefix(".").removesuffix(".replaced"))
        whole = match and existing(folder / match[0])
        if match and whole == path:
            found[int(match[1]), float(match[2] or math.inf)] = folder / match[0]
    return [found[place] for place in sorted(found)]


def point_at(folder: Path, *, last: str, best: str) -> None:
    """Writes the names of two checkpoints to `last` and `best`; links would get lost in copies to some file systems.

    Raises:
        CheckpointError: one cannot be written.
    """
    for name, checkpoint in (("last", last), ("best", best)):
        if checkpoint:
            write_whole(folder / name, f"{checkpoint}\n")


def tidy(folder: Path, *, last: str, best: str, keep: int | None) -> None:
    """Does all that follows a checkpoint's write, and may be done again: a kill in between leaves it half done.

    Raises:
        CheckpointError: `last` or `best` cannot be written, or an old checkpoint cannot be removed.
    """
    point_at(folder, last=last, best=best)
    try:
        prune(folder, keep)
    except OSError as error:
        raise CheckpointError(f"{folder}: old checkpoints cannot be removed: {error}.") from error


def prune(folder: Path, keep: int | None) -> None:
    """Removes all checkpoints but the `keep` newest and the best, and what killed processes left behind."""
    best = named(folder / "best").name if (folder / "best").is_file() else ""
    for old in _in_order(folder)[: -keep if keep else 0]:
        if old.name != best:
            existing(old).rename(old.with_name(f".{old.name}.unfinished"))  # so that no half of it has a name
    for path in folder.glob(".epoch-*"):
        if path != existing(folder / path.name[1:].rpartition(".")[0]):
            shutil.rmtree(path, ignore_errors=True)
